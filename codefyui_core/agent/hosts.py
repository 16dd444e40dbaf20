"""What the agent halves of plugins get from their plane."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from codefyui_core.clocks import SystemClock
from codefyui_core.loading import Registry
from codefyui_core.plugin.hosts import Clock
from codefyui_core.plugin.settings import PluginSettings
from codefyui_core.plugin.storage import Workspace
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import AttemptView, PluginInfo
from codefyui_core.settings import Layers, read_settings

from .http import AgentHttp, Way
from .tasks import OwnedTasks

S = TypeVar("S", bound=PluginSettings)


class PluginHost:
    """Implements ``plugin.hosts.AgentHost``."""

    def __init__(
        self, *, name: str, registry: Registry, layers: Layers, user_data: Path, clock: Clock | None = None
    ) -> None:
        self.name = name
        self.log = logging.getLogger(f"codefyui.plugin.{name}")
        self.clock: Clock = clock or SystemClock()
        self.tasks = OwnedTasks(self.log)
        self.user_data = user_data
        self._registry = registry
        self._layers = layers

    def settings(self, cls: type[S]) -> S:
        return read_settings(cls, self._layers)

    def plugins(self) -> Sequence[PluginInfo]:
        return self._registry.plugins


class StoreHost(PluginHost):
    """Implements ``plugin.hosts.AgentStoreHost``."""

    def __init__(
        self,
        *,
        name: str,
        registry: Registry,
        layers: Layers,
        user_data: Path,
        saved: Mapping[str, JsonObject],
        way: Callable[[], Way | None],
        lease: Callable[[AttemptView], str | None],
        workspace: Callable[[str], Workspace],
        tell: Callable[[AttemptView, str, JsonObject], Awaitable[None]],
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name=name, registry=registry, layers=layers, user_data=user_data, clock=clock)
        self.saved: JsonObject = saved.get(name, {})
        self._way = way
        self._lease = lease
        self._workspace = workspace
        self._tell = tell

    def http(self, attempt: AttemptView | None = None) -> AgentHttp:
        fence = None
        if attempt is not None and (lease := self._lease(attempt)) is not None:
            fence = f"{attempt.number}.{lease}"
        return AgentHttp(self._way, fence)

    def workspace(self, attempt: AttemptView) -> Workspace:
        return self._workspace(attempt.run_id)

    async def tell(self, attempt: AttemptView, message: JsonObject) -> None:
        await self._tell(attempt, self.name, message)
