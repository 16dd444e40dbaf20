"""The one setting, read by the control plane."""

from codefyui_core.plugin import PluginSettings


class TlsSettings(PluginSettings):
    """Read each time that a command is made for an agent."""

    tls_cert_file: str = ""
    """The proxy's certificate (PEM, leaf first), whose key the command pins."""
