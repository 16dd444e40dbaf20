"""The worker's side of transfers in a process of its own: a simulated agent holds a run, and the real agent half of
the transfer backend carries files for it. Told what to do by lines of JSON on its input.

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
from codefyui_core.plugin import (
    AttemptView,
    Family,
    InputItem,
    Output,
    RunId,
    Sha256,
    StorageSession,
    WorkerId,
)
from codefyui_core.testing.hosts import AgentStoreDouble, NotesDouble, ProgressDouble
from codefyui_storage_transfer.models import TransferTicket
from codefyui_storage_transfer.plugin import TransferBackend

from .fleet import until
from .memory import MB
from .wire_agents import SimulatedAgent

LIMIT_BYTES = 1 << 40
CHUNK_BYTES = 8 << 20


async def main(url: str, name: str, credential: str, machine_id: str, folder: str) -> None:
    agent = SimulatedAgent(name=name, credential=credential, machine_id=machine_id)
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as tasks:
        living = tasks.create_task(agent.live(http, url))
        try:
            way = Way(http=http, base_url=url, headers={"Authorization": f"Bearer {credential}"})
            await serve(agent, way, Path(folder))
        finally:
            living.cancel()


async def serve(agent: SimulatedAgent, way: Way, folder: Path) -> None:
    """Until the input ends."""
    await until(lambda: bool(agent.attempts), "its run")
    (attempt,) = agent.attempts.values()
    view = AttemptView(run_id=RunId(attempt.key.run_id), number=attempt.key.attempt, worker_id=WorkerId(""))
    host = AgentStoreDouble(root=folder, connection=AgentHttp(lambda: way, f"{view.number}.{attempt.lease}"))
    half = TransferBackend().agent(host)
    ticket = TransferTicket(max_upload_bytes=LIMIT_BYTES, chunk_bytes=CHUNK_BYTES)
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
                await at_most(half.parallel, (fetch(session, path, Path(order["into"])) for path in paths))
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
        key=key, kind="checkpoint", name=f"{mark}/{path.name}", relative_path=f"models/{path.name}"
    )
    await session.publish(output, path, NotesDouble(), ProgressDouble())


async def fetch(session: StorageSession[Any, Any], path: Path, into: Path) -> None:
    size = path.stat().st_size
    item = InputItem(sha256=Sha256("0" * 64), size_bytes=size, family=Family.FILES, name=path.name)
    await session.fetch(item, into / path.name, ProgressDouble())


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
    asyncio.run(main(*sys.argv[1:]))
