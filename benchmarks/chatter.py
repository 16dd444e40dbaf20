"""Runs that report as fast as they can, or at a steady pace, until they are stopped."""

from pathlib import Path
from typing import Any

from .processes import Site, wait_for

_NODE = """
import time
from pathlib import Path

from codefyui_core.plugin import DataType, Node, Param, ParamKind, Port


class Chatter(Node):
    type = "Chatter"
    category = "Benchmark"
    outputs = (Port(name="count", type=DataType.SCALAR),)
    params = (
        Param(name="count", kind=ParamKind.INT, default=1),
        Param(name="then_every_ms", kind=ParamKind.INT, default=0),
        Param(name="gate", kind=ParamKind.STRING, default=""),
    )

    def execute(self, inputs, params, context):
        step = 0
        while params["gate"] and not Path(params["gate"]).exists():
            time.sleep(0.02)
        while step < params["count"]:
            context.progress({"epoch": step // 1000, "step": step, "loss": 0.1234})
            step += 1
        while params["then_every_ms"] and not context.should_stop():
            time.sleep(params["then_every_ms"] / 1000)
            context.progress({"epoch": step // 1000, "step": step, "loss": 0.1234})
            step += 1
        return {"count": step}
"""
"""Each report of progress is an event of its own; metrics and lines would be gathered."""

RUNNING = 2
"""How many events come before the first report: the run and the node begin."""
LIGHT = {"CODEFYUI_PLUGINS_BLOCK": "nodes_torch"}
"""Settings of a site whose runs need no torch, and so begin at once."""


def install(root: Path) -> None:
    """Into the data folder of a site, before its server and agents start."""
    folder = root / "data" / "custom_nodes"
    folder.mkdir(parents=True)
    (folder / "chatter.py").write_text(_NODE)


def submit(place: Site, count: int, *, then_every_ms: int = 0, gate: Path | None = None) -> str:
    """A run of ``count`` reports on the worker, once the file ``gate`` is there. Afterwards, if asked, it reports
    every so often until it is stopped.
    """
    params = {"count": count, "then_every_ms": then_every_ms, "gate": "" if gate is None else str(gate)}
    node = {"id": "node", "type": "Chatter", "data": {"params": params}}
    start = {"id": "start", "type": "Start", "data": {"params": {}}}
    edge = {"source": "start", "target": "node", "sourceHandle": "trigger", "type": "trigger"}
    graph = {"name": "chatter", "nodes": [start, node], "edges": [edge]}
    body: dict[str, Any] = {"graph": graph, "options": {"target": {"worker": "bench"}}}
    return str(place.post("/api/runs", body)["run_id"])


def page(place: Site, run_id: str, cursor: int, limit: int = 1) -> Any:
    """The first events after a cursor, waited for."""
    path = f"/api/runs/{run_id}/events?cursor={cursor}&limit={limit}&wait=30"
    return place.get(path)["events"]


def wait_reported(place: Site, run_id: str, cursor: int) -> Any:
    """The event after a cursor, whenever it comes."""
    return wait_for(lambda: page(place, run_id, cursor), f"event {cursor + 1} of {run_id}", within_s=600)[0]
