"""What an agent is asked to be. Travels as JSON on the standard input of a background one, so no process list
shows the token.
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from codefyui_core.errors import UsageProblem
from codefyui_core.plugin.values import JsonObject, Model
from codefyui_core.runs.options import worker_name_problem
from codefyui_core.settings import FolderSettings

from .places import LOCAL, key_of


class AgentPlan(Model):
    """The command line of ``cdui agent start``, read and checked."""

    url: str | None = None
    """None: the server of the same user data (key ``local``)."""
    name: str | None = None
    token: str | None = Field(default=None, repr=False)
    devices: tuple[str, ...] = ()
    connector_options: dict[str, JsonObject] = Field(default_factory=dict)
    """By connector, by option name; only those that were given."""
    background: bool = False

    @property
    def key(self) -> str:
        """Raises: UsageProblem."""
        return LOCAL if self.url is None else key_of(self.url)

    def checked(self) -> "AgentPlan":
        """Raises: UsageProblem for a name that no worker may have, or an address that is none."""
        if self.name is not None and (problem := worker_name_problem(self.name)) is not None:
            raise UsageProblem(f"--name {self.name}: {problem}.")
        assert self.key
        return self


def absolute_folders(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Folder settings that are relative to the folder that the agent was started in, as absolute paths: it
    works in the base folder later, and so do the runs.
    """
    changed: dict[str, str] = {}
    for field in (*FolderSettings.model_fields, "user_data_dir", "dir"):
        variable = f"CODEFYUI_{field.upper()}"
        if text := environ.get(variable):
            parts = text.split(",") if field == "extra_data_dirs" else [text]
            absolute = [str((folder / Path(part.strip()).expanduser()).absolute()) for part in parts if part]
            changed[variable] = ",".join(absolute)
    return changed
