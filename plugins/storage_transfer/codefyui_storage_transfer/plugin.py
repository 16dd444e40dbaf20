"""The entry point, and the descriptor of the transfer backend."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from codefyui_core.plugin import (
    AnyBackend,
    Grant,
    PluginSettings,
    Receipt,
    StorageBackend,
    StorageKind,
    hookimpl,
)

from .models import TransferFacts, TransferSettings, TransferTicket

if TYPE_CHECKING:
    from codefyui_core.plugin import AgentStoreHost, ControlStoreHost

    from .agent import TransferAgent
    from .control import TransferControl


class TransferBackend(StorageBackend[TransferTicket, Receipt, Grant, TransferFacts]):
    """The control plane is the file store: workers fetch inputs from it and send back what a run writes."""

    name = "transfer"
    title = "Files over HTTP"
    summary = "Sends a run's uploads to workers that share no folder, and takes back what the run writes."
    kind = StorageKind.CARRIER
    preference = 50
    protocol = 2
    ticket = TransferTicket
    facts = TransferFacts

    def control(self, host: "ControlStoreHost") -> "TransferControl":
        from .control import TransferControl

        return TransferControl(host)

    def agent(self, host: "AgentStoreHost") -> "TransferAgent":
        from .agent import TransferAgent

        return TransferAgent(host)


@hookimpl
def codefyui_storage_backends() -> Iterable[AnyBackend]:
    return (TransferBackend(),)


@hookimpl
def codefyui_settings() -> Iterable[type[PluginSettings]]:
    return (TransferSettings,)
