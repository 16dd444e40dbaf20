"""Why a run failed, in one sentence and one cause."""

import errno
import sys
from collections.abc import Iterable, Iterator

from codefyui_core.errors import CodefyError, ProcessKilled
from codefyui_core.runs.status import Cause

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ACCELERATOR_WORDS = ("CUDA error: out of memory", "MPS backend out of memory")
_HOST_WORDS = "DefaultCPUAllocator: can't allocate memory"
"""Torch raises these as plain RuntimeErrors."""
ERROR_LIMIT = 8_000
"""Characters of an error's text."""
STARS = "**********"


class NodeFailure(CodefyError):
    """A node raised; ``str()`` is what the run's error says."""

    default_code = "node.failed"

    def __init__(
        self, node_id: str, type_name: str, error: BaseException, secrets: Iterable[str] = ()
    ) -> None:
        super().__init__(redacted(f"node {node_id} ({type_name}): {said(error)}", secrets)[:ERROR_LIMIT])
        self.node_id = node_id
        self.cause = cause_of(error)


class Stopped(CodefyError):
    """Work inside of a node ended because the run was asked to stop; no failure."""

    default_code = "run.stopped"


def said(error: BaseException) -> str:
    """An explained error's own words; the class name before any other's."""
    if isinstance(error, CodefyError):
        return error.message
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cause_of(error: BaseException) -> Cause:
    """By the error, or whatever it was raised from."""
    for one in _chain(error):
        if isinstance(one, NodeFailure):
            return one.cause
        if isinstance(one, ProcessKilled):
            return Cause.SIGNAL
        if isinstance(one, OSError) and one.errno in _FULL:
            return Cause.DISK_FULL
        if _is_of_accelerator(one):
            return Cause.CUDA_OOM
        if _is_of_host(one):
            return Cause.HOST_OOM
    return Cause.USER_CODE


def _is_of_accelerator(error: BaseException) -> bool:
    """By its class; a driver's own refusal and Apple's have none, and are told by their words."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and any(words in text for words in _ACCELERATOR_WORDS)


def _is_of_host(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError) and _HOST_WORDS in str(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    pending: BaseException | None = error
    while pending is not None and id(pending) not in seen:
        yield pending
        seen.add(id(pending))
        pending = pending.__cause__ or pending.__context__


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Without the values of SECRET params, wherever an error repeats them."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, STARS)
    return text
