"""The control plane as one value: its parts, and the order in which they start and stop."""

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from codefyui_core._version import __version__
from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.api.guard import HostGuard
from codefyui_core.control.api.metrics import HttpMetrics
from codefyui_core.control.api.routing import OwnedRoute
from codefyui_core.control.catalog import CatalogKeeper
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.link_rows import LinkRows
from codefyui_core.control.db.outages import log_failure
from codefyui_core.control.files.inputs import Inputs
from codefyui_core.control.files.receiving import Receiving
from codefyui_core.control.files.ticketed import Ticketed
from codefyui_core.control.halves import ControlHalves
from codefyui_core.control.links.service import WorkerService
from codefyui_core.control.runs.service import RunService
from codefyui_core.control.seal import Seal
from codefyui_core.errors import CodefyError
from codefyui_core.files import write_private
from codefyui_core.loading import Registry
from codefyui_core.plugin.settings import PluginSettings
from codefyui_core.runner.api import RunStarter
from codefyui_core.runner.definitions import Catalog
from codefyui_core.runner.supervisor import Supervisor
from codefyui_core.settings import ControlSettings, Install, Layers, read_settings

STOP_GRACE_S = 20.0
"""For the runs of this server and of workers, at a graceful stop."""
BACK_WITHIN_S = 60.0
"""After a planned restart agents look for this server every one to two seconds for that long."""


