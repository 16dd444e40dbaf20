"""How an attempt that is over ends its run: one pure function for both planes."""

from dataclasses import dataclass

from codefyui_core.plugin.views import RunStatus

from .status import Cause, Outcome, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known when the process tree is gone and its pipe is read to the end."""

    outcome: Outcome | None = None
    """As the run process wrote it; None when it ended without a word."""
    error: str | None = None
    cause: Cause | None = None
    stop_reason: StopReason | None = None
    stopped_in_time: bool = True
    """False when the process had to be killed after the grace."""
    exit_code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    """The kernel's out-of-memory killer ended it, or a process of it."""
    grace_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The final status and why."""

    status: RunStatus
    error: str | None = None
    cause: Cause | None = None


INTERRUPTING = {
    StopReason.ONE_SHOT_STOP: Cause.SHUTDOWN,
    StopReason.SERVER_STOP: Cause.SHUTDOWN,
    StopReason.LOST_TUNNEL: Cause.LEASE_LOST,
    StopReason.LATE: Cause.LEASE_LOST,
    StopReason.REVOKED: Cause.CREDENTIALS,
    StopReason.AGENT_RESTARTED: Cause.LEASE_LOST,
}
"""Stops that read ``interrupted`` whether or not the process ended in time."""


def conclude(evidence: Evidence) -> Conclusion:
    """A written success or failure stands, whatever stop came meanwhile; else the stop decides; else the exit."""
    if evidence.outcome is Outcome.SUCCEEDED:
        return Conclusion(status=RunStatus.SUCCEEDED)
    if evidence.outcome is Outcome.FAILED:
        return _failed(evidence)
    if evidence.stop_reason is not None:
        return _stopped(evidence, evidence.stop_reason)
    return _ended_by_itself(evidence)


def _failed(evidence: Evidence) -> Conclusion:
    """By its own word; only the keeper knows whether a signal that took one of its processes was for memory."""
    error, cause = evidence.error or "the run failed", evidence.cause or Cause.USER_CODE
    if cause is Cause.SIGNAL and evidence.out_of_memory:
        return Conclusion(status=RunStatus.FAILED, error=f"{error}: out of memory", cause=Cause.HOST_OOM)
    return Conclusion(status=RunStatus.FAILED, error=error, cause=cause)


def _stopped(evidence: Evidence, reason: StopReason) -> Conclusion:
    killed = None if evidence.stopped_in_time else f"terminated after {evidence.grace_s:g} s"
    if reason is StopReason.USER:
        return Conclusion(status=RunStatus.CANCELLED, error=killed, cause=Cause.CANCELLED)
    if reason is StopReason.AGENT_STOP:
        status = RunStatus.CANCELLED if evidence.stopped_in_time else RunStatus.INTERRUPTED
        return Conclusion(status=status, error=killed or "the agent was stopped", cause=Cause.SHUTDOWN)
    return Conclusion(
        status=RunStatus.INTERRUPTED, error=killed or STOP_TEXTS[reason], cause=INTERRUPTING[reason]
    )


STOP_TEXTS = {
    StopReason.ONE_SHOT_STOP: "the one-shot agent was stopped",
    StopReason.SERVER_STOP: "the server was stopped",
    StopReason.LOST_TUNNEL: "the agent lost its tunnel to the control plane for longer than the grace",
    StopReason.LATE: "the control plane had already ended this run",
    StopReason.REVOKED: "the worker's credential was revoked",
    StopReason.AGENT_RESTARTED: "the agent restarted without this run",
}


def _ended_by_itself(evidence: Evidence) -> Conclusion:
    number = -evidence.signal if evidence.signal is not None else evidence.exit_code
    error = f"run subprocess exited with code {number}"
    if evidence.out_of_memory and evidence.signal is not None:
        return Conclusion(status=RunStatus.FAILED, error=f"{error}: out of memory", cause=Cause.HOST_OOM)
    cause = evidence.cause or (Cause.SIGNAL if evidence.signal is not None else Cause.USER_CODE)
    return Conclusion(status=RunStatus.FAILED, error=error, cause=cause)
