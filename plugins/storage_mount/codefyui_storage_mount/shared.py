"""The folder that the server shares: which one it is, and where its families lie. Blocking."""

from dataclasses import dataclass
from pathlib import Path

from codefyui_core.plugin import BadName, Family, Folders

MOVED_TOGETHER = (Family.FILES, Family.IMAGES, Family.MODELS, Family.MEDIA)
"""The families that a site moves to a share, each by its own setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One labelled folder."""

    label: str
    root: Path
    layout: Folders
    """As a worker finds it below its own path."""
    apart: frozenset[Family]
    """Families that the server keeps elsewhere, where no worker sees them."""
    id: str | None
    """What its marker says; None: it has none, as this user may not write one."""

    @classmethod
    def of(cls, folders: Folders, label: str, marker: str | None = None) -> "Shared":
        """The data folder, or the project; but when files, images, models and media were all moved below one
        other folder, under their own names, then that one.

        Raises: StartProblem, BadName for its project file.
        """
        layout = Folders.below(folders.root.absolute())
        apart = _apart(folders, layout)
        if len(apart) == len(MOVED_TOGETHER) and (together := _together(folders)) is not None:
            layout = Folders.below(together)
            apart = _apart(folders, layout)
        return cls(label=label, root=layout.root, layout=layout, apart=apart, id=marker)

    def holds(self, label: str | None, marker: object) -> bool:
        """Is it the folder that something was recorded in? A missing marker says nothing against it."""
        return label == self.label and (marker is None or self.id is None or marker == self.id)

    def name_of(self, relative_path: str) -> str:
        """``models/a.pt``, as a run has it -> its name below the root, as the layout places it.

        Raises: BadName.
        """
        path = self.layout.locate(relative_path)
        families = {self.layout.of(family) for family in Family}
        if path in families:
            raise BadName(
                f"{relative_path}: a whole family of files can't be recorded; record a file below it"
            )
        return path.relative_to(self.root).as_posix()


def _together(folders: Folders) -> Path | None:
    """The one folder below which all four lie under their own names."""
    places = {family: folders.of(family).absolute() for family in MOVED_TOGETHER}
    parents = {path.parent for path in places.values()}
    named = all(path.name == family.value for family, path in places.items())
    return parents.pop() if named and len(parents) == 1 else None


def _apart(folders: Folders, layout: Folders) -> frozenset[Family]:
    return frozenset(family for family in MOVED_TOGETHER if not _same(folders.of(family), layout.of(family)))


def _same(one: Path, other: Path) -> bool:
    return one.absolute() == other.absolute() or one.resolve() == other.resolve()
