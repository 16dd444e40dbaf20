"""What the last two items of an attempt say: how its processes ended, and what became of the run. Pure."""

from collections.abc import Mapping
from typing import Any

from codefyui_core.errors import CodefyError, StorageProblem
from codefyui_core.runner.api import Ending
from codefyui_core.runs.spoken import said_text
from codefyui_core.runs.status import Cause, Outcome
from codefyui_core.wire.messages import EndItem, ExitedItem

from .machine import Machine


def exited(ending: Ending) -> dict[str, Any]:
    """The payload of ``exited``."""
    told = ExitedItem(
        exit_code=ending.exit_code,
        signal=ending.signal,
        out_of_memory=ending.out_of_memory,
        peak_memory_bytes=ending.peak_memory_bytes,
        stderr_tail=ending.stderr_tail,
    )
    return told.model_dump(mode="json")


def end_of(
    machine: Machine, said: Mapping[str, Any], ending: Ending | None, failure: CodefyError | None
) -> EndItem:
    """``said``: the run's own outcome, if it came to one; ``ending``: None when there was no process; ``failure``:
    what went wrong on the agent's side.
    """
    end = EndItem(
        outcome=_outcome(said.get("outcome")),
        error=said_text(said.get("error")),
        cause=said_text(said.get("cause")),
        stop_reason=machine.stop_reason,
        grace_s=machine.grace_s,
    )
    if ending is not None:
        known = {
            "exit_code": ending.exit_code,
            "signal": ending.signal,
            "out_of_memory": ending.out_of_memory,
            "stopped_in_time": ending.stopped_in_time,
        }
        end = end.model_copy(update=known)
    if failure is not None and end.outcome is None and machine.stop_reason is None:
        failed = {"outcome": Outcome.FAILED, "error": failure.message, "cause": _cause(failure)}
        end = end.model_copy(update=failed)
    return end


def _outcome(value: object) -> Outcome | None:
    return Outcome(value) if isinstance(value, str) and value in set(Outcome) else None


def _cause(error: CodefyError) -> str:
    if error.code == "storage.full":
        return Cause.DISK_FULL
    return Cause.STORAGE if isinstance(error, StorageProblem) else Cause.USER_CODE
