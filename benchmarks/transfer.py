"""Files over HTTP between a control plane and the agent half of the transfer backend, against curl and nginx on the
same loopback. In memory where the machine has a folder for that, so that it is the code that is measured, not the disk.

The database is there, too: what a commit costs on a disk is in the benchmarks of events.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from codefyui_core.plugin.values import JsonObject

from . import chatter
from .carrier import forget_peak, peak_mb
from .measure import Aim, Row, in_turns
from .plan import Effort
from .processes import CHECKOUT, Process, Site, site
from .web_server import WebServer, missing, web_server
from .wire_agents import enroll

MEMORY = Path("/dev/shm")
NEEDED = 0.8
FLAT_MB = 64
MIB = 1 << 20
SMALL_BYTES = 100_000
_NODE = """
from codefyui_core.plugin import DataType, Node, Param, ParamKind, Port


class Reads(Node):
    type = "Reads"
    category = "Benchmark"
    outputs = (Port(name="n_bytes", type=DataType.SCALAR),)
    params = (Param(name="file", kind=ParamKind.DATA_FILE, default=""),)

    def execute(self, inputs, params, context):
        return {"n_bytes": context.input_path(params["file"]).stat().st_size}
"""


@dataclass(slots=True)
class Carrier:
    """The worker's side, a process of its own."""

    popen: "subprocess.Popen[str]"
    server: Process
    run_files: Path
    n_sent: int = 0
    peak_mb: tuple[float, float] = (0.0, 0.0)
    """Of the worker's side and the server, during the last order."""

    def send(self, paths: Sequence[Path]) -> float:
        """Seconds; what arrived is removed again."""
        self.n_sent += 1
        taken = self._do({"do": "send", "paths": [str(path) for path in paths], "mark": str(self.n_sent)})
        shutil.rmtree(self.run_files, ignore_errors=True)
        return taken

    def fetch(self, paths: Sequence[Path], into: Path) -> float:
        """Seconds; what arrived is removed again."""
        into.mkdir()
        taken = self._do({"do": "fetch", "paths": [str(path) for path in paths], "into": str(into)})
        assert [one.stat().st_size for one in into.iterdir()] == [one.stat().st_size for one in paths]
        shutil.rmtree(into)
        return taken

    def _do(self, order: dict[str, Any]) -> float:
        assert self.popen.stdin is not None
        forget_peak(str(self.server.pid))
        self.popen.stdin.write(json.dumps(order) + "\n")
        self.popen.stdin.flush()
        said = self.heard()
        self.peak_mb = (said["peak_mb"], peak_mb(str(self.server.pid)))
        return float(said["s"])

    def heard(self) -> Any:
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line:
            raise RuntimeError("the worker's side ended; see what it said above")
        return json.loads(line)


def rows(effort: Effort) -> list[Row]:
    lacking = missing()
    if lacking is not None:
        print(f"transfer: left out, {lacking} isn't here", file=sys.stderr)
        return []
    with folder(effort) as root:
        return list(_rows(effort, root))


@contextmanager
def folder(effort: Effort) -> Iterator[Path]:
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK):
        yield effort.folder
        return
    with tempfile.TemporaryDirectory(prefix="cdui-bench-", dir=MEMORY) as made:
        yield Path(made)


