"""What an agent is asked to be. Travels as JSON on the standard input of a background one, so no process list
shows the token.
"""

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from codefyui_core.errors import UsageProblem
from codefyui_core.plugin.values import JsonObject, Model
from codefyui_core.runs.options import is_instance_id, worker_name_problem
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
    one_shot: bool = False
    """Take one run and end with it."""
    run_id: str | None = None
    """Of a one-shot agent: the only run that it takes."""
    instance: str = ""
    """Of a one-shot agent: which one of several that share a credential."""

    @property
    def key(self) -> str:
        """Raises: UsageProblem."""
        return LOCAL if self.url is None else key_of(self.url)

    def checked(self) -> "AgentPlan":
        """Raises: UsageProblem for flags that don't go together or a value that can't be used."""
        if not self.one_shot and (self.run_id is not None or self.instance):
            flag = "--instance" if self.instance else "--run-id"
            raise UsageProblem(f"{flag} is for one-shot agents: add --one-shot.")
        if self.run_id is not None and not self.run_id.strip():
            raise UsageProblem("--run-id needs the id of a run.")
        if self.instance and not is_instance_id(self.instance):
            raise UsageProblem(
                f"--instance {self.instance}: an ID has 1 to 63 letters, digits, - and _, and begins with a "
                f"letter or digit."
            )
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
