"""A TCP proxy between one agent and the server that breaks the line in the ways that networks do."""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

CHUNK = 16_384
UNDERWAY = 64
"""Chunks that have left one end and not arrived at the other."""
T = TypeVar("T")


@dataclass(eq=False)
class Pair:
    """One connection through the proxy; each direction may be a black hole."""

    agent: asyncio.StreamWriter
    server: asyncio.StreamWriter
    lost: bool = False

    def abort(self) -> None:
        for side in (self.agent, self.server):
            side.transport.abort()


@dataclass
class Line:
    """What one agent's connections go through."""

    port: int = 0
    rate: float = 0.0
    """Bytes a second in each direction; 0: as fast as it goes."""
    latency_s: float = 0.0
    """One way."""
    corrupt: int = 0
    """In how many of the next chunks, of either direction, a bit is flipped."""
    corrupted: int = 0
    """In how many one was."""
    pairs: set[Pair] = field(default_factory=set)
    flows: asyncio.Event = field(default_factory=asyncio.Event)

    def cut(self) -> None:
        """Both ends are told."""
        for pair in list(self.pairs):
            pair.abort()

    def half_open(self, *, told: str) -> None:
        """One end is told; the other one's bytes go nowhere from now on."""
        for pair in list(self.pairs):
            pair.lost = True
            (pair.agent if told == "agent" else pair.server).transport.abort()

    def tell(self) -> None:
        """The silent ends of half-open connections, too."""
        for pair in list(self.pairs):
            if pair.lost:
                pair.abort()

    def passed(self, data: bytes) -> bytes:
        """What comes out of the line for what went into it."""
        if not self.corrupt:
            return data
        self.corrupt -= 1
        self.corrupted += 1
        return flip_top_bit(data, random.randrange(len(data)))


def flip_top_bit(data: bytes, at: int) -> bytes:
    """In ASCII text it makes a byte that no UTF-8 has there, masked or not, so that it can't pass for another
    text. A flip that makes another text is for the checksums of TCP and TLS.
    """
    return data[:at] + bytes([data[at] ^ 0x80]) + data[at + 1 :]


class Proxy:
    """Lines in an event loop of their own thread; every method may be called from another one."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._listeners: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.lines: dict[str, Line] = {}
        self._thread.start()

    def open(self, name: str) -> int:
        """A new line; the port that the agent dials."""
        self.lines[name] = self._wait(self._listen())
        return self.lines[name].port

    def do(self, name: str, act: Callable[[Line], None]) -> None:
        line = self.lines[name]

        async def acting() -> None:
            act(line)

        self._wait(acting())

    def close(self) -> None:
        self._wait(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> Line:
        line = Line()
        line.flows.set()

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._serve(line, reader, writer)
            finally:
                self._tasks.discard(task)

        listener = await asyncio.start_server(accepted, "127.0.0.1", 0, limit=CHUNK)
        self._listeners.append(listener)
        line.port = int(listener.sockets[0].getsockname()[1])
        return line

    async def _serve(self, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await line.flows.wait()
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._server_port, limit=CHUNK)
        except OSError:
            writer.transport.abort()
            return
        pair = Pair(agent=writer, server=up_writer)
        line.pairs.add(pair)
        try:
            await asyncio.gather(_pump(line, pair, reader, up_writer), _pump(line, pair, up_reader, writer))
        finally:
            line.pairs.discard(pair)
            pair.abort()

    async def _end(self) -> None:
        for listener in self._listeners:
            listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Chunk:
    data: bytes
    arrived: float


async def _pump(line: Line, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the end of ``reader``, which the other side is told unless the pair is lost."""
    underway: asyncio.Queue[_Chunk | None] = asyncio.Queue(UNDERWAY)
    taking = asyncio.create_task(_take(reader, underway))
    try:
        with suppress(OSError):
            while chunk := await underway.get():
                await _travel(line, chunk)
                if not pair.lost:
                    writer.write(line.passed(chunk.data))
                    await writer.drain()
    finally:
        taking.cancel()
    if not pair.lost:
        writer.close()


async def _take(reader: asyncio.StreamReader, underway: "asyncio.Queue[_Chunk | None]") -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            await underway.put(_Chunk(data, loop.time()))
    await underway.put(None)


async def _travel(line: Line, chunk: _Chunk) -> None:
    await line.flows.wait()
    if line.rate:
        await asyncio.sleep(len(chunk.data) / line.rate)
    if line.latency_s:
        await asyncio.sleep(chunk.arrived + line.latency_s - asyncio.get_running_loop().time())
