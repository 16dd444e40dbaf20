"""The server's process: sockets, signals, ``server.json``."""

import argparse
import asyncio
import errno
import gc
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.app import make_app
from codefyui_core.control.db.database import Database
from codefyui_core.control.plane import ControlPlane
from codefyui_core.errors import CodefyError
from codefyui_core.files import write_private
from codefyui_core.freed_memory import keep_freed_memory
from codefyui_core.loading import load
from codefyui_core.plugin.values import Plane
from codefyui_core.settings import ControlSettings, Install, read_settings

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
BACKLOG = 1024
"""Connections that may wait to be accepted: many agents come back at once after a restart."""


async def open_plane(install: Install, log: logging.Logger) -> ControlPlane:
    """Everything up to the point where a socket may be opened.

    Raises: CodefyError saying why not.
    """
    settings = read_settings(ControlSettings, install.layers)
    install.prepare()
    os.environ["CODEFYUI_CUSTOM_NODES_DIR"] = str(
        install.custom_nodes
    )  # for the catalog, here and in children
    registry = load(plane=Plane.CONTROL, block=settings.plugins_block, only=settings.plugins_only)
    clock = AttentiveClock(able=lambda: plane.runs.writable)  # a grace waits while nothing can be recorded
    db = await Database.open(
        settings.database(install.user_data),
        user_data=install.user_data,
        clock=clock,
        on_network=settings.db_on_network,
    )
    plane = ControlPlane(install=install, settings=settings, registry=registry, db=db, clock=clock, log=log)
    plane.keep_runs = True  # until it serves, nobody has asked to end what runs
    try:
        plane.halves.make()
        await plane.start()
    except BaseException:
        await plane.close()
        raise
    return plane


async def serve(install: Install, log: logging.Logger) -> int:
    """Until a signal or a request to stop.

    Returns: the exit status.
    """
    plane = await open_plane(install, log)
    runner: web.AppRunner | None = None
    try:
        runner = web.AppRunner(
            make_app(plane),
            access_log=None,
            logger=_connection_log(log),
            shutdown_timeout=2,
            handle_signals=False,
        )
        await runner.setup()
        url = await _listen(runner, plane)
        _stop_on_signals(plane)
        _write_server_json(install.user_data, plane, url)
        plane.keep_runs = False
        log.info("CodefyUI %s listens on %s", plane.version, url)
        _collect_new_garbage_only()
        plane.start_beside()
        await plane.stop_asked.wait()
        log.info("stopping; runs on workers %s", "go on" if plane.keep_runs else "are stopped, too")
    finally:
        await plane.stop_work()
        if runner is not None:
            await runner.cleanup()
        await plane.close()
        with suppress(OSError):
            (install.user_data / "server.json").unlink()
    if plane.conflict is not None:
        raise plane.conflict
    return 0


def _collect_new_garbage_only() -> None:
    """Modules and models stay for good. Looking through them again and again would be a third of the time that
    events take.
    """
    gc.freeze()
    gc.enable()


def _connection_log(log: logging.Logger) -> logging.Logger:
    """What isn't HTTP at all is the sender's mistake, and no traceback in our log."""

    def is_ours(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))

    connections = log.getChild("connections")
    connections.addFilter(is_ours)
    return connections


def _stop_on_signals(plane: ControlPlane) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # Windows has no loop handlers
            loop.add_signal_handler(number, lambda: plane.ask_to_stop(keep=False))


async def _listen(runner: web.AppRunner, plane: ControlPlane) -> str:
    settings = plane.settings
    site = web.TCPSite(runner, settings.host, settings.port, reuse_address=True, backlog=BACKLOG)
    try:
        await site.start()
    except OSError as error:
        raise CodefyError(
            f"Can't listen on {settings.host}:{settings.port}: {error.strerror}. Choose another port with --port.",
            code="start",
        ) from error
    port = runner.addresses[0][1]
    plane.guard.port = port
    return f"http://{host_of(settings.host)}:{port}"


def host_of(bound: str) -> str:
    """How a URL on this machine names the address that the server is bound to."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(bound, bound)
    return f"[{local}]" if ":" in local else local


def _write_server_json(user_data: Path, plane: ControlPlane, url: str) -> None:
    facts: Mapping[str, object] = {
        "pid": os.getpid(),
        "pid_started": psutil.Process().create_time(),
        "url": url,
        "version": plane.version,
        "boot_id": plane.boot_id,
        "started_at": time.time(),
        "project": plane.layers.flags.get("CODEFYUI_PROJECT_DIR"),
    }
    write_private(user_data / "server.json", json.dumps(facts).encode())


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m codefyui_core.control``: foreground; errors on stderr without a traceback."""
    ask = argparse.ArgumentParser(prog="codefyui_core.control")
    ask.add_argument("--host")
    ask.add_argument("--port")
    ask.add_argument("--project", type=Path)
    given = ask.parse_args(argv)
    flags = {"CODEFYUI_HOST": given.host, "CODEFYUI_PORT": given.port}
    keep_freed_memory()
    try:
        install = Install.find(flags=flags, project=given.project)
        settings = read_settings(ControlSettings, install.layers)
        logging.basicConfig(
            level=settings.log_level.value,
            format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        logging.getLogger("alembic").setLevel(logging.WARNING)
        return asyncio.run(serve(install, logging.getLogger("codefyui")))
    except CodefyError as error:
        sys.stderr.write(f"{error.message}\n")
        return 2 if error.code == "usage" else 1
    except OSError as error:
        if error.errno not in FULL:
            raise
        sys.stderr.write(f"The disk is full ({error}); free some of it, and start the server again.\n")
        return 1
