"""SequentialModel: drawings become modules that compute what torch's own layers do."""

import contextlib
import copy
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from codefyui_core.errors import CodefyError
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_nodes_torch.training.layer_graph import LayerGraph, member_name
from codefyui_nodes_torch.training.layers import FACTORIES
from codefyui_nodes_torch.training.sequential import DEFAULT_LAYERS, SequentialModel, chain_text


def drawing(nodes, edges, inputs=("x",), outputs=("y",), version=2):
    """A drawing; edges are (source, target), with ``in.x`` and ``out.y`` for ports."""
    document = {
        "version": version,
        "nodes": [
            {"id": "in", "type": "Input", "ports": [{"id": f"i_{name}", "name": name} for name in inputs]},
            *({"id": id_, "type": type_, "params": params} for id_, type_, params in nodes),
            {"id": "out", "type": "Output", "ports": [{"id": f"o_{name}", "name": name} for name in outputs]},
        ],
        "edges": [],
    }
    for number, (source, target) in enumerate(edges):
        edge = {"id": f"e{number}", "source": source, "target": target}
        if source.startswith("in."):
            edge |= {"source": "in", "sourceHandle": f"i_{source[3:]}"}
        if target.startswith("out."):
            edge |= {"target": "out", "targetHandle": f"o_{target[4:]}"}
        document["edges"].append(edge)
    return json.dumps(document)


def one(type_, params):
    return LayerGraph(chain_text([("layer", type_, params)]))


LAYERS = [
    ("Conv1d", {"in_channels": 2, "out_channels": 3, "kernel_size": 3}, (4, 2, 8), nn.Conv1d(2, 3, 3)),
    (
        "Conv2d",
        {"in_channels": 1, "out_channels": 2, "kernel_size": 3, "padding": 1, "bias": False},
        (4, 1, 6, 6),
        nn.Conv2d(1, 2, 3, padding=1, bias=False),
    ),
    (
        "ConvTranspose2d",
        {"in_channels": 2, "out_channels": 1, "kernel_size": 2},
        (4, 2, 3, 3),
        nn.ConvTranspose2d(2, 1, 2),
    ),
    ("BatchNorm1d", {"num_features": 3}, (5, 3), nn.BatchNorm1d(3)),
    ("BatchNorm2d", {"num_features": 3}, (5, 3, 2, 2), nn.BatchNorm2d(3)),
    ("InstanceNorm2d", {"num_features": 3}, (5, 3, 2, 2), nn.InstanceNorm2d(3)),
    ("LayerNorm", {"normalized_shape": [2, 3]}, (4, 2, 3), nn.LayerNorm([2, 3])),
    ("GroupNorm", {"num_groups": 2, "num_channels": 4}, (3, 4, 2), nn.GroupNorm(2, 4)),
    ("MaxPool2d", {"kernel_size": 2, "stride": 2}, (2, 1, 4, 4), nn.MaxPool2d(2, 2)),
    ("AvgPool2d", {"kernel_size": 2, "stride": 2}, (2, 1, 4, 4), nn.AvgPool2d(2, 2)),
    ("AdaptiveAvgPool2d", {"output_size": 1}, (2, 3, 4, 4), nn.AdaptiveAvgPool2d(1)),
    ("Dropout", {"p": 0.5}, (2, 3), nn.Dropout(0.5)),
    ("Linear", {"in_features": 3, "out_features": 2}, (4, 3), nn.Linear(3, 2)),
    ("Flatten", {}, (2, 3, 4), nn.Flatten()),
    ("PReLU", {}, (4, 3), nn.PReLU()),
    ("Softmax", {}, (4, 3), nn.Softmax(dim=-1)),
    *(
        (name, {}, (4, 3), getattr(nn, name)())
        for name in (
            "ReLU",
            "LeakyReLU",
            "ELU",
            "SiLU",
            "Mish",
            "SELU",
            "Hardswish",
            "GELU",
            "Sigmoid",
            "Tanh",
        )
    ),
]


