"""Inputs of runs where they lie, many at a time: what leads to one of them leads to the next."""

from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self

from codefyui_core.files import FolderReader, Folders, SafeFolder, spelled_below
from codefyui_core.plugin.storage import InputItem


class InputFiles:
    """Implements ``plugin.hosts.InputFiles``."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._held = ExitStack()
        self._opened: dict[Path, FolderReader] = {}
        self._found: dict[tuple[str, str, str | None], tuple[FolderReader, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def size(self, item: InputItem) -> int:
        folder, name = self._find(item)
        return folder.size(name)

    def open(self, item: InputItem) -> BinaryIO:
        folder, name = self._find(item)
        return folder.read(name)

    def _find(self, item: InputItem) -> tuple[FolderReader, str]:
        key = (item.family, item.name, item.place)
        found = self._found.get(key)
        if found is None:
            root, name = place_of(item, self._folders)
            spelled = spelled_below(root, name).relative_to(root)
            found = self._found[key] = self._folder(root), spelled.as_posix()
        return found

    def _folder(self, root: Path) -> FolderReader:
        folder = self._opened.get(root)
        if folder is None:
            folder = self._held.enter_context(SafeFolder(root)).reader()
            self._held.callback(folder.close)
            self._opened[root] = folder
        return folder


def place_of(item: InputItem, folders: Folders) -> tuple[Path, PurePosixPath]:
    """The folder that it may not leave, and its name below. Raises: BadName."""
    root = folders.root if item.place is not None else folders.of(item.family)
    return root, PurePosixPath(item.below(folders).relative_to(root))
