"""The one setting, read by the control plane."""

from pydantic import Field

from codefyui_core.plugin import PluginSettings

from .models import LABEL


class MountSettings(PluginSettings):
    """Read when the server starts."""

    mount_label: str = Field("data", pattern=LABEL)
    """The label of the server's data folder; agents name their path of it with ``--mount <label>=<path>``."""