@pytest.mark.parametrize(("type_", "params", "shape", "reference"), LAYERS, ids=[row[0] for row in LAYERS])
def test_a_layer_computes_what_torch_does(type_, params, shape, reference):
    model = one(type_, params).eval()
    model.layers.layer.load_state_dict(reference.state_dict())
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    assert torch.equal(model(x), reference.eval()(x))


def test_recurrent_layers_give_their_sequence_only():
    x = torch.randn(5, 2, 3)
    for type_, cls in (("LSTM", nn.LSTM), ("GRU", nn.GRU)):
        model = one(type_, {"input_size": 3, "hidden_size": 4})
        reference = cls(3, 4)
        model.layers.layer.inner.load_state_dict(reference.state_dict())
        assert torch.equal(model(x), reference(x)[0])


def test_transformer_layers_are_batch_first_and_unmasked():
    x = torch.randn(2, 5, 8)
    encoder = one("TransformerEncoder", {"d_model": 8, "nhead": 2, "dim_feedforward": 16}).eval()
    reference = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1, enable_nested_tensor=False
    ).eval()
    reference.load_state_dict(encoder.layers.layer.inner.state_dict())
    assert torch.allclose(encoder(x), reference(x))
    decoder = one("TransformerDecoder", {"d_model": 8, "nhead": 2, "num_layers": 2}).eval()
    assert torch.allclose(decoder(x), decoder.layers.layer.inner(x, x))
    attention = one("MultiHeadAttention", {"embed_dim": 8, "num_heads": 2}).eval()
    assert torch.allclose(attention(x), attention.layers.layer.inner(x, x, x)[0], atol=1e-6)


def test_embedding_reshape_and_select():
    ids = torch.tensor([[1, 2], [0, 3]])
    embedding = one("Embedding", {"num_embeddings": 4, "embedding_dim": 3})
    assert torch.equal(embedding(ids), embedding.layers.layer.weight[ids])
    x = torch.arange(12.0).reshape(2, 6)
    assert torch.equal(one("Reshape", {"shape": "2,-1"})(x), x.reshape(2, 2, 3))
    assert torch.equal(one("SelectIndex", {"dim": 1, "index": 4})(x), x[:, 4])


def test_every_listed_layer_is_tested_here():
    apart = {
        "LSTM",
        "GRU",
        "TransformerEncoder",
        "TransformerDecoder",
        "MultiHeadAttention",
        "Embedding",
        "Reshape",
        "SelectIndex",
    }
    assert {row[0] for row in LAYERS} | apart == set(FACTORIES)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Add", lambda a, b: a + b),
        ("Multiply", lambda a, b: a * b),
        ("Subtract", lambda a, b: a - b),
        ("Mean", lambda a, b: (a + b) / 2),
        ("Concat", lambda a, b: torch.cat([a, b], dim=1)),
        ("Stack", lambda a, b: torch.stack([a, b], dim=1)),
    ],
)
def test_merges_take_their_wires_in_order(kind, expected):
    model = LayerGraph(
        drawing([("m", kind, {})], [("in.a", "m"), ("in.b", "m"), ("m", "out.y")], inputs=("a", "b"))
    )
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    assert torch.equal(model(a, b), expected(a, b))
    assert torch.equal(model(b=b, a=a), expected(a, b))


def test_a_branch_keeps_its_values_beside_an_activation():
    for activation in ("ReLU", "LeakyReLU", "ELU", "SiLU", "Mish", "SELU", "Hardswish"):
        model = LayerGraph(
            drawing(
                [("act", activation, {"inplace": True}), ("sum", "Add", {})],
                [("in.x", "act"), ("in.x", "sum"), ("act", "sum"), ("sum", "out.y")],
            )
        )
        x = torch.tensor([[-1.0, 2.0]])
        expected = x + getattr(nn, activation)()(x)
        assert torch.equal(model(x), expected)
        assert torch.equal(x, torch.tensor([[-1.0, 2.0]]))


