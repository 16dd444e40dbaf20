"""What every run on this agent is made with, and what carries one."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from codefyui_core.outputs import OutputStore
from codefyui_core.plugin.storage import AnyBackend, StorageAgent
from codefyui_core.runner.api import RunStarter
from codefyui_core.wire.messages import DeviceInfo

from .carrying.transfers import Means
from .machine import Effect
from .workspaces import AgentFolders


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """The same for all runs."""

    starter: RunStarter
    folders: AgentFolders
    halves: Mapping[str, tuple[AnyBackend, StorageAgent]]
    devices: tuple[DeviceInfo, ...]
    incarnation: str
    fingerprint: str | None
    plugins_block: tuple[str, ...] = ()
    plugins_only: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    """Settings that runs obey."""
    outputs: OutputStore
    """Where runs leave the outputs that they record."""
    writes_for_s: float
    """How long they may take for it, after their outcome."""
    carrying: Means
    room: Callable[[], Awaitable[None]]
    """Returns once the disk has room for more events; until then the run is held at its pipe."""


class Life(Protocol):
    """What carries an attempt, for as long as it does."""

    @property
    def records_outputs(self) -> bool: ...
    def do(self, effects: Iterable[Effect]) -> None: ...
    async def renewed(self) -> None: ...
    async def life(self) -> None: ...
