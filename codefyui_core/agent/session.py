"""One connection of the agent, from hello to its end. What it carries is decided elsewhere."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import aiohttp
from pydantic import BaseModel

from codefyui_core.clocks import AfterPause, AttentiveClock
from codefyui_core.wire import codec
from codefyui_core.wire.limits import AGENT_BEAT_S, AGENT_SILENCE_S, FRAME_BYTES
from codefyui_core.wire.messages import (
    Ack,
    AgentBeat,
    AgentBye,
    Assign,
    Bad,
    ControlBeat,
    ControlBye,
    FromControl,
    GrantMessage,
    Hello,
    LineSettings,
    Part,
    ReadReply,
    ReadRequest,
    Refused,
    Rewind,
    Stop,
    Welcome,
)

from .attempts import Batch

BYE_WITHIN_S = 2.0
SILENT_BYE_S = 0.1
"""For a line that is taken for dead: nobody will answer."""


class Duty(Protocol):
    """What a session asks of the agent. Called on the event loop, in the order of the frames."""

    def hello(self) -> Hello:
        """Everything there is, now: the old connection's frames are dropped."""
        ...

    async def welcomed(self, welcome: Welcome, session: "AgentSession") -> None: ...
    def acked(self, message: Ack) -> None: ...
    def rewind(self, message: Rewind) -> None: ...
    def assign(self, message: Assign) -> None: ...
    def stop(self, message: Stop) -> None: ...
    def granted(self, message: GrantMessage) -> None: ...
    def gathering_s(self, window_bytes: int) -> float: ...
    async def next_batch(self, window_bytes: int) -> Batch | None: ...
    def read(self, message: ReadRequest) -> None: ...
    def next_part(self) -> ReadReply | None:
        """Of an answer to ``read``; sent when nothing else is."""
        ...

    def beat(self, number: int) -> AgentBeat: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """How a connection ended."""

    why: str
    refused: Refused | None = None
    bye: ControlBye | None = None
    welcomed: bool = False
    online_s: float = 0.0


