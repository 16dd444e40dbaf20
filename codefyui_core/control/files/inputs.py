"""The files that a run reads and that may travel, hashed as they are now; a hash is remembered while size and times stay
the same.
"""

import asyncio
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from codefyui_core.errors import Busy, CodefyError, Refused
from codefyui_core.files import Folders, sha256_of_open, spelled_below
from codefyui_core.graph.files_used import over_limit
from codefyui_core.ids import Sha256
from codefyui_core.plugin.storage import InputItem
from codefyui_core.plugin.views import FileRole, FileSource, FileUse, RunView

from .input_files import InputFiles, place_of

READS = frozenset({FileRole.READS, FileRole.READS_ANY})
AT_ONCE = 2
"""Files that are hashed at the same time, of all runs."""
TRIES = 3
"""Of a file that changes while it is hashed."""
REMEMBERED = 4096
_DATA = "data/"
"""How a plain path names the data folder."""


@dataclass(frozen=True, slots=True)
class _Stamp:
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, file: BinaryIO) -> "_Stamp":
        found = os.fstat(file.fileno())
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class Inputs:
    """Blocking work goes to threads, a few files at a time."""

    def __init__(
        self,
        folders: Folders,
        *,
        limit_bytes: int | None = None,
        hash_open: Callable[[BinaryIO], Sha256] = sha256_of_open,
    ) -> None:
        """``limit_bytes``: of all inputs of one run together."""
        self._folders = folders
        self._limit_bytes = limit_bytes
        self._hash_open = hash_open
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._known: OrderedDict[Path, tuple[_Stamp, Sha256]] = OrderedDict()

    async def of(self, run: RunView) -> tuple[InputItem, ...]:
        """Each file once, under every name that the graph has for it.

        Raises: Refused when one is gone, or they have grown over the limit; Busy for one that keeps changing.
        """
        uses = {(use.family, PurePosixPath(use.value)): use for use in run.files.uses if _may_travel(use)}
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._item(use)) for use in uses.values()]
        found = [task.result() for task in tasks]
        failed = next((one for one in found if isinstance(one, CodefyError)), None)
        if failed is not None:
            raise failed
        items = tuple(one for one in found if isinstance(one, InputItem))
        problem = over_limit(sum(item.size_bytes for item in items), self._limit_bytes)
        if problem is not None:
            raise Refused(f"Since the run was submitted its files have grown: {problem}. Make them smaller.")
        return items

    def path(self, item: InputItem) -> Path:
        """Where its bytes are. Read only."""
        return spelled_below(*place_of(item, self._folders))

    def open(self, item: InputItem) -> BinaryIO:
        """Its bytes, reached without following a link.

        Raises: OSError, BadName.
        """
        with self.files() as files:
            return files.open(item)

    def files(self) -> InputFiles:
        """For many of them."""
        return InputFiles(self._folders)

    async def _item(self, use: FileUse) -> InputItem | CodefyError:
        """An error is an answer, so that it reaches the caller alone and not in a group."""
        assert use.family is not None
        earlier = use.source is FileSource.ARTIFACT
        place = str(PurePosixPath(use.value)).removeprefix(_DATA) if earlier else None
        asked = InputItem(sha256=Sha256(""), size_bytes=0, family=use.family, name=use.value, place=place)
        try:
            async with self._turn:
                sha256, size = await asyncio.to_thread(self._hashed, asked)
        except Busy as error:
            return error
        except (OSError, CodefyError) as error:
            what = "file" if earlier else "upload"
            why = error.strerror if isinstance(error, OSError) else error
            return Refused(
                f"The {what} {use.value} that node {use.node_id} reads isn't here any more: {why}. "
                + ("Choose another one." if earlier else "Upload it again.")
            )
        return asked.model_copy(update={"sha256": sha256, "size_bytes": size})

    def _hashed(self, item: InputItem) -> tuple[Sha256, int]:
        path = self.path(item)
        for _ in range(TRIES):
            with self.open(item) as file:
                before = _Stamp.of(file)
                known = self._known.get(path)
                if known is not None and known[0] == before:
                    self._remember(path, *known)
                    return known[1], before.size
                sha256 = self._hash_open(file)
                if _Stamp.of(file) == before:
                    self._remember(path, before, sha256)
                    return sha256, before.size
        raise Busy(f"{item.name} changes while it is read; the run begins once it is whole.", retry_after_s=5)

    def _remember(self, path: Path, stamp: _Stamp, sha256: Sha256) -> None:
        """The last used are the last to be forgotten."""
        with self._lock:
            self._known.pop(path, None)
            self._known[path] = (stamp, sha256)
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)


def _may_travel(use: FileUse) -> bool:
    return (
        use.source in {FileSource.UPLOAD, FileSource.ARTIFACT}
        and use.role in READS
        and use.family is not None
    )
