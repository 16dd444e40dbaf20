"""The descriptor of the local backend."""

from typing import TYPE_CHECKING

from codefyui_core.plugin import Grant, Receipt, StorageBackend, StorageKind

from .models import LocalFacts, LocalTicket

if TYPE_CHECKING:
    from codefyui_core.plugin import AgentStoreHost, ControlStoreHost

    from .agent import LocalAgent
    from .control import LocalControl


class LocalBackend(StorageBackend[LocalTicket, Receipt, Grant, LocalFacts]):
    """Nothing moves: the run reads and writes the folders that the server itself uses."""

    name = "local"
    title = "This machine"
    summary = "Serves the server's own runs, and workers on the server's machine."
    kind = StorageKind.SHARED
    preference = 0
    ticket = LocalTicket
    facts = LocalFacts

    def control(self, host: "ControlStoreHost") -> "LocalControl":
        from .control import LocalControl

        return LocalControl(host)

    def agent(self, host: "AgentStoreHost") -> "LocalAgent":
        from .agent import LocalAgent

        return LocalAgent()
