"""Many agents in one process, which speak the line and execute nothing: real handshakes, beats and streams."""

import asyncio
import json
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
from pydantic import BaseModel

from codefyui_core._version import __version__
from codefyui_core.agent.backoff import Backoff
from codefyui_core.agent.session import open_socket
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.status import Phase
from codefyui_core.wire import codec
from codefyui_core.wire.limits import AGENT_BEAT_S, BATCH_ITEMS
from codefyui_core.wire.messages import (
    PROTOCOL,
    Ack,
    AgentBeat,
    Assign,
    AttemptKey,
    ControlBeat,
    ControlBye,
    DeviceInfo,
    Hello,
    HelloAttempt,
    Refused,
    Report,
    Rewind,
    Verdict,
    VerdictKind,
    Welcome,
)

from .processes import Site

GRACE_S = 300.0
_ENROLL_AT_ONCE = 16


@dataclass(slots=True)
class LiveAttempt:
    """A stream that is made as it is sent: each item is known by its number."""

    key: AttemptKey
    lease: str
    db_id: str
    devices: tuple[str, ...]
    incarnation: str
    ticket: JsonObject | None = None
    last: int = 1
    sent: int = 0
    position: int = 0
    sent_at: dict[int, float] = field(default_factory=dict)
    """By the last number of a batch: when it was sent over this connection."""

    def listed(self) -> HelloAttempt:
        return HelloAttempt(
            run_id=self.key.run_id,
            attempt=self.key.attempt,
            lease=self.lease,
            db_id=self.db_id,
            phase=Phase.RUNNING,
            last=self.last,
            devices=self.devices,
        )

    def frame(self) -> str | None:
        """The next batch; None when everything is sent."""
        if self.sent >= self.last:
            return None
        first, upto = self.sent + 1, min(self.last, self.sent + BATCH_ITEMS)
        self.sent, self.sent_at[upto] = upto, time.monotonic()
        items = [self._item(seq) for seq in range(first, upto + 1)]
        return codec.items_frame(self.key, self.lease, first, items).decode()

    def _item(self, seq: int) -> bytes:
        if seq == 1:
            payload = {"incarnation": self.incarnation, "devices": list(self.devices)}
            return json.dumps({"kind": "accepted", "payload": payload}).encode()
        said = {"node_id": "node", "status": "progress", "outputs": [{"step": seq}]}
        return json.dumps(
            {"kind": "event", "type": "node_status", "payload": said, "ts": time.time_ns() // 1_000_000}
        ).encode()

    def go_on_behind(self, position: int) -> None:
        self.position = self.sent = position
        self.sent_at.clear()


@dataclass(slots=True, kw_only=True)
class SimulatedAgent:
    """One regular agent of a name, which dials again for as long as its task isn't cancelled."""

    name: str
    credential: str
    incarnation: str = field(default_factory=lambda: secrets.token_hex(16))
    machine_id: str = field(default_factory=lambda: secrets.token_hex(16))
    backends: dict[str, int] = field(default_factory=dict)
    """Storage backends that it says it has, with their protocols; their facts are empty."""
    attempts: dict[str, LiveAttempt] = field(default_factory=dict)
    welcomed_at: float | None = None
    """By the monotonic clock; None while it isn't connected."""
    resumed: set[str] = field(default_factory=set)
    """Runs of which an item was acknowledged that was made after the last welcome."""
    ack_s: list[float] = field(default_factory=list)
    """From sending a batch to its acknowledgement."""
    _made: dict[str, int] = field(default_factory=dict)
    _dials: int = 0
    _socket: aiohttp.ClientWebSocketResponse | None = None

    async def live(self, http: aiohttp.ClientSession, url: str) -> None:
        """Connected, or dialling with the backoff of real agents."""
        backoff = Backoff()
        while True:
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                await self._connection(http, url)
                backoff.reset()
            self.welcomed_at = self._socket = None
            self.resumed.clear()
            await asyncio.sleep(backoff.next_s(GRACE_S))

    async def report(self) -> None:
        """One more event of each run; sent if there is a line."""
        for attempt in self.attempts.values():
            attempt.last += 1
        await self._send_items()

    async def _connection(self, http: aiohttp.ClientSession, url: str) -> None:
        socket = await open_socket(http, url, self.credential, {})
        beating = asyncio.create_task(self._beat(socket))
        try:
            self._dials += 1
            await self._send(socket, self._hello())
            async for message in socket:
                read = codec.decode(str(message.data), codec.FROM_CONTROL)
                if isinstance(read, ControlBye | Refused):
                    return
                if isinstance(read, Welcome):
                    await self._welcome(socket, read)
                await self._take(socket, read)
        finally:
            beating.cancel()
            await socket.close()

    async def _welcome(self, socket: aiohttp.ClientWebSocketResponse, welcome: Welcome) -> None:
        for verdict in welcome.verdicts:
            self._judge(verdict)
        await self._send(socket, Report(storage={name: {} for name in self.backends}))
        self._made = {run_id: attempt.last for run_id, attempt in self.attempts.items()}
        self.welcomed_at, self._socket = time.monotonic(), socket
        await self._send_items()

    def _judge(self, verdict: Verdict) -> None:
        if verdict.kind is VerdictKind.RESUME:
            self.attempts[verdict.run_id].go_on_behind(verdict.position)
        else:
            del self.attempts[verdict.run_id]

    async def _take(self, socket: aiohttp.ClientWebSocketResponse, message: BaseModel) -> None:
        match message:
            case Assign():
                key = AttemptKey(run_id=message.run_id, attempt=message.attempt)
                self.attempts[message.run_id] = LiveAttempt(
                    key, message.lease, message.db_id, message.devices, self.incarnation, message.ticket
                )
                await self._send_items()
            case Ack():
                for entry in message.acks:
                    self._acked(entry.run_id, entry.seq)
            case Rewind():
                self.attempts[message.run_id].go_on_behind(message.position)
                await self._send_items()
            case ControlBeat() if message.n:
                await self._send(socket, self._live(message.n))

    def _acked(self, run_id: str, seq: int) -> None:
        attempt = self.attempts[run_id]
        attempt.position = max(attempt.position, seq)
        if (sent_at := attempt.sent_at.pop(seq, None)) is not None:
            self.ack_s.append(time.monotonic() - sent_at)
        if seq > self._made.get(run_id, 0):
            self.resumed.add(run_id)

    async def _send_items(self) -> None:
        if self._socket is None:
            return
        for attempt in self.attempts.values():
            while (frame := attempt.frame()) is not None:
                await self._socket.send_str(frame)

    async def _send(self, socket: aiohttp.ClientWebSocketResponse, message: BaseModel) -> None:
        for frame in codec.frames(message, secrets.token_hex(4)):
            await socket.send_str(frame.decode())

    async def _beat(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            await asyncio.sleep(AGENT_BEAT_S)
            with suppress(ConnectionError):
                await self._send(socket, self._live(0))

    def _live(self, number: int) -> AgentBeat:
        keys = [(one.key.run_id, one.key.attempt) for one in self.attempts.values()]
        return AgentBeat(n=number, live_count=len(keys), live_hash=codec.live_hash(keys))

    def _hello(self) -> Hello:
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            name=self.name,
            incarnation=self.incarnation,
            home_id=self.machine_id,
            machine_id=self.machine_id,
            devices=(DeviceInfo(device="cpu", name="CPU"),),
            backends=self.backends,
            wall_time_ms=time.time_ns() // 1_000_000,
            dial=self._dials,
            attempts=tuple(one.listed() for one in self.attempts.values()),
        )


@dataclass(slots=True)
class Fleet:
    """Agents and their tasks."""

    agents: Sequence[SimulatedAgent]
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self, http: aiohttp.ClientSession, url: str, *, every_s: float = 0.0) -> None:
        """All dial. ``every_s``: how often each of their runs reports; 0: never."""
        self._tasks = [asyncio.create_task(_live(agent, http, url, every_s)) for agent in self.agents]

    async def keep(self, count: int) -> None:
        """The others leave."""
        await _cancelled(self._tasks[count:])
        self.agents, self._tasks = self.agents[:count], self._tasks[:count]

    async def stop(self) -> None:
        await self.keep(0)

    @property
    def connected(self) -> int:
        return sum(agent.welcomed_at is not None for agent in self.agents)

    @property
    def runs(self) -> int:
        return sum(len(agent.attempts) for agent in self.agents)

    @property
    def resumed(self) -> int:
        """Runs of which something new was acknowledged since their agent's last welcome."""
        return sum(len(agent.resumed) for agent in self.agents)


