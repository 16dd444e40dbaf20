"""What a refused certificate means, and what a person can do about it. Pure."""

import ssl

from codefyui_core.plugin import LinkProblem, Moment, Purpose

from .handshakes import PinMismatch
from .models import Address

MISMATCH_STATUS = 2
UNTRUSTED_STATUS = 1
NOT_YET_VALID, EXPIRED, OTHER_NAME, OTHER_IP = 9, 10, 62, 64
"""X509_verify_cert_error_string(3)."""


def mismatch(address: Address, error: PinMismatch, moment: Moment) -> LinkProblem:
    """Another key than the pinned one."""
    return LinkProblem(
        f"{address.place}: the key of its certificate is not the pinned one, so nothing was sent. Expected "
        f"{' or '.join(error.pins)}, presented {error.presented}. Either somebody is in between, or the key was changed "
        f"there. Compare the presented fingerprint with what the proxy's host shows; if they are equal, "
        f"{_repin(address, error.presented, moment)}.",
        code="link.pin_mismatch",
        exit_code=None if moment.accepted_before else MISMATCH_STATUS,
    )


def _repin(address: Address, presented: str, moment: Moment) -> str:
    if _is_enrolling(moment):
        return f"start with --ca-fingerprint {presented} instead; the token is still good"
    command = f"cdui agent start --control {address.base_url} --ca-fingerprint {presented}"
    stop = "stop this agent and " if moment.accepted_before else ""
    return f"{stop}run {command}; its credential stays"


def _is_enrolling(moment: Moment) -> bool:
    return moment.purpose is Purpose.ENROLL and not moment.accepted_before


def untrusted(
    address: Address, error: ssl.SSLCertVerificationError, presented: str | None, moment: Moment
) -> LinkProblem:
    """A certificate that this machine doesn't accept, without a pin."""
    reason = getattr(error, "verify_message", "") or str(error)
    return LinkProblem(
        f"{address.place}: its certificate is not accepted ({reason}), so nothing was sent. "
        f"{_remedy(getattr(error, 'verify_code', None))} {_or_pin(presented)}",
        code="link.untrusted",
        exit_code=UNTRUSTED_STATUS if _is_enrolling(moment) else None,
    )


def _or_pin(presented: str | None) -> str:
    if presented is None:
        return "Or pin its key: --ca-fingerprint with what the proxy's host shows trusts that key alone."
    return (
        f"Or pin its key: it presents {presented}. Compare that with what the proxy's host shows; if they are equal, "
        f"--ca-fingerprint {presented} trusts that key alone."
    )


def _remedy(verify_code: int | None) -> str:
    if verify_code == EXPIRED:
        return "Renew it on the proxy, if the clock of this machine is right."
    if verify_code == NOT_YET_VALID:
        return "See whether the clocks of both machines are right."
    if verify_code in {OTHER_NAME, OTHER_IP}:
        return "Dial a name that it is for, or give the proxy one for this name."
    return "Install the authority that signed it on this machine."
