"""What every command gets by ``@click.pass_obj``: the installation, the server's API, the plugins.

All of it is found on demand, so that a command pays only for what it uses.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .short_logs import short_logs

if TYPE_CHECKING:
    from ..loading import Registry
    from ..plugin.views import PluginInfo
    from ..settings import Install
    from .client import HttpApi


class Context:
    """Implements ``codefyui_core.plugin.CommandContext``; the built-in commands may use more of it."""

    def __init__(self, *, environ: Mapping[str, str] | None = None) -> None:
        self.environ = os.environ if environ is None else environ
        self.as_json = False
        self._flags: dict[str, object] = {}
        self._project: Path | None = None
        self._install: Install | None = None
        self._registry: Registry | None = None

    def set_flag(self, variable: str, value: object) -> None:
        """A value from the command line for a setting, by its variable; None: not given."""
        self._flags[variable] = value
        self._install = None

    def set_project(self, project: Path | None) -> None:
        """The project whose ``.env`` counts too."""
        self._project = project
        self._install = None

    @property
    def install(self) -> "Install":
        """Raises: UsageProblem for settings that don't fit."""
        if self._install is None:
            from ..settings import Install

            self._install = Install.find(environ=self.environ, flags=self._flags, project=self._project)
        return self._install

    @property
    def user_data(self) -> Path:
        return self.install.user_data

    @property
    def writes_for_s(self) -> float:
        """How long a stop lets agents of this machine write recorded outputs."""
        from ..settings import AgentSettings, read_settings

        return read_settings(AgentSettings, self.install.layers).worker_outputs_write_timeout_s

    def api(self) -> "HttpApi":
        """The running server's API.

        Raises: CodefyError saying how to start the server, when none is running.
        """
        from .client import HttpApi, find_server

        return HttpApi(find_server(self.install))

    def plugins(self) -> "Sequence[PluginInfo]":
        """What is installed here, with versions."""
        return self.registry().plugins

    def registry(self) -> "Registry":
        """The loaded plugins, of no plane."""
        if self._registry is None:
            from ..loading import load
            from ..settings import PlaneSettings, read_settings

            settings = read_settings(PlaneSettings, self.install.layers)
            os.environ["CODEFYUI_CUSTOM_NODES_DIR"] = str(self.install.custom_nodes)
            with short_logs("codefyui_core.loading", full=bool(self.environ.get("CODEFYUI_DEBUG"))):
                self._registry = load(plane=None, block=settings.plugins_block, only=settings.plugins_only)
        return self._registry
