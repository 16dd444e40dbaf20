"""The hidden files of many files that come together, and how those get their names. All of it blocks. What one file
costs by itself, many cost once: a folder is opened, walked to and synced for all that lies in it.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Self

from sqlalchemy import RowMapping

from codefyui_core.errors import BadName, CodefyError
from codefyui_core.files import part_name, rename_new
from codefyui_core.folder_handles import Directory, open_directory
from codefyui_core.ids import Sha256
from codefyui_core.plugin.storage import Arrived, Arriving

from . import parts


@dataclass(slots=True, kw_only=True, eq=False)
class Whole:
    """One of them."""

    file: Arriving
    size_bytes: int
    sha256: Sha256
    name: str = ""
    """The one that was chosen for it, below the file's folder."""
    is_here: bool = False
    """All of it, in its hidden file."""
    is_placed: bool = False
    problem: CodefyError | None = None
    """Why it isn't taken."""
    hidden: str = field(init=False)
    parts: tuple[str, ...] = field(init=False)
    """Of the name that it was sent with. Splitting is what a path would do with it, at a tenth of the time."""

    def __post_init__(self) -> None:
        self.hidden = part_name(self.file.run_id, self.file.key)
        self.parts = tuple(part for part in self.file.name.split("/") if part not in ("", "."))

    @property
    def parent(self) -> tuple[str, ...]:
        return self.parts[:-1]

    @property
    def is_open(self) -> bool:
        """It is neither placed nor given up."""
        return self.problem is None and not self.is_placed

    def was_placed(self, row: RowMapping) -> None:
        """As a row says."""
        self.name, self.size_bytes, self.sha256 = row["final_path"], row["size_bytes"], row["sha256"]
        self.is_placed = True

    def arrived(self) -> Arrived:
        path = self.file.folder / self.name
        return Arrived(path=path, relative_path=self.name, size_bytes=self.size_bytes, sha256=self.sha256)

    def failed(self, error: CodefyError | OSError) -> None:
        if isinstance(error, CodefyError):
            self.problem = error
        elif parts.is_full(error):
            self.problem = parts.full(self.file.name)
        else:
            why = error.strerror or str(error)
            self.problem = CodefyError(
                f"{self.file.name} can't be stored on the server: {why}.", code="storage.refused"
            )


# ---------------------------------------------------------------- names


def choose(wholes: Iterable[Whole]) -> None:
    """A name for each: its own; that of a file there with the same content; or one with a number when other content
    has the name.
    """
    for _, place, those in _places(wholes):
        for whole in those:
            with _alone(whole):
                whole.name = _chosen(whole, place)


def _chosen(whole: Whole, place: Directory | None) -> str:
    own = "/".join(whole.parts)
    if place is None or not _is_there(place, whole.parts[-1]):
        return own
    return next(name for name in parts.names(own) if _content(whole, name) in (None, whole.sha256))


def recognize(wholes: Iterable[tuple[Whole, RowMapping]]) -> None:
    """After a crash: whether a file got the chosen name of its row is to be seen from its content."""
    for whole, row in wholes:
        with _alone(whole):
            there = parts.content(whole.file.folder, row["final_path"], row["size_bytes"])
            if there == row["sha256"]:
                parts.remove(whole.file)
                whole.was_placed(row)


def place(wholes: Iterable[Whole]) -> list[Whole]:
    """They get their chosen names, and folders are synced. Those whose names other content has by now are given back."""
    taken = []
    for root, place, those in _places(wholes, create=True):
        for whole in those:
            with _alone(whole):
                if root is None or place is None:
                    raise FileNotFoundError(errno.ENOENT, "its folder was removed")
                whole.is_placed = _is_placed(whole, root, place)
                if not whole.is_placed:
                    taken.append(whole)
    return taken


def _is_placed(whole: Whole, root: Directory, place: Directory) -> bool:
    try:
        rename_new(root, whole.hidden, place, whole.name.rpartition("/")[2])
    except FileExistsError:
        if _content(whole, whole.name) != whole.sha256:
            return False
        root.unlink(whole.hidden)
    return True


def _content(whole: Whole, name: str) -> str | None:
    return parts.content(whole.file.folder, name, whole.size_bytes)


# ---------------------------------------------------------------- bytes


