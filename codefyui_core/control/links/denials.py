"""Why a connection isn't let in, as the frame that says so. Pure."""

from typing import Literal

from codefyui_core.wire.codec import BadFrame
from codefyui_core.wire.messages import PROTOCOL, RefusalCode, Refused

BUSY_AFTER_S = 5.0
HELD_AFTER_S = 60.0


class NotAdmitted(Exception):
    """The connection is refused with this frame."""

    def __init__(self, refused: Refused, *, listed: bool = True) -> None:
        super().__init__(refused.reason)
        self.refused = refused
        self.listed = listed


def denied(
    code: RefusalCode, reason: str, *, retry: Literal["never", "later"] = "never", listed: bool = True
) -> NotAdmitted:
    return NotAdmitted(Refused(code=code, reason=reason, retry=retry), listed=listed)


def busy(reason: str) -> NotAdmitted:
    """It may come in a while; the list doesn't show it."""
    refused = Refused(code=RefusalCode.BUSY, reason=reason, retry="later", after_s=BUSY_AFTER_S)
    return NotAdmitted(refused, listed=False)


def held(name: str, *, one_shot: bool = False) -> NotAdmitted:
    """A regular agent may wait for the name; a job of a batch system shall not wait for it in vain."""
    reason = f"another agent holds the name {name}, or its runs do; "
    if one_shot:
        reason += "wait for that one to end, or start jobs that run at the same time with --instance"
        return denied(RefusalCode.NAME_HELD, reason)
    reason += "stop that agent, or give this one a name of its own with --name"
    refused = Refused(code=RefusalCode.NAME_HELD, reason=reason, retry="later", after_s=HELD_AFTER_S)
    return NotAdmitted(refused)


def unreadable(error: BadFrame) -> NotAdmitted:
    reason = f"the hello can't be read: {error.reason}"
    return denied(RefusalCode.BAD_MESSAGE, reason, retry="later")


def mismatch(protocol: int, version: str, *, ours: str) -> str:
    """Admission row 1 in words; empty for our own version and protocol."""
    if version == ours and protocol == PROTOCOL:
        return ""
    text = f"version mismatch: worker {version[:64]}, control plane {ours}"
    return f"{text} (protocol {protocol} and {PROTOCOL})" if version == ours else text


def other_version(text: str) -> Refused:
    """At once, or when the last run of a connection that only finishes its runs has ended."""
    return Refused(code=RefusalCode.VERSION_MISMATCH, reason=text, retry="never")
