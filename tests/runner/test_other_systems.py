"""The supervisor's side imports where Linux's parts are missing, and never brings torch or node classes in."""

import subprocess
import sys

CODE = """
import asyncio, select, signal, socket, sys, os, subprocess
for module in ("resource", "fcntl", "pwd", "grp", "termios"):
    sys.modules[module] = None
for owner, names in (
    (os, ("pidfd_open", "fork", "setsid", "wait4", "killpg", "getppid", "sched_getaffinity")),
    (select, ("poll", "epoll")),
    (signal, ("SIGKILL", "SIGCHLD", "pthread_sigmask", "set_wakeup_fd")),
    (socket, ("AF_UNIX", "send_fds", "recv_fds", "SOCK_SEQPACKET")),
):
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)
import codefyui_core.runner.definitions
import codefyui_core.runner.memory
import codefyui_core.runner.offline
import codefyui_core.runner.plain
import codefyui_core.runner.execute
import codefyui_core.runner.supervisor
from codefyui_core.runner import linux
assert not linux.keeps_trees()
"""


def test_everything_of_the_supervisors_side_imports_without_linux():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_plane_that_has_a_supervisor_has_neither_torch_nor_the_engine():
    code = (
        "import sys, codefyui_core.runner.supervisor, codefyui_core.runner.definitions, codefyui_core.runner.offline\n"
        "bad = [m for m in sys.modules if m.partition('.')[0] in ('torch', 'numpy', 'sklearn', 'aiohttp')"
        " or m.startswith(('codefyui_core.engine', 'codefyui_nodes_torch', 'codefyui_core.builtin'))]\n"
        "assert not bad, bad"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
