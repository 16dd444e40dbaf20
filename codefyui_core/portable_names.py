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
_HEX = re.compile(r"[0-9A-Fa-f]{2}")
_ESCAPE = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def check_name(name: str, *, windows: bool = os.name == "nt") -> PurePosixPath:
    """The relative POSIX-style name without ``.`` parts and doubled slashes.

    Raises: BadName for one that is empty, absolute, climbs, holds a backslash, a drive, a control character
    or text that isn't Unicode, names a device, or is too long.
    """
    return PurePosixPath(*check_parts(name, windows=windows))


def check_parts(name: str, *, windows: bool = os.name == "nt") -> list[str]:
    """Its parts. Raises: BadName, as ``check_name`` does."""
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
    return parts


def to_portable(name: str, *, windows: bool = os.name == "nt") -> str:
    """A name that another system may not hold, as one that ``check_name`` takes: what it refuses is written as
    ``%`` and two hexadecimal digits a byte of UTF-8 (RFC 3986, 2.1). Other names stay as they are; ``from_portable``
    gives each one back. Bytes that are no Unicode come as lone surrogates (PEP 383).

    Raises: BadName for one that is empty, absolute, climbs, or is too long.
    """
    return str(
        check_name("/".join(_escaped(part, windows=windows) for part in name.split("/")), windows=windows)
    )


def from_portable(name: str) -> str:
    """The name that ``to_portable`` was given."""
    return _ESCAPE.sub(
        lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "surrogateescape"), name
    )


def _escaped(part: str, *, windows: bool) -> str:
    def held(character: str) -> bool:
        if character == "\\" or unicodedata.category(character) in ("Cc", "Cs"):
            return False
        return not (windows and character in _NOT_ON_WINDOWS)

    after = [part[index + 1 : index + 3] for index in range(len(part))]
    characters = [
        one if held(one) and not (one == "%" and _HEX.fullmatch(behind)) else _percent(one)
        for one, behind in zip(part, after, strict=True)
    ]
    if part not in (".", "..") and part.endswith((".", " ")):
        characters[-1] = _percent(part[-1])
    if _DRIVE.match(part):
        characters[1] = _percent(":")
    if _RESERVED.fullmatch(part.split(".", maxsplit=1)[0].rstrip(" ")):
        characters[0] = _percent(part[0])
    return "".join(characters)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogateescape"))


def spellings(name: str) -> tuple[str, ...]:
    """The name, and its other forms of composition: systems differ in the one that they keep (Unicode, UAX 15)."""
    forms = (name, unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name))
    return tuple(dict.fromkeys(forms))


def _check_text(name: str) -> None:
    if "\\" in name:
        raise _bad(name, "it holds a backslash; separate folders with /")
    plain = name.isascii() and name.isprintable()  # most names are, and there are many of them
    if not plain and any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
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
