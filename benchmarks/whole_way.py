"""Events from a run process over its worker's spool and line into the server's database."""

import time
from contextlib import closing
from datetime import datetime
from typing import Any

from codefyui_core.wire.limits import BATCH_ITEMS

from . import raw_inserts
from .measure import Row, in_turns
from .plan import Effort
from .processes import Site, site, wait_for

_NODE = """
from codefyui_core.plugin import DataType, Node, Param, ParamKind, Port


class Chatter(Node):
    type = "Chatter"
    category = "Benchmark"
    outputs = (Port(name="count", type=DataType.SCALAR),)
    params = (Param(name="count", kind=ParamKind.INT, default=1),)

    def execute(self, inputs, params, context):
        for step in range(params["count"]):
            context.progress({"epoch": step // 1000, "step": step, "loss": 0.1234})
        return {"count": params["count"]}
"""
"""Each report of progress is an event of its own; metrics and lines would be gathered."""


def whole_way(effort: Effort) -> Row:
    count = effort.choose(30_000, 1_000)
    folder = effort.folder / "whole-way"
    custom = folder / "data" / "custom_nodes"
    custom.mkdir(parents=True)
    (custom / "chatter.py").write_text(_NODE)
    with site(folder) as made:
        made.start_server()
        made.start_agent()
        run_id, _ = chatter(made, count)
        file = made.user_data / "codefyui.db"
        batches = raw_inserts.batches(file, run_id, 1, count, BATCH_ITEMS)
        with closing(raw_inserts.empty_copy(file, folder / "raw.db")) as database:
            raw = raw_inserts.Rounds(database, batches, count)
            whole, bare = in_turns(effort.choose(5, 1), lambda: chatter(made, count)[1], raw.insert)
    return Row(
        benchmark="events",
        figure="run process, agent, line, database",
        unit="events/s",
        samples=[count / seconds for seconds in whole],
        baseline="bare inserts of the same rows",
        baseline_samples=[count / seconds for seconds in bare],
    )


def chatter(place: Site, count: int) -> tuple[str, float]:
    """A run of that many events on the worker; seconds from its first one to the commit of its last."""
    node = {"id": "node", "type": "Chatter", "data": {"params": {"count": count}}}
    start = {"id": "start", "type": "Start", "data": {"params": {}}}
    edge = {"source": "start", "target": "node", "sourceHandle": "trigger", "type": "trigger"}
    graph = {"name": "chatter", "nodes": [start, node], "edges": [edge]}
    body: dict[str, Any] = {"graph": graph, "options": {"target": {"worker": "bench"}}}
    run_id = str(place.post("/api/runs", body)["run_id"])
    first = wait_for(lambda: page(place, run_id, 0), "the first event")[0]
    began = datetime.fromisoformat(first["ts"]).timestamp()
    wait_for(lambda: page(place, run_id, count), "the last event")
    seconds = time.time() - began
    place.wait_end(run_id)
    return run_id, seconds


def page(place: Site, run_id: str, cursor: int) -> Any:
    """The first event after a cursor, waited for."""
    return place.get(f"/api/runs/{run_id}/events?cursor={cursor}&limit=1&wait=30")["events"]
