"""What workers and enrollments are refused with over HTTP."""

from codefyui_core.errors import CodefyError


class EnrollmentRefused(CodefyError):
    """A token that doesn't enroll; the code says why: ``enrollment.unknown``, ``expired``, ``used_up``,
    ``revoked``, ``bound`` or ``name_taken``.
    """

    default_code = "enrollment.unknown"


class NotEnrolled(CodefyError):
    """A credential that no worker has: of another control plane or database."""

    default_code = "auth.worker_unknown"


class CredentialRevoked(CodefyError):
    """A credential of a worker that was removed or re-keyed."""

    default_code = "auth.worker_revoked"

    def __init__(self, name: str, why: str, credential_hash: str) -> None:
        how = "removed from the control plane" if why == "removed" else "given a new credential (re-keyed)"
        super().__init__(f"The credential of worker {name} was revoked: the worker was {how}.")
        self.name = name
        self.credential_hash = credential_hash


class WorkerNotFound(CodefyError):
    """No enrolled worker has that name."""

    default_code = "worker.not_found"


class TokenNotFound(CodefyError):
    """No enrollment token has that id."""

    default_code = "enrollment.not_found"


class TooManyAttempts(CodefyError):
    """Too many refused enrollments from one place."""

    default_code = "rate.limited"

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(
            f"Too many refused enrollments from this address. Try again in {retry_after_s:.0f} s."
        )
        self.retry_after_s = retry_after_s


class BadRequest(CodefyError):
    """A value of the request that can't be used."""

    default_code = "request.invalid"
