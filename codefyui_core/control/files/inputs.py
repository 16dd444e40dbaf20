"""The uploads that a run reads, hashed as they are now; a hash is remembered while size and times stay the same."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.errors import Refused
from codefyui_core.files import Family, Folders, SafeFolder, sha256_of
from codefyui_core.ids import Sha256
from codefyui_core.plugin.storage import InputItem
from codefyui_core.plugin.views import FileRole, FileSource, FileUse, RunView

READS = frozenset({FileRole.READS, FileRole.READS_ANY})


@dataclass(frozen=True, slots=True)
class _Stamp:
    size: int
    mtime_ns: int
    inode: int


class Inputs:
    """Blocking work goes to threads."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._known: dict[Path, tuple[_Stamp, Sha256]] = {}

    async def of(self, run: RunView) -> tuple[InputItem, ...]:
        """Raises: Refused when one is gone."""
        items = [
            await asyncio.to_thread(self._item, use, use.family)
            for use in run.files.uses
            if use.source is FileSource.UPLOAD and use.role in READS and use.family is not None
        ]
        return tuple({(item.family, item.name): item for item in items}.values())

    def path(self, item: InputItem) -> Path:
        """Where its bytes are. Read only."""
        return self._folders.of(item.family) / item.name

    def _item(self, use: FileUse, family: Family) -> InputItem:
        folder = self._folders.of(family)
        try:
            with SafeFolder(folder) as safe, safe.read(use.value):
                path = folder / use.value
                sha256, size = self._hash(path)
        except OSError as error:
            raise Refused(
                f"The upload {use.value} that node {use.node_id} reads isn't here any more: {error.strerror}. "
                "Upload it again."
            ) from error
        return InputItem(sha256=sha256, size_bytes=size, family=family, name=use.value)

    def _hash(self, path: Path) -> tuple[Sha256, int]:
        stat = path.stat()
        stamp = _Stamp(stat.st_size, stat.st_mtime_ns, stat.st_ino)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            known = (stamp, sha256_of(path))
            self._known[path] = known
        return known[1], stamp.size
