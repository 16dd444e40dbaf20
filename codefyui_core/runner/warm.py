"""Keeps one zygote ready: starts it, finds modules that can't be preloaded, replaces it when it dies."""

import asyncio
import json
import logging
import os
import socket
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from .code_state import PreloadedCode
from .requests import THREAD_VARIABLES
from .tree import exited

PREPARE_S = 120.0
"""The longest that one module may take to import."""
_LIVED_S = 60.0
"""A zygote that was ready for so long died of something else than its start."""
_LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """How processes of this supervisor are started."""

    python: str
    environ: Mapping[str, str]
    """With the mark."""
    log_file: Path | None = None

    def start(
        self, module: str, arguments: Sequence[str], numbers: Sequence[int], env: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        """In a session of its own, so that Ctrl+C in a terminal reaches the supervisor alone."""
        with _log(self.log_file) as log:
            return subprocess.Popen(
                [self.python, "-m", module, *arguments],
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self.environ, **env},
                start_new_session=True,
            )


def _log(path: Path | None) -> BinaryIO:
    return Path(path or os.devnull).open("ab")


class Unfit(Exception):
    """A module because of which the zygote can't be used; empty when it died by itself."""

    def __init__(self, module: str, why: str) -> None:
        super().__init__(why)
        self.module = module
        self.why = why


class Zygote:
    """One warm process."""

    def __init__(self, interpreter: Interpreter, modules: Sequence[str]) -> None:
        self.code = PreloadedCode(modules)
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = interpreter.start(
                "codefyui_core.runner.zygote",
                [str(theirs.fileno()), str(os.getpid()), *modules],
                [theirs.fileno()],
                dict.fromkeys(THREAD_VARIABLES, "1"),
            )
        self._link.setblocking(False)
        self._pidfd = os.pidfd_open(self._process.pid)
        self.pid = self._process.pid
        self.left_out: dict[str, str] = {}

    async def prepared(self) -> None:
        """Waits until it can fork.

        Raises: Unfit.
        """
        loop = asyncio.get_running_loop()
        importing = ""
        while True:
            try:
                data = await asyncio.wait_for(loop.sock_recv(self._link, 1 << 16), PREPARE_S)
            except TimeoutError:
                raise Unfit(importing, f"importing it takes longer than {PREPARE_S:g} s") from None
            except ConnectionError:
                data = b""
            if not data:
                raise Unfit(importing, "the warm process ended while importing it")
            match json.loads(data):
                case {"ready": True}:
                    return
                case {"importing": module}:
                    importing = module
                case {"left_out": module, "why": why}:
                    self.left_out[module] = why
                case {"culprit": module, "why": why}:
                    raise Unfit(module, why)

    def fork(self, numbers: Sequence[int]) -> bool:
        """Have a keeper forked with these descriptors; False when it can't be asked."""
        try:
            socket.send_fds(self._link, [b"keeper"], list(numbers))
        except OSError:
            return False
        return True

    async def dead(self) -> None:
        await exited(self._pidfd)

    async def aclose(self) -> None:
        self._process.kill()
        await self.dead()
        os.close(self._pidfd)
        self._process.wait()
        self._link.close()


@dataclass(slots=True, kw_only=True)
class Warm:
    """The zygote of a supervisor, whichever process that is just now."""

    interpreter: Interpreter
    modules: tuple[str, ...]
    log: logging.Logger
    left_out: dict[str, str] = field(default_factory=dict)
    """Modules that aren't preloaded -> why."""
    sessions: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    """Of all zygotes so far, as keepers outlive theirs; a bound, as the system uses numbers again."""
    _zygote: Zygote | None = None
    _preparing: Zygote | None = None
    _task: "asyncio.Task[None] | None" = None
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    """A zygote is ready, or there will be none."""

    @property
    def is_ready(self) -> bool:
        return self._zygote is not None

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._mind(), name="zygote")

    async def zygote(self, wait_s: float) -> Zygote | None:
        """The ready one; waits while one is being prepared. None: use a fresh interpreter.

        One whose code was edited or updated since isn't used any more: runs execute what is installed.
        """
        if self._task is None:
            return None
        ready = self._zygote
        if ready is not None and await asyncio.to_thread(ready.code.changed) and ready is self._zygote:
            self.log.info("code has changed since the warm process started; starting another")
            self._zygote = None
            self._settled.clear()
            await self._stop_minding()
            await ready.aclose()
            self.begin()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._settled.wait(), wait_s)
        return self._zygote

    def zygotes(self) -> list[int]:
        """Process ids of all that there are."""
        return [one.pid for one in (self._zygote, self._preparing) if one is not None]

    async def replace(self, modules: Sequence[str]) -> None:
        """Prepare a new one with these modules; the old one serves until then."""
        await self._stop_minding()
        self.modules = tuple(modules)
        self.left_out.clear()
        self.begin()

    async def aclose(self) -> None:
        await self._stop_minding()
        await self._retire()

    async def _stop_minding(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _retire(self) -> None:
        if self._zygote is not None:
            old, self._zygote = self._zygote, None
            await old.aclose()

    async def _mind(self) -> None:
        loop = asyncio.get_running_loop()
        pause = 0.0
        while True:
            try:
                fresh = await self._prepare()
            except Unfit as error:
                self.log.warning("the warm process didn't start: %s", error.why)
                fresh = None
            if fresh is not None:
                await self._retire()
                self._zygote = fresh
                self._settled.set()
                began = loop.time()
                await fresh.dead()
                self.log.warning("the warm process ended; starting another")
                self._settled.clear()
                await self._retire()
                pause = 0.0 if loop.time() - began > _LIVED_S else pause
            elif not self._wanted() and self.modules:
                self.log.warning("no module can be preloaded; each run gets a fresh interpreter")
                await self._retire()
                self._settled.set()
                return
            else:
                self._settled.set()
            await asyncio.sleep(pause)
            pause = min(max(0.5, pause * 2), _LONGEST_PAUSE_S)

    def _wanted(self) -> list[str]:
        return [module for module in self.modules if module not in self.left_out]

    async def _prepare(self) -> Zygote | None:
        """Raises: Unfit when it dies whatever is left out."""
        while (wanted := self._wanted()) or not self.modules:
            self._preparing = Zygote(self.interpreter, wanted)
            self.sessions.append(self._preparing.pid)
            try:
                await self._preparing.prepared()
            except Unfit as error:
                if not error.module:
                    raise
                self.left_out[error.module] = error.why
                self.log.warning("%s isn't preloaded: %s", error.module, error.why)
            else:
                for module, why in self._preparing.left_out.items():
                    self.left_out[module] = why
                    self.log.warning("%s isn't preloaded: %s", module, why)
                ready, self._preparing = self._preparing, None
                return ready
            finally:
                if self._preparing is not None:
                    failed, self._preparing = self._preparing, None
                    await failed.aclose()
        return None
