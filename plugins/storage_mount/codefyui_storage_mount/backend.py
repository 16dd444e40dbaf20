"""The descriptor of the mount backend."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from codefyui_core.plugin import Grant, JsonObject, Receipt, StorageBackend, StorageKind

from .models import MountFacts, MountTicket

if TYPE_CHECKING:
    import click

    from codefyui_core.plugin import AgentStoreHost, ControlStoreHost

    from .agent import MountAgent
    from .control import MountControl


class MountBackend(StorageBackend[MountTicket, Receipt, Grant, MountFacts]):
    """Server and worker mount one share, each where it likes, and call it by one label."""

    name = "mount"
    title = "Shared folder"
    summary = "Serves workers that mount the server's data folder."
    kind = StorageKind.SHARED
    preference = 10
    ticket = MountTicket
    facts = MountFacts
    worker_fields = ("mounts",)

    def agent_options(self) -> "Sequence[click.Option]":
        from .options import mount_option

        return [mount_option()]

    def settle(self, given: Mapping[str, object], saved: JsonObject) -> JsonObject:
        from .options import merged

        return merged(given.get("mount", ()), saved)

    def control(self, host: "ControlStoreHost") -> "MountControl":
        from .control import MountControl

        return MountControl(host)

    def agent(self, host: "AgentStoreHost") -> "MountAgent":
        from .agent import MountAgent

        return MountAgent(host)
