"""The descriptor of the TLS connector."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from codefyui_core.plugin import Connector

if TYPE_CHECKING:
    import click

    from codefyui_core.plugin import AgentHost, ControlLinkHost

    from .agent import TlsAgent
    from .control import TlsControl


class TlsConnector(Connector):
    """Takes every ``https`` address."""

    name = "tls"
    title = "TLS proxy"
    summary = "The agent dials an https address; this machine's authorities or a pinned key decide about it."

    def agent_options(self) -> "Sequence[click.Option]":
        from .options import fingerprint_option

        return [fingerprint_option()]

    def control(self, host: "ControlLinkHost") -> "TlsControl":
        from .control import TlsControl

        return TlsControl(host)

    def agent(self, host: "AgentHost") -> "TlsAgent":
        from .agent import TlsAgent

        return TlsAgent(host)
