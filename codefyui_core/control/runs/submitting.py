"""Takes runs in: judges what is submitted, and stores what can be served."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.options import ServerTarget
from codefyui_core.runs.queue import Candidate, Waiting
from codefyui_core.settings import ControlSettings, Install
from codefyui_core.wire.messages import DeviceInfo

from .board import Board, Request
from .documents import DiskLook, prepare
from .intake import Intake
from .places import SERVER, server_devices
from .sent import CatalogView
from .submit import Judge, read_options


class Submitting:
    """``get`` reads the row of a run. ``take`` places a waiting run at once. ``stopping``: the server takes none."""

    def __init__(
        self,
        *,
        board: Board,
        catalog: Callable[[], CatalogView | None],
        judge: Judge,
        intake: Intake,
        server_devices: Callable[[], Sequence[DeviceInfo]],
        install: Install,
        settings: ControlSettings,
        get: Callable[[str], Awaitable[JsonObject]],
        take: Callable[[Waiting, Candidate], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._board = board
        self._catalog = catalog
        self._judge = judge
        self._intake = intake
        self._server_devices = server_devices
        self._install = install
        self._settings = settings
        self._get = get
        self._take = take
        self._stopping = stopping

    async def submit(
        self, graph: JsonObject | bytes, options: JsonObject, name: str, submit_id: str | None
    ) -> JsonObject:
        """``{run_id, status}``. A repeated ``submit_id`` answers the run it made.

        Raises: GraphInvalid; CodefyError ``run.option_*``, ``target.*``, ``storage.*``, ``request.*``,
        ``catalog.loading``, ``server.stopping``, ``server.busy``.
        """
        if self._stopping():
            raise CodefyError("The server is stopping; submit again when it is back.", code="server.stopping")
        catalog = self._catalog()
        if catalog is None:
            raise CodefyError("The node definitions are being read.", code="catalog.loading")
        known = await self._intake.known(submit_id)
        if known is not None:
            return known
        if len(name or "") > 64:
            raise CodefyError("A run's name has 64 characters at most.", code="request.invalid")
        read = read_options(options)
        prepared = await asyncio.to_thread(
            prepare,
            graph,
            catalog.definitions,
            DiskLook.of(self._install),
            limit_bytes=self._settings.transfer_max_input_bytes,
        )
        judged = await self._judge.judge(read, prepared, catalog.devices)
        self._check_interactive(read.lane)
        stored = await self._intake.store(prepared, judged, read, name, submit_id)
        if isinstance(stored, str):
            return {"run_id": stored, "status": (await self._get(stored))["status"]}
        if stored.interactive and isinstance(judged.needs.target, ServerTarget):
            self._at_once(stored)
        return {"run_id": stored.run_id, "status": "queued"}

    def _check_interactive(self, lane: str) -> None:
        limit = self._settings.run_interactive_max_concurrent
        if lane == "interactive" and self._board.interactive_count() >= limit:
            raise CodefyError(
                f"{limit} interactive runs are executing already; wait for one, or queue this one.",
                code="server.busy",
            )

    def _at_once(self, request: Request) -> None:
        """The interactive lane skips the line, and takes no slot."""
        waiting = self._board.lines.get(request.run_id)
        if waiting is None:
            return
        offered = [info.device for info in self._server_devices()]
        device = server_devices(request.needs.device, offered)[0]
        self._take(waiting, Candidate(place=SERVER, devices=(device,), slots=()))
