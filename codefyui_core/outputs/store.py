"""A folder of recorded runs, bounded: the oldest go first. One folder a run, which is whole or not there.

The processes of runs write, a plane reads and tidies up; neither waits for the other. All methods block.
"""

import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from codefyui_core.errors import CodefyError

from .format import DATA, INDEX

KEEP_RUNS = 20
FREE_BYTES = 512 << 20
"""Of the disk: outputs leave it to what matters more."""
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_WRITING = ".writing"
_GONE = ".gone"


@dataclass(frozen=True, slots=True)
class Kept:
    """One recorded run."""

    run_id: str
    bytes: int
    written_ns: int


class OutputStore:
    """``limit_bytes`` 0: bounded by the number of runs only."""

    def __init__(self, root: Path, *, limit_bytes: int, keep_runs: int = KEEP_RUNS) -> None:
        self.root = root
        self.limit_bytes = limit_bytes
        self.keep_runs = keep_runs

    # ------------------------------------------------------------ what there is

    def kept(self) -> Sequence[Kept]:
        """Oldest first."""
        found = []
        for path in self.root.iterdir() if self.root.is_dir() else ():
            with suppress(OSError):
                if _RUN_ID.fullmatch(path.name):
                    index = (path / INDEX).stat()
                    size = index.st_size + (path / DATA).stat().st_size
                    found.append(Kept(path.name, size, index.st_mtime_ns))
        return sorted(found, key=lambda one: (one.written_ns, one.run_id))

    def has(self, run_id: str) -> bool:
        return (self.folder(run_id) / INDEX).is_file()

    def folder(self, run_id: str) -> Path:
        """Raises: CodefyError ``outputs.not_found`` for what is no run's id."""
        if not _RUN_ID.fullmatch(run_id):
            raise not_kept(run_id)
        return self.root / run_id

    def is_writing(self) -> bool:
        """A run's outputs are being written just now."""
        return self.root.is_dir() and any(path.suffix == _WRITING for path in self.root.iterdir())

    # ------------------------------------------------------------ writing

    def begin(self, run_id: str) -> Path:
        """An empty folder to write into, which no reader sees."""
        staging = self._staging(run_id)
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(mode=0o700, parents=True)
        return staging

    def publish(self, run_id: str) -> None:
        """What was written takes the place of what an attempt before may have written."""
        self.remove(run_id)
        self._staging(run_id).rename(self.folder(run_id))
        self.make_room(0)

    def _staging(self, run_id: str) -> Path:
        folder = self.folder(run_id)
        return folder.with_name(f".{folder.name}{_WRITING}")

    def room(self) -> int:
        """The most bytes that one run may write, with all older ones gone."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = max(0, shutil.disk_usage(self.root).free - FREE_BYTES)
        free += sum(one.bytes for one in self.kept())
        return min(self.limit_bytes, free) if self.limit_bytes else free

    # ------------------------------------------------------------ letting go

    def make_room(self, needed_bytes: int) -> None:
        """Remove the oldest until so many more bytes fit, or, with 0, until what is there does."""
        kept = list(self.kept())
        total = sum(one.bytes for one in kept) + needed_bytes
        most = self.keep_runs - (needed_bytes > 0)
        while kept and (len(kept) > most or (self.limit_bytes and total > self.limit_bytes)):
            oldest = kept.pop(0)
            total -= oldest.bytes
            self.remove(oldest.run_id)

    def remove(self, run_id: str) -> bool:
        """False when nothing was there. Out of sight in one step; readers that have it open read on."""
        folder = self.folder(run_id)
        gone = folder.with_name(f".{folder.name}.{uuid4().hex}{_GONE}")
        try:
            folder.rename(gone)
        except FileNotFoundError:
            return False
        shutil.rmtree(gone, ignore_errors=True)
        return True

    def settle(self, run_id: str) -> bool:
        """The run's processes are gone: what one of them left unfinished goes, and the bound is kept. True when
        its outputs are there.
        """
        shutil.rmtree(self._staging(run_id), ignore_errors=True)
        self.make_room(0)
        return self.has(run_id)

    def tidy(self) -> None:
        """At a start, when no run executes: nothing unfinished stays, and the bound may be another now."""
        for path in self.root.iterdir() if self.root.is_dir() else ():
            if path.suffix in {_WRITING, _GONE}:
                shutil.rmtree(path, ignore_errors=True)
        self.make_room(0)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def not_kept(run_id: str) -> CodefyError:
    return CodefyError(
        f"No outputs of run {run_id} are kept: none were recorded, or they made room for newer ones. Run it again "
        "with record_outputs to see them.",
        code="outputs.not_found",
    )
