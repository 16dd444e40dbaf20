"""How soon an agent sees that its line is dead: reset, and silent."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import aiohttp
from aiohttp import web

from codefyui_core._version import __version__
from codefyui_core.agent.attempts import Batch
from codefyui_core.agent.session import AgentSession, open_socket
from codefyui_core.clocks import AttentiveClock
from codefyui_core.wire import codec
from codefyui_core.wire.limits import AGENT_SILENCE_S
from codefyui_core.wire.messages import PROTOCOL, AgentBeat, Hello, Welcome, WorkerIdentity

from .measure import Aim, Row
from .plan import Effort

RESET_S = 1.0
SILENT_S = AGENT_SILENCE_S + 1.0
"""A tick of the clock that counts them may be between."""


def rows(effort: Effort) -> list[Row]:
    resets = [asyncio.run(measured(_reset)) for _ in range(effort.choose(5, 1))]
    found = [_row("a reset line", resets, RESET_S)]
    if not effort.quick:
        found.append(_row("a silent line", [asyncio.run(measured(_silence))], SILENT_S))
    return found


def _row(what: str, samples: list[float], limit_s: float) -> Row:
    row = Row(
        benchmark="dead-line",
        figure=f"until the agent sees {what}",
        unit="s",
        samples=samples,
        baseline="the limit",
        baseline_samples=[limit_s] * len(samples),
    )
    aim = Aim(
        text=f"{what} within {limit_s:g} s", reached=f"{max(samples):.3f} s", met=max(samples) <= limit_s
    )
    return row.aiming(aim)


async def measured(broken: Callable[[web.Request], Awaitable[None]]) -> float:
    """Seconds from the break until the session of an agent is over. ``broken``: what becomes of its line."""
    began = 0.0

    async def serve(request: web.Request) -> web.WebSocketResponse:
        nonlocal began
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        await socket.receive()
        await socket.send_str(codec.encode(_welcome()).decode())
        began = time.monotonic()
        await broken(request)
        return socket

    app = web.Application()
    app.router.add_get("/ws/worker", serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    clock = AttentiveClock()
    ticking = asyncio.create_task(clock.run())
    try:
        async with aiohttp.ClientSession() as http:
            socket = await open_socket(http, listening.name, "none", {})
            await AgentSession(socket, Idle(), clock, logging.getLogger("bench")).run()
            return time.monotonic() - began
    finally:
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        await runner.cleanup()


class Idle:
    """The duty of an agent without runs. Implements ``Duty`` as far as it is asked."""

    def hello(self) -> Hello:
        unique = secrets.token_hex(16)
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            name="bench",
            incarnation=unique,
            home_id=unique,
            machine_id=unique,
        )

    async def welcomed(self, welcome: Welcome, session: AgentSession) -> None:
        return

    def gathering_s(self, window_bytes: int) -> float:
        return 0.0

    async def next_batch(self, window_bytes: int) -> Batch | None:
        return None

    def beat(self, number: int) -> AgentBeat:
        return AgentBeat(n=number)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_arguments: None


async def _reset(request: web.Request) -> None:
    assert request.transport is not None
    request.transport.abort()


async def _silence(_request: web.Request) -> None:
    await asyncio.sleep(2 * AGENT_SILENCE_S)


def _welcome() -> Welcome:
    identity = WorkerIdentity(id="bench", name="bench")
    return Welcome(version=__version__, db_id="bench", server_epoch=1, session=1, worker=identity)
