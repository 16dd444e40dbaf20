"""The proxy breaks lines as it says, between real sockets."""

import socket
import threading
from collections.abc import Iterator

import pytest

from cdui_faults.proxy import Proxy

WITHIN_S = 10


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(WITHIN_S)
        yield made


@pytest.fixture
def proxy(listener: socket.socket) -> Iterator[Proxy]:
    made = Proxy(listener.getsockname()[1])
    made.open("box")
    yield made
    made.close()


@pytest.fixture
def ends(proxy: Proxy, listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The agent's socket and the server's, with one byte sent each way."""
    with socket.create_connection(("127.0.0.1", proxy.lines["box"].port), timeout=WITHIN_S) as agent:
        server, _ = listener.accept()
        with server:
            server.settimeout(WITHIN_S)
            agent.sendall(b"a")
            assert server.recv(1) == b"a"
            server.sendall(b"s")
            assert agent.recv(1) == b"s"
            yield agent, server


def gone(end: socket.socket) -> bool:
    try:
        return end.recv(1) == b""
    except ConnectionError:
        return True


def silent(end: socket.socket) -> bool:
    end.settimeout(0.2)
    try:
        return end.recv(1) is None
    except TimeoutError:
        return True


def test_a_cut_is_told_to_both(proxy: Proxy, ends: tuple[socket.socket, socket.socket]) -> None:
    proxy.do("box", lambda line: line.cut())
    assert all(gone(end) for end in ends)


@pytest.mark.parametrize("told", ["agent", "server"])
def test_half_open_is_told_to_one(proxy: Proxy, ends: tuple[socket.socket, socket.socket], told: str) -> None:
    proxy.do("box", lambda line: line.half_open(told=told))
    agent, server = ends
    hears, other = (agent, server) if told == "agent" else (server, agent)
    assert gone(hears)
    other.sendall(b"into the void")
    assert silent(other)


def test_a_stalled_line_keeps_everything_and_gives_it_later(
    proxy: Proxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    agent, server = ends
    proxy.do("box", lambda line: line.flows.clear())
    agent.sendall(b"later")
    assert silent(server)
    proxy.do("box", lambda line: line.flows.set())
    server.settimeout(WITHIN_S)
    assert server.recv(5) == b"later"


def test_a_slow_line_loses_nothing(proxy: Proxy, ends: tuple[socket.socket, socket.socket]) -> None:
    agent, server = ends
    proxy.do("box", lambda line: setattr(line, "rate", 200_000.0))
    sent = bytes(range(256)) * 200
    sender = threading.Thread(target=agent.sendall, args=(sent,))
    sender.start()
    got = b""
    while len(got) < len(sent):
        got += server.recv(65536)
    sender.join(WITHIN_S)
    assert got == sent
