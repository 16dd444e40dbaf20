"""Pins: fingerprints of the keys that are trusted, as people give them and as the credential file keeps them. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from codefyui_core.plugin import JsonObject, UsageProblem

from .models import fingerprint_command

MOST = 2
"""The key of now and the next one."""
_FORM = re.compile(r"sha256:[0-9a-f]{64}")
_KEPT = "fingerprints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the credential file says."""

    pins: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    """What is there and is no fingerprint, as text."""


def given_pins(texts: object) -> tuple[str, ...]:
    """Of the command line.

    Raises: UsageProblem.
    """
    pins = tuple(dict.fromkeys(_given(text) for text in cast("Iterable[str]", texts or ())))
    if len(pins) > MOST:
        raise UsageProblem(f"--ca-fingerprint takes {MOST} keys at most: that of now and the next one.")
    return pins


def _given(text: str) -> str:
    pin = _read(text)
    if pin is None:
        raise UsageProblem(
            f"--ca-fingerprint {text}: give it as sha256: and 64 hexadecimal digits. On the host of the proxy this "
            f"prints it: {fingerprint_command()}"
        )
    return pin


def kept_pins(kept: JsonObject) -> Kept:
    """Of the credential file, which anybody may have edited."""
    found = kept.get(_KEPT, [])
    texts = found if isinstance(found, list) else [found]
    pins = dict.fromkeys(pin for text in texts if (pin := _read(text)) is not None)
    damaged = [str(text) for text in texts if _read(text) is None]
    return Kept(pins=tuple(pins), damaged=tuple(damaged))


def to_keep(pins: Sequence[str]) -> JsonObject:
    return {_KEPT: list(pins)}


def _read(text: object) -> str | None:
    pin = text.strip().lower() if isinstance(text, str) else ""
    return pin if _FORM.fullmatch(pin) else None
