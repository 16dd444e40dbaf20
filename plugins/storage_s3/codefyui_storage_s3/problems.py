"""What botocore raises, as the core's four problems. Imports no boto3: errors are known by class name and answer."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from codefyui_core.plugin import Busy, CodefyError, Corrupt, Expired, Refused, TransferStopped

from .models import Bucket
from .store_time import clock_off

_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}
_UNKNOWN_KEY = {"InvalidAccessKeyId", "InvalidToken", "InvalidClientTokenId"}
"""MinIO and others say so of temporary keys that they have forgotten."""
_THROTTLED = {
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "InternalError",
    "InternalFailure",
    "RequestTimeout",
    "RequestTimeoutException",
    "OperationAborted",
    "ConditionalRequestConflict",
    "XMinioServerNotInitialized",
}
_DAMAGED = {"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "IncompleteBody"}
_MISSING = {"NoSuchKey", "NotFound", "404"}
_CLOCK = {"RequestTimeTooSkewed", "RequestExpired"}
_CLOCK_OFF = timedelta(minutes=5)
"""A clock that is off by more is what a 403 is about. Stores refuse at 15 minutes, some services beside them at 5. Answers
without a body, and those of some STS, have no word for it.
"""
_NOT_IMPLEMENTED = {"NotImplemented", "501"}
_UNREACHABLE = {
    "EndpointConnectionError",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ConnectionClosedError",
    "ConnectionError",
    "ProxyConnectionError",
    "HTTPClientError",
    "IncompleteReadError",
    "ResponseStreamingError",
    "ProtocolError",
    "TimeoutError",
}


class Missing(Refused):
    """No such object."""

    default_code = "artifact.not_found"


class UploadGone(Refused):
    """No such multipart upload, or its parts aren't what they were."""


class AlreadyThere(Refused):
    """The object is there, and the request was for an absent one."""


class ClockOff(Busy):
    """The store refuses what was signed by a clock that is off. A clock is corrected sooner or later, and then the same
    request is good.
    """


class NotOffered(Refused):
    """The store doesn't know what was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the same answer means different things in."""

    bucket: Bucket
    operation: str
    key: str | None
    temporary: bool
    """The keys came from STS."""
    by_link: bool
    """The address is signed, as it came from the control plane."""
    past_expiry: bool
    now: datetime
    """By the clock that signed."""
    machine: str
    """Whose clock signed: "worker" or "server"."""

    @property
    def target(self) -> str:
        name = self.bucket.name if self.key is None else f"{self.bucket.name}/{self.key}"
        return f"{self.operation} of {name} at {self.bucket.address}"


def problem_of(error: BaseException, at: Circumstances) -> CodefyError | None:
    """None: it is a bug, not a problem."""
    if isinstance(error, CodefyError):
        return error
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        return _answered(answer, at)
    return _unanswered(error, at)


def code_of(answer: dict[str, Any]) -> str:
    """The store's own word, else the HTTP status. Some send neither ``Error`` nor ``Message``."""
    error = answer.get("Error") or {}
    return str(error.get("Code") or answer.get("ResponseMetadata", {}).get("HTTPStatusCode") or "no code")


def said(answer: dict[str, Any]) -> str:
    """Code and message."""
    message = str((answer.get("Error") or {}).get("Message") or "").strip().rstrip(".")
    return f"{code_of(answer)}: {message}" if message else code_of(answer)


def _answered(answer: dict[str, Any], at: Circumstances) -> CodefyError:
    code = code_of(answer)
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    text = f"{at.target}: {said(answer)}"
    if code in _EXPIRED and at.temporary:
        return Expired(f"{text}; the temporary keys ran out")
    if code in _UNKNOWN_KEY and at.temporary and at.past_expiry:
        return Expired(f"{text}; the temporary keys are past their expiry")
    if at.by_link and status == 403 and (at.past_expiry or "expired" in text.lower()):
        return Expired(f"{text}; the address that it was read by ran out")
    ahead = _ahead(answer, at)
    if code in _CLOCK or (status == 403 and abs(ahead) > _CLOCK_OFF):
        return ClockOff(f"{text}; {clock_off(ahead, at.machine)}")
    if code in _DAMAGED:
        return Corrupt(f"{text}; the bytes changed on their way")
    if code in {"NoSuchUpload", "InvalidPart", "InvalidPartOrder"}:
        return UploadGone(text)
    if code in {"PreconditionFailed", "412"}:
        return AlreadyThere(text)
    if code in _NOT_IMPLEMENTED:
        return NotOffered(text)
    if code in _THROTTLED or status in {408, 429} or status >= 500:
        return Busy(text, retry_after_s=_retry_after(answer))
    if code in _MISSING:
        return Missing(text)
    return Refused(f"{text}{_hint(code)}")


def _hint(code: str) -> str:
    """What to do about the refusals that people meet first."""
    if code == "NoSuchBucket":
        return "; create the bucket, or correct CODEFYUI_S3_BUCKET"
    if code in {"AccessDenied", "403"}:
        return "; let the user of the keys read and write the bucket"
    if code in _UNKNOWN_KEY or code == "SignatureDoesNotMatch":
        return "; correct CODEFYUI_S3_ACCESS_KEY_ID and CODEFYUI_S3_SECRET_ACCESS_KEY"
    if code in {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed", "301", "307"}:
        return "; set CODEFYUI_S3_REGION to the bucket's region and CODEFYUI_S3_ENDPOINT_URL to its address"
    return ""


def _ahead(answer: dict[str, Any], at: Circumstances) -> timedelta:
    """Of the clock that signed, before the server's. 0 when the answer has no date."""
    theirs = date_of(answer)
    return timedelta(0) if theirs is None else at.now - theirs


def date_of(answer: dict[str, Any]) -> datetime | None:
    """The server's wall clock when it answered."""
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        date = parsedate_to_datetime(headers["date"])
    except (KeyError, TypeError, ValueError):
        return None
    return date if date.tzinfo is not None else None


def _retry_after(answer: dict[str, Any]) -> float | None:
    value = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("retry-after", "")
    return float(value) if str(value).isdigit() else None


def _unanswered(error: BaseException, at: Circumstances) -> CodefyError | None:
    stopped = _stop_within(error)
    if stopped is not None:
        return stopped
    names = {cls.__name__ for cls in type(error).__mro__}
    if "SSLError" in names:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return Refused(
                f"{at.target}: its certificate isn't trusted here; name its authority's file in AWS_CA_BUNDLE"
            )
        return Busy(f"{at.target}: the TLS connection failed")
    if names & _UNREACHABLE or isinstance(error, OSError):
        return Busy(f"{at.target}: it can't be reached ({type(error).__name__})")
    if {"ResponseParserError", "UnknownEndpointError"} & names:
        return NotOffered(f"{at.target}: what answered is no S3 server; correct CODEFYUI_S3_ENDPOINT_URL")
    if "BotoCoreError" in names:
        return Refused(f"{at.target}: {error}")
    return None


def _stop_within(error: BaseException) -> TransferStopped | None:
    """Progress stops a request in the middle; botocore wraps what it raises."""
    inner = getattr(error, "kwargs", {}).get("error")
    for one in (inner, error.__cause__, error.__context__):
        if isinstance(one, TransferStopped):
            return one
    return None
