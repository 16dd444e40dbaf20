"""What a refused credential means, and what a person can do about it."""

from dataclasses import dataclass
from pathlib import Path

from codefyui_core.wire.messages import RefusalCode

REFUSAL_HEADER = "X-CodefyUI-Refusal"
FATAL_STATUS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A message, and the exit status when retrying is useless."""

    message: str
    exit_code: int | None = None


def of_status(status: int, header: str | None, *, url: str, file: Path, credential: str) -> Advice:
    """An HTTP answer to the dial of ``/ws/worker``. One without our header came from something in between."""
    if header == RefusalCode.REVOKED:
        return Advice(
            message=f"The control plane at {url} revoked this worker's credential: the worker was removed or "
            f"re-keyed. To add it again, run cdui agent forget {url} and start with a new token.",
            exit_code=FATAL_STATUS,
        )
    if header == RefusalCode.UNKNOWN_CREDENTIAL:
        return Advice(message=_unknown(url, file, credential))
    if status in {401, 403, 407}:
        return Advice(
            message=f"Something between here and the control plane refused the connection ({status}), most "
            f"likely a proxy at {url}: it has to pass the Authorization header and /ws/worker on. Trying again."
        )
    if status == 421:
        return Advice(
            message=f"The control plane doesn't accept the host name in {url}. Add it to "
            f"CODEFYUI_EXTRA_ALLOWED_HOSTS there and restart it. Trying again."
        )
    if status == 404:
        return Advice(message=f"{url} has no /ws/worker: is it a CodefyUI server? Trying again.")
    return Advice(message=f"The server at {url} answered {status} to /ws/worker. Trying again.")


def _unknown(url: str, file: Path, credential: str) -> str:
    if not credential.startswith("cdw_"):
        return (
            f"{file} holds a session token instead of a worker's credential, and session tokens change with "
            f"each start of the server. Run cdui agent forget {url} and enroll with a token from Add worker. "
            f"Trying again."
        )
    return (
        f"The control plane at {url} doesn't know this worker's credential ({file}): another control plane or "
        f"another database answers there. If that is meant, run cdui agent forget {url} and enroll with a new "
        f"token. Trying again."
    )
