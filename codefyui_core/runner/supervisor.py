"""Makes run processes for a plane and sees all of them to their ends. Imports no torch and no user code.

On Linux each run has a keeper, forked by a zygote that has the libraries loaded, or started as a fresh
interpreter. Elsewhere a run is a plain child process. Create and use it in the main thread's event loop: the
kernel ties parent-death signals to the thread that forks.
"""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

from codefyui_core.errors import CodefyError

from . import cgroups, linux
from .api import Launch, RunProcess
from .handle import RunHandle, Streams, process_lost
from .plain import launch_plain
from .requests import THREAD_VARIABLES, Handles, KeeperRequest, origin
from .strays import MARK, Strays, end_abandoned, mark
from .tree import KeptTree, reap
from .warm import Interpreter, Warm

EXECUTE = "codefyui_core.runner.execute:execute"
WAIT_FOR_ZYGOTE_S = 30.0
HELLO_S = 60.0
FORK_S = 10.0
"""The longest that a keeper may take to answer: from a fresh interpreter, from the zygote."""
EVENT_BYTES, TEXT_BYTES = 128 << 10, 32 << 10
"""Twice as much is what a reader of such a pipe may hold in memory."""


class Supervisor:
    """``RunStarter`` of both planes."""

    def __init__(
        self,
        *,
        preload: Sequence[str],
        zygote: bool,
        python: str = sys.executable,
        log: logging.Logger,
        log_file: Path | None = None,
        entry: str = EXECUTE,
        keepers: bool | None = None,
    ) -> None:
        """``entry`` names the function that executes a run in its process; ``keepers`` False: plain children
        also on Linux.
        """
        self._entry = entry
        self._log = log
        self._keepers = linux.keeps_trees() if keepers is None else keepers
        own_mark = mark(os.getpid())
        self._interpreter = Interpreter(
            python=python, environ={**os.environ, MARK: own_mark}, log_file=log_file
        )
        self._warm = Warm(interpreter=self._interpreter, modules=tuple(preload), log=log)
        self._uses_zygote = zygote and self._keepers
        self._strays = Strays(own_mark, self)
        self._groups: Path | None = None
        self._launches = count(1)
        self._keeper_pids: set[int] = set()
        self._runs: dict[RunHandle, asyncio.Task[None]] = {}
        self._closing = False

    @property
    def left_out(self) -> Mapping[str, str]:
        """Modules that couldn't be preloaded -> why."""
        return self._warm.left_out

    @property
    def is_warm(self) -> bool:
        """The next launch is a fork."""
        return self._warm.is_ready

    async def start(self) -> None:
        """Become the subreaper of what will be started, end what a dead supervisor left, and begin to warm up."""
        if self._keepers:
            linux.become_subreaper()
            await asyncio.to_thread(self._end_left)
            self._prepare_groups()
        await self.warm()

    def _end_left(self) -> None:
        if ended := end_abandoned():
            self._log.warning("ended %d process(es) of runs whose supervisor was killed", ended)

    def _prepare_groups(self) -> None:
        """Before anything is started: what is started stays in the group that we are in then."""
        try:
            self._groups = cgroups.prepare()
        except (cgroups.NoGroups, OSError) as error:
            self._log.info("runs have no control groups of their own here: %s", error)
            return
        for group in cgroups.left_groups(self._groups):
            group.end()
            group.remove()

    async def warm(self) -> None:
        if self._uses_zygote and not self._closing:
            self._warm.begin()

    async def set_preload(self, preload: Sequence[str]) -> None:
        """The catalog changed: a new zygote with these modules takes over once it is ready."""
        if self._uses_zygote and not self._closing:
            await self._warm.replace(preload)

    async def launch(self, launch: Launch) -> RunProcess:
        if self._closing:
            raise CodefyError("this process is stopping and starts no more runs", code="server.stopping")
        if not launch.work_dir.is_dir():
            raise process_lost(f"the folder {launch.work_dir} isn't there")
        try:
            handle = await (self._launch_kept(launch) if self._keepers else self._launch_plain(launch))
        except (OSError, TimeoutError) as error:
            raise process_lost(f"none could be made ({error})") from error
        self._runs[handle] = asyncio.get_running_loop().create_task(self._forget(handle))
        return handle

    async def aclose(self) -> None:
        self._closing = True
        for handle in list(self._runs):
            await handle.kill()
        await asyncio.gather(*self._runs.values(), return_exceptions=True)
        await self._warm.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def pids(self) -> set[int]:
        return {*self._keeper_pids, *self._warm.zygotes()}

    def sessions(self) -> set[int]:
        return set(self._warm.sessions)

    def zygotes(self) -> set[int]:
        """Process ids: the one that serves, and the one that is being prepared."""
        return set(self._warm.zygotes())

    def _reap_lost_keepers(self) -> None:
        """Adopted and dead before they could say their names; nobody else would ever reap them."""
        for pid in linux.children(os.getpid()):
            if pid not in self.pids() and linux.session_of(pid) in self.sessions():
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    async def _forget(self, handle: RunHandle) -> None:
        await handle.ended()
        del self._runs[handle]

    def _request(self, launch: Launch) -> KeeperRequest:
        return KeeperRequest(
            supervisor=os.getpid(),
            run_id=launch.run_id,
            attempt=launch.attempt,
            work_dir=str(launch.work_dir),
            entry=self._entry,
            env=dict(launch.env),
            origin=origin(),
            cores=launch.cores,
            cgroup=None if self._groups is None else str(self._groups),
            group_name=cgroups.group_name(
                linux.identity_of(os.getpid()), launch.run_id, next(self._launches)
            ),
        )

    async def _launch_plain(self, launch: Launch) -> RunHandle:
        return await launch_plain(
            self._interpreter, self._request(launch), _thread_env(launch), launch.writes_for_s
        )

    async def _launch_kept(self, launch: Launch) -> RunHandle:
        zygote = await self._warm.zygote(WAIT_FOR_ZYGOTE_S) if self._uses_zygote else None
        if zygote is not None:
            with suppress(CodefyError):
                return await self._begin(launch, lambda handles: zygote.fork(handles.all()) or None, FORK_S)
        return await self._begin(launch, lambda handles: self._start_fresh(launch, handles), HELLO_S)

    def _start_fresh(self, launch: Launch, handles: Handles) -> "subprocess.Popen[bytes]":
        numbers = handles.all()
        process = self._interpreter.start(
            "codefyui_core.runner.keeper", [str(number) for number in numbers], numbers, _thread_env(launch)
        )
        self._keeper_pids.add(process.pid)
        return process

    async def _begin(
        self,
        launch: Launch,
        start: Callable[[Handles], "subprocess.Popen[bytes] | bool | None"],
        within_s: float,
    ) -> RunHandle:
        """Raises: CodefyError ``run.process_lost`` when no keeper answers."""
        ends = _Ends.make()
        with ExitStack() as theirs:
            for one in ends.theirs():
                theirs.callback(_close, one)
            process = start(ends.handles)
        if process is None:
            ends.close()
            raise process_lost("the warm process is gone")
        reader, writer = await asyncio.open_connection(sock=ends.link)
        streams = await ends.open()
        request = self._request(launch)
        writer.write(request.to_line())
        hello = await _hello(reader, within_s)
        fresh = process if isinstance(process, subprocess.Popen) else None
        if hello is None:
            writer.close()
            streams.close()
            if fresh is not None:
                await asyncio.to_thread(_end, fresh)
                self._keeper_pids.discard(fresh.pid)
            self._reap_lost_keepers()
            raise process_lost("its keeper ended before it could start")
        keeper = hello["keeper"]
        self._keeper_pids.add(keeper)

        def collect() -> None:
            self._keeper_pids.discard(keeper)
            if fresh is not None:
                fresh.wait()
            else:
                reap(keeper)

        tree = KeptTree(
            keeper=keeper,
            run=hello["run"],
            reader=reader,
            writer=writer,
            reap=collect,
            strays=self._strays,
            group=None if self._groups is None else cgroups.RunGroup(path=self._groups / request.group_name),
        )
        return RunHandle(tree, streams, launch.writes_for_s)


