"""Which runs on which workers the bucket serves. Pure."""

from codefyui_core.plugin import Because, Offer, Refusal, RunFiles, WorkerView

from .models import S3Facts
from .standing import Off, Working


def offer(
    state: Working | Off, files: RunFiles, worker: WorkerView, facts: S3Facts | None
) -> Offer | Refusal:
    """Reasons of the run are the core's, so that every carrier gives the same."""
    if isinstance(state, Off):
        return _off(state)
    if facts is None:
        return Refusal(
            because=Because.WORKER,
            reason=f"the agent of {worker.name} has no boto3",
            lack="has no boto3 for the S3 backend",
            remedy="install boto3 on it (uv pip install boto3) and restart its agent",
            fallback=f"worker {worker.name} has no boto3, so this run's files don't go through the bucket; "
            "install boto3 on it and restart its agent",
        )
    if files.carry_problem is not None:
        return Refusal(
            because=Because.RUN,
            reason=files.carry_problem,
            remedy=f"make the run fit the S3 backend: {files.carry_problem}",
        )
    return Offer(note=f"bucket {state.bucket.name}")


def _off(state: Off) -> Refusal:
    return Refusal(
        because=Because.OFF,
        reason=f"the S3 backend is off: {state.reason}",
        lack="can't use the S3 backend, which is off",
        remedy="set CODEFYUI_S3_ENABLED=1 and the bucket's other settings"
        if not state.wanted
        else f"get the S3 backend on ({state.reason})",
        fallback=f"the S3 backend is off ({state.reason}), so this run's files don't go through the bucket"
        if state.wanted
        else "",
    )
