"""``run_agent``: runs an agent until it is stopped, refused, or done with its one run; answers the exit status."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, nullcontext, suppress
from typing import TypeVar

from codefyui_core.runs.status import StopReason
from codefyui_core.settings import Install

from .agent import Agent
from .assembly import Assembly, Outside
from .link import Ending
from .one_run import Status
from .one_shot import serve_one
from .plan import AgentPlan
from .service_unit import kill_mode_problem

__all__ = ["Outside", "run_agent"]

log = logging.getLogger("codefyui.agent")

T = TypeVar("T")


async def run_agent(
    plan: AgentPlan,
    install: Install,
    *,
    connected: Callable[[str], None] = lambda _name: None,
    warn: Callable[[str], None] = lambda text: log.warning("%s", text),
    stop: asyncio.Event | None = None,
    drain: asyncio.Event | None = None,
    outside: Outside | None = None,
) -> int:
    """In the foreground, until it is stopped (0) or refused for good (2); a one-shot agent, until its run is
    recorded (``Status``). ``connected`` is called with the worker's name at each welcome; ``stop`` asks it to end
    as SIGTERM does, ``drain`` to end after the runs that it has, as SIGUSR1 does.

    Raises: CodefyError when it can't start.
    """
    outside = outside or Outside()
    stop, drain = stop or asyncio.Event(), drain or asyncio.Event()
    plan = plan.checked()
    if problem := await asyncio.to_thread(kill_mode_problem, os.environ):
        warn(problem)
    with _Signals(stop, drain) if outside.signals else nullcontext():
        async with AsyncExitStack() as stack:
            assembly = Assembly(plan, install, outside, connected, warn)
            agent = await _unless(stop, assembly.build(stack))
            if agent is None:
                return Status.STOPPED_BEFORE if plan.one_shot else 0
            if assembly.one is not None:
                return await serve_one(agent, assembly.one, assembly.clock, stop)
            return await _serve(agent, stop, drain)


async def _unless(stop: asyncio.Event, work: Coroutine[None, None, T]) -> T | None:
    """What comes of it; None when a stop was asked first."""
    working = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
    return None if working.cancelled() else working.result()


async def _serve(agent: Agent, stop: asyncio.Event, drain: asyncio.Event) -> int:
    running = asyncio.create_task(agent.link.run(), name="link")
    stopped = asyncio.create_task(stop.wait(), name="stop")
    drained = asyncio.create_task(_drained(agent, drain), name="drain")
    tasks = {running, stopped, drained}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not (running.done() or drained.done()):
            log.info("stopping: runs get 10 s to end")
            await agent.shut_down(StopReason.AGENT_STOP)
        ending: Ending = await running
    finally:
        # Whoever is cancelled here leaves no line behind that would go on dialing.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if ending.exit_code:
        await agent.stop_runs(_stop_reason(ending))
        log.error("%s", ending.message)
    return ending.exit_code


async def _drained(agent: Agent, drain: asyncio.Event) -> None:
    await drain.wait()
    log.info("no more runs are taken; the agent stops when those that it has are delivered")
    await agent.drain()


def _stop_reason(ending: Ending) -> StopReason:
    if ending.lost:
        return StopReason.LOST_TUNNEL
    return StopReason.REVOKED if ending.revoked else StopReason.AGENT_STOP


class _Signals:
    """SIGTERM and SIGINT ask for a stop while the block runs, SIGUSR1 for one after the runs."""

    def __init__(self, stop: asyncio.Event, drain: asyncio.Event) -> None:
        self._events = {signal.SIGTERM: stop, signal.SIGINT: stop}
        if sys.platform != "win32":
            self._events[signal.SIGUSR1] = drain
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        for number, event in self._events.items():
            with suppress(NotImplementedError):
                self._loop.add_signal_handler(number, event.set)

    def __exit__(self, *exc: object) -> None:
        for number in self._events:
            with suppress(NotImplementedError):
                self._loop.remove_signal_handler(number)
