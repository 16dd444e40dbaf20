"""A run without a server, for ``cdui graph run``: one process, its lines as they come, and its conclusion."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codefyui_core.runs.conclude import Conclusion, Evidence, conclude
from codefyui_core.runs.status import Cause, Outcome, StopReason

from .api import Go, Launch, RunStarter


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One line of the run: ``kind`` event or environment, ``type`` the event's."""

    kind: str
    type: str | None
    payload: dict[str, Any]


async def run_offline(
    starter: RunStarter, go: Go, *, env: dict[str, str] | None = None, grace_s: float = 10.0
) -> AsyncIterator[Said | Conclusion]:
    """Everything that the run says, and last its ``Conclusion``. Closing the iterator early (Ctrl+C) stops the
    run and waits for its end.

    Raises: CodefyError ``run.process_lost``.
    """
    launch = Launch(run_id=go.run_id, attempt=go.attempt, work_dir=Path(go.folders.base), env=dict(env or {}))
    process = await starter.launch(launch)
    outcome: dict[str, Any] = {}
    finished = False
    try:
        await process.ready()
        await process.go(go)
        async for line in process.lines():
            said = json.loads(line)
            if said["kind"] == "outcome":
                outcome = said["payload"]
            else:
                yield Said(kind=said["kind"], type=said["type"], payload=said["payload"])
        finished = True
    finally:
        if not finished:
            await process.stop(grace_s)
        ending = await process.ended()
    stopped = outcome.get("outcome") == Outcome.STOPPED
    yield conclude(
        Evidence(
            outcome=Outcome(outcome["outcome"]) if outcome else None,
            error=outcome.get("error"),
            cause=Cause(outcome["cause"]) if outcome.get("cause") else None,
            stop_reason=StopReason.USER if stopped else None,
            stopped_in_time=ending.stopped_in_time,
            exit_code=ending.exit_code,
            signal=ending.signal,
            out_of_memory=ending.out_of_memory,
            grace_s=grace_s,
        )
    )
