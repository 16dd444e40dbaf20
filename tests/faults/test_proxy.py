"""The proxy breaks lines as it says, between real sockets."""

import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdui_faults.proxy import Proxy, flip_top_bit

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


def test_the_silent_end_of_a_half_open_line_can_be_told_later(
    proxy: Proxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    agent, server = ends
    proxy.do("box", lambda line: line.half_open(told="server"))
    assert gone(server)
    assert silent(agent)
    proxy.do("box", lambda line: line.tell())
    agent.settimeout(WITHIN_S)
    assert gone(agent)


def test_a_line_with_latency_keeps_the_order_and_loses_nothing(
    proxy: Proxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    agent, server = ends
    proxy.do("box", lambda line: setattr(line, "latency_s", 0.05))
    for number in range(50):
        agent.sendall(bytes([number]))
    got = b""
    while len(got) < 50:
        got += server.recv(50)
    assert got == bytes(range(50))


def test_one_bit_is_flipped_in_as_many_chunks_as_were_asked_for(
    proxy: Proxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    agent, server = ends
    proxy.do("box", lambda line: setattr(line, "corrupt", 1))
    agent.sendall(b"a" * 100)
    got = b""
    while len(got) < 100:
        got += server.recv(100)
    assert sorted(got)[-2:] == [ord("a"), ord("a") + 128]
    agent.sendall(b"whole")
    assert server.recv(5) == b"whole"
    assert proxy.lines["box"].corrupted == 1


@given(st.text(st.characters(max_codepoint=127), min_size=1), st.data())
def test_a_flip_never_makes_another_text(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(UnicodeDecodeError):
        flip_top_bit(text.encode(), at).decode()