async def _live(agent: SimulatedAgent, http: aiohttp.ClientSession, url: str, every_s: float) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(agent.live(http, url))
        if every_s:
            tasks.create_task(_report(agent, every_s))


async def _report(agent: SimulatedAgent, every_s: float) -> None:
    await asyncio.sleep(every_s * secrets.randbelow(1000) / 1000)
    while True:
        with suppress(ConnectionError):
            await agent.report()
        await asyncio.sleep(every_s)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def enroll(http: aiohttp.ClientSession, made: Site, count: int) -> Fleet:
    """So many new workers of the site's server."""
    token = await asyncio.to_thread(made.post, "/api/workers/tokens", {"uses": count})
    at_once = asyncio.Semaphore(_ENROLL_AT_ONCE)

    async def one(number: int) -> SimulatedAgent:
        name, nonce = f"agent-{number}", secrets.token_hex(16)
        body = {
            "token": token["token"],
            "name": name,
            "nonce": nonce,
            "machine_id": nonce,
            "platform": "none",
        }
        async with at_once, http.post(f"{made.url()}/api/workers/enroll", json=body) as answer:
            answer.raise_for_status()
            return SimulatedAgent(name=name, credential=(await answer.json())["credential"], machine_id=nonce)

    return Fleet(await asyncio.gather(*map(one, range(count))))
