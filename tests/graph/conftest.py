"""A small catalog of node types, and ways to write graphs shortly."""

import json

import pytest

from codefyui_core.files import Family
from codefyui_core.graph import Definitions, Document
from codefyui_core.plugin import FileRole
from codefyui_core.plugin.node import DataType, FileRule, NodeDefinition, Param, ParamKind, Port, Repeat

T = DataType


def define(type_name, inputs=(), outputs=(), params=(), **more):
    return NodeDefinition(
        type=type_name,
        category="Test",
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        params=tuple(params),
        **more,
    )


def port(name, kind=T.TENSOR, **more):
    return Port(name=name, type=kind, **more)


NODES = [
    define("Start", outputs=[port("trigger", T.TRIGGER)]),
    define(
        "Make", outputs=[port("tensor")], params=[Param(name="shape", kind=ParamKind.STRING, default="1")]
    ),
    define("Picture", outputs=[port("image", T.IMAGE)]),
    define(
        "Text",
        outputs=[port("text", T.STRING)],
        params=[Param(name="text", kind=ParamKind.STRING, default="")],
    ),
    define("Number", outputs=[port("value", T.SCALAR)]),
    define("Items", outputs=[port("items", T.LIST)]),
    define("Chain", outputs=[port("transform", T.TRANSFORM)]),
    define("Pass", inputs=[port("tensor")], outputs=[port("tensor")]),
    define("Print", inputs=[port("value", T.ANY)], outputs=[port("value", T.ANY)]),
    define("Add", inputs=[port("a"), port("b"), port("c", optional=True)], outputs=[port("tensor")]),
    define(
        "Scale",
        inputs=[port("tensor"), port("factor", T.SCALAR)],
        outputs=[port("tensor")],
        params=[
            Param(name="factor", kind=ParamKind.FLOAT, default=1.0, minimum=-10, maximum=10),
            Param(name="count", kind=ParamKind.INT, default=1, minimum=0, maximum=9),
            Param(name="mode", kind=ParamKind.SELECT, default="fast", options=("fast", "slow")),
            Param(name="on", kind=ParamKind.BOOL, default=True),
            Param(name="grid", kind=ParamKind.TENSOR_GRID),
        ],
    ),
    define(
        "Split",
        inputs=[port("tensor")],
        outputs=[port("chunk_{n}", repeat=Repeat(param="chunks", minimum=1, maximum=32))],
        params=[Param(name="chunks", kind=ParamKind.INT, default=2, minimum=1, maximum=32)],
    ),
    define(
        "Switch",
        inputs=[
            port("selector", T.SCALAR, optional=True),
            port("input_{n}", T.ANY, optional=True, repeat=Repeat(param="inputs", minimum=2, maximum=16)),
        ],
        outputs=[port("output", T.ANY)],
        params=[
            Param(name="selector", kind=ParamKind.INT, default=0),
            Param(name="inputs", kind=ParamKind.INT, default=4, minimum=2, maximum=16),
        ],
    ),
    define(
        "Map",
        inputs=[port("items", T.LIST)],
        outputs=[port("results", T.LIST), port("count", T.SCALAR)],
        params=[Param(name="subgraph", kind=ParamKind.STRING, default="", preset=True)],
    ),
    define("GraphInput", outputs=[port("value", T.ANY)]),
    define("GraphOutput", inputs=[port("value", T.ANY)]),
    define(
        "Chat",
        inputs=[port("text", T.STRING, optional=True)],
        outputs=[port("text", T.STRING)],
        params=[
            Param(name="key", kind=ParamKind.SECRET, default=""),
            Param(name="prompt", kind=ParamKind.STRING, default=""),
        ],
    ),
    define(
        "ReadTable",
        outputs=[port("tensor")],
        params=[Param(name="path", kind=ParamKind.DATA_FILE, default="data/samples/iris.csv")],
    ),
    define(
        "LoadModel",
        outputs=[port("model", T.MODEL)],
        params=[Param(name="path", kind=ParamKind.MODEL_FILE, default="")],
    ),
    define(
        "LoadPicture",
        outputs=[port("image", T.IMAGE)],
        params=[Param(name="path", kind=ParamKind.IMAGE_FILE, default="")],
    ),
    define(
        "ReadAny",
        outputs=[port("text", T.STRING)],
        params=[Param(name="path", kind=ParamKind.DATA_FILE, default="", path=FileRole.READS_ANY)],
    ),
    define(
        "ReadPath",
        outputs=[port("text", T.STRING)],
        params=[Param(name="path", kind=ParamKind.STRING, default="", path=FileRole.READS)],
    ),
    define(
        "ReadFolder",
        outputs=[port("items", T.LIST)],
        params=[Param(name="folder", kind=ParamKind.STRING, default="", path=FileRole.READS_FOLDER)],
    ),
    define(
        "Save",
        inputs=[port("model", T.ANY)],
        params=[
            Param(
                name="path", kind=ParamKind.STRING, default="m.pt", path=FileRole.WRITES, family=Family.MODELS
            )
        ],
    ),
    define(
        "Train",
        inputs=[port("model", T.ANY, optional=True)],
        outputs=[port("model", T.MODEL)],
        params=[
            Param(name="checkpoint_every", kind=ParamKind.INT, default=0, minimum=0),
            Param(name="tensorboard", kind=ParamKind.BOOL, default=False),
            Param(name="data_dir", kind=ParamKind.STRING, default="./data"),
        ],
        files=(
            FileRule(role=FileRole.RECORDS, family=Family.MODELS, when="checkpoint_every"),
            FileRule(role=FileRole.RECORDS, family=Family.OUTPUT, when="tensorboard"),
        ),
    ),
    define("iris:Measure", outputs=[port("tensor")]),
    define("botany:Measure", outputs=[port("text", T.STRING)]),
    define("botany:Press", inputs=[port("tensor")], outputs=[port("tensor")]),
]

