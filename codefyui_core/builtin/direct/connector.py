"""The descriptor of the direct connector."""

from typing import TYPE_CHECKING

from codefyui_core.plugin import Connector

if TYPE_CHECKING:
    from codefyui_core.plugin import AgentHost, ConnectorAgent, ConnectorControl, ControlLinkHost


class DirectConnector(Connector):
    """Takes every ``http`` and ``https`` address that no other connector knows better."""

    name = "direct"
    title = "Direct"
    summary = "The agent dials the control plane's address; over https the machine's certificates decide."

    def control(self, host: "ControlLinkHost") -> "ConnectorControl":
        from .control import DirectControl

        return DirectControl()

    def agent(self, host: "AgentHost") -> "ConnectorAgent":
        from .agent import DirectAgent

        return DirectAgent()
