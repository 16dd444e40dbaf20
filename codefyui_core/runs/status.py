"""The words for where a run, an attempt and a node stand. Closed lists; values are what is stored and sent."""

from enum import StrEnum

from codefyui_core.plugin.views import RunStatus

__all__ = [
    "ACTIVE",
    "FINAL",
    "ArtifactState",
    "AttemptState",
    "Cause",
    "NodeStatus",
    "Outcome",
    "Phase",
    "RunStatus",
    "StopReason",
]

FINAL = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.INTERRUPTED})
ACTIVE = frozenset({RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.DISCONNECTED})


class AttemptState(StrEnum):
    """Where an attempt stands at the control plane."""

    ASSIGNED = "assigned"
    """Committed and maybe sent; nothing has run yet."""
    ACTIVE = "active"
    """Its ``accepted`` item is committed."""
    AWAY = "away"
    """Its worker isn't connected; ``was`` tells which of the two above it was."""
    FINAL = "final"
    VOID = "void"
    """Refused by the worker before anything ran; doesn't count."""


class Phase(StrEnum):
    """Where an attempt stands at the agent, as hello lists it."""

    RECEIVED = "received"
    PREPARING = "preparing"
    RUNNING = "running"
    PUBLISHING = "publishing"
    ENDED = "ended"
    LOST = "lost"
    """A new agent process found the spool without an end."""


class StopReason(StrEnum):
    """Who asked an attempt to stop. ``user`` beats the rest; otherwise the first one stays."""

    USER = "user"
    AGENT_STOP = "agent_stop"
    ONE_SHOT_STOP = "one_shot_stop"
    SERVER_STOP = "server_stop"
    LOST_TUNNEL = "lost_tunnel"
    LATE = "late"
    REVOKED = "revoked"
    AGENT_RESTARTED = "agent_restarted"


class Outcome(StrEnum):
    """What a run process says of itself before it ends."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """It ended early because it was asked to."""


class Cause(StrEnum):
    """Why an ending isn't success. A run that succeeded has none."""

    HOST_OOM = "host_oom"
    CUDA_OOM = "cuda_oom"
    SIGNAL = "signal"
    USER_CODE = "user_code"
    """A node raised, or the process ended by itself."""
    LEASE_LOST = "lease_lost"
    DISK_FULL = "disk_full"
    STORAGE = "storage"
    CREDENTIALS = "credentials"
    VERSION = "version"
    REFUSED = "refused"
    """Invalid, types missing, worker removed."""
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    SHUTDOWN = "shutdown"


class NodeStatus(StrEnum):
    """What ``node_status`` events say of a node."""

    RUNNING = "running"
    PROGRESS = "progress"
    COMPLETED = "completed"
    CACHED = "cached"
    SKIPPED = "skipped"
    NOT_SELECTED = "not_selected"
    ERROR = "error"
    INTERRUPTED = "interrupted"


class ArtifactState(StrEnum):
    """Where the bytes of an artifact are."""

    STORED = "stored"
    ARRIVING = "arriving"
    ON_WORKER = "on_worker"
    MISSING = "missing"
