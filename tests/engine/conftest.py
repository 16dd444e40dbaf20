"""Small nodes, graphs out of a few words, and a run of them that keeps every line."""

import json
import random
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest

from codefyui_core.engine import Job, Limits, NodeSet, Places, run
from codefyui_core.errors import CodefyError
from codefyui_core.files import Folders
from codefyui_core.graph import Definitions
from codefyui_core.plugin.node import DataType, Node, Param, ParamKind, Port
from codefyui_core.runs.options import RunOptions

ANY = DataType.ANY


class Start(Node):
    type, category = "Start", "Control"
    outputs = (Port(name="trigger", type=DataType.TRIGGER),)

    def execute(self, inputs, params, context):
        return {}


class Number(Node):
    type, category = "Number", "Test"
    outputs = (Port(name="out", type=ANY),)
    params = (Param(name="value", kind=ParamKind.FLOAT, default=1.0),)
    executed: ClassVar[list[str]] = []

    def execute(self, inputs, params, context):
        Number.executed.append(context.node_id)
        return {"out": params["value"]}


class Sum(Node):
    type, category = "Sum", "Test"
    inputs = (Port(name="a", type=ANY), Port(name="b", type=ANY, optional=True))
    outputs = (Port(name="out", type=ANY),)
    params = (Param(name="extra", kind=ParamKind.FLOAT, default=0.0),)
    executed: ClassVar[list[str]] = []

    def execute(self, inputs, params, context):
        Sum.executed.append(context.node_id)
        return {"out": inputs["a"] + inputs.get("b", 0) + params["extra"]}


class Less(Node):
    type, category = "Less", "Test"
    inputs = (Port(name="a", type=ANY), Port(name="b", type=ANY))
    outputs = (Port(name="out", type=ANY),)

    def execute(self, inputs, params, context):
        return {"out": inputs["a"] - inputs["b"]}


class Log(Node):
    type, category = "Log", "Test"
    inputs = (Port(name="value", type=ANY),)
    outputs = (Port(name="value", type=ANY),)

    def execute(self, inputs, params, context):
        context.log(f"value {inputs['value']}")
        return {"value": inputs["value"], "__log__": ["from the result"]}


class Fail(Node):
    type, category = "Fail", "Test"
    inputs = (Port(name="a", type=ANY, optional=True),)
    outputs = (Port(name="out", type=ANY),)
    params = (
        Param(name="times", kind=ParamKind.INT, default=99),
        Param(name="key", kind=ParamKind.SECRET, default=""),
        Param(name="how", kind=ParamKind.STRING, default="value"),
    )
    failed = 0

    def execute(self, inputs, params, context):
        if Fail.failed >= params["times"]:
            return {"out": 1}
        Fail.failed += 1
        match params["how"]:
            case "codefy":
                raise CodefyError("explained", code="x.y")
            case "disk":
                raise OSError(28, "No space left on device")
            case "exit":
                raise SystemExit(3)
            case "nothing":
                return None
        raise ValueError(f"no luck with {params['key']}")


class UntilStopped(Node):
    type, category = "UntilStopped", "Test"
    inputs = (Port(name="a", type=ANY, optional=True),)
    outputs = (Port(name="out", type=ANY),)
    started = threading.Event()

    def execute(self, inputs, params, context):
        self.started.set()
        deadline = time.monotonic() + 20
        while not context.should_stop():
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.002)
        return {"out": 1, "__interrupted__": True}


class Choose(Node):
    type, category = "Choose", "Test"
    inputs = (
        Port(name="pick", type=ANY, optional=True),
        Port(name="left", type=ANY, optional=True),
        Port(name="right", type=ANY, optional=True),
    )
    outputs = (Port(name="out", type=ANY),)
    params = (Param(name="pick", kind=ParamKind.SELECT, default="left", options=("left", "right")),)

    @classmethod
    def needed_inputs(cls, params, wired):
        return None if "pick" in wired else frozenset({params["pick"]})

    def execute(self, inputs, params, context):
        return {"out": inputs[inputs.get("pick", params["pick"])]}


class Dice(Node):
    type, category = "Dice", "Test"
    inputs = (Port(name="a", type=ANY, optional=True),)
    outputs = (Port(name="out", type=ANY),)
    cacheable = False

    def execute(self, inputs, params, context):
        return {"out": [random.random(), context.seed, context.derive_seed("x")]}


class Weights(Node):
    type, category = "Weights", "Test"
    inputs = (Port(name="a", type=ANY),)
    outputs = (Port(name="out", type=ANY),)
    cacheable, stateful = False, True

    def execute(self, inputs, params, context):
        return {"out": [inputs["a"], context.derive_seed("weights"), random.random()]}


class Measure(Node):
    type, category = "Measure", "Test"
    outputs = (Port(name="out", type=ANY),)
    params = (Param(name="count", kind=ParamKind.INT, default=3),)

    def execute(self, inputs, params, context):
        for step in range(params["count"]):
            context.metric("loss", float("nan") if step == 1 else step / 2, step)
        context.progress({"epoch": 1, "loss": float("inf")})
        return {"out": params["count"]}


