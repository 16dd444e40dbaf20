"""What the engine adds to each node, beside the same torch functions called one after the other."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from codefyui_core.engine import Job, NodeSet, Places, run
from codefyui_core.files import Folders
from codefyui_core.loading import load, load_nodes
from codefyui_core.runs.options import RunOptions

from .measure import Aim, Row, in_turns
from .plan import Effort

LIMIT_MS = 0.3
SHAPE = (4, 4)
FACTOR = 0.5


def rows(effort: Effort) -> list[Row]:
    nodes = effort.choose(1000, 40)
    registry = load(plane=None)
    node_set = NodeSet.of(load_nodes(registry))
    return [
        _row(effort, node_set, chains=1, length=nodes // 2),
        _row(effort, node_set, chains=10, length=nodes // 20),
    ]


def _row(effort: Effort, node_set: NodeSet, *, chains: int, length: int) -> Row:
    count = 2 * chains * length
    job = Job(
        run_id="bench",
        document=graph(chains, length),
        options=RunOptions(),
        device="cpu",
        places=_places(effort.folder),
    )
    engine, direct = _engine(job, node_set), _direct(chains, length)
    engine(), direct()  # what is imported and allocated once isn't a node's
    measured, baseline = in_turns(effort.choose(15, 2), engine, direct)
    per_node, direct_node = [s * 1e3 / count for s in measured], [s * 1e3 / count for s in baseline]
    row = Row(
        benchmark="engine-overhead",
        figure=f"a node, {chains} x {2 * length} nodes",
        unit="ms",
        samples=per_node,
        baseline="its torch call alone",
        baseline_samples=direct_node,
    )
    over = row.median - row.baseline_median
    reached = f"{over:.3f} ms ({row.figure})"
    return row.aiming(Aim(text=f"under {LIMIT_MS} ms a node", reached=reached, met=over < LIMIT_MS))


def _engine(job: Job, node_set: NodeSet) -> Callable[[], float]:
    """A whole run with everything that belongs to it, its events written to a pipe that nobody slows down."""

    def measure() -> float:
        with Path(os.devnull).open("wb", buffering=0) as pipe:
            began = time.perf_counter()
            outcome = run(job, node_set, lambda line: _write(pipe, line), lambda: False)
            seconds = time.perf_counter() - began
        if outcome["outcome"] != "succeeded":
            raise RuntimeError(outcome["error"])
        return seconds

    return measure


def _write(pipe: Any, line: bytes) -> None:
    pipe.write(line + b"\n")


def _direct(chains: int, length: int) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        for _ in range(chains):
            source = value = torch.ones(SHAPE)
            for _ in range(length):
                value = value * FACTOR
                value = torch.add(value, source, alpha=1.0)
        return time.perf_counter() - began

    return measure


def graph(chains: int, length: int) -> dict[str, Any]:
    """Start -> TensorCreate -> (ScalarMultiply -> Add) x length, several times side by side."""
    nodes, edges = [_node("start", "Start", {})], []
    for chain in range(chains):
        source = last = f"c{chain}-source"
        nodes.append(_node(source, "TensorCreate", {"shape": ",".join(map(str, SHAPE)), "fill": "ones"}))
        edges.append({"source": "start", "target": source, "sourceHandle": "trigger", "type": "trigger"})
        for step in range(length):
            scaled, added = f"c{chain}-{step}-scaled", f"c{chain}-{step}-added"
            nodes += [
                _node(scaled, "ScalarMultiply", {"scalar": FACTOR}),
                _node(added, "Add", {"alpha": 1.0}),
            ]
            edges += [
                _wire(last, scaled, "tensor"),
                _wire(scaled, added, "tensor_a"),
                _wire(source, added, "tensor_b"),
            ]
            last = added
    return {"name": "bench", "nodes": nodes, "edges": edges}


def _node(node_id: str, type_name: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"id": node_id, "type": type_name, "data": {"params": params}}


def _wire(source: str, target: str, port: str) -> dict[str, Any]:
    return {
        "source": source,
        "target": target,
        "sourceHandle": "tensor",
        "targetHandle": port,
        "type": "data",
    }


def _places(folder: Path) -> Places:
    return Places(base=folder, folders=Folders(root=folder / "data"), downloads=folder / "downloads")
