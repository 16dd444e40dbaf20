"""The warm process: libraries imported, one thread, no accelerator touched; forks a keeper for each run.

``python -m codefyui_core.runner.zygote SOCKET SUPERVISOR MODULE...``. It never runs user code, and dies with
its supervisor. Linux only.
"""

import gc
import importlib
import json
import os
import socket
import sys

from . import linux
from .keeper import keep, wait_for_adoption
from .requests import Handles

OWN_MODULES = ("codefyui_core.runner.process", "codefyui_core.runner.execute")


def main(supervisor: int, link: socket.socket, modules: list[str]) -> None:
    linux.die_with_parent()
    if os.getppid() != supervisor:
        return
    linux.set_name("cdui-zygote")
    for module in OWN_MODULES:
        importlib.import_module(module)
    for module in modules:
        _tell(link, importing=module)
        if not _preload(module, link):
            return
    gc.collect()
    gc.freeze()
    _tell(link, ready=True)
    while _serve(link):
        pass


def _preload(module: str, link: socket.socket) -> bool:
    """False when this process can't be forked any more because of ``module``."""
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as error:
        _tell(link, left_out=module, why=f"{type(error).__name__}: {error}")
    if why := unfit_to_fork():
        _tell(link, culprit=module, why=why)
        return False
    return True


def unfit_to_fork() -> str:
    """Why a fork of this process wouldn't be a whole one; empty when it would."""
    if (threads := linux.thread_count()) > 1:
        return f"it started {threads - 1} thread(s) at import"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "it initialized CUDA at import"
    return ""


def _tell(link: socket.socket, **said: object) -> None:
    link.send(json.dumps(said).encode())


def _serve(link: socket.socket) -> bool:
    message, numbers, _, _ = socket.recv_fds(link, 64, 8)
    if not message:
        return False
    handles = Handles.of(list(numbers))
    sys.stdout.flush()
    sys.stderr.flush()
    middle = os.fork()
    if middle == 0:
        mine = os.getpid()
        if os.fork():
            os._exit(0)
        link.close()
        wait_for_adoption(mine)
        keep(handles)
    os.waitpid(middle, 0)
    for number in handles.all():
        os.close(number)
    return True


if __name__ == "__main__":
    main(
        int(sys.argv[2]),
        socket.socket(fileno=int(sys.argv[1])),
        sys.argv[3:],
    )
