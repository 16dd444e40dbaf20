"""The one error tree.

Each class has a stable ``code``; clients translate codes and never parse texts. A message says what to do
next. Vendor exceptions don't leave their plugin: turn them into one of these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar


class CodefyError(Exception):
    """Base of every error that a person may read.

    Raising one says: this is explained, no traceback needed. Anything else that leaves a plugin is a bug
    of the plugin; it is logged with its traceback and charged to the plugin that raised it.
    """

    default_code: ClassVar[str] = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code


class UsageProblem(CodefyError):
    """A flag or setting that is wrong in itself or beside the others; the command ends with status 2."""

    default_code = "usage"


class StartProblem(CodefyError):
    """The flags are right, but the agent can't start with them here (a folder that isn't there); status 1,
    or 4 for a one-shot agent.
    """

    default_code = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a filled-in form."""

    message: str
    field: str | None = None
    """The form field it belongs to; None when it is about the whole."""
    code: str = "invalid"


class FormProblem(CodefyError):
    """A form that can't be accepted; answered as 422 with the problems keyed by field."""

    default_code = "form.invalid"

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = tuple(problems)


class BadName(CodefyError):
    """A name from outside that doesn't stay below its folder, or that no file system can hold."""

    default_code = "files.bad_name"


class LinkProblem(CodefyError):
    """Why a dial failed, and what the agent does about it.

    ``exit_code`` None means: retry with the agent's own backoff. A number ends the agent with that status
    and the message on standard error.
    """

    default_code = "link.unreachable"

    def __init__(self, message: str, *, code: str | None = None, exit_code: int | None = None) -> None:
        super().__init__(message, code=code)
        self.exit_code = exit_code


class StorageProblem(CodefyError):
    """One try of a storage backend failed. Raise one of the four below, never this class."""


class Busy(StorageProblem):
    """Not now: unreachable, throttled, 502, 503, 504. The caller waits and tries again."""

    default_code = "storage.busy"

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class Expired(StorageProblem):
    """The grant ran out. The caller gets a new one, hands it to the session, and tries again."""

    default_code = "storage.expired"


class Refused(StorageProblem):
    """Final: too large, access denied, no such bucket. No retry; a file stays where it is, with a warning."""

    default_code = "storage.refused"


class Corrupt(StorageProblem):
    """The bytes don't have the hash they should have. The caller drops what arrived and tries once more."""

    default_code = "storage.corrupt"


class TransferStopped(CodefyError):
    """Raised by ``Progress.advance`` when the transfer is to end; let it pass."""

    default_code = "storage.stopped"


class ProcessKilled(CodefyError):
    """A process that a node had started (a loader's worker, a rank) was ended by a signal, and the node can't
    go on without it. ``signal`` is its number.
    """

    default_code = "node.process_killed"

    def __init__(self, message: str, *, signal: int) -> None:
        super().__init__(message)
        self.signal = signal


STATUS_BY_CODE: Mapping[str, int] = MappingProxyType(
    {
        "request.invalid": 400,
        "request.not_json": 422,
        "request.too_large": 413,
        "request.too_slow": 408,
        "request.schema": 422,
        "auth.token": 403,
        "auth.worker_unknown": 401,
        "auth.worker_revoked": 401,
        "host.not_allowed": 421,
        "graph.invalid": 400,
        "graph.not_found": 404,
        "graph.exists": 409,
        "graph.bad_name": 400,
        "graph.bad_argument": 400,
        "example.not_found": 404,
        "node.not_found": 404,
        "node.failed": 500,
        "node.process_killed": 500,
        "preset.not_found": 404,
        "run.not_found": 404,
        "run.active": 409,
        "run.option_unknown": 400,
        "run.option_invalid": 400,
        "run.attempt_over": 410,
        "run.attempt_unknown": 409,
        "run.items_invalid": 400,
        "run.illegal_transition": 500,
        "run.process_lost": 500,
        "run.stopped": 409,
        "run.not_yours": 403,
        "artifact.not_found": 404,
        "artifact.not_here": 409,
        "artifact.arriving": 503,
        "outputs.not_found": 404,
        "outputs.too_large": 413,
        "outputs.away": 503,
        "outputs.timeout": 504,
        "target.unknown": 400,
        "target.not_served": 400,
        "target.device_unknown": 400,
        "target.types_missing": 400,
        "storage.refused": 400,
        "storage.busy": 503,
        "storage.expired": 503,
        "storage.corrupt": 502,
        "storage.credentials": 400,
        "storage.stopped": 409,
        "storage.full": 507,
        "worker.not_found": 404,
        "device.not_found": 404,
        "enrollment.unknown": 401,
        "enrollment.expired": 403,
        "enrollment.used_up": 403,
        "enrollment.revoked": 403,
        "enrollment.bound": 403,
        "enrollment.name_taken": 409,
        "enrollment.not_found": 404,
        "upload.bad_name": 400,
        "upload.bad_type": 400,
        "upload.exists": 409,
        "upload.not_found": 404,
        "upload.offset": 409,
        "upload.mismatch": 422,
        "upload.needs_hash": 409,
        "files.bad_name": 400,
        "files.not_found": 404,
        "files.outside": 403,
        "form.invalid": 422,
        "catalog.loading": 503,
        "catalog.failed": 503,
        "server.stopping": 503,
        "server.busy": 503,
        "server.replaced": 503,
        "rate.limited": 429,
        "usage": 400,
        "start": 500,
        "plugin.conflict": 500,
        "plugin.route": 500,
        "plugin.wrong_answer": 500,
        "agent.running": 409,
        "link.unreachable": 502,
        "not_found": 404,
        "method_not_allowed": 405,
        "internal": 500,
        "error": 500,
    }
)
"""The one place that maps a code to the HTTP status of its answer."""


def status_of(code: str) -> int:
    """The HTTP status for a code; 500 for one that nobody listed."""
    return STATUS_BY_CODE.get(code, 500)
