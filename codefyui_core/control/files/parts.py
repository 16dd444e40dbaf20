"""The hidden file that the bytes of an arriving file gather in, and how it gets its name. All of it blocks."""

import contextlib
import errno
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from codefyui_core.errors import BadName, CodefyError
from codefyui_core.files import SafeFolder, part_name, sha256_of_open
from codefyui_core.plugin.storage import Arriving


@dataclass(slots=True)
class Begun:
    """The hash of the beginning of a file, as far as it is known."""

    digest: "hashlib._Hash" = field(default_factory=hashlib.sha256)
    n_bytes: int = 0

    def add(self, pieces: Sequence[bytes]) -> None:
        """What comes next."""
        for piece in pieces:
            self.digest.update(piece)
            self.n_bytes += len(piece)


class Unseen(Exception):
    """Only whoever sent a file can say what it was: its beginning came to another process."""


class Elsewhere(Exception):
    """A file doesn't go on where somebody would continue it, but at ``size``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size


class Part:
    """Opened by the first write and closed by the last. What was written stays, however it is left; ``settle`` puts it
    on the disk.
    """

    def __init__(self, file: Arriving, offset: int) -> None:
        self._file = file
        self._offset = offset
        self._open = contextlib.ExitStack()
        self._out: BinaryIO | None = None

    @property
    def is_open(self) -> bool:
        return self._out is not None

    def write(self, pieces: Sequence[bytes], *, is_last: bool) -> None:
        """Raises: Elsewhere, BadName."""
        out = self._out or self._opened()
        for piece in pieces:
            out.write(piece)
        if is_last:
            self.close()

    def _opened(self) -> BinaryIO:
        size = size_of(self._file)
        if size != self._offset:
            raise Elsewhere(size)
        with contextlib.ExitStack() as undo:
            folder = undo.enter_context(SafeFolder(self._file.folder, create=True))
            writing = folder.append(_name(self._file), self._offset, sync=False)
            self._out = undo.enter_context(writing)
            self._open = undo.pop_all()
        return self._out

    def close(self) -> None:
        self._out = None
        self._open.close()


def _name(file: Arriving) -> str:
    return part_name(file.run_id, file.key)


def size_of(file: Arriving) -> int:
    """How much is here."""
    try:
        return (file.folder / _name(file)).stat().st_size
    except FileNotFoundError:
        return 0


def settle(file: Arriving, begun: Begun | None, size_bytes: int, sha256: str | None) -> str | int:
    """Its hash: it is what was sent, is on the disk, and the folders for its name are there. Else how many bytes it had;
    they are gone. Without ``sha256``, the bytes that came to this process are what was sent.

    Raises: FileNotFoundError when nothing of it is here; Unseen when some came to another process, which a loss of
    power may have taken away; BadName when a link or a file is in the way of its name.
    """
    with SafeFolder(file.folder) as folder:
        size, found = (file.folder / _name(file)).stat().st_size, None
        if begun is not None and begun.n_bytes == size:  # else a write failed in the middle
            found = begun.digest.hexdigest()
        elif size == size_bytes:
            if sha256 is None:
                raise Unseen
            with folder.read(_name(file)) as part:
                found = sha256_of_open(part)
        if found is None or size != size_bytes or sha256 not in {None, found}:
            folder.remove(_name(file))
            return size
        with folder.append(_name(file), size):
            pass
        parents = PurePosixPath(file.name).parent
        if parents.parts:
            folder.make_folder(str(parents))
        return found


def names(name: str) -> Iterator[str]:
    """``models/a.pt``, ``models/a-1.pt``, ``models/a-2.pt``, ..."""
    path = PurePosixPath(name)
    yield str(path)
    number = 1
    while True:
        yield str(path.with_name(f"{path.stem}-{number}{path.suffix}"))
        number += 1


def content(folder: Path, name: str, size_bytes: int) -> str | None:
    """The hash of what lies there: None for nothing, empty for what is no file, or has another size."""
    try:
        with SafeFolder(folder) as safe, safe.read(name) as file:
            if file.seek(0, 2) != size_bytes:
                return ""
            file.seek(0)
            return sha256_of_open(file)
    except FileNotFoundError:
        return None
    except BadName:
        return ""


def link(file: Arriving, name: str) -> None:
    """Raises: FileExistsError."""
    with SafeFolder(file.folder) as folder:
        folder.rename(_name(file), name)


def remove(file: Arriving, name: str = "") -> None:
    """``name``: where the same content is."""
    with contextlib.suppress(FileNotFoundError), SafeFolder(file.folder) as folder:
        folder.remove(_name(file))


def is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def full(name: str) -> CodefyError:
    return CodefyError(
        f"The disk is full: {name} wasn't stored. Free some space; it goes on where it stopped.",
        code="storage.full",
    )
