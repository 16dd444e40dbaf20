"""The built-in nodes, one by one."""

import base64
import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codefyui_core.builtin.nodes.catalog import BuiltinCatalog
from codefyui_core.builtin.nodes.coercion import BadArgument, InputType, from_json, from_text
from codefyui_core.builtin.nodes.graph_input import GraphInput
from codefyui_core.builtin.nodes.graph_output import GraphOutput
from codefyui_core.builtin.nodes.image_value import max_pixels
from codefyui_core.builtin.nodes.map import Map
from codefyui_core.builtin.nodes.print import Print
from codefyui_core.builtin.nodes.start import Start
from codefyui_core.builtin.nodes.switch import Switch
from codefyui_core.builtin.nodes.text_input import TextInput
from codefyui_core.plugin import CodefyError, DataType, Node, NodeCatalog
from codefyui_core.testing.node_context import RecordingContext, execute
from codefyui_core.testing.suites import CatalogSuite

Run = Callable[..., Mapping[str, Any]]


class TestBuiltinHoldsToTheContract(CatalogSuite):
    @pytest.fixture
    def catalog(self) -> NodeCatalog:
        return BuiltinCatalog()


PORTS: dict[type[Node], tuple[str, list[Any], list[Any], dict[str, Any]]] = {
    Start: ("Control", [], [("trigger", "TRIGGER")], {}),
    Print: ("Utility", [("value", "ANY")], [("value", "ANY")], {"label": ("string", "")}),
    TextInput: ("Data", [], [("text", "STRING")], {"value": ("string", None)}),
    GraphInput: (
        "IO",
        [],
        [("value", "ANY")],
        {
            "name": ("string", "input"),
            "type": ("select", "string"),
            "required": ("bool", True),
            "default": ("string", ""),
            "description": ("string", ""),
        },
    ),
    GraphOutput: (
        "IO",
        [("value", "ANY")],
        [],
        {"name": ("string", "output"), "description": ("string", "")},
    ),
    Map: (
        "Data Flow",
        [("items", "LIST")],
        [("results", "LIST"), ("count", "SCALAR")],
        {"subgraph": ("string", "")},
    ),
    Switch: (
        "Data Flow",
        [("selector", "SCALAR"), ("input_{n}", "ANY")],
        [("output", "ANY")],
        {"selector": ("int", 0), "inputs": ("int", 4)},
    ),
}


@pytest.mark.parametrize("node", PORTS, ids=lambda node: node.type)
def test_ports_params_and_defaults_are_those_of_saved_graphs(node: type[Node]) -> None:
    category, inputs, outputs, params = PORTS[node]
    assert node.category == category
    assert [(port.name, port.type) for port in node.inputs] == inputs
    assert [(port.name, port.type) for port in node.outputs] == outputs
    assert {param.name: param.kind for param in node.params} == {
        name: kind for name, (kind, _) in params.items()
    }
    for param in node.params:
        assert params[param.name][1] in {None, param.default}
    assert (node.cacheable, node.stateful) == (True, False)


def test_the_types_of_an_argument_are_those_of_saved_graphs() -> None:
    (param,) = (one for one in GraphInput.params if one.name == "type")
    assert param.options == ("string", "number", "integer", "boolean", "json", "image")


def test_start_gives_nothing(run: Run) -> None:
    assert run(Start) == {}


@pytest.mark.parametrize(("label", "line"), [("", "[1, 2]"), ("loss", "[loss] [1, 2]")])
def test_print_logs_the_value_and_passes_the_same_object_on(
    run: Run, context: RecordingContext, label: str, line: str
) -> None:
    value = [1, 2]
    assert run(Print, {"value": value}, label=label)["value"] is value
    assert context.lines == [line]


@pytest.mark.parametrize(("value", "text"), [("héllo\n", "héllo\n"), ("", ""), (7, "7")])
def test_text_input_gives_its_text(run: Run, value: Any, text: str) -> None:
    assert run(TextInput, value=value) == {"text": text}


def test_text_input_has_a_text_to_begin_with(run: Run) -> None:
    assert run(TextInput)["text"]


def test_graph_output_hands_the_value_to_whoever_runs_the_graph(run: Run) -> None:
    assert run(GraphOutput, {"value": 3})["value"] == 3


