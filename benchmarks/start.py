"""From the start of the server's process to its first answer, beside an aiohttp application that is empty."""

import socket
import time
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import psutil

from .measure import Aim, Row, in_turns
from .plan import Effort
from .processes import Process, site, wait_for

LIMIT_S = 2.0
_EMPTY = """
import sys
from aiohttp import web

async def health(request):
    return web.json_response({})

app = web.Application()
app.router.add_get("/api/health", health)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
"""

_SERVER = ("-m", "codefyui_core.control", "--port")
_BARE = ("-c", _EMPTY)


def rows(effort: Effort) -> list[Row]:
    folders = (effort.folder / str(number) for number in range(1_000))
    clocks, baseline_clocks = in_turns(
        effort.choose(9, 1), lambda: started(next(folders), _SERVER), lambda: started(next(folders), _BARE)
    )
    wall, cpu = (
        Row(
            benchmark="start",
            figure=f"until /api/health answers, {name}",
            unit="s",
            samples=[times[index] for times in clocks],
            baseline="an empty aiohttp application",
            baseline_samples=[times[index] for times in baseline_clocks],
        )
        for index, name in enumerate(("empty database", "processor time"))
    )
    return [
        wall.aiming(Aim(text=f"{LIMIT_S:g} s", reached=f"{wall.median:.2f} s", met=wall.median <= LIMIT_S)),
        cpu,
    ]


def started(folder: Path, words: Sequence[str]) -> tuple[float, float]:
    """Seconds on the wall and of the process on processors, from its start to its first answer."""
    port = free_port()
    with site(folder) as made:
        began = time.perf_counter()
        process = made.spawn("server", [*words, str(port)], made.user_data)
        wait_for(lambda: answers(process, port), "the first answer")
        seconds = time.perf_counter() - began
        spent = psutil.Process(process.pid).cpu_times()
        return seconds, spent.user + spent.system


def answers(process: Process, port: int) -> bool:
    process.check()
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/api/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def free_port() -> int:
    """One that nobody listens on now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
