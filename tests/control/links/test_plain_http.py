"""Whether a worker came in the clear is read off the server's own connection, never off a header."""

from pathlib import Path
from ssl import create_default_context
from unittest.mock import Mock

import pytest
from aiohttp.test_utils import make_mocked_request

import codefyui_core
from codefyui_core.control.links.peer import peer_of

FORGED = {"X-Forwarded-Proto": "https", "Forwarded": "proto=https", "X-Forwarded-Ssl": "on"}


def request(address, **more):
    transport = Mock()
    transport.get_extra_info.side_effect = lambda name, default=None: {"peername": (address, 5)}.get(
        name, default
    )
    return make_mocked_request("GET", "/ws/worker", headers=FORGED, transport=transport, **more)


@pytest.mark.spec("plainhttp/no-own-forwarded-proto")
def test_forged_headers_do_not_make_a_connection_encrypted():
    peer = peer_of(request("192.168.1.5"))
    assert (peer.address, peer.encrypted, peer.in_the_clear) == ("192.168.1.5", False, True)


@pytest.mark.spec("plainhttp/loopback-peer-no-badge")
def test_a_proxy_on_this_machine_and_a_tunnel_are_never_in_the_clear():
    assert not peer_of(request("127.0.0.1")).in_the_clear
    assert not peer_of(request("::1")).in_the_clear


def test_only_what_the_servers_own_socket_encrypts_counts():
    peer = peer_of(request("192.168.1.5", sslcontext=create_default_context()))
    assert (peer.encrypted, peer.in_the_clear) == (True, False)


@pytest.mark.spec("plainhttp/no-own-forwarded-proto")
def test_no_code_of_ours_reads_such_a_header():
    sources = Path(codefyui_core.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if "forwarded-proto" in path.read_text().lower()] == []


@pytest.mark.spec("plainhttp/no-own-forwarded-proto", "plainhttp/panel-badge")
async def test_a_worker_from_elsewhere_is_marked_whatever_its_headers_say(room, monkeypatch):
    monkeypatch.setattr("codefyui_core.control.links.peer._is_loopback", lambda _address: False)
    credential = (await room.enroll())["credential"]
    room.http.headers.update(FORGED)
    await room.online(credential)
    assert (await room.row())["plain_http"]