# ---------------------------------------------------------------- GraphInput


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "", ""),
        ("string", " 7 ", " 7 "),
        ("number", "2.5", 2.5),
        ("integer", "7", 7),
        ("integer", "7.0", 7),
        ("integer", str(2**60 + 1), 2**60 + 1),
        ("boolean", "TRUE", True),
        ("boolean", "false", False),
        ("json", '{"a": [1]}', {"a": [1]}),
    ],
)
def test_on_the_canvas_an_argument_is_its_default(run: Run, kind: str, text: str, value: Any) -> None:
    found = run(GraphInput, type=kind, default=text)["value"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("number", ""), ("number", "x"), ("integer", "3.5"), ("integer", ""), ("boolean", "1"), ("json", "{")],
)
def test_a_default_of_another_type_is_refused_by_name(run: Run, kind: str, text: str) -> None:
    with pytest.raises(BadArgument, match="input age"):
        run(GraphInput, name="age", type=kind, default=text)


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        ("string", "a", "a"),
        ("number", 2, 2.0),
        ("integer", 3.0, 3),
        ("boolean", True, True),
        ("boolean", "False", False),
        ("json", [None], [None]),
        ("json", None, None),
    ],
)
def test_a_callers_argument_wins_over_the_default(run: Run, kind: str, given: Any, value: Any) -> None:
    found = run(GraphInput, type=kind, default="ignored", value=given)["value"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "given"),
    [("string", 1), ("number", True), ("number", "2"), ("integer", 3.5), ("integer", True), ("boolean", 1)],
)
def test_a_callers_argument_is_not_bent_into_its_type(run: Run, kind: str, given: Any) -> None:
    with pytest.raises(BadArgument):
        run(GraphInput, type=kind, value=given)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    )
)
def test_any_json_is_taken_as_it_is_or_refused(value: Any) -> None:
    assert from_json("x", InputType.JSON, value) is value
    assert from_text("x", InputType.JSON, json.dumps(value)) == value
    for kind in (InputType.STRING, InputType.NUMBER, InputType.INTEGER, InputType.BOOLEAN):
        with suppress(BadArgument):
            assert from_json("x", kind, value) is not None


def _png(width: int = 3, height: int = 2, mode: str = "RGB") -> bytes:
    data = io.BytesIO()
    Image.new(mode, (width, height), color="red" if mode == "RGB" else 255).save(data, "PNG")
    return data.getvalue()


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,"])
def test_an_image_comes_as_base64(run: Run, prefix: str) -> None:
    text = base64.encodebytes(_png()).decode()
    image = run(GraphInput, type="image", value=prefix + text)["value"]
    assert (tuple(image.shape), image.dtype) == ((3, 2, 3), torch.float32)
    assert torch.equal(image[:, 0, 0], torch.tensor([1.0, 0.0, 0.0]))


def test_a_grey_image_becomes_rgb(run: Run) -> None:
    image = run(GraphInput, type="image", value=base64.b64encode(_png(mode="L")).decode())["value"]
    assert torch.equal(image, torch.ones(3, 2, 3))


@pytest.mark.parametrize("value", [7, "%%%", base64.b64encode(b"no image").decode(), ""])
def test_what_is_no_image_is_refused(run: Run, value: Any) -> None:
    with pytest.raises(BadArgument):
        run(GraphInput, type="image", value=value)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_picture_too_large_is_refused_by_its_header(run: Run) -> None:
    side = int(max_pixels() ** 0.5) + 1
    data = io.BytesIO()
    Image.new("1", (side, side)).save(data, "PNG")
    with pytest.raises(BadArgument, match="pixels"):
        run(GraphInput, type="image", value=base64.b64encode(data.getvalue()).decode())


def test_on_the_canvas_an_image_is_a_file_below_the_images_folder(run: Run, tmp_path: Path) -> None:
    (tmp_path / "images" / "cats").mkdir(parents=True)
    (tmp_path / "images" / "cats" / "one.png").write_bytes(_png())
    assert run(GraphInput, type="image", default="cats/one.png")["value"].shape == (3, 2, 3)