def _rows(effort: Effort, root: Path) -> Iterator[Row]:
    size, count = effort.choose(1024, 4) * MIB, effort.choose(1000, 5)
    turns = effort.choose(5, 1)
    limits = {"CODEFYUI_MAX_UPLOAD_SIZE": str(1 << 40), "CODEFYUI_TRANSFER_MAX_INPUT_BYTES": str(1 << 40)}
    with site(root / "site", **limits, **chatter.LIGHT) as made:
        nodes, files = root / "site" / "data" / "custom_nodes", root / "site" / "data" / "files"
        nodes.mkdir(parents=True)
        (nodes / "reads.py").write_text(_NODE)
        files.mkdir()
        server = made.start_server()
        large, little = [write(files / "large.csv", size)], [write(files / "little.csv", size // 64)]
        small = [write(files / f"{number}.csv", SMALL_BYTES) for number in range(count)]
        reads = [*large, *little, *small]
        with carrying(made, server, root, reads) as carrier, web_server(root / "nginx", files) as web:
            yield from _memory(carrier, large, little, root)
            one = f"one file of {size // MIB} MiB"
            yield from _compared(one, large, carrier, web, root, turns)
            yield from _compared(f"{count:,} files of 100 kB", small, carrier, web, root, turns)


def _memory(carrier: Carrier, large: Sequence[Path], little: Sequence[Path], root: Path) -> Iterator[Row]:
    """What a large file needs on top of what a little one does."""
    peaks = []
    for paths in (little, little, large):
        carrier.fetch(paths, root / "into")
        there = carrier.peak_mb
        carrier.send(paths)
        peaks.append(tuple(max(pair) for pair in zip(there, carrier.peak_mb, strict=True)))
    sizes = [f"{paths[0].stat().st_size / MIB:g} MiB" for paths in (large, little)]
    for side, name in enumerate(("worker's side", "control plane")):
        row = Row(
            benchmark="transfer",
            figure=f"memory of the {name}, a file of {sizes[0]} there and back",
            unit="MB",
            samples=[peaks[2][side]],
            baseline=f"a file of {sizes[1]}",
            baseline_samples=[peaks[1][side]],
        )
        more = row.median - row.baseline_median
        yield row.aiming(
            Aim(text=f"{name}: {FLAT_MB} MB more at most", reached=f"{more:.0f} MB", met=more <= FLAT_MB)
        )


def _compared(
    what: str, paths: Sequence[Path], carrier: Carrier, web: WebServer, root: Path, turns: int
) -> Iterator[Row]:
    def download() -> float:
        taken = web.download([path.name for path in paths], root / "curl")
        shutil.rmtree(root / "curl")
        return taken

    def upload() -> float:
        taken = web.upload(paths)
        shutil.rmtree(web.store / "put")
        return taken

    yield _row(f"{what} to a worker", paths, turns, lambda: carrier.fetch(paths, root / "into"), download)
    yield _row(f"{what} from a worker", paths, turns, lambda: carrier.send(paths), upload)


def _row(
    figure: str,
    paths: Sequence[Path],
    turns: int,
    ours: Callable[[], float],
    curl: Callable[[], float],
) -> Row:
    n_mb = sum(path.stat().st_size for path in paths) / 1_000_000
    measured, baseline = in_turns(turns, lambda: n_mb / ours(), lambda: n_mb / curl())
    row = Row(
        benchmark="transfer",
        figure=figure,
        unit="MB/s",
        samples=measured,
        baseline="curl and nginx",
        baseline_samples=baseline,
    )
    return row.aiming(
        Aim(text=f"{figure}: {NEEDED:.0%} of curl", reached=f"{row.ratio:.0%}", met=row.ratio >= NEEDED)
    )


def write(path: Path, n_bytes: int) -> Path:
    with path.open("wb") as file:
        while n_bytes:
            file.write(os.urandom(min(n_bytes, MIB)))
            n_bytes -= min(n_bytes, MIB)
    return path


@contextmanager
def carrying(made: Site, server: Process, root: Path, reads: Sequence[Path]) -> Iterator[Carrier]:
    """A worker that holds a run which reads these files, ready to carry them."""
    name, credential, machine_id = asyncio.run(_enrolled(made))
    words = [made.url(), name, credential, machine_id, str(root / "worker")]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.carrier", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    ) as popen:
        try:
            made.post("/api/runs", {"graph": document(reads), "options": {"target": {"worker": name}}})
            carrier = Carrier(popen, server, root / "site" / "data" / "runs")
            carrier.heard()
            yield carrier
        finally:
            assert popen.stdin is not None
            with suppress(BrokenPipeError):
                popen.stdin.close()


def document(reads: Sequence[Path]) -> JsonObject:
    """A graph with a node for each file that it reads."""
    start = {"id": "start", "type": "Start", "data": {"params": {}}}
    nodes = [
        {"id": f"reads-{number}", "type": "Reads", "data": {"params": {"file": path.name}}}
        for number, path in enumerate(reads)
    ]
    edges = [
        {"source": "start", "target": node["id"], "sourceHandle": "trigger", "type": "trigger"}
        for node in nodes
    ]
    return {"name": "bench", "nodes": [start, *nodes], "edges": edges}


async def _enrolled(made: Site) -> tuple[str, str, str]:
    async with aiohttp.ClientSession() as http:
        (agent,) = (await enroll(http, made, 1)).agents
    return agent.name, agent.credential, agent.machine_id