class AgentSession:
    """Made for one open socket."""

    def __init__(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        duty: Duty,
        clock: AttentiveClock,
        log: logging.Logger,
    ) -> None:
        self._socket = socket
        self._duty = duty
        self._clock = clock
        self._log = log
        self._queue: deque[bytes] = deque()
        self._wake = asyncio.Event()
        self._parts = codec.Assembler()
        self._settings = LineSettings()
        self._window_bytes = 0
        self._welcome: Welcome | None = None
        self._welcomed_at = 0.0
        self._refused: Refused | None = None
        self._bye: ControlBye | None = None
        self._why = ""
        self._leaving = False
        self._closing: asyncio.Task[None] | None = None
        self.sent = asyncio.Event()
        """Set whenever the queue is empty."""
        self._silence = clock.timer(AGENT_SILENCE_S, self._silent, after_pause=AfterPause.RESTART)
        self._beat = clock.timer(AGENT_BEAT_S, self._send_beat)

    # ------------------------------------------------------------ out

    @property
    def welcomed(self) -> bool:
        """More than hello may be sent."""
        return self._welcome is not None

    def send(self, message: BaseModel) -> None:
        for frame in codec.frames(message, secrets.token_hex(4), self._settings.frame_bytes):
            self._queue.append(frame)
        self._wake.set()

    def news(self) -> None:
        """There may be more to send."""
        self._wake.set()

    def leave(self, reason: AgentBye) -> None:
        """Say bye, and wait for the answer; no items behind it."""
        self._leaving = True
        self.send(reason)

    def drop(self, why: str, *, within_s: float = BYE_WITHIN_S) -> None:
        """Leave the socket as it is, at once. The other side has so long to answer."""
        self._why = self._why or why
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(within_s), name="agent line closing")

    async def _close(self, within_s: float) -> None:
        with suppress(Exception):
            async with asyncio.timeout(within_s):
                await self._socket.close()

    def _send_beat(self) -> None:
        if self._welcome is not None:
            self.send(self._duty.beat(0))
        self._beat.restart()

    def _silent(self) -> None:
        self.drop(f"the control plane was silent for {AGENT_SILENCE_S:g} s", within_s=SILENT_BYE_S)

    async def _write(self) -> None:
        while not self._socket.closed:
            self._wake.clear()
            while self._queue:
                await self._socket.send_frame(self._queue.popleft(), aiohttp.WSMsgType.TEXT)
            self.sent.set()
            if self._window_bytes and not self._leaving:
                if (wait_s := self._duty.gathering_s(self._window_bytes)) > 0:
                    await asyncio.sleep(wait_s)
                batch = await self._duty.next_batch(self._window_bytes)
                if batch is not None:
                    await self._socket.send_frame(batch.frame, aiohttp.WSMsgType.TEXT)
                    continue
                if (part := self._duty.next_part()) is not None:
                    self.send(part)
                    continue
            await self._wake.wait()

    def _written(self, writing: "asyncio.Task[None]") -> None:
        """A line that can't be written is no line, even if it can still be read."""
        error = None if writing.cancelled() else writing.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self._log.error("writing to the control plane failed", exc_info=error)
        if not writing.cancelled():
            self.drop("the line can't be written to")

    # ------------------------------------------------------------ in

    async def run(self) -> Closed:
        """Until the socket is closed."""
        self.send(self._duty.hello())
        writing = asyncio.create_task(self._write(), name="agent line")
        writing.add_done_callback(self._written)
        try:
            await self._read()
        finally:
            self._silence.cancel()
            self._beat.cancel()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self.drop("the connection was closed")
            if self._closing is not None:
                await asyncio.gather(self._closing, return_exceptions=True)
        online_s = self._clock.monotonic() - self._welcomed_at if self._welcome else 0.0
        return Closed(
            why=self._why or "the connection was closed",
            refused=self._refused,
            bye=self._bye,
            welcomed=self._welcome is not None,
            online_s=online_s,
        )

    async def _read(self) -> None:
        async for message in self._socket:
            self._silence.restart()
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            try:
                read = self._decode(str(message.data))
                if read is not None:
                    await self._take(read)
            except codec.BadFrame as error:
                self._log.warning("an unreadable frame of the control plane: %s", error)
                self.send(Bad(word=error.word, reason=error.reason))
            if self._refused is not None or self._bye is not None:
                return

    def _decode(self, frame: str) -> FromControl | None:
        message = codec.decode(frame, codec.FROM_CONTROL)
        if not isinstance(message, Part):
            return message
        whole = self._parts.add(message)
        return None if whole is None else codec.decode(whole, codec.FROM_CONTROL)

    async def _take(self, message: FromControl) -> None:
        match message:
            case Welcome():
                await self._welcomed(message)
            case Refused():
                self._refused = message
                self._why = message.reason
            case ControlBye():
                self._bye = message
                self._why = f"the control plane said bye ({message.reason})"
            case ControlBeat():
                if message.n:
                    self.send(self._duty.beat(message.n))
            case Bad():
                self._log.warning("the control plane couldn't read %s: %s", message.word, message.reason)
            case _:
                if self._welcome is None:
                    raise codec.BadFrame(message.t, "it came before the welcome")
                self._order(message)

    def _order(self, message: FromControl) -> None:
        match message:
            case Ack():
                self._duty.acked(message)
                self._window_bytes = message.window_bytes or self._window_bytes
            case Rewind():
                self._duty.rewind(message)
            case Assign():
                self._duty.assign(message)
            case Stop():
                self._duty.stop(message)
            case GrantMessage():
                self._duty.granted(message)
            case ReadRequest():
                self._duty.read(message)
            case _:
                raise codec.BadFrame(message.t, "unexpected")
        self._wake.set()

    async def _welcomed(self, welcome: Welcome) -> None:
        if self._welcome is not None:
            raise codec.BadFrame("welcome", "it comes once")
        self._welcome, self._settings = welcome, welcome.settings
        self._welcomed_at = self._clock.monotonic()
        await self._duty.welcomed(welcome, self)
        self._window_bytes = welcome.settings.window_bytes
        self._wake.set()


async def open_socket(
    http: aiohttp.ClientSession, base_url: str, credential: str, headers: Mapping[str, str]
) -> aiohttp.ClientWebSocketResponse:
    """``/ws/worker`` below the base URL, ``wss`` for ``https``. No redirects, no proxies of the environment.

    Raises: aiohttp.ClientError, OSError, TimeoutError.
    """
    scheme, _, rest = base_url.partition("://")
    url = f"{'wss' if scheme == 'https' else 'ws'}://{rest.rstrip('/')}/ws/worker"
    async with asyncio.timeout(20):
        return await http.ws_connect(
            url,
            headers={**headers, "Authorization": f"Bearer {credential}"},
            max_msg_size=FRAME_BYTES,
            compress=0,
            autoclose=True,
            timeout=aiohttp.ClientWSTimeout(ws_close=BYE_WITHIN_S),
        )
