"""What the two halves of the mount backend say to each other."""

from pydantic import Field, ValidationError

from codefyui_core.plugin import Facts, JsonObject, Model, StartProblem, Ticket

LABEL = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"
_PATH_LIMIT = 4096


class Mounted(Model):
    """A folder that an agent offers, and what it saw in it."""

    label: str = Field(pattern=LABEL)
    path: str = Field(max_length=_PATH_LIMIT)
    id: str | None = Field(None, max_length=64)
    """What the marker in it says; None: there is no marker."""
    readable: bool = True
    """False: there is a marker that this agent may not read, so nothing is known of the folder."""


class MountFacts(Facts):
    """Every label whose folder is there now."""

    mounts: tuple[Mounted, ...] = Field((), max_length=64)

    def of(self, label: str) -> Mounted | None:
        return next((one for one in self.mounts if one.label == label), None)


class MountWelcome(Model):
    """What the server shares, for the agent's log alone."""

    label: str
    id: str | None
    path: str


class MountTicket(Ticket):
    """Which folder the run works in; the agent knows its own path of it."""

    label: str
    id: str | None
    """Of the folder when the run was staged; None: it has no marker, so nothing can be compared."""
    root: str
    """The server's path of it, by which absolute paths in a graph are told."""


class StoredIn(Model):
    """How to know that what lies at a recorded place is still what was recorded."""

    id: str | None = None
    """Of the folder."""
    mtime_ns: int | None = None
    """Of the file; None for a folder, or when nobody here could look."""


class Saved(Model):
    """What ``agent.json`` holds: paths by label."""

    mounts: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def read(cls, saved: JsonObject) -> "Saved":
        """Raises: StartProblem for what nobody but a person's editor can have written."""
        try:
            return cls.model_validate(saved)
        except ValidationError as error:
            raise StartProblem(
                "The entry `mount` of agent.json can't be read; it maps labels to paths below `mounts`. "
                "Correct it or remove it."
            ) from error

    def to_json(self) -> JsonObject:
        return self.model_dump(mode="json") if self.mounts else {}
