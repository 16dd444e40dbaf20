"""From the start of the server's process to its first answer, beside an aiohttp application that is empty."""

import socket
import time
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path

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


def rows(effort: Effort) -> list[Row]:
    folders = (effort.folder / str(number) for number in range(1_000))
    samples, baseline = in_turns(
        effort.choose(9, 1), lambda: _server(next(folders)), lambda: _empty(next(folders))
    )
    row = Row(
        benchmark="start",
        figure="until /api/health answers, empty database",
        unit="s",
        samples=samples,
        baseline="an empty aiohttp application",
        baseline_samples=baseline,
    )
    return [row.aiming(Aim(text=f"{LIMIT_S:g} s", reached=f"{row.median:.2f} s", met=row.median <= LIMIT_S))]


def _server(folder: Path) -> float:
    port = str(free_port())
    with site(folder) as made:
        return _timed(
            lambda: made.spawn("server", ["-m", "codefyui_core.control", "--port", port], made.user_data),
            port,
        )


def _empty(folder: Path) -> float:
    port = str(free_port())
    with site(folder) as made:
        return _timed(lambda: made.spawn("empty", ["-c", _EMPTY, port], made.user_data), port)


def _timed(start: Callable[[], Process], port: str) -> float:
    began = time.perf_counter()
    process = start()
    wait_for(lambda: answers(process, int(port)), "the first answer")
    return time.perf_counter() - began


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
