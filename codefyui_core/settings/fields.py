"""The kinds of values that settings have beyond plain numbers and texts."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, NonNegativeInt, PlainSerializer
from pydantic_settings import NoDecode

log = logging.getLogger(__name__)
_WHOLE = re.compile(r"^-?[0-9]{1,9}$")


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(part for part in (piece.strip() for piece in value.split(",")) if part)


def _caps(value: object) -> object:
    if not isinstance(value, str):
        return value
    caps = {}
    for entry in (part.strip() for part in value.split(",")):
        key, _, count = (piece.strip() for piece in entry.rpartition("="))
        if key and _WHOLE.match(count):
            caps[key] = max(1, int(count))
        elif entry:
            log.warning(
                "CODEFYUI_RUN_QUEUE_MAX_CONCURRENT: %r is ignored; write entries as <device>=<count> or "
                "<worker>/<device>=<count>, separated by commas",
                entry,
            )
    return caps


def _absolute(value: Path) -> Path:
    return value.expanduser().absolute()


CommaList: TypeAlias = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(_split), PlainSerializer(",".join, return_type=str)
]
"""Texts separated by commas."""

Folder: TypeAlias = Annotated[Path, BeforeValidator(lambda value: _absolute(Path(value)))]
"""A folder; ``~`` is the home, relative ones count from the working folder of the process."""

FolderList: TypeAlias = Annotated[
    tuple[Folder, ...],
    NoDecode,
    BeforeValidator(_split),
    PlainSerializer(lambda paths: ",".join(map(str, paths)), return_type=str),
]
"""Folders separated by commas."""

Caps: TypeAlias = Annotated[
    Mapping[str, NonNegativeInt],
    NoDecode,
    BeforeValidator(_caps),
    PlainSerializer(lambda caps: ",".join(f"{key}={count}" for key, count in caps.items()), return_type=str),
]
"""``gpu-box/cuda:0=2,cuda:1=1``: how many runs at once, by device line. Less than 1 is 1; an entry that can't be
read is left out, with a warning.
"""
