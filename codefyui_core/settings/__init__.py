"""What an installation is told: where its folders lie, and its ``CODEFYUI_`` settings with their sources.

Imports nothing of the planes, so that a command may ask for a folder without loading a server.
"""

from .core import AgentSettings, ControlSettings, FolderSettings, PlaneSettings
from .describe import SettingRow, describe
from .handing import environment_of_runs
from .install import RUN_FILES, Install
from .layers import Layers, Source, read_env_file
from .read import read_settings

__all__ = [
    "RUN_FILES",
    "AgentSettings",
    "ControlSettings",
    "FolderSettings",
    "Install",
    "Layers",
    "PlaneSettings",
    "SettingRow",
    "Source",
    "describe",
    "environment_of_runs",
    "read_env_file",
    "read_settings",
]