def test_several_outputs_come_by_name():
    model = LayerGraph(
        drawing(
            [("r", "ReLU", {})],
            [("in.x", "r"), ("r", "out.positive"), ("in.x", "out.same")],
            outputs=("positive", "same"),
        )
    )
    x = torch.tensor([-1.0, 1.0])
    answer = model(x)
    assert list(answer) == ["positive", "same"]
    assert torch.equal(answer["positive"], x.relu())
    assert torch.equal(answer["same"], x)


@pytest.mark.parametrize("id_", ["a.b", "keys", "forward", "train", "", "100%", "%2E", "layers", "é ü"])
def test_any_layer_id_works(id_):
    model = LayerGraph(
        drawing([(id_, "Linear", {"in_features": 2, "out_features": 2})], [("in.x", id_), (id_, "out.y")])
    )
    other = LayerGraph(model.text)
    other.load_state_dict(model.state_dict())
    x = torch.randn(3, 2)
    assert torch.equal(model(x), other(x))


def test_an_ordinary_id_is_its_key_in_the_state_dict():
    assert set(one("Linear", {"in_features": 1, "out_features": 1}).state_dict()) == {
        "layers.layer.weight",
        "layers.layer.bias",
    }


@given(st.sets(st.text(max_size=6), min_size=2, max_size=2))
def test_no_two_ids_share_a_member_name(ids):
    first, second = ids
    assert member_name(first) != member_name(second)
    nn.Module().add_module(member_name(first), nn.ReLU())


WRONG = {
    "version": drawing([], [("in.x", "out.y")], version=1),
    "JSON": "{",
    "id 'a'": drawing([("a", "ReLU", {}), ("a", "ReLU", {})], [("in.x", "a"), ("a", "out.y")]),
    "unknown type": drawing([("a", "Relu", {})], [("in.x", "a"), ("a", "out.y")]),
    "cycle": drawing([("a", "ReLU", {}), ("b", "ReLU", {})], [("a", "b"), ("b", "a"), ("in.x", "out.y")]),
    "needs exactly one wire and has 0": drawing([("a", "ReLU", {})], [("in.x", "a")]),
    "needs exactly one wire and has 2": drawing(
        [("a", "ReLU", {})], [("in.x", "a"), ("in.x", "out.y"), ("a", "out.y")]
    ),
    "wired to nothing": drawing([], [("in.x", "out.y")], inputs=("x", "z")),
    "needs 2 or more": drawing([("a", "Add", {})], [("in.x", "a"), ("a", "out.y")]),
    "needs 1 wires into it and has 2": drawing(
        [("a", "ReLU", {})], [("in.x", "a"), ("in.x", "a"), ("a", "out.y")]
    ),
    "unknown node": drawing([], [("in.x", "out.y"), ("in.x", "ghost")]),
    "can't be built": drawing([("a", "Linear", {"in_featuers": 2})], [("in.x", "a"), ("a", "out.y")]),
    "share an id or a name": drawing([], [("in.x", "out.y")], inputs=("x", "x")),
}


@pytest.mark.parametrize("part", list(WRONG))
def test_a_wrong_drawing_is_explained(part):
    with pytest.raises(CodefyError, match=r"^layers: ") as caught:
        LayerGraph(WRONG[part])
    assert part in str(caught.value)


def test_a_shape_that_does_not_fit_names_the_layer():
    with pytest.raises(CodefyError, match=r"Linear l1 got \(1, 16\)"):
        LayerGraph(chain_text([("l1", "Linear", {"in_features": 4, "out_features": 1})]))(torch.zeros(1, 16))


def test_wrong_inputs_are_explained():
    with pytest.raises(CodefyError, match="inputs are x; it was given 2 by position"):
        one("ReLU", {})(torch.zeros(1), torch.zeros(1))


