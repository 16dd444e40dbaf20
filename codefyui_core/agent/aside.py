"""Spools that nobody here takes: kept for a while, in case their database comes back, and then deleted.

Those of a foreign database stay where they are, so that it gets them when it is there again. Those of a run that
its database doesn't know, as it was restored from a backup or the run was deleted, are moved out of the way.
"""

import json
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.files import write_private

MARK = "set-aside"
KEEP_DAYS = 30
KEEP_S = KEEP_DAYS * 24 * 3600.0
LIMIT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """One spool that was set aside."""

    path: Path
    since_s: float
    """Wall time."""
    size: int


def overdue(
    found: Iterable[Aside], now_s: float, *, keep_s: float = KEEP_S, limit_bytes: int = LIMIT_BYTES
) -> Sequence[Aside]:
    """Those that were kept long enough, and the oldest of more than may be kept. Pure."""
    newest_first = sorted(found, key=lambda one: one.since_s, reverse=True)
    total, over = 0, []
    for one in newest_first:
        total += one.size
        if now_s - one.since_s > keep_s or total > limit_bytes:
            over.append(one)
    return over[::-1]


class Asides:
    """Of one agent's folders. Everything here is blocking."""

    def __init__(self, spools: Path, folder: Path, *, wall: Callable[[], float] = time.time) -> None:
        self._spools = spools
        self._folder = folder
        self.wall = wall

    def mark(self, path: Path, *, kept: bool) -> None:
        """``kept``: of a foreign database, counted from the first time that this is said."""
        mark = path / MARK
        if not kept:
            mark.unlink(missing_ok=True)
        elif path.is_dir() and not mark.exists():
            write_private(mark, json.dumps({"since": self.wall()}).encode())

    def put(self, path: Path) -> Path:
        """Of an unknown run: out of the way. Answers where it is."""
        self.mark(path, kept=True)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = self._folder / path.name.partition("~")[0]
        shutil.rmtree(target, ignore_errors=True)
        with suppress(FileNotFoundError):
            path.rename(target)
        return target

    def overdue(self, busy: Collection[Path | None] = ()) -> Sequence[Aside]:
        """What is to be deleted, oldest first. ``busy``: folders that a run still writes."""
        return overdue((one for one in self._found() if one.path not in busy), self.wall())

    def _found(self) -> Iterator[Aside]:
        for root in (self._folder, self._spools):
            for path in root.iterdir() if root.is_dir() else ():
                if (path / MARK).is_file():
                    size = sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
                    yield Aside(path=path, since_s=_since(path / MARK), size=size)


def _since(mark: Path) -> float:
    """As written; for an unreadable mark the time when it was."""
    try:
        return float(json.loads(mark.read_bytes())["since"])
    except (ValueError, KeyError, TypeError):
        return mark.stat().st_mtime
