"""One worker's open socket: frames out in order with beats between, frames in with their parts put together."""

import asyncio
import secrets
from collections import deque
from contextlib import suppress

from aiohttp import WSCloseCode, WSMsgType, web
from pydantic import BaseModel

from codefyui_core.clocks import AttentiveClock
from codefyui_core.wire import codec
from codefyui_core.wire.limits import BEAT_S, FRAME_BYTES, QUEUE_BYTES
from codefyui_core.wire.messages import Bad, ControlBeat, ControlBye, FromAgent, Part, Refused

CLOSED_ON_PURPOSE = 4001
"""After ``refused`` or ``bye``: the last frame says all."""


class Line:
    """Writes from a queue, so that no caller waits for a slow reader. Made for one socket, run once."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request, clock: AttentiveClock) -> None:
        self._socket = socket
        self._transport = request.transport
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._last: Refused | ControlBye | None = None
        self._parts = codec.Assembler()
        self._beat = clock.timer(BEAT_S, self._send_beat)
        self.closing = False

    # ------------------------------------------------------------ out

    def send(self, message: BaseModel) -> None:
        """Queue it. Dropped when the line is closing; a reader who lets 64 MiB pile up loses the line."""
        if self.closing:
            return
        for frame in codec.frames(message, secrets.token_hex(4)):
            self._put(frame)

    def finish(self, message: Refused | ControlBye) -> None:
        """The last frame; the socket is closed behind it."""
        if not self.closing:
            self.send(message)
            self.closing = True
            self._last = message
            self._wake.set()

    def abort(self) -> None:
        """Nobody is there: close without a word."""
        self.closing = True
        self._wake.set()
        if self._transport is not None:
            self._transport.abort()

    async def write(self) -> None:
        """The writing task: until the line is closed."""
        try:
            while await self._something():
                frame = self._queue.popleft()
                self._queued_bytes -= len(frame)
                await self._socket.send_frame(frame, WSMsgType.TEXT)
                self._beat.restart()
            if self._last is not None:
                await self._socket.close(code=CLOSED_ON_PURPOSE, message=_why(self._last))
        except (ConnectionError, RuntimeError):
            self.abort()  # the other side went while we wrote
        finally:
            self.closing = True
            self._beat.cancel()

    async def _something(self) -> bool:
        while not self._queue:
            if self.closing:
                return False
            self._wake.clear()
            await self._wake.wait()
        return True

    def _put(self, frame: bytes) -> None:
        self._queue.append(frame)
        self._queued_bytes += len(frame)
        self._wake.set()
        if self._queued_bytes > QUEUE_BYTES:
            self.abort()

    def _send_beat(self) -> None:
        self.send(ControlBeat())
        self._beat.restart()

    # ------------------------------------------------------------ in

    async def next_frame(self) -> str | None:
        """The next text frame; others are answered ``bad``. None: the socket is closed."""
        while True:
            message = await self._socket.receive()
            match message.type:
                case WSMsgType.TEXT:
                    return str(message.data)
                case WSMsgType.BINARY:
                    self.send(Bad(word="", reason="frames are text"))
                case WSMsgType.CLOSE | WSMsgType.CLOSING | WSMsgType.CLOSED | WSMsgType.ERROR:
                    return None
                case _:
                    continue

    def read(self, frame: str) -> FromAgent | None:
        """The message that a frame completes; None for a part of one.

        Raises: BadFrame.
        """
        message = codec.decode(frame, codec.FROM_AGENT)
        if not isinstance(message, Part):
            return message
        whole = self._parts.add(message)
        return None if whole is None else codec.decode(whole, codec.FROM_AGENT)


def _why(last: Refused | ControlBye) -> bytes:
    word = last.code.value if isinstance(last, Refused) else last.reason
    return word.encode()[:120]


def new_socket() -> web.WebSocketResponse:
    """Frames over the limit close it with 1009; beats are our own."""
    return web.WebSocketResponse(max_msg_size=FRAME_BYTES, compress=False, timeout=2.0, receive_timeout=None)


async def close_socket(socket: web.WebSocketResponse) -> None:
    """When the handler ends."""
    with suppress(ConnectionError, RuntimeError, TimeoutError):
        await socket.close(code=WSCloseCode.OK)