@pytest.mark.parametrize("name", ["../secret.png", "/secret.png", "link.png", "", ".", "absent.png"])
def test_no_image_is_read_from_elsewhere(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "secret.png").write_bytes(_png())
    (tmp_path / "images" / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(BadArgument):
        run(GraphInput, type="image", default=name.replace("/secret", f"{tmp_path}/secret", 1))


def test_the_cache_sees_that_an_image_file_changed(context: RecordingContext, tmp_path: Path) -> None:
    path = tmp_path / "images" / "a.png"
    path.parent.mkdir()
    path.write_bytes(_png())
    params = {"type": "image", "default": "a.png"}
    before = GraphInput.fingerprint(params, context.folders)
    assert GraphInput.fingerprint(params, context.folders) == before
    path.write_bytes(_png(width=40))
    assert GraphInput.fingerprint(params, context.folders) not in {None, before}
    assert GraphInput.fingerprint({"type": "string", "default": "a"}, context.folders) is None
    assert GraphInput.fingerprint(params | {"value": "x"}, context.folders) is None


# ---------------------------------------------------------------- Map


def _doubling(tmp_path: Path, **more: Any) -> RecordingContext:
    return RecordingContext(
        root=tmp_path, node_id="m", presets={"double": lambda given: {"y": 2 * given[""], "z": 0}}, **more
    )


@pytest.mark.parametrize("items", [[1, 2, 3], (1, 2, 3), torch.tensor([1, 2, 3])])
def test_map_runs_the_preset_once_for_each_item_in_order(tmp_path: Path, items: Any) -> None:
    found = execute(Map, {"items": items}, _doubling(tmp_path), subgraph="double")
    assert [int(value) for value in found["results"]] == [2, 4, 6]
    assert found["count"] == 3.0
    assert type(found["count"]) is float


def test_map_of_nothing_is_nothing(tmp_path: Path) -> None:
    found = execute(Map, {"items": []}, _doubling(tmp_path), subgraph="double")
    assert found == {"results": [], "count": 0.0}


@pytest.mark.parametrize("items", ["abc", b"abc", {"a": 1}, 7, torch.tensor(7), None])
def test_map_refuses_what_is_no_list(tmp_path: Path, items: Any) -> None:
    with pytest.raises(CodefyError, match="not a list"):
        execute(Map, {"items": items}, _doubling(tmp_path), subgraph="double")


def test_map_without_a_preset_says_so(tmp_path: Path) -> None:
    with pytest.raises(CodefyError, match="no preset"):
        execute(Map, {"items": [1]}, _doubling(tmp_path))


@pytest.mark.parametrize("outputs", [{}, {"y": None}])
def test_map_names_the_item_that_gave_nothing(tmp_path: Path, outputs: dict[str, Any]) -> None:
    context = RecordingContext(
        root=tmp_path, presets={"p": lambda given: outputs if given[""] == 2 else {"y": 1}}
    )
    with pytest.raises(CodefyError, match="item 1"):
        execute(Map, {"items": [1, 2]}, context, subgraph="p")


def test_map_stops_between_items_and_keeps_what_it_has(tmp_path: Path) -> None:
    context = _doubling(tmp_path, stop_after=2)
    found = execute(Map, {"items": [1, 2, 3]}, context, subgraph="double")
    assert found["results"] == [2, 4]
    assert found["__interrupted__"] is True


def test_map_marks_its_param_as_a_preset() -> None:
    assert [param.preset for param in Map.params] == [True]


# ---------------------------------------------------------------- Switch

FOUR = {f"input_{n}": f"value {n}" for n in range(4)}


@pytest.mark.parametrize("number", range(4))
def test_switch_passes_on_the_selected_input(run: Run, number: int) -> None:
    assert run(Switch, FOUR, selector=number) == {"output": f"value {number}"}


@pytest.mark.parametrize("number", [2, 2.0, 2.9, torch.tensor(2), torch.tensor([2.0])])
def test_a_wired_selector_wins_over_the_parameter(run: Run, number: Any) -> None:
    assert run(Switch, FOUR | {"selector": number}, selector=0) == {"output": "value 2"}


@pytest.mark.parametrize(("number", "inputs"), [(-1, 4), (4, 4), (2, 2), (2, 1), (16, 99)])
def test_a_selector_out_of_range_is_an_error(run: Run, number: int, inputs: int) -> None:
    with pytest.raises(CodefyError, match="outside") as caught:
        run(Switch, FOUR, selector=number, inputs=inputs)
    assert caught.value.code == "switch.out_of_range"


@pytest.mark.parametrize("gone", [{}, {"input_1": None}])
def test_selecting_an_input_that_is_not_wired_is_an_error(run: Run, gone: dict[str, Any]) -> None:
    with pytest.raises(CodefyError, match="input_1") as caught:
        run(Switch, {"input_0": 0} | gone, selector=1)
    assert caught.value.code == "switch.unwired"


@pytest.mark.parametrize("number", ["2", float("nan"), float("inf"), torch.ones(2), [2]])
def test_a_selector_that_is_no_number_is_an_error(run: Run, number: Any) -> None:
    with pytest.raises(CodefyError, match="not a number"):
        run(Switch, FOUR | {"selector": number})


@given(st.integers(min_value=0, max_value=15), st.integers(min_value=2, max_value=16))
def test_only_the_branch_of_a_selector_parameter_runs(number: int, count: int) -> None:
    params = {"selector": number, "inputs": count}
    wired = frozenset(f"input_{n}" for n in range(count))
    assert Switch.needed_inputs(params, wired) == frozenset({f"input_{number}"})
    assert Switch.needed_inputs(params, wired | {"selector"}) is None


def test_switch_has_as_many_inputs_as_its_parameter_says() -> None:
    port = Switch.inputs[1]
    assert port.repeat is not None
    assert (port.repeat.param, port.repeat.minimum, port.repeat.maximum, port.repeat.start) == (
        "inputs",
        2,
        16,
        0,
    )
    assert all(one.optional for one in Switch.inputs)
    assert port.type is DataType.ANY
