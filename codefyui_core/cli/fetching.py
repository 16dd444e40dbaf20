"""Files of runs onto this disk: below one folder, checked by their hash, continued where they broke off, never over a file
that isn't the same.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from ..errors import BadName, CodefyError
from ..files import SafeFolder, part_name, sha256_of
from ..portable_names import check_name
from .client import HttpApi, Unreachable
from .errors import CommandProblem

TRIES = 5
"""With a line that breaks without giving anything."""
RETRY_S = 1.0
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """A file that is here now."""

    artifact_id: str
    path: Path
    size_bytes: int
    sha256: str
    already: bool = False
    """It was here before, with the same content."""


def place_of(row: Row, *, apart: bool) -> str:
    """Where an artifact goes below a folder: its name alone, or its whole name below its kind.

    Raises: BadName for one that leads elsewhere. The server may be anybody's.
    """
    name = check_name(str(row["name"]))
    place = check_name(f"{row['kind']}/{name}") if apart else PurePosixPath(name.name)
    return str(place) if row["size_bytes"] is not None else f"{place}.zip"


def places_of(rows: list[Row]) -> Iterator[tuple[Row, str | BadName]]:
    """Each with a place of its own; one whose name is no good is told and left out."""
    taken: set[str] = set()
    for row in rows:
        try:
            place = _free(place_of(row, apart=True), taken)
        except BadName as error:
            yield row, error
            continue
        taken.add(place.casefold())
        yield row, place


def _free(place: str, taken: set[str]) -> str:
    path, number = PurePosixPath(place), 0
    while str(path).casefold() in taken:
        number += 1
        path = PurePosixPath(place).with_name(
            f"{PurePosixPath(place).stem}-{number}{PurePosixPath(place).suffix}"
        )
    return str(path)


class Fetcher:
    """Into one folder. ``told`` hears how many bytes are here, and of how many, where that is known."""

    def __init__(
        self,
        api: HttpApi,
        folder: Path,
        *,
        force: bool = False,
        told: Callable[[str, int, int | None], None] = lambda _place, _done, _size: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api = api
        self._root = folder
        self._force = force
        self._told = told
        self._sleep = sleep

    def fetch(self, run_id: str, row: Row, place: str) -> Got:
        """Raises: CommandProblem when another file is there, or nothing can be written; ApiProblem; Unreachable;
        BadName.
        """
        try:
            return self._fetch(run_id, row, place)
        except OSError as error:
            raise CommandProblem(
                f"{self._root / place} can't be written: {error.strerror or error}."
            ) from error

    def _fetch(self, run_id: str, row: Row, place: str) -> Got:
        target = self._root / check_name(place)
        if target.exists() or target.is_symlink():
            same = self._there(target, row)
            if same is not None:
                return same
            if not self._force:
                raise CommandProblem(
                    f"{target} is there, and it is another file. Name another folder with -o, or replace it with --force."
                )
        with SafeFolder(self._root, create=True) as folder:
            part = part_name(
                run_id, str(row["id"])
            )  # the same for each command, so that the next one goes on
            sha256, size = self._whole(folder, part, run_id, row, place)
            try:
                folder.rename(part, place, replace=self._force)
            except FileExistsError:
                raise CommandProblem(
                    f"{target} has come in between. Name another folder with -o, or replace it with --force."
                ) from None
        return Got(artifact_id=str(row["id"]), path=target, size_bytes=size, sha256=sha256)

    def _there(self, target: Path, row: Row) -> Got | None:
        """What is there, if it is the artifact."""
        if not target.is_file() or target.is_symlink() or row["sha256"] is None:
            return None
        size = target.stat().st_size
        if size != row["size_bytes"] or sha256_of(target) != row["sha256"]:
            return None
        return Got(
            artifact_id=str(row["id"]), path=target, size_bytes=size, sha256=row["sha256"], already=True
        )

    def _whole(self, folder: SafeFolder, part: str, run_id: str, row: Row, place: str) -> tuple[str, int]:
        """All bytes of it in its part file; one that was begun earlier is begun anew if it comes to another hash."""
        begun = row["sha256"] is not None  # without a hash nobody would notice another file's beginning
        for again in (begun, False):
            download = _Download(
                self,
                folder,
                part,
                f"/api/runs/{quote(run_id, safe='')}/artifacts/{quote(str(row['id']), safe='')}/download",
                place,
            )
            resumed = download.begin(again=again)
            download.run()
            found = download.digest.hexdigest()
            if row["sha256"] in (None, found):
                return found, download.size
            folder.remove(part)
            if not resumed:
                break
        raise CommandProblem(
            f"{place} arrived damaged: its hash isn't the one that the run recorded. Try again; if it stays so, the "
            "file was changed where it is kept."
        )

    # for _Download

    @property
    def api(self) -> HttpApi:
        return self._api

    def told(self, place: str, done: int, size: int | None) -> None:
        self._told(place, done, size)

    def sleep(self) -> None:
        self._sleep(RETRY_S)


class _Download:
    """One file through breaks of its line."""

    def __init__(self, owner: Fetcher, folder: SafeFolder, part: str, path: str, place: str) -> None:
        self._owner = owner
        self._folder = folder
        self._part = part
        self._path = path
        self._place = place
        self._tag: str | None = None
        self.size = 0
        self.digest = hashlib.sha256()

    def begin(self, *, again: bool) -> bool:
        """Take over what an earlier command left. Whether there was something."""
        if not again:
            self._folder.remove(self._part)
            return False
        with suppress(FileNotFoundError), self._folder.read(self._part) as file:
            while piece := file.read(1 << 20):
                self.digest.update(piece)
                self.size += len(piece)
        return self.size > 0

    def run(self) -> None:
        """Raises: Unreachable when nothing comes any more; ApiProblem."""
        failures = 0
        while True:
            before = self.size
            try:
                if self._once():
                    return
                error = Unreachable(
                    f"{self._place} broke off after {self.size} bytes. Run the command again."
                )
            except Unreachable as broken:
                error = broken
            failures = 0 if self.size > before else failures + 1
            if failures >= TRIES:
                raise error
            self._owner.sleep()

    def _once(self) -> bool:
        """Is it whole? As much as comes is kept."""
        try:
            fetched = self._owner.api.fetch(self._path, offset=self.size, tag=self._tag)
        except CodefyError as error:
            if self.size and getattr(error, "status", None) == 416:
                return True
            raise
        self._tag = fetched.tag
        if fetched.start != self.size:
            self.size, self.digest = 0, hashlib.sha256()
        if fetched.start > self.size:
            raise Unreachable(f"The server skips a part of {self._place}.")
        with self._folder.append(self._part, self.size) as out:
            for piece in fetched.pieces:
                out.write(piece)
                self.digest.update(piece)
                self.size += len(piece)
                self._owner.told(self._place, self.size, fetched.size_bytes)
        return fetched.size_bytes is None or self.size >= fetched.size_bytes
