"""Real supervisors and runs whose behavior a test chooses."""

import asyncio
import json
import logging
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from codefyui_core.runner.api import FolderSpec, Go, Launch
from codefyui_core.runner.supervisor import Supervisor

BEHAVIORS = Path(__file__).parent / "behaviors"
DEADLINE_S = 20


class Bench:
    """Starts runs of ``run_behaviors`` in a supervisor, and reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = logging.getLogger("tests.runner")

    @asynccontextmanager
    async def supervisor(self, **options):
        preload = options.pop("preload", ("run_behaviors",))
        options = {"zygote": True, "log": self.log, "entry": "run_behaviors:execute"} | options
        starter = Supervisor(preload=preload, **options)
        try:
            await starter.start()
            yield starter
        finally:
            await starter.aclose()

    async def begin(self, starter, do, **options):
        launch = {name: options.pop(name) for name in ("env", "cores") if name in options}
        process = await starter.launch(Launch(run_id="r" * 8, attempt=1, work_dir=self.folder, **launch))
        await process.ready()
        await process.go(self.go(do=do, **options))
        return process

    def go(self, document=None, **options):
        folders = FolderSpec(base=str(self.folder), data=str(self.folder / "data"))
        return Go(
            run_id="r" * 8, attempt=1, document=document or {}, options=options, device="cpu", folders=folders
        )

    async def finish(self, process):
        """All lines as objects, and the ending."""
        async with asyncio.timeout(DEADLINE_S):
            lines = [json.loads(line) async for line in process.lines()]
            return lines, await process.ended()

    async def first(self, process):
        """The payload of the first line of a run that goes on."""
        async with asyncio.timeout(DEADLINE_S):
            async for line in process.lines():
                return json.loads(line)["payload"]
        raise AssertionError("the run said nothing")

    async def run(self, starter, do, **options):
        return await self.finish(await self.begin(starter, do, **options))

    async def until(self, condition):
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def warm(self, starter):
        await self.until(lambda: starter.is_warm)


def is_alive(pid: int) -> bool:
    """Running, not a zombie that nobody has reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def alive():
    return is_alive


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(BEHAVIORS), prepend=os.pathsep)
    return Bench(tmp_path)


@pytest.fixture
def ends_with_test():
    """Pids that mustn't outlive the test whatever happens in it."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue
        deadline = time.monotonic() + 5
        while is_alive(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