class Record(Node):
    type, category = "Record", "Test"
    params = (Param(name="name", kind=ParamKind.STRING, default="a/model.pt"),)

    def execute(self, inputs, params, context):
        from codefyui_core.files import Family

        path = context.output_file(Family.MODELS, params["name"])
        path.write_bytes(b"12345")
        context.artifact("checkpoint", path, {"epoch": 2})
        return {}


class Show(Node):
    type, category = "Show", "Test"
    outputs = (
        Port(name="image", type=DataType.STRING, media="image"),
        Port(name="chart", type=ANY, media="chart"),
        Port(name="own", type=ANY, media="globe"),
    )
    params = (Param(name="size", kind=ParamKind.INT, default=10),)

    def execute(self, inputs, params, context):
        return {
            "image": "iVBORw0KGgo" + "A" * params["size"],
            "chart": {"kind": "bar", "bars": [{"label": "a", "value": float("nan")}]},
            "own": {"lat": 1.5},
        }


class Each(Node):
    """What Map does, in three lines."""

    type, category = "Each", "Test"
    inputs = (Port(name="items", type=ANY),)
    outputs = (Port(name="results", type=ANY),)
    params = (Param(name="preset", kind=ParamKind.STRING, default="P", preset=True),)

    def execute(self, inputs, params, context):
        results = []
        for item in inputs["items"]:
            if context.should_stop():
                return {"results": results, "__interrupted__": True}
            results.append(context.run_preset(params["preset"], {"": item}, context.node_id))
        return {"results": results}


class Items(Node):
    type, category = "Items", "Test"
    outputs = (Port(name="out", type=ANY),)
    params = (Param(name="items", kind=ParamKind.STRING, default="[1, 1, 2]"),)

    def execute(self, inputs, params, context):
        return {"out": json.loads(params["items"])}


class Together(Node):
    """Gives nothing until as many of them as asked for are inside at once."""

    type, category = "Together", "Test"
    outputs = (Port(name="out", type=ANY),)
    barrier = None

    def execute(self, inputs, params, context):
        self.barrier.wait(timeout=20)
        return {"out": 1}


CLASSES = [
    Start, Number, Sum, Less, Log, Fail, UntilStopped, Choose, Dice, Weights, Measure, Record, Show, Each, Items,
    Together,
]  # fmt: skip


def graph(nodes, wires=(), triggers=None, **more):
    """``nodes``: id -> type, or (type, params). ``wires``: "a.out > b.a". Every node without a wire is started."""
    made, edges = [], []
    for node_id, what in nodes.items():
        type_name, params = what if isinstance(what, tuple) else (what, {})
        extra = {"internalParams": params.pop("__internal__")} if "__internal__" in params else {}
        made.append({"id": node_id, "type": type_name, "data": {"params": params, **extra}})
    fed = set()
    for wire in wires:
        source, target = wire.split(" > ")
        (one, out), (other, into) = source.split("."), target.split(".")
        fed.add(other)
        edges.append(
            {"source": one, "target": other, "sourceHandle": out, "targetHandle": into, "type": "data"}
        )
    if "start" not in nodes:
        made.append({"id": "start", "type": "Start", "data": {"params": {}}})
    edges += [
        {"source": "start", "target": node_id, "sourceHandle": "trigger", "type": "trigger"}
        for node_id in (triggers if triggers is not None else nodes.keys() - fed)
    ]
    return {"name": "test", "nodes": made, "edges": edges, **more}


class Lines(list):
    """All lines of one run, as objects, and its outcome."""

    outcome = None

    def events(self, type_name):
        return [line["payload"] for line in self if line["type"] == type_name]

    def statuses(self, node_id=None):
        found = [
            (one["node_id"], one["status"]) for one in self.events("node_status") if one["node_id"] != "start"
        ]
        return found if node_id is None else [status for one, status in found if one == node_id]

    def last(self, node_id):
        return [one for one in self.events("node_status") if one["node_id"] == node_id][-1]

    def value(self, node_id, port="out"):
        (found,) = [one for one in self.last(node_id)["outputs"] if one.get("port") == port]
        summary = found[found["output_kind"]]
        return summary["values"] if found["output_kind"] == "list" and "values" in summary else summary


class Engine:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes = NodeSet(
            classes={one.type: one for one in CLASSES},
            definitions=Definitions.of([one.define("") for one in CLASSES]),
        )
        self.places = Places(
            base=folder,
            folders=Folders(root=folder / "data"),
            downloads=folder / "downloads",
            samples=folder / "samples",
        )

    def run(
        self,
        document,
        *,
        should_stop=lambda: False,
        cache=None,
        limits=None,
        device="cpu",
        recorder=None,
        **options,
    ):
        lines = Lines()
        job = Job(
            run_id="run-1",
            document=document,
            options=RunOptions(**options),
            device=device,
            places=self.places,
            limits=limits or Limits(),
        )
        outcome = run(
            job, self.nodes, lambda line: lines.append(json.loads(line)), should_stop, cache, recorder
        )
        lines.outcome = outcome
        return lines


@pytest.fixture
def engine(tmp_path):
    for cls in (Number, Sum):
        cls.executed = []
    Fail.failed = 0
    UntilStopped.started = threading.Event()
    return Engine(tmp_path)


@pytest.fixture(name="graph")
def make_graph():
    return graph


@pytest.fixture
def classes():
    return {one.type: one for one in CLASSES}
