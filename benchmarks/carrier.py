"""The worker's side of transfers in a process of its own: a simulated agent holds a run, and the real agent half of
the transfer backend carries files for it: what the run's ticket names, and what it is told to send. Told what
to do by lines of JSON on its input.

``python -m benchmarks.carrier URL NAME CREDENTIAL MACHINE_ID FOLDER``
"""

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Awaitable, Iterable
from pathlib import Path
from typing import Any

import aiohttp

from codefyui_core.agent.http import AgentHttp, Way
from codefyui_core.freed_memory import keep_freed_memory
from codefyui_core.plugin import (
    AttemptView,
    InputItem,
    LinkProblem,
    Output,
    Purpose,
    RunId,
    StorageSession,
    WorkerId,
)
from codefyui_core.testing.hosts import AgentStoreDouble, NotesDouble, ProgressDouble
from codefyui_storage_transfer.models import TransferTicket
from codefyui_storage_transfer.plugin import TransferBackend

from .fleet import until
from .memory import MB
from .wire_agents import SimulatedAgent


async def main(url: str, name: str, credential: str, machine_id: str, folder: str) -> None:
    backend = TransferBackend()
    agent = SimulatedAgent(
        name=name,
        credential=credential,
        machine_id=machine_id,
        backends={backend.name: backend.protocol},
    )
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as tasks:
        living = tasks.create_task(agent.live(http, url))
        try:
            headers = {"Authorization": f"Bearer {credential}"}
            way = Way(http=http, base_url=url, headers=headers, diagnose=unreachable)
            await serve(agent, backend, way, Path(folder))
        finally:
            living.cancel()


async def unreachable(error: BaseException, purpose: Purpose) -> LinkProblem:
    return LinkProblem(f"{purpose}: {error}")


async def serve(agent: SimulatedAgent, backend: TransferBackend, way: Way, folder: Path) -> None:
    """Until the input ends."""
    await until(lambda: bool(agent.attempts), "its run")
    (attempt,) = agent.attempts.values()
    view = AttemptView(run_id=RunId(attempt.key.run_id), number=attempt.key.attempt, worker_id=WorkerId(""))
    host = AgentStoreDouble(root=folder, connection=AgentHttp(lambda: way, f"{view.number}.{attempt.lease}"))
    half = backend.agent(host)
    ticket = TransferTicket.model_validate(attempt.ticket)
    items = {item.name: item for item in ticket.inputs}
    say(view.run_id)
    async with half.open(view, ticket, None) as session:
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            paths = [Path(path) for path in order["paths"]]
            forget_peak()
            begun = time.perf_counter()
            if order["do"] == "send":
                await at_most(half.parallel, (send(session, path, order["mark"]) for path in paths))
            else:
                await at_most(
                    half.parallel, (fetch(session, items[path.name], Path(order["into"])) for path in paths)
                )
            say({"s": time.perf_counter() - begun, "peak_mb": peak_mb()})


async def at_most(count: int, work: Iterable[Awaitable[None]]) -> None:
    places = asyncio.Semaphore(count)

    async def one(awaited: Awaitable[None]) -> None:
        async with places:
            await awaited

    await asyncio.gather(*map(one, work))


async def send(session: StorageSession[Any, Any], path: Path, mark: str) -> None:
    key = hashlib.sha256(f"{mark}/{path.name}".encode()).hexdigest()[:32]
    output = Output(
        key=key,
        kind="checkpoint",
        name=f"{mark}/{path.name}",
        relative_path=f"models/{path.name}",
        size_bytes=path.stat().st_size,
    )
    await session.publish(output, path, NotesDouble(), ProgressDouble())


async def fetch(session: StorageSession[Any, Any], item: InputItem, into: Path) -> None:
    assert await session.fetch(item, into / item.name, ProgressDouble()) == item.sha256


def forget_peak(pid: str = "self") -> None:
    """What ``peak_mb`` says from now on was reached from now on. Linux."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def peak_mb(pid: str = "self") -> float:
    """The largest resident set of a process. Linux."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    kib = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(kib) * 1024 / MB


def say(word: Any) -> None:
    print(json.dumps(word), flush=True)


if __name__ == "__main__":
    keep_freed_memory()  # as an agent does
    asyncio.run(main(*sys.argv[1:]))
