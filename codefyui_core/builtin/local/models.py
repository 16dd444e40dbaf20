"""What the two halves of the local backend say to each other."""

from pathlib import Path

from codefyui_core.plugin import Facts, Family, Folders, JsonObject, Model, Ticket


class FolderPlaces(Model):
    """``Folders`` as it travels: absolute paths of the server, which this machine shares."""

    root: str
    moved: tuple[tuple[Family, str], ...] = ()

    @classmethod
    def of(cls, folders: Folders) -> "FolderPlaces":
        return cls(
            root=str(folders.root.absolute()),
            moved=tuple((family, str(path.absolute())) for family, path in folders.moved),
        )

    def folders(self) -> Folders:
        return Folders(root=Path(self.root), moved=tuple((family, Path(path)) for family, path in self.moved))


class LocalTicket(Ticket):
    """The server's folders when the run was staged; they hold for this attempt whatever changes later."""

    places: FolderPlaces


class LocalFacts(Facts):
    """Given by an agent that can read and write the server's data folder."""


class LocalWelcome(Model):
    """For an agent: the folders to look for. None: it is on another machine."""

    places: FolderPlaces | None = None

    def to_json(self) -> JsonObject:
        return self.model_dump(mode="json")


class StoredAt(Model):
    """Where an object of this backend lies, and how to know that it is still the same one."""

    base: str
    """The family's folder."""
    name: str
    """Below it."""
    mtime_ns: int | None = None
    """Of the file as it was recorded; None for a folder, or when nobody looked."""

    @property
    def path(self) -> Path:
        return Path(self.base) / self.name