TWICE = {
    "preset_name": "Twice",
    "nodes": [
        {"id": "first", "type": "Scale", "params": {"factor": 2.0}},
        {"id": "second", "type": "Scale", "params": {"factor": 2.0}},
        {"id": "side", "type": "Make", "params": {}},
    ],
    "edges": [
        {"source": "first", "sourceHandle": "tensor", "target": "second", "targetHandle": "tensor"},
    ],
    "exposed_inputs": [
        {"name": "x", "internal_node": "first", "internal_port": "tensor", "data_type": "TENSOR"}
    ],
    "exposed_outputs": [
        {"name": "y", "internal_node": "second", "internal_port": "tensor", "data_type": "TENSOR"}
    ],
    "exposed_params": [],
}
PLAIN = {
    "preset_name": "Plain",
    "nodes": [{"id": "only", "type": "Pass", "params": {}}],
    "edges": [],
    "exposed_inputs": [{"name": "x", "internal_node": "only", "internal_port": "tensor"}],
    "exposed_outputs": [{"name": "y", "internal_node": "only", "internal_port": "tensor"}],
}


@pytest.fixture(scope="session")
def definitions():
    """The catalog, with two installed presets."""
    return Definitions.of(NODES, [TWICE, PLAIN])


class Writing:
    """Short ways to write documents."""

    twice = TWICE
    plain = PLAIN
    nodes = NODES
    define = staticmethod(define)
    port = staticmethod(port)

    @staticmethod
    def node(node_id, type_name, bypassed=False, internal=None, **params):
        data = {"params": params}
        if bypassed:
            data["bypassed"] = True
        if internal is not None:
            data["internalParams"] = internal
        return {"id": node_id, "type": type_name, "position": {"x": 0, "y": 0}, "data": data}

    @staticmethod
    def wire(text):
        """``a.out>b.in``, or ``go!a`` for a trigger."""
        if "!" in text:
            source, target = text.split("!")
            return {
                "id": text,
                "source": source,
                "target": target,
                "sourceHandle": "trigger",
                "targetHandle": "__trigger",
                "type": "trigger",
            }
        source, target = text.split(">")
        (a, x), (b, y) = source.rsplit(".", 1), target.rsplit(".", 1)
        return {"id": text, "source": a, "sourceHandle": x, "target": b, "targetHandle": y, "type": "data"}

    def raw(self, nodes, wires=(), **more):
        """``nodes``: dicts, or id -> type."""
        listed = [self.node(k, v) for k, v in nodes.items()] if isinstance(nodes, dict) else list(nodes)
        return {"name": "g", "nodes": listed, "edges": [self.wire(text) for text in wires], **more}

    def graph(self, nodes, wires=(), **more):
        return Document.parse(json.dumps(self.raw(nodes, wires, **more)))

    @staticmethod
    def subgraph(subgraph_id, nodes, edges=(), inputs=(), outputs=(), targets=()):
        """``inputs`` and ``outputs``: ``port=node.port``."""

        def side(items):
            for item in items:
                name, end = item.split("=")
                inner, inner_port = end.rsplit(".", 1)
                yield {"port": name, "innerNode": inner, "innerPort": inner_port, "data_type": "ANY"}

        return {
            "id": subgraph_id,
            "name": subgraph_id,
            "nodes": [Writing.node(k, v) if isinstance(v, str) else v for k, v in nodes.items()],
            "edges": [Writing.wire(text) for text in edges],
            "interface": {
                "inputs": [*side(inputs)],
                "outputs": [*side(outputs)],
                "triggerTargets": list(targets),
            },
        }

    @staticmethod
    def preset(name, nodes, edges=(), inputs=(), outputs=(), **more):
        """``nodes``: id -> type or (type, params)."""

        def side(items):
            for item in items:
                outer, end = item.split("=")
                inner, inner_port = end.rsplit(".", 1)
                yield {"name": outer, "internal_node": inner, "internal_port": inner_port, "data_type": "ANY"}

        def inner(node_id, given):
            type_name, params = (given, {}) if isinstance(given, str) else given
            return {"id": node_id, "type": type_name, "params": params}

        return {
            "preset_name": name,
            "nodes": [inner(*item) for item in nodes.items()],
            "edges": [Writing.wire(text) for text in edges],
            "exposed_inputs": [*side(inputs)],
            "exposed_outputs": [*side(outputs)],
            "exposed_params": [],
            **more,
        }


@pytest.fixture(scope="session")
def write():
    return Writing()


@pytest.fixture
def codes(definitions):
    """The codes of a document's issues with the nodes that they are about."""
    from codefyui_core.graph import validate

    def check(document):
        return [(str(issue.code), issue.node_id) for issue in validate(document, definitions)]

    return check
