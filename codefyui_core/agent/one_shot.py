"""Serves one run: takes it, reports it, waits until that is recorded, and ends with a status that says how it went."""

import asyncio
import logging
from contextlib import suppress

from codefyui_core.clocks import AttentiveClock
from codefyui_core.runs.status import StopReason
from codefyui_core.wire.messages import AgentBye

from .advice import FATAL_STATUS
from .agent import Agent
from .link import Ending
from .machine import State
from .one_run import OneRun, Patience, Status

DELIVER_WITHIN_S = 10.0
"""After a stop: batch systems kill half a minute after they asked."""
log = logging.getLogger("codefyui.agent")


async def serve_one(agent: Agent, one: OneRun, clock: AttentiveClock, stop: asyncio.Event) -> Status:
    """Until the run is recorded, given up, or the agent is stopped or refused."""
    patience = Patience(
        clock,
        alone=lambda: _is_alone(agent, one),
        contacts=lambda: 0 if _is_kept(agent, one) else agent.link.welcomes,
        grace_s=lambda: agent.grace_s,
    )
    linked = asyncio.create_task(agent.link.run(), name="link")
    events = {event: asyncio.create_task(event.wait()) for event in (one.over, patience.over, stop)}
    try:
        await asyncio.wait({linked, *events.values()}, return_when=asyncio.FIRST_COMPLETED)
        if linked.done():
            return await _refused(agent, one, linked.result())
        if stop.is_set() and not one.over.is_set():
            return await _stopped(agent, one)
        if one.over.is_set():
            await agent.link.leave(AgentBye(reason="done"))
            return one.status
        log.error("there was no contact for %g s, so the end of the run isn't recorded", agent.grace_s)
        return Status.NOT_SUCCEEDED
    finally:
        patience.close()
        for waiting in events.values():
            waiting.cancel()
        agent.link.stop()
        with suppress(asyncio.CancelledError):
            await linked


def _is_alone(agent: Agent, one: OneRun) -> bool:
    """Its run executes no more, and nobody is there who would take its end."""
    attempt = None if one.taken is None else agent.holdings.find(one.taken)
    if attempt is None or attempt.machine.state not in {State.PUBLISHING, State.ENDED}:
        return False
    return attempt.kept or not agent.link.connected.is_set()


def _is_kept(agent: Agent, one: OneRun) -> bool:
    """The control plane that is there now has another database, so it is no contact."""
    attempt = None if one.taken is None else agent.holdings.find(one.taken)
    return attempt is not None and attempt.kept


async def _refused(agent: Agent, one: OneRun, ending: Ending) -> Status:
    """Before a run, the control plane didn't want this agent; after, the outcome isn't recorded."""
    if ending.message:
        log.error("%s", ending.message)
    if one.taken is not None:
        await agent.stop_runs(StopReason.REVOKED if ending.revoked else StopReason.ONE_SHOT_STOP)
        return one.status if one.over.is_set() else Status.NOT_SUCCEEDED
    if ending.lost:
        return Status.STOPPED_BEFORE
    return Status.REFUSED if ending.exit_code == FATAL_STATUS else Status.NOT_STARTED


async def _stopped(agent: Agent, one: OneRun) -> Status:
    log.info("stopping: a run gets 10 s to end")
    await agent.stop_runs(StopReason.ONE_SHOT_STOP)
    if one.taken is not None:
        agent.link.hurry()
        with suppress(TimeoutError):
            async with asyncio.timeout(DELIVER_WITHIN_S):
                await one.over.wait()
    await agent.link.leave(AgentBye(reason="done" if one.over.is_set() else "stopping"))
    return one.status
