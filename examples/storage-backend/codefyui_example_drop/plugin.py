"""The entry point and the descriptor. Both planes import this module; each imports its half alone."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from codefyui_core.plugin import (
    AnyBackend,
    Grant,
    JsonObject,
    PluginSettings,
    Receipt,
    StartProblem,
    StorageBackend,
    StorageKind,
    Ticket,
    hookimpl,
)

from .models import DropFacts, DropSettings

if TYPE_CHECKING:
    import click

    from codefyui_core.plugin import AgentStoreHost, ControlStoreHost

    from .agent import DropAgent
    from .control import DropControl


class DropBackend(StorageBackend[Ticket, Receipt, Grant, DropFacts]):
    """Server and worker reach one folder, each at a path of its own; a synced folder will do."""

    name = "drop"
    title = "Drop folder"
    summary = "Leaves files for the other side in a folder that both reach."
    kind = StorageKind.CARRIER
    preference = 80
    facts = DropFacts

    def agent_options(self) -> "Sequence[click.Option]":
        import click

        return [click.Option(["--drop"], metavar="PATH", help="Where this machine has the drop folder.")]

    def settle(self, given: Mapping[str, object], saved: JsonObject) -> JsonObject:
        if not given.get("drop"):
            return saved
        path = Path(str(given["drop"])).absolute()
        if not path.is_dir():
            raise StartProblem(f"--drop {path}: there is no such folder. Make it, or correct the path.")
        return {"path": str(path)}

    def control(self, host: "ControlStoreHost") -> "DropControl":
        from .control import DropControl

        return DropControl(host)

    def agent(self, host: "AgentStoreHost") -> "DropAgent":
        from .agent import DropAgent

        return DropAgent(host)


@hookimpl
def codefyui_storage_backends() -> Iterable[AnyBackend]:
    return (DropBackend(),)


@hookimpl
def codefyui_settings() -> Iterable[type[PluginSettings]]:
    return (DropSettings,)
