"""The folders that a run on this agent works in."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.files import Family, Folders
from codefyui_core.plugin.storage import Workspace
from codefyui_core.runner.api import FolderSpec


def outbox_of(run: Path) -> Path:
    """In the folder of a run: what its recorded files were when they were reported."""
    return run / "outbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolders:
    """The folders of this installation, as runs need them."""

    base: Path
    samples: Path
    runs: Path
    """Private folders of runs are below it."""
    cache: Path
    folders: Folders
    """This installation's own, as its settings place them."""
    readable: Sequence[Path] = ()

    def own(self) -> Workspace:
        """For a run that declares no files: what it reads and writes all the same is this installation's."""
        return Workspace(folders=self.folders, private=False)

    def private(self, run_id: str) -> Workspace:
        """A data folder for this run alone, made here; but what runs cache they share. Blocking."""
        root = self.runs / run_id / "data"
        folders = Folders(root=root, moved=((Family.CACHE, self.folders.of(Family.CACHE)),))
        for family in Family:
            folders.of(family).mkdir(mode=0o700, parents=True, exist_ok=True)
        return Workspace(folders=folders, private=True)

    def clear(self, run_id: str) -> None:
        """What an attempt left there that was never accepted. Blocking."""
        shutil.rmtree(self.runs / run_id, ignore_errors=True)

    def spec(self, workspace: Workspace) -> FolderSpec:
        folders = workspace.folders
        return FolderSpec(
            base=str(self.base),
            data=str(folders.root),
            moved={family.value: str(path) for family, path in folders.moved},
            samples=str(self.samples),
            downloads=str(self.cache / "downloads"),
            extra=tuple(str(path) for path in self.readable),
            known_as="" if workspace.known_as is None else str(workspace.known_as),
            kept=str(outbox_of(folders.root.parent)) if workspace.private else "",
        )
