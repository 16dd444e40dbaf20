"""A control plane that was killed comes back: with 200 live runs, and with 1,000 idle agents, which it also carries.

The agents are simulated at the socket, in this process; the control plane is a process of its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from . import chatter
from .fold_room import DOCUMENT
from .measure import Aim, Row
from .memory import megabytes
from .plan import Effort
from .processes import Process, Site, site, wait_for
from .start import answers
from .wire_agents import Fleet, enroll

SERVES_S = 3.0
BACK_S = 10.0
IDLE_MB = 300
IDLE_CORE = 0.10
RUNS_EACH = 10
REPORT_S = 1.0
_RESOLUTION_S = 0.01
"""Of the processor time that the system tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Seconds of one kill and start."""

    server: Process
    serves_s: float
    """From the start of the new process to its first answer."""
    back_s: float
    """From the first answer until everything is back. The agents' waits between two dials are in it."""
    resumed_s: float
    """From the first welcome until everything is back."""


def rows(effort: Effort) -> list[Row]:
    slots = {"CODEFYUI_RUN_QUEUE_MAX_CONCURRENT_CPU": str(RUNS_EACH)}
    with site(effort.folder / "runs", **slots, **chatter.LIGHT) as made:
        found = asyncio.run(live_runs(made, effort.choose(200, 4)))
    with site(effort.folder / "idle", **chatter.LIGHT) as made:
        idle = idle_agents(made, effort.choose(1_000, 5), effort.choose(60, 1))
        return [*found, *asyncio.run(idle)]


async def live_runs(made: Site, runs: int) -> Sequence[Row]:
    """Killed once with their agents alone, and once with their runs."""
    agents = max(1, runs // RUNS_EACH)
    server = await asyncio.to_thread(made.start_server)
    async with connected(made, agents, every_s=REPORT_S) as fleet:
        alone = await restart(made, server, fleet, lambda: fleet.connected == agents)
        await asyncio.to_thread(made.wait_ready, alone.server)
        for number in range(runs):
            target = {"worker": fleet.agents[number % agents].name}
            await asyncio.to_thread(
                made.post, "/api/runs", {"graph": DOCUMENT, "options": {"target": target}}
            )
        await until(lambda: fleet.resumed == runs, f"{runs} live runs")
        held = await restart(made, alone.server, fleet, lambda: fleet.resumed == runs)
        listed = await asyncio.to_thread(made.get, "/api/runs?status=running&limit=1")
        if listed["total"] != runs:
            raise RuntimeError(f"{listed['total']} of {runs} runs are running")
    return [
        *_restart_rows(f"{runs} live runs", held, "agents without runs", alone),
        _row(
            f"{runs} live runs are back, from the first welcome",
            BACK_S,
            held.resumed_s,
            "their agents alone",
            alone.resumed_s,
        ),
    ]


async def idle_agents(made: Site, count: int, seconds: float) -> Sequence[Row]:
    """What they cost for so long, and their return."""
    server = await asyncio.to_thread(made.start_server)
    bare_core, bare_mb = await idle(server, seconds), megabytes(server.pid)
    async with connected(made, count) as fleet:
        core, mb = await idle(server, seconds), megabytes(server.pid)
        many = await restart(made, server, fleet, lambda: fleet.connected == count)
        few = max(1, count // 100)
        await fleet.keep(few)
        some = await restart(made, many.server, fleet, lambda: fleet.connected == few)
    return [
        *_idle_rows(count, (core, bare_core), (mb, bare_mb)),
        *_restart_rows(f"{count:,} idle agents", many, f"{few} of them", some),
    ]


def _restart_rows(what: str, found: Restart, fewer: str, baseline: Restart) -> Iterator[Row]:
    serves = f"killed and started: serves again, {what}"
    yield _row(serves, SERVES_S, found.serves_s, fewer, baseline.serves_s)
    yield _row(f"{what} are back, from serving again", 2 * BACK_S, found.back_s, fewer, baseline.back_s)


def _row(figure: str, limit_s: float, seconds: float, fewer: str, baseline_s: float) -> Row:
    row = Row(
        benchmark="fleet",
        figure=figure,
        unit="s",
        samples=[seconds],
        baseline=fewer,
        baseline_samples=[baseline_s],
    )
    return row.aiming(
        Aim(text=f"{figure}: {limit_s:g} s", reached=f"{seconds:.2f} s", met=seconds <= limit_s)
    )


def _idle_rows(count: int, core: tuple[float, float], mb: tuple[float, float]) -> Iterator[Row]:
    memory = Row(
        benchmark="fleet",
        figure=f"control plane with {count:,} idle agents",
        unit="MB",
        samples=[mb[0]],
        baseline="without them",
        baseline_samples=[mb[1]],
    )
    more = mb[0] - mb[1]
    yield memory.aiming(
        Aim(text=f"{count:,} idle agents under {IDLE_MB} MB", reached=f"{more:.0f} MB", met=more < IDLE_MB)
    )
    part = Row(
        benchmark="fleet",
        figure=f"part of a core for {count:,} idle agents",
        unit="%",
        samples=[core[0] * 100],
        baseline="without them",
        baseline_samples=[core[1] * 100],
    )
    yield part.aiming(
        Aim(text=f"under {IDLE_CORE:.0%} of a core", reached=f"{core[0]:.1%}", met=core[0] < IDLE_CORE)
    )


@asynccontextmanager
async def connected(made: Site, count: int, *, every_s: float = 0.0) -> AsyncIterator[Fleet]:
    """So many agents, all connected."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        fleet = await enroll(http, made, count)
        fleet.start(http, made.url(), every_s=every_s)
        try:
            await until(lambda: fleet.connected == count, f"{count} agents to be connected")
            yield fleet
        finally:
            await fleet.stop()


async def restart(made: Site, server: Process, fleet: Fleet, back: Callable[[], bool]) -> Restart:
    """Kill it, start another one, wait until ``back``."""
    port = made.port()
    server.kill()
    await until(lambda: fleet.connected == 0, "the agents to see it")
    began = time.monotonic()
    server = made.spawn_server(port)
    await asyncio.to_thread(wait_for, lambda: answers(server, port), "the first answer")
    serves = time.monotonic()
    await until(back, "everything to be back")
    first = min(agent.welcomed_at for agent in fleet.agents if agent.welcomed_at is not None)
    over = time.monotonic()
    return Restart(server=server, serves_s=serves - began, back_s=over - serves, resumed_s=over - first)


async def idle(server: Process, seconds: float) -> float:
    """The part of a core that it takes."""
    await asyncio.sleep(min(seconds, 3.0))
    before = server.worked_s()
    await asyncio.sleep(seconds)
    return max(server.worked_s() - before, _RESOLUTION_S) / seconds


async def until(condition: Callable[[], bool], what: str, within_s: float = 180.0) -> None:
    """Raises: TimeoutError naming what was waited for."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(0.01)
