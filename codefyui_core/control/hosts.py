"""What control halves of plugins get from the control plane: implements the hosts of ``codefyui_core.plugin``."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from codefyui_core.files import Folders
from codefyui_core.ids import ArtifactId, LinkId, RunId, Sha256
from codefyui_core.plugin.connector import LinkMemo
from codefyui_core.plugin.hosts import Clock, Listener
from codefyui_core.plugin.settings import PluginSettings
from codefyui_core.plugin.storage import InputItem, StoredObject
from codefyui_core.plugin.views import AttemptView, PluginInfo, RunView, RunWarning
from codefyui_core.settings import read_settings

from .db.documents import PluginDocuments
from .files.input_files import InputFiles
from .files.receiving import Receiving
from .links.tokens import NewToken
from .listener import LinkListener
from .owned_tasks import OwnedTasks

if TYPE_CHECKING:
    from .plane import ControlPlane

S = TypeVar("S", bound=PluginSettings)


class PlaneHost:
    """Common to both kinds; implements ``ControlHost``."""

    def __init__(self, plane: "ControlPlane", name: str) -> None:
        self._plane = plane
        self._name = name
        self._log = plane.log.getChild(name)
        self._tasks = OwnedTasks(self._log)
        self._documents = PluginDocuments(plane.db, plane.seal, name)

    @property
    def name(self) -> str:
        return self._name

    @property
    def log(self) -> logging.Logger:
        return self._log

    @property
    def clock(self) -> Clock:
        return self._plane.clock

    @property
    def tasks(self) -> OwnedTasks:
        return self._tasks

    @property
    def user_data(self) -> Path:
        return self._plane.install.user_data

    @property
    def version(self) -> str:
        return self._plane.version

    @property
    def folders(self) -> Folders:
        return self._plane.install.folders()

    @property
    def documents(self) -> PluginDocuments:
        return self._documents

    def settings(self, cls: type[S]) -> S:
        return read_settings(cls, self._plane.layers)

    def plugins(self) -> Sequence[PluginInfo]:
        return self._plane.registry.plugins

    async def aclose(self) -> None:
        """After the half was closed."""
        await self._tasks.aclose()


class LinkHost(PlaneHost):
    """For connectors; implements ``ControlLinkHost``."""

    def __init__(self, plane: "ControlPlane", name: str) -> None:
        super().__init__(plane, name)
        self._listeners: dict[LinkId, LinkListener] = {}

    async def listen(self, link: LinkId, *, tcp: bool = False) -> Listener:
        before = self._listeners.pop(link, None)
        if before is not None:
            await before.aclose()
        listener = LinkListener(self._plane, link, self._plane.link_routes)
        await listener.open(tcp=tcp)
        self._listeners[link] = listener
        return listener

    async def token(self, link: LinkId, *, valid_for_s: float = 600) -> str:
        name, _ = await self._plane.link_rows.worker_of(link)
        asked = NewToken(valid_s=valid_for_s, uses=1, worker=name, link_id=link)
        token, _ = await self._plane.workers.tokens_table.make(asked)
        return token

    async def save(self, link: LinkId, memo: LinkMemo) -> None:
        await self._plane.link_rows.save_memo(link, memo)

    async def left(self, link: LinkId) -> None:
        listener = self._listeners.pop(link, None)
        if listener is not None:
            await listener.aclose()
        await self._plane.link_rows.forget(link)

    def changed(self, link: LinkId) -> None:
        self._plane.log.debug("link %s changed", link)

    async def aclose(self) -> None:
        for listener in self._listeners.values():
            await listener.aclose()
        await super().aclose()


class StoreHost(PlaneHost):
    """For storage backends; implements ``ControlStoreHost``."""

    @property
    def max_upload_bytes(self) -> int:
        return self._plane.settings.max_upload_size

    @property
    def arrivals(self) -> Receiving:
        return self._plane.receiving

    @property
    def run_files(self) -> Path:
        return self._plane.install.run_files

    async def inputs(self, run: RunView) -> tuple[InputItem, ...]:
        return await self._plane.inputs.of(run)

    def input_path(self, item: InputItem) -> Path:
        return self._plane.inputs.path(item)

    def input_files(self) -> InputFiles:
        return self._plane.inputs.files()

    async def reads(self, run: RunId) -> Mapping[Sha256, InputItem]:
        return self._plane.ticketed.of(run)

    async def attempt(self, run: RunId) -> AttemptView | None:
        return await self._plane.runs.attempt_of(run)

    async def record(self, attempt: AttemptView, stored: StoredObject) -> ArtifactId:
        return await self._plane.runs.record(attempt, stored, self.name)

    async def stored(self, run: RunId) -> Sequence[StoredObject]:
        return await self._plane.runs.stored(run, self.name)

    async def warn(self, run: RunId, warning: RunWarning) -> None:
        await self._plane.runs.warn(run, warning)

    def offers_changed(self) -> None:
        self._plane.runs.stores_changed()