class ControlPlane:
    """Made by ``open``; nothing here is global, so that several can live in one test."""

    def __init__(
        self,
        *,
        install: Install,
        settings: ControlSettings,
        registry: Registry,
        db: Database,
        clock: AttentiveClock,
        log: logging.Logger,
        starter: RunStarter | None = None,
    ) -> None:
        self.install = install
        self.settings = settings
        self.layers: Layers = install.layers
        self.registry = registry
        self.db = db
        self.clock = clock
        self.log = log
        self.version = __version__
        self.boot_id = secrets.token_hex(16)
        self.token = secrets.token_urlsafe(32)
        self.stop_asked = asyncio.Event()
        self.over = asyncio.Event()
        """Streams end: the sockets are about to be closed."""
        self.keep_runs = False
        self.http_metrics = HttpMetrics()
        self.guard = HostGuard(settings.host, settings.port, settings.extra_allowed_hosts)
        self.catalog = CatalogKeeper(
            registry=registry,
            cache=install.user_data / "definitions.json",
            log=log.getChild("catalog"),
            block=settings.plugins_block,
            only=settings.plugins_only,
        )
        self.supervisor: RunStarter = starter or Supervisor(
            preload=registry.preload, zygote=settings.run_zygote, log=log.getChild("runner")
        )
        self.seal = Seal(install.user_data)
        self.link_rows = LinkRows(db, self.seal)
        self.inputs = Inputs(install.folders(), limit_bytes=settings.transfer_max_input_bytes)
        self.receiving = Receiving(db, limit_bytes=settings.max_upload_size)
        self.link_routes: Sequence[OwnedRoute] = ()
        """What the private listeners of links serve; set with the application."""
        self.halves = ControlHalves(plane=self)
        self.workers = WorkerService(
            db=db,
            registry=registry,
            catalog=lambda: self.catalog.current,
            settings=settings,
            install=install,
            clock=clock,
            log=log.getChild("links"),
            version=self.version,
        )
        self.runs = RunService(
            db=db,
            catalog=lambda: self.catalog.current,
            workers=self.workers,
            starter=self.supervisor,
            registry=registry,
            install=install,
            settings=settings,
            clock=clock,
            log=log.getChild("runs"),
            stores=self.halves.stores,
            reads=self.workers.reads,
            forget=self.receiving.forget_run,
        )
        self.ticketed = Ticketed(self.runs.board)
        self.workers.desk = self.runs
        self.workers.stores = self.halves.stores
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.Task[None] | None = None
        self.conflict: CodefyError | None = None
        """Two distributions claim one node type: the server ends with this message."""

    # ------------------------------------------------------------ start

    async def start(self) -> None:
        """All that must be true before a socket is opened: take-over of what was running, the token file."""
        if isinstance(self.supervisor, Supervisor):
            await self.supervisor.start()
        self._ticking = asyncio.create_task(self.clock.run(), name="clock")
        self.catalog.on_change(self._catalog_changed)
        await asyncio.to_thread(self.catalog.read_cache)
        await self.runs.start()
        write_private(self.install.user_data / "session.token", self.token.encode())

    def start_beside(self) -> None:
        """What the server doesn't wait for: definitions, the halves of plugins, the watch."""
        self._own(self.halves.start(), "start plugins")
        self._own(self._read_nodes(), "read node definitions")
        self._own(self.catalog.watch(), "watch nodes")

    async def _read_nodes(self) -> None:
        """Also when the last ones still fit: the devices of the machine may be others."""
        try:
            await self.catalog.reload()
        except CodefyError as error:  # said in the log and by /api/nodes
            if error.code == "plugin.conflict":
                self.conflict = error
                self.ask_to_stop(keep=True)

    @property
    def status(self) -> str:
        """starting, ready or stopping."""
        if self.stop_asked.is_set():
            return "stopping"
        return "starting" if self.waiting_for() else "ready"

    def waiting_for(self) -> Sequence[str]:
        """What keeps the status at starting."""
        waiting = [] if self.catalog.current is not None else ["node definitions"]
        return [*waiting, *self.halves.starting()]

    def _catalog_changed(self, catalog: Catalog) -> None:
        self.runs.catalog_changed()

    # ------------------------------------------------------------ stop

    def ask_to_stop(self, *, keep: bool) -> None:
        """The process ends soon; ``keep`` leaves runs on workers executing. Asked twice, the first counts."""
        if not self.stop_asked.is_set():
            self.keep_runs = keep
        self.stop_asked.set()

    async def stop_work(self) -> None:
        """What is told to workers and runs while the pages still answer: the intent, runs, lines."""
        self.stop_asked.set()
        self.workers.refuse_newcomers()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._in_any_case("runs", self.runs.stop(keep=self.keep_runs, grace_s=STOP_GRACE_S))
        bye = self.workers.stop("restart", BACK_WITHIN_S) if self.keep_runs else self.workers.stop()
        await self._in_any_case("workers", bye)

    async def close(self) -> None:
        """After the sockets are closed: plugins, processes, database."""
        self.over.set()
        await self._in_any_case("plugins", self.halves.aclose())
        await self._in_any_case("processes of runs", self.supervisor.aclose())
        await self._in_any_case("database", self.db.mark_shutdown("keep" if self.keep_runs else "clean"))
        await self._in_any_case("database", self.db.aclose())
        if self._ticking is not None:
            self._ticking.cancel()
        with suppress(OSError):
            (self.install.user_data / "session.token").unlink()

    async def stop(self) -> None:
        """All of it, for those who serve no sockets."""
        await self.stop_work()
        await self.close()

    async def _in_any_case(self, what: str, ending: Awaitable[None]) -> None:
        try:
            await ending
        except Exception:
            self.log.exception("%s didn't stop well", what)

    # ------------------------------------------------------------ settings

    def plugin_settings(self) -> list[tuple[type[PluginSettings], str]]:
        """Settings classes of plugins with their owners."""
        return [
            (cls, brought.distribution) for brought in self.registry.contributions for cls in brought.settings
        ]

    def reload_settings(self) -> tuple[list[str], list[str]]:
        """Read the .env file again: names that changed for plugins, and core names that need a restart.

        Raises: UsageProblem for a value that doesn't fit; nothing changes then.
        """
        fresh = Layers.gather(
            environ=os.environ,
            user_data=self.install.user_data,
            project=self.install.settings.project_dir,
            flags=self.layers.flags,
        )
        before, after = self.layers.merged(), fresh.merged()
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        read_settings(ControlSettings, fresh)
        for cls in self.registry.settings:
            read_settings(cls, fresh)
        plugin_names = {
            f"CODEFYUI_{field.upper()}" for cls in self.registry.settings for field in cls.model_fields
        }
        self.layers = fresh
        return [n for n in changed if n in plugin_names], [n for n in changed if n not in plugin_names]

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(
            self._guarded(work, name), name=name
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log_failure(self.log, error, "%s failed", name)
