import pytest

from codefyui_core.control.links.peer import Peer, _is_loopback


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_a_unix_socket_and_loopback_addresses_never_crossed_a_network(address):
    assert _is_loopback(address)


@pytest.mark.parametrize("address", ["192.168.1.5", "::ffff:10.0.0.1", "fe80::1%eth0", "nonsense"])
def test_other_addresses_did(address):
    assert not _is_loopback(address)


@pytest.mark.spec(
    "direct/panel-badge-plain-http", "plainhttp/panel-badge", "plainhttp/loopback-peer-no-badge"
)
@pytest.mark.parametrize(
    ("loopback", "encrypted", "marked"),
    [(False, False, True), (False, True, False), (True, False, False), (True, True, False)],
)
def test_only_unencrypted_connections_from_elsewhere_are_marked(loopback, encrypted, marked):
    assert Peer(address="a", loopback=loopback, encrypted=encrypted).in_the_clear is marked
