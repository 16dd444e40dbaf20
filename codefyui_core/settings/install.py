"""Where an installation lies on disk: its folders, from a checkout with the launcher or from wheels."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ..files import Family, Folders
from .core import FolderSettings
from .layers import Layers
from .read import read_settings

RUN_FILES = "runs"
"""Beside the families: what runs left, by their ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Install:
    """The folders of one installation. Nothing is made or read until a method says so."""

    root: Path | None
    """The folder with ``cdui``; None when installed from wheels."""
    user_data: Path
    """Database, credentials, logs and settings of this user."""
    layers: Layers
    settings: FolderSettings

    @classmethod
    def find(
        cls,
        *,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
        project: Path | None = None,
        home: Path | None = None,
    ) -> Self:
        """The installation that this process belongs to. ``flags`` are values from the command line by
        variable (``{"CODEFYUI_PORT": 8010, "CODEFYUI_HOST": None}``), the strongest layer.

        Raises: UsageProblem for settings that don't fit.
        """
        environ = os.environ if environ is None else environ
        root = _folder(environ.get("CODEFYUI_DIR"))
        user_data = _folder(environ.get("CODEFYUI_USER_DATA_DIR")) or _default_user_data(root, home)
        flags = {**(flags or {})} | ({} if project is None else {"CODEFYUI_PROJECT_DIR": project})
        layers = Layers.gather(environ=environ, user_data=user_data, project=project, flags=flags)
        settings = read_settings(FolderSettings, layers)
        return cls(root=root, user_data=user_data, layers=layers, settings=settings)

    @property
    def base(self) -> Path:
        """The folder that relative paths in node parameters are below and run processes work in."""
        return (self.user_data if self.root is None else self.root) / "backend"

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.settings.data_dir or self.base / "data"

    @property
    def run_files(self) -> Path:
        """What runs on workers sent here and what goes with them: ``<run id>/<kind>/<name>``."""
        return self.folders().root / RUN_FILES

    @property
    def samples(self) -> Path:
        """Small data sets that every install has, named ``data/samples/...`` by graphs; never moved."""
        return self.base / "data" / "samples"

    @property
    def custom_nodes(self) -> Path:
        """Python files with nodes of one's own."""
        return self.settings.custom_nodes_dir or self.data / "custom_nodes"

    @property
    def examples(self) -> Path | None:
        """Example graphs; None when this installation has none."""
        if self.settings.examples_dir is not None:
            return self.settings.examples_dir
        return None if self.root is None else self.root / "examples"

    @property
    def logs(self) -> Path:
        return self.settings.log_dir or self.user_data / "logs"

    @property
    def readable(self) -> tuple[Path, ...]:
        """The folders that nodes may read plain paths from, besides moved families."""
        others = (self.samples, self.settings.project_dir, self.examples, *self.settings.extra_data_dirs)
        return (self.data, *(path for path in others if path is not None))

    def folders(self) -> Folders:
        """Where each family of files lies: in the project when there is one, else in the data folder. Settings of
        single families win.

        Raises: StartProblem for a project file that can't be read; BadName for a folder outside the project.
        """
        below = self._project_folders() or Folders(root=self.data)
        moved = dict(below.moved)
        for family, name in _FAMILIES.items():
            path = _moved(self.settings, name)
            if path is not None:
                moved[family] = path
        return Folders(root=below.root, moved=tuple(moved.items()))

    def _project_folders(self) -> Folders | None:
        """What a person makes lies in the project; uploaded data files and what runs share stay with the install."""
        if self.settings.project_dir is None:
            return None
        below = Folders.below(self.settings.project_dir)
        own = {family: self.data / family.value for family in _NOT_IN_PROJECTS}
        return Folders(root=below.root, moved=tuple((dict(below.moved) | own).items()))

    def prepare(self) -> None:
        """Make the folders that are missing, and place the samples that a wheel carries."""
        self.user_data.mkdir(parents=True, exist_ok=True, mode=0o700)
        folders = self.folders()
        for family in Family:
            folders.of(family).mkdir(parents=True, exist_ok=True)
        self.custom_nodes.mkdir(parents=True, exist_ok=True)
        self._place_samples()

    def _place_samples(self) -> None:
        carried = Path(__file__).parent.parent / "samples"
        if self.root is None and carried.is_dir() and not self.samples.exists():
            shutil.copytree(carried, self.samples)


_NOT_IN_PROJECTS = (Family.FILES, Family.CACHE)
_FAMILIES = {
    Family.FILES: "data_files_dir",
    Family.IMAGES: "images_dir",
    Family.MODELS: "models_dir",
    Family.MEDIA: "media_dir",
    Family.GRAPHS: "graphs_dir",
    Family.PRESETS: "presets_dir",
}


def _moved(settings: FolderSettings, name: str) -> Path | None:
    path: Path | None = getattr(settings, name)
    return path


def _folder(text: str | None) -> Path | None:
    return Path(text).expanduser().absolute() if text else None


def _default_user_data(root: Path | None, home: Path | None) -> Path:
    return (home or Path.home()) / ".codefyui" if root is None else root / ".codefyui_dev"
