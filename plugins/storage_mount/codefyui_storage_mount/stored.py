"""Looks after what lies in the shared folder, by names below it and never through a link out of it. Blocking."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from codefyui_core.plugin import BadName, Busy, Receipt, Refused, SafeFolder

CHECKED_BYTES = 16 << 20
"""Up to this size a file is read again here; of a larger one the size has to do."""


class NotYet(Busy):
    """The share, as this machine sees it, doesn't show an object, or not all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What there is of an object."""

    mtime_ns: int | None
    """None for a folder, and for a file that this user may not look at."""


def real_name(root: Path, name: str) -> str:
    """The name with every link followed.

    Raises: BadName when it leads out of the folder, or is the folder.
    """
    base = root.resolve()
    path = (base / name).resolve()
    if not path.is_relative_to(base) or path == base:
        raise BadName(f"{name}: leads out of {root}")
    return path.relative_to(base).as_posix()


def verify(root: Path, name: str, receipt: Receipt) -> Found:
    """See that a published object is here and whole. Every folder on the way is opened, at which a client of a
    network file system asks its server for the names in it.

    Raises: NotYet for what may be under way to this machine's view of the share; Busy when it can't be read now;
    Refused for other content; BadName.
    """
    real = real_name(root, name)
    if receipt.size_bytes is None or receipt.sha256 is None:
        return _verify_folder(root, real, receipt)
    try:
        with SafeFolder(root.resolve()) as folder, folder.read(real) as file:
            status = os.fstat(file.fileno())
            if status.st_size != receipt.size_bytes:
                raise NotYet(
                    f"{root / name} has {status.st_size} bytes here, and not {receipt.size_bytes} yet"
                )
            if status.st_size <= CHECKED_BYTES:
                _compare(root / name, _digest(file), receipt)
    except FileNotFoundError as error:
        raise NotYet(f"{root / name} isn't here yet") from error
    except PermissionError:
        return _unreadable(root, real, receipt)
    except OSError as error:
        raise Busy(f"{root / name} can't be read now: {error}") from error
    return Found(mtime_ns=status.st_mtime_ns)


def _compare(path: Path, digest: str, receipt: Receipt) -> None:
    if digest != receipt.sha256:
        raise Refused(f"{path} is not what its worker said it published; it changed meanwhile")


def _verify_folder(root: Path, real: str, receipt: Receipt) -> Found:
    path = root.resolve() / real
    if receipt.size_bytes is not None or receipt.sha256 is not None or path.is_file():
        raise Refused(f"{path} is not what its worker said it published")
    if not path.is_dir():
        raise NotYet(f"{path} isn't here yet")
    return Found(mtime_ns=None)


def _unreadable(root: Path, real: str, receipt: Receipt) -> Found:
    """Workers may be other users, whose files this one may list and not open."""
    path = root.resolve() / real
    try:
        found = path.stat()
    except OSError as error:
        raise Refused(f"{path}: the server's user may not look there; let it, or share a group") from error
    if found.st_size != receipt.size_bytes:
        raise NotYet(f"{path} has {found.st_size} bytes here, and not {receipt.size_bytes} yet")
    return Found(mtime_ns=found.st_mtime_ns)


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def readable_path(root: Path, name: str) -> Path:
    """Where to read an object, a file or a folder.

    Raises: Refused when it is gone, when this user may not read it, or when its name leads elsewhere by now;
    Busy.
    """
    try:
        real = real_name(root, name)
        path = root.resolve() / real
        if not path.is_dir():
            with SafeFolder(root.resolve()) as folder, folder.read(real):
                pass
        return path
    except FileNotFoundError as error:
        raise Refused(
            f"{root / name} is gone; it was moved or removed by hand", code="artifact.not_found"
        ) from error
    except PermissionError as error:
        raise Refused(f"{root / name}: the server's user may not read it; see to its permissions") from error
    except BadName as error:
        raise Refused(error.message, code=error.code) from error
    except OSError as error:
        raise Busy(f"{root / name} can't be read now: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What is known of an object."""

    size_bytes: int | None
    """None for a folder."""
    mtime_ns: int | None
    sha256: str | None


def remove(root: Path, name: str, recorded: Recorded) -> None:
    """Remove what is still the recorded object; what a later run wrote over it stays, as does what nobody
    can tell.

    Raises: OSError.
    """
    try:
        real = real_name(root, name)
    except BadName:
        return
    with SafeFolder(root.resolve()) as folder:
        path = root.resolve() / real
        if recorded.size_bytes is None:
            if path.is_dir():
                folder.remove(real)
        elif _is_still(folder, real, recorded):
            folder.remove(real)


def _is_still(folder: SafeFolder, real: str, recorded: Recorded) -> bool:
    """By its time where one was kept, else by its content; a checkpoint of the next run has the same size."""
    try:
        with folder.read(real) as file:
            found = os.fstat(file.fileno())
            if found.st_size != recorded.size_bytes:
                return False
            if recorded.mtime_ns is not None:
                return found.st_mtime_ns == recorded.mtime_ns
            return _digest(file) == recorded.sha256
    except (FileNotFoundError, BadName):
        return False
