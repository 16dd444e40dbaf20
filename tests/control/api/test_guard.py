"""Which Host names are answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.control.api.guard import HostGuard, own_addresses, split_host


def test_loopback_names_are_answered_with_any_port_since_a_forward_may_change_it() -> None:
    guard = HostGuard("127.0.0.1", 8000, ())
    for host in ("127.0.0.1:8000", "localhost", "LOCALHOST:9000", "[::1]:8000", "[::1]"):
        assert guard.allows(host), host


@pytest.mark.spec("direct/unknown-host-refused", "direct/extra-allowed-hosts-default-empty")
def test_a_foreign_name_is_refused() -> None:
    guard = HostGuard("127.0.0.1", 8000, ())
    for host in (
        "",
        "gpu-gw.lan:8000",
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost:x",
        "10.0.0.9:8000",
    ):
        assert not guard.allows(host), host


@pytest.mark.spec("direct/own-addresses-accepted-as-host")
def test_a_wildcard_bind_answers_to_the_addresses_of_the_machine_with_its_port() -> None:
    guard = HostGuard("0.0.0.0", 8000, ())
    for address in own_addresses():
        shown = f"[{address}]" if ":" in address else address
        assert guard.allows(f"{shown}:8000"), address
        if address not in {"127.0.0.1", "::1"}:
            assert not guard.allows(f"{shown}:8001"), address


@pytest.mark.spec("direct/extra-allowed-hosts")
def test_listed_names_count_exactly_with_their_port_and_in_any_case() -> None:
    guard = HostGuard("127.0.0.1", 8000, ("GPU-gw.lan:8000",))
    assert guard.allows("gpu-gw.LAN:8000")
    assert not guard.allows("gpu-gw.lan")
    assert not guard.allows("gpu-gw.lan:8001")


def test_an_origin_is_judged_by_its_host() -> None:
    guard = HostGuard("127.0.0.1", 8000, ())
    assert guard.allows_origin("http://localhost:8000")
    assert not guard.allows_origin("http://evil.example")
    assert not guard.allows_origin("null")
    assert not guard.allows_origin("file://localhost")


@given(st.text(max_size=60))
def test_no_host_text_breaks_the_guard(host: str) -> None:
    split_host(host)
    HostGuard("127.0.0.1", 8000, ()).allows(host)
