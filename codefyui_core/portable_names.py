"""Names from outside: which ones every file system that we run on can hold. Touches no file."""

import os
import re
import unicodedata
from pathlib import PurePosixPath

from .errors import BadName

PART_LIMIT_BYTES = 255
"""What ext4, XFS, APFS and NTFS hold in one part (NAME_MAX)."""
NAME_LIMIT_BYTES = 1024
"""The smallest PATH_MAX of the supported systems (macOS)."""

_DRIVE = re.compile(r"[A-Za-z]:")
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])", re.IGNORECASE)
"""Device names of Windows, which open a device in any folder and with any suffix (Microsoft, "Naming files,
paths, and namespaces"). Refused everywhere, as files travel between systems."""
_NOT_ON_WINDOWS = frozenset('<>:"|?*')


def check_name(name: str, *, windows: bool = os.name == "nt") -> PurePosixPath:
    """The relative POSIX-style name without ``.`` parts and doubled slashes.

    Raises: BadName for one that is empty, absolute, climbs, holds a backslash, a drive, a control character
    or text that isn't Unicode, names a device, or is too long.
    """
    _check_text(name)
    if name.startswith("/"):
        raise _bad(name, "it is absolute; give a name below the folder")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if not parts:
        raise _bad(name, "it is empty")
    for part in parts:
        _check_part(name, part, windows=windows)
    if len("/".join(parts).encode()) > NAME_LIMIT_BYTES:
        raise _bad(name, f"it is longer than {NAME_LIMIT_BYTES} bytes")
    return PurePosixPath(*parts)


def spellings(name: str) -> tuple[str, ...]:
    """The name, and its other forms of composition: systems differ in the one that they keep (Unicode, UAX 15)."""
    forms = (name, unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name))
    return tuple(dict.fromkeys(forms))


def _check_text(name: str) -> None:
    if "\\" in name:
        raise _bad(name, "it holds a backslash; separate folders with /")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise _bad(name, "it holds a control character")


def _check_part(name: str, part: str, *, windows: bool) -> None:
    if part == "..":
        raise _bad(name, "it leaves its folder")
    if _DRIVE.match(part):
        raise _bad(name, "it holds a drive")
    if part.endswith((".", " ")):
        raise _bad(name, "a part of it ends in a dot or a blank, which Windows drops")
    if _RESERVED.fullmatch(part.split(".", maxsplit=1)[0].rstrip(" ")):
        raise _bad(name, f"{part!r} is the name of a device on Windows")
    if windows and _NOT_ON_WINDOWS.intersection(part):
        raise _bad(name, "it holds a character that Windows can't")
    if len(part.encode()) > PART_LIMIT_BYTES:
        raise _bad(name, f"a part of it is longer than {PART_LIMIT_BYTES} bytes")


def _bad(name: str, why: str) -> BadName:
    shown = ascii(name if len(name) <= 120 else f"{name[:117]}...")
    return BadName(f"{shown} can't be a file name here: {why}.")