def test_the_default_is_the_known_small_network(tmp_path):
    model = execute(SequentialModel, root=tmp_path)["model"]
    assert sum(parameter.numel() for parameter in model.parameters()) == 421_642
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_weights_follow_the_seed_and_leave_the_global_generator_alone(tmp_path):
    before = torch.get_rng_state()
    first, second, other = (
        execute(SequentialModel, {}, RecordingContext(root=tmp_path, seed=seed), layers=DEFAULT_LAYERS)[
            "model"
        ].state_dict()
        for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["layers.c1.weight"], other["layers.c1.weight"])


def test_a_model_can_be_copied():
    model = one("Linear", {"in_features": 2, "out_features": 2})
    copied = copy.deepcopy(model)
    x = torch.randn(1, 2)
    assert torch.equal(copied(x), model(x))


@st.composite
def _graphs(draw):
    """Layers l0, l1 … that each take one or two earlier ones; listed in any order."""
    count = draw(st.integers(1, 7))
    layers = []
    for number in range(count):
        earlier = ["in.x", *(f"l{before}" for before in range(number))]
        kind = draw(st.sampled_from(["Tanh", "Add", "Subtract", "Multiply"]))
        sources = draw(st.lists(st.sampled_from(earlier), min_size=2, max_size=2))
        layers.append((f"l{number}", kind, sources[:1] if kind == "Tanh" else sources))
    return layers, draw(st.permutations(layers))


@given(_graphs())
def test_any_graph_computes_the_same_in_whatever_order_it_is_written(graphs):
    layers, listed = graphs
    edges = [(source, id_) for id_, _, sources in listed for source in sources]
    last = layers[-1][0]
    text = drawing(
        [(id_, kind, {}) for id_, kind, _ in listed],
        [*edges, (last, "out.y"), ("in.x", "out.x")],
        outputs=("y", "x"),
    )
    x = torch.tensor([0.3, -0.7])
    values = {"in.x": x}
    for id_, kind, sources in layers:
        parts = [values[source] for source in sources]
        match kind:
            case "Tanh":
                values[id_] = parts[0].tanh()
            case "Add":
                values[id_] = parts[0] + parts[1]
            case "Subtract":
                values[id_] = parts[0] - parts[1]
            case _:
                values[id_] = parts[0] * parts[1]
    assert torch.equal(LayerGraph(text)(x)["y"], values[last])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_NAMES = st.sampled_from(["in", "out", "a", "b", "i_x", "o_y"]) | _JSON
_NODES = st.fixed_dictionaries(
    {},
    optional={
        "id": _NAMES,
        "type": st.sampled_from(["Input", "Output", "ReLU", "Add", "Linear"]) | _JSON,
        "params": _JSON,
        "ports": st.lists(
            st.fixed_dictionaries({}, optional={"id": _NAMES, "name": _NAMES}) | _JSON, max_size=2
        )
        | _JSON,
    },
)
_EDGES = st.fixed_dictionaries(
    {}, optional={"source": _NAMES, "target": _NAMES, "sourceHandle": _NAMES, "targetHandle": _NAMES}
)


@given(
    st.fixed_dictionaries(
        {"version": st.just(2)},
        optional={
            "nodes": st.lists(_NODES | _JSON, max_size=4) | _JSON,
            "edges": st.lists(_EDGES | _JSON, max_size=4) | _JSON,
        },
    )
    | _JSON
)
def test_whatever_is_drawn_is_built_or_explained(document):
    with contextlib.suppress(CodefyError):
        LayerGraph(json.dumps(document))


@given(st.data())
def test_a_good_drawing_with_one_thing_changed_is_built_or_explained(data):
    document = json.loads(
        chain_text([("a", "Linear", {"in_features": 1, "out_features": 1}), ("b", "ReLU", None)])
    )
    place = document
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = data.draw(_NAMES)
            break
        place = place[key]
    with contextlib.suppress(CodefyError):
        LayerGraph(json.dumps(document))