def _thread_env(launch: Launch) -> dict[str, str]:
    """Libraries of a fresh interpreter read it at import."""
    return {} if launch.cores is None else dict.fromkeys(THREAD_VARIABLES, str(launch.cores))


async def _hello(reader: asyncio.StreamReader, within_s: float) -> dict[str, int] | None:
    with suppress(ConnectionError, TimeoutError, ValueError):
        line = await asyncio.wait_for(reader.readline(), within_s)
        if line:
            hello: dict[str, int] = json.loads(line)
            return hello
    return None


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def _close(number: "int | socket.socket") -> None:
    if isinstance(number, int):
        os.close(number)
    else:
        number.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """Both ends of the connections of a run that is about to be."""

    link: socket.socket
    control: socket.socket
    events: int
    stdout: int
    stderr: int
    their_link: socket.socket
    their_control: socket.socket
    handles: Handles

    @classmethod
    def make(cls) -> "_Ends":
        link, their_link = socket.socketpair()
        control, their_control = socket.socketpair()
        (events, events_in), (stdout, stdout_in), (stderr, stderr_in) = os.pipe(), os.pipe(), os.pipe()
        handles = Handles(
            link=their_link.fileno(),
            control=their_control.fileno(),
            events=events_in,
            stdout=stdout_in,
            stderr=stderr_in,
        )
        return cls(
            link=link,
            control=control,
            events=events,
            stdout=stdout,
            stderr=stderr,
            their_link=their_link,
            their_control=their_control,
            handles=handles,
        )

    def theirs(self) -> "list[int | socket.socket]":
        handles = self.handles
        return [self.their_link, self.their_control, handles.events, handles.stdout, handles.stderr]

    def close(self) -> None:
        for one in (self.link, self.control, self.events, self.stdout, self.stderr):
            _close(one)

    async def open(self) -> Streams:
        events, first = await _pipe(self.events, EVENT_BYTES)
        stdout, second = await _pipe(self.stdout, TEXT_BYTES)
        stderr, third = await _pipe(self.stderr, TEXT_BYTES)
        _, control = await asyncio.open_connection(sock=self.control)
        return Streams(
            control=control,
            events=events,
            stdout=stdout,
            stderr=stderr,
            transports=(first, second, third),
        )


async def _pipe(number: int, limit: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader(limit=limit)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(number, "rb", buffering=0)
    )
    return reader, transport
