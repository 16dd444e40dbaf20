"""Keeps one run: forks its process, ends whatever of its tree is left, and tells how it ended. Linux only.

The keeper is the subreaper of all that the run starts, so every orphan of the run is its child, and no process
of anybody else's ever is. It outlives its supervisor just long enough to end the tree. It runs no user code and
imports no more than it needs; started as ``python -m codefyui_core.runner.keeper`` it is the fresh interpreter
of a run that has no zygote.
"""

import os
import resource
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from . import linux
from .cgroups import RunGroup
from .memory_kills import WINDOW_S, Kills, counter
from .requests import KILL, Handles, KeeperRequest, TreeEnd

LOST_PARENT = 99
"""Exit status of a process whose parent was gone before it could tie itself to it; nobody reads it."""


def keep(handles: Handles) -> NoReturn:
    """The whole life of a keeper. Never returns to the caller, whose stack is the zygote's."""
    status = 1
    try:
        for number in handles.all():
            os.set_inheritable(number, False)
        with socket.socket(fileno=handles.link) as link:
            line = link.makefile("rb").readline()
            if line:
                _keep(KeeperRequest.from_line(line), handles, link)
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    finally:
        os._exit(status)


def _keep(request: KeeperRequest, handles: Handles, link: socket.socket) -> None:
    linux.set_name("cdui-keeper")
    linux.become_subreaper()
    try:
        supervisor = os.pidfd_open(request.supervisor)
    except ProcessLookupError:
        return
    if os.getppid() != request.supervisor:
        return
    wake = _wake_on_children()
    group = RunGroup.make(request.group_name, None if request.cgroup is None else Path(request.cgroup))
    kills = Kills.follow(counter(None if group is None else group.memory_events))
    run = os.fork()
    if run == 0:
        os.close(supervisor)
        _become_run(request, handles, link, group)
    for number in handles.all()[1:]:
        os.close(number)
    link.sendall(b'{"keeper":%d,"run":%d}\n' % (os.getpid(), run))
    watch = _Watch(run=run, link=link, supervisor=supervisor, wake=wake, kills=kills)
    watch.until_gone()
    _end_strays(group)
    end = _described(watch, group)
    if group is not None:
        group.remove()
    with suppress(OSError):
        link.sendall(end.to_line())


def _wake_on_children() -> int:
    """A descriptor that is readable when a child ended."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    return read


def _become_run(
    request: KeeperRequest, handles: Handles, link: socket.socket, group: RunGroup | None
) -> NoReturn:
    """In the forked child: cut loose from the keeper, then user code's process for good."""
    from .process import main

    keeper = os.getppid()
    linux.die_with_parent()
    if os.getppid() != keeper:
        os._exit(LOST_PARENT)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    linux.set_name("cdui-run")
    linux.offer_for_oom()
    linux.yield_to_supervisor()
    if group is not None:
        with suppress(OSError):
            group.enter()
    link.close()
    os.dup2(handles.stdout, 1)
    os.dup2(handles.stderr, 2)
    os.close(handles.stdout)
    os.close(handles.stderr)
    main(request, control=handles.control, events=handles.events)


@dataclass(slots=True, kw_only=True)
class _Watch:
    """Waits for the run's end, for word of the supervisor, and for the supervisor's own end."""

    run: int
    link: socket.socket
    supervisor: int
    wake: int
    kills: Kills
    killed: bool = False
    """By us, on purpose."""
    status: int | None = None
    usage: resource.struct_rusage | None = None
    _poll: select.poll = field(default_factory=select.poll)

    def until_gone(self) -> None:
        for source in (self.link, self.supervisor, self.wake):
            self._poll.register(source, select.POLLIN)
        while not self._reap():
            ready = {number for number, _ in self._poll.poll(WINDOW_S * 1000)}
            self.kills.look()
            if self.wake in ready:
                _drain(self.wake)
            if self.supervisor in ready or (self.link.fileno() in ready and self._told_to_kill()):
                self._kill()

    def _told_to_kill(self) -> bool:
        """The socket's end counts: there is nobody left to tell."""
        data = self.link.recv(64)
        return not data or KILL in data

    def _kill(self) -> None:
        self.killed = True
        for source in (self.link, self.supervisor):
            with suppress(KeyError):
                self._poll.unregister(source)
        _signal_children(self.run)

    def _reap(self) -> bool:
        """All that ended; True once the run is among them."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return self.status is not None
            if pid == self.run:
                self.status, self.usage = status, usage


def _drain(wake: int) -> None:
    with suppress(BlockingIOError):
        while os.read(wake, 4096):
            pass


def _signal_children(*also: int) -> None:
    """Children that aren't reaped keep their numbers, so that nobody else can be hit."""
    for pid in {*linux.children(os.getpid()), *also}:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _end_strays(group: RunGroup | None) -> None:
    """Each dead child hands its own children to us; go on until there are none. Only ``waitpid`` knows that
    for certain.
    """
    pause_s = 0.0
    while True:
        if group is not None:
            group.end()
        _signal_children()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pause_s = 0.0
        except ChildProcessError:
            return
        time.sleep(pause_s)
        pause_s = min(pause_s + 0.0005, 0.05)


def _described(watch: _Watch, group: RunGroup | None) -> TreeEnd:
    if watch.status is None:
        return TreeEnd(signal=signal.SIGKILL)
    ended_by = os.WTERMSIG(watch.status) if os.WIFSIGNALED(watch.status) else None
    exit_code = None if ended_by is not None else os.waitstatus_to_exitcode(watch.status)
    peaks = [watch.usage.ru_maxrss * 1024] if watch.usage is not None else []
    if group is not None and (peak := group.peak_bytes()) is not None:
        peaks.append(peak)
    return TreeEnd(
        exit_code=exit_code,
        signal=ended_by,
        out_of_memory=not watch.killed and lost_to_memory(exit_code, ended_by, watch.kills.count()),
        peak_memory_bytes=max(peaks, default=None),
    )


def lost_to_memory(exit_code: int | None, ended_by: int | None, kills: int) -> bool:
    """The kernel counted an out-of-memory kill, and the run ended as one does that lost its process, or a
    process of its own, to it.
    """
    return kills > 0 and (ended_by == signal.SIGKILL or exit_code not in (None, 0))


def wait_for_adoption(by: int) -> None:
    """Until the process that forked us is gone and the subreaper above has taken us."""
    while os.getppid() == by:
        time.sleep(0.0002)


if __name__ == "__main__":
    keep(Handles.of([int(number) for number in sys.argv[1:]]))
