"""Every module of the core imports where Linux's own parts are missing, as on macOS and Windows."""

import subprocess
import sys

import pytest

CODE = """
import asyncio, importlib, multiprocessing, os, pkgutil, select, signal, socket, subprocess, sys
import aiohttp, aiohttp.web, alembic, click, rich.progress, sqlalchemy.ext.asyncio, watchfiles, psutil, filelock
import prometheus_client, cryptography.fernet, hypothesis, pytest
for module in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[module] = None
for owner, names in (
    (os, ("pidfd_open", "fork", "setsid", "wait4", "killpg", "getppid", "sched_getaffinity", "geteuid", "getuid",
          "chown", "mkfifo", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC")),
    (select, ("poll", "epoll")),
    (signal, ("SIGKILL", "SIGCHLD", "SIGHUP", "SIGUSR1", "pthread_sigmask", "set_wakeup_fd")),
    (socket, ("AF_UNIX", "send_fds", "recv_fds", "SOCK_SEQPACKET")),
):
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)
import codefyui_core
LINUX_ONLY = (".runner.keeper", ".runner.zygote")  # programs of their own, started on Linux alone
failed = {}
for found in pkgutil.walk_packages(codefyui_core.__path__, "codefyui_core."):
    if found.name.endswith(("__main__", *LINUX_ONLY)) or ".migrations." in found.name:
        continue
    try:
        importlib.import_module(found.name)
    except Exception as error:
        failed[found.name] = f"{type(error).__name__}: {error}"
assert not failed, failed
"""


@pytest.mark.spec("limits/linux-first")
def test_every_module_imports_without_linux() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
