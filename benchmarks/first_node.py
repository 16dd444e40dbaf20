"""From the submit to the first node on an idle place, with the warm zygote, beside a fresh interpreter a run."""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from . import chatter
from .measure import Aim, Row, in_turns
from .plan import Effort
from .processes import Site, site

LIMIT_S = 0.4
TIMES_FASTER = 20
TARGETS: dict[str, Any] = {"a worker here": {"worker": "bench"}, "the server": "server"}
TENSOR = {"type": "TensorCreate", "data": {"params": {"shape": "2,2"}}}
TEXT = {"type": "TextInput", "data": {"params": {}}}


def rows(effort: Effort) -> list[Row]:
    """Two sites, each idle but for the run that is measured on it. A quick effort goes without torch, whose imports
    would be nearly all of its work.
    """
    light = chatter.LIGHT if effort.quick else {}
    with ExitStack() as stack:
        warm = stack.enter_context(site(effort.folder / "warm", CODEFYUI_RUN_ZYGOTE="1", **light))
        fresh = stack.enter_context(site(effort.folder / "fresh", CODEFYUI_RUN_ZYGOTE="0", **light))
        for one in (warm, fresh):
            one.start_server()
            one.start_agent()
        return [_row(effort, warm, fresh, name, target) for name, target in TARGETS.items()]


def _row(effort: Effort, warm: Site, fresh: Site, name: str, target: Any) -> Row:
    graph = _graph(TEXT if effort.quick else TENSOR)
    for one in (warm, fresh):
        one.settle()  # until its zygote is there, a run is a fresh interpreter anyway
        first_node(one, graph, target)
    samples, baseline = in_turns(
        effort.choose(7, 1),
        lambda: first_node(warm, graph, target),
        lambda: first_node(fresh, graph, target),
    )
    row = Row(
        benchmark="first-node",
        figure=f"submit to first node on {name}",
        unit="s",
        samples=samples,
        baseline="the same with a fresh interpreter",
        baseline_samples=baseline,
    )
    return row.aiming(*_aims(row, name))


def _aims(row: Row, name: str) -> Iterator[Aim]:
    yield Aim(text=f"under {LIMIT_S} s on {name}", reached=f"{row.median:.3f} s", met=row.median < LIMIT_S)
    times = 1 / row.ratio
    yield Aim(
        text=f"{TIMES_FASTER} times faster on {name}", reached=f"{times:.1f} times", met=times >= TIMES_FASTER
    )


def _graph(node: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": "first-node",
        "nodes": [{"id": "start", "type": "Start", "data": {"params": {}}}, {"id": "node", **node}],
        "edges": [{"source": "start", "target": "node", "sourceHandle": "trigger", "type": "trigger"}],
    }


def first_node(place: Site, graph: Mapping[str, Any], target: Any) -> float:
    """Seconds until whoever submitted can see that a node of the run is running. Returns when the run is over."""
    began = time.perf_counter()
    run_id = str(place.post("/api/runs", {"graph": graph, "options": {"target": target}})["run_id"])
    cursor = 0
    while True:
        page = place.get(f"/api/runs/{run_id}/events?cursor={cursor}&limit=500&wait=30")
        if any(event["type"] == "node_status" for event in page["events"]):
            break
        if page["events"]:
            cursor = page["events"][-1]["cursor"]
    seconds = time.perf_counter() - began
    place.wait_end(run_id)
    return seconds