class Writer:
    """Puts bytes, as they come, into hidden files. A file that turns out to be another than was announced, or that the
    disk doesn't take, is removed again, and the bytes of its rest go nowhere.
    """

    def __init__(self, coming: Sequence[tuple[int, Whole | None]]) -> None:
        """How many bytes come for whom, in order; None: for nobody."""
        self._coming = iter(coming)
        self._whole: Whole | None = None
        self._left = 0
        self._out: int | None = None
        self._digest = hashlib.sha256()

    def write(self, pieces: Iterable[bytes]) -> None:
        """No more than is to come."""
        with _Roots() as roots:
            if not self._left:
                self._begin(roots)
            for piece in pieces:
                rest = memoryview(piece)
                while rest:
                    data, rest = rest[: self._left], rest[self._left :]
                    self._put(data, roots)
                    self._left -= len(data)
                    if not self._left:
                        self._end(roots)
                        self._begin(roots)

    @property
    def is_open(self) -> bool:
        return self._out is not None

    def close(self) -> None:
        """What isn't whole now never will be."""
        if self._out is not None:
            os.close(self._out)
            self._out = None

    def _begin(self, roots: "_Roots") -> None:
        """The next file of which bytes are to come; those without any are whole at once."""
        for left, whole in self._coming:
            self._left, self._whole = left, whole
            self._digest = hashlib.sha256()
            if whole is not None:
                with _alone(whole):
                    self._out = _created(roots.of(whole.file.folder), whole.hidden)
            if left:
                return
            self._end(roots)

    def _put(self, data: memoryview, roots: "_Roots") -> None:
        if self._out is None or self._whole is None:
            return
        self._digest.update(data)
        with _alone(self._whole):
            while data:
                data = data[os.write(self._out, data) :]
        if self._whole.problem is not None:
            self._drop(self._whole, roots)

    def _end(self, roots: "_Roots") -> None:
        if self._out is None or self._whole is None:
            return
        if self._digest.hexdigest() == self._whole.sha256:
            self.close()
            self._whole.is_here = True
            return
        self._whole.problem = CodefyError(
            f"{self._whole.file.name} arrived with other content than it was sent with. Send it again.",
            code="upload.mismatch",
        )
        self._drop(self._whole, roots)

    def _drop(self, whole: Whole, roots: "_Roots") -> None:
        self.close()
        roots.of(whole.file.folder).unlink(whole.hidden)


def _created(root: Directory, hidden: str) -> int:
    """Never one that is there: after a crash it may be the same file as one that has its name already."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        return root.open(hidden, flags)
    except FileExistsError:
        root.unlink(hidden)
        return root.open(hidden, flags)


def sync(wholes: Iterable[Whole]) -> None:
    """Their bytes are on the disk."""
    with _Roots() as roots:
        for whole in wholes:
            with _alone(whole):
                out = roots.of(whole.file.folder).open(whole.hidden, os.O_RDWR)
                try:
                    os.fsync(out)
                finally:
                    os.close(out)


def remove(wholes: Iterable[Whole]) -> None:
    """What there is of them."""
    for whole in wholes:
        with suppress(BadName):
            parts.remove(whole.file)


# ---------------------------------------------------------------- folders


class _Roots:
    """Folders that files are for, made where they aren't there, each opened once."""

    def __init__(self) -> None:
        self._open: dict[Path, Directory] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for root in self._open.values():
            root.close()

    def of(self, folder: Path) -> Directory:
        if folder not in self._open:
            self._open[folder] = _root(folder, create=True)
        return self._open[folder]


def _places(
    wholes: Iterable[Whole], *, create: bool = False
) -> Iterator[tuple[Directory | None, Directory | None, list[Whole]]]:
    """The folder that files are for, the one below it that their names are in, and which files. None: it isn't there.
    With ``create`` all are made, and synced afterwards.
    """
    ordered = sorted(wholes, key=lambda one: (str(one.file.folder), one.parent))
    for folder, for_it in groupby(ordered, lambda one: one.file.folder):
        those = list(for_it)
        root = _opened(those, partial(_root, folder, create=create))
        if root is None:
            yield None, None, [one for one in those if one.problem is None]
            continue
        with root:
            for parent, below in groupby(those, lambda one: one.parent):
                in_it = list(below)
                place = _opened(in_it, partial(_below, root, parent, create=create))
                if place is None:
                    yield root, None, [one for one in in_it if one.problem is None]
                    continue
                with place:
                    yield root, place, in_it
                    if create:
                        place.sync()
            if create:
                root.sync()


def _root(folder: Path, *, create: bool) -> Directory:
    if create:
        folder.mkdir(0o755, parents=True, exist_ok=True)
    return open_directory(folder)


def _below(root: Directory, parent: Sequence[str], *, create: bool) -> Directory:
    """Raises: FileNotFoundError; BadName when a link or a file is in the way."""
    place = root.same()
    try:
        for part in parent:
            if create:
                with suppress(FileExistsError):
                    place.make(part, 0o755)
                    place.sync()
            above, place = place, place.child(part)
            above.close()
    except NotADirectoryError as error:
        place.close()
        raise BadName(f"{part!r} is a file, so nothing can be placed below it.") from error
    except BaseException:
        place.close()
        raise
    return place


def _opened(wholes: Sequence[Whole], opening: Callable[[], Directory]) -> Directory | None:
    """Raises nothing: what is in the way is the files' problem."""
    try:
        return opening()
    except FileNotFoundError:
        return None
    except (BadName, OSError) as error:
        for whole in wholes:
            whole.failed(error)
        return None


def _is_there(place: Directory, name: str) -> bool:
    try:
        place.stat(name)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _alone(whole: Whole) -> Iterator[None]:
    """What goes wrong with it is no other's problem."""
    try:
        yield
    except (BadName, OSError) as error:
        whole.failed(error)
