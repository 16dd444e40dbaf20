"""Many small files of a run on a worker that shares no folder with its server: what they cost around the session of
the backend that carries them, on the disk of the machine, whose syncs count.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from . import chatter
from .measure import Row, in_turns
from .plan import Effort
from .processes import Process, Site, site

SMALL_BYTES = 10_000
_NODE = """
import os

from codefyui_core.plugin import DataType, Family, FileRole, FileRule, Node, Param, ParamKind, Port


class Filing(Node):
    type = "Filing"
    category = "Benchmark"
    outputs = (Port(name="count", type=DataType.SCALAR),)
    params = (
        Param(name="file", kind=ParamKind.DATA_FILE, default=""),
        Param(name="writes", kind=ParamKind.INT, default=0),
        Param(name="size", kind=ParamKind.INT, default=0),
    )
    files = (FileRule(role=FileRole.RECORDS, family=Family.MODELS),)
    cacheable = False

    def execute(self, inputs, params, context):
        folder = context.folders.locate("output/many")
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(params["writes"]):
            (folder / f"{number}.bin").write_bytes(os.urandom(params["size"]))
        return {"count": params["writes"]}
"""
"""Writes without a word, so that all of it is sent when the run is over."""


@dataclass(frozen=True, slots=True)
class Cost:
    seconds: float
    worked_s: float
    """Processor time of the agent, or of the copies."""


@dataclass(slots=True, kw_only=True)
class Far:
    """A worker elsewhere, and what it is given to carry."""

    place: Site
    agent: Process
    count: int
    root: Path
    n_copied: int = 0
    inputs: list[Path] = field(default_factory=list)

    def fetch(self) -> Cost:
        """Inputs that it never had, from the acceptance of the run to its first node."""
        folder = self.place.root / "data" / "files"
        folder.mkdir(parents=True, exist_ok=True)
        self.inputs = [folder / f"{number}.csv" for number in range(self.count)]
        for path in self.inputs:
            path.write_bytes(os.urandom(SMALL_BYTES))
        return self.fetch_again()

    def fetch_again(self) -> Cost:
        """The same ones."""
        nodes = [_node(f"n{number}", {"file": path.name}) for number, path in enumerate(self.inputs)]
        row, events, worked_s, _ = self._run(nodes)
        first = next(event for event in events if event["type"] == "node_status")
        return Cost(_at(first["ts"]) - _at(row["started_at"]), worked_s)

    def send(self) -> Cost:
        """Outputs, from the end of the node that wrote them to the end of the run."""
        row, events, worked_s, ended = self._run([_node("n0", {"writes": self.count, "size": SMALL_BYTES})])
        last = [event for event in events if event["type"] == "node_status"][-1]
        artifacts = self.place.get(f"/api/runs/{row['id']}/artifacts")
        assert len([one for one in artifacts if one["backend"] == "transfer"]) == self.count
        shutil.rmtree(self.place.root / "data" / "output")
        return Cost(ended - _at(last["ts"]), worked_s)

    def copied(self, times: int) -> Cost:
        """As many files, copied one after the other, the first copy of each synced."""
        source = [self.root / "source" / f"{number}" for number in range(self.count)]
        if not self.n_copied:
            source[0].parent.mkdir()
            for path in source:
                path.write_bytes(os.urandom(SMALL_BYTES))
        self.n_copied += 1
        began, worked = time.perf_counter(), time.process_time()
        for copy in range(times):
            _copy(source, self.root / f"copy-{self.n_copied}-{copy}", synced=copy == 0)
        cost = Cost(time.perf_counter() - began, time.process_time() - worked)
        for copy in range(times):
            shutil.rmtree(self.root / f"copy-{self.n_copied}-{copy}")
        return cost

    def _run(self, nodes: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], list[Any], float, float]:
        """Its row and events, what the agent worked, and when its end was seen."""
        start = {"id": "start", "type": "Start", "data": {"params": {}}}
        edges = [
            {"source": "start", "target": node["id"], "sourceHandle": "trigger", "type": "trigger"}
            for node in nodes
        ]
        graph = {"name": "files", "nodes": [start, *nodes], "edges": edges}
        worked_s = self.agent.worked_s()
        body = {"graph": graph, "options": {"target": {"worker": "far"}}}
        run_id = str(self.place.post("/api/runs", body)["run_id"])
        row, ended = self.place.wait_end(run_id), time.time()
        worked_s = self.agent.worked_s() - worked_s
        return row, list(self._events(run_id)), worked_s, ended

    def _events(self, run_id: str) -> Iterator[Any]:
        cursor = 0
        while events := chatter.page(self.place, run_id, cursor, limit=500):
            yield from events
            cursor = events[-1]["cursor"]


def rows(effort: Effort) -> list[Row]:
    root, count, turns = effort.folder, effort.choose(1000, 5), effort.choose(5, 1)
    folder = root / "site" / "data" / "custom_nodes"
    folder.mkdir(parents=True)
    (folder / "filing.py").write_text(_NODE)
    with site(root / "site", **chatter.LIGHT) as made:
        made.start_server()
        agent = made.start_agent("far", elsewhere=True)
        far = Far(place=made, agent=agent, count=count, root=root)
        far.fetch()
        return [
            *_rows(f"{count:,} inputs that are fetched", far, turns, far.fetch, 2),
            *_rows(f"{count:,} inputs that it has", far, turns, far.fetch_again, 1),
            *_rows(f"{count:,} outputs", far, turns, far.send, 1),
        ]


def _rows(what: str, far: Far, turns: int, measure: Callable[[], Cost], copies: int) -> Iterator[Row]:
    ours, theirs = in_turns(turns, measure, lambda: far.copied(copies))
    baseline = f"{'two copies' if copies == 2 else 'a copy'} of each, the first synced"
    yield Row(
        benchmark="files",
        figure=what,
        unit="s",
        samples=[one.seconds for one in ours],
        baseline=baseline,
        baseline_samples=[one.seconds for one in theirs],
    )
    yield Row(
        benchmark="files",
        figure=f"{what}: processor time of the agent a file",
        unit="ms",
        samples=[one.worked_s / far.count * 1000 for one in ours],
        baseline=baseline,
        baseline_samples=[max(one.worked_s, 1e-6) / far.count * 1000 for one in theirs],
    )


def _copy(paths: Sequence[Path], into: Path, *, synced: bool) -> None:
    into.mkdir()
    for path in paths:
        with path.open("rb") as source, (into / path.name).open("wb") as target:
            shutil.copyfileobj(source, target)
            if synced:
                target.flush()
                os.fsync(target.fileno())


def _node(name: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "type": "Filing", "data": {"params": params}}


def _at(shown: str) -> float:
    """A time of the API, in seconds since 1970."""
    return datetime.fromisoformat(shown).timestamp()
