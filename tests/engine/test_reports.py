"""What completed nodes, metrics, artifacts and containers look like in the events."""

import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.engine import Limits, encode, restore
from codefyui_core.engine.artifact_ids import artifact_id
from codefyui_core.engine.batches import Batches
from codefyui_core.engine.speaker import Speaker

PRESET = {
    "preset_name": "P",
    "category": "Test",
    "nodes": [{"id": "s", "type": "Sum", "params": {"extra": 1.0}}, {"id": "l", "type": "Log", "params": {}}],
    "edges": [{"source": "s", "sourceHandle": "out", "target": "l", "targetHandle": "value"}],
    "exposed_inputs": [{"name": "x", "internal_node": "s", "internal_port": "a", "data_type": "ANY"}],
    "exposed_outputs": [{"name": "y", "internal_node": "l", "internal_port": "value", "data_type": "ANY"}],
    "exposed_params": [],
}


def test_what_a_node_logs_is_a_log_event_and_the_text_of_its_outputs(engine, graph):
    lines = engine.run(graph({"n": "Number", "l": "Log"}, ["n.out > l.value"]))
    (log,) = lines.events("log")
    assert log == {"node_id": "l", "stream": "node", "level": "info", "lines": ["value 1.0"]}
    text, value = lines.last("l")["outputs"]
    assert text == {"output_kind": "text", "text": "value 1.0\nfrom the result"}
    assert value == {"output_kind": "scalar", "port": "value", "scalar": 1.0}
    kinds = [line["type"] if line["type"] == "log" else line["payload"].get("status") for line in lines]
    assert kinds.index("log") < len(kinds) - 1 - kinds[::-1].index("completed")


def test_media_comes_as_its_port_declares_it_and_non_finite_numbers_are_objects(engine, graph):
    image, chart, own = engine.run(graph({"s": "Show"})).last("s")["outputs"]
    assert image["image"] == {"format": "png", "encoding": "base64", "data": "iVBORw0KGgo" + "A" * 10}
    assert chart["chart"]["bars"][0]["value"] == {"__float__": "nan"}
    assert own == {"output_kind": "globe", "port": "own", "globe": {"lat": 1.5}}


def test_outputs_over_the_cap_are_elided_and_the_rest_stays(engine, graph):
    lines = engine.run(graph({"s": ("Show", {"size": 200_000})}))
    image, chart, own = lines.last("s")["outputs"]
    assert image.pop("bytes") > 200_000
    assert image == {"output_kind": "image", "port": "image", "elided": True, "cap_bytes": 131_072}
    assert chart["chart"]["kind"] == "bar"
    assert own["globe"] == {"lat": 1.5}


@given(st.lists(st.integers(0, 4000), max_size=8), st.integers(0, 3000), st.integers(0, 3000))
def test_no_payload_is_over_its_cap(sizes, error, progress):
    lines = []
    cap = 2000
    speaker = Speaker(lines.append, cap)
    outputs = [{"output_kind": "text", "port": f"p{i}", "text": "é" * size} for i, size in enumerate(sizes)]
    payload = {
        "node_id": "n",
        "status": "completed",
        "error": "e" * error,
        "outputs": outputs,
        "x": ["y" * progress],
    }
    speaker.event("node_status", payload)
    found = json.loads(lines[0])["payload"]
    assert len(encode(found)) <= cap
    assert (found["node_id"], found["status"]) == ("n", "completed")
    if len(encode(payload)) <= cap:
        assert found == payload


def test_metrics_come_in_batches_before_the_node_has_ended(engine, graph):
    lines = engine.run(graph({"m": ("Measure", {"count": 150})}), seed=1)
    batches = lines.events("metric")
    assert [len(batch["points"]) for batch in batches] == [64, 64, 22]
    points = [point for batch in batches for point in batch["points"]]
    assert [point["step"] for point in points] == list(range(150))
    assert points[0] == {"name": "loss", "value": 0.0, "step": 0, "node_id": "m"}
    assert points[1]["value"] == {"__float__": "nan"}
    types = [(line["type"], line["payload"].get("status")) for line in lines]
    assert types.index(("metric", None)) < types.index(("node_status", "completed"))
    assert types[-1][0] == "node_status"


def test_metrics_and_log_lines_go_out_when_their_time_is_over():
    lines, now = [], [0.0]
    batches = Batches(speaker=Speaker(lines.append, 1 << 20), monotonic=lambda: now[0])
    batches.metric({"name": "a", "value": 1.0, "step": 1, "node_id": "n"})
    batches.log("n", ["one"])
    now[0] = 1.0
    with batches._changed:
        batches._changed.notify_all()
    for _ in range(1000):
        if len(lines) == 2:
            break
        with batches._changed:
            batches._changed.wait(0.01)
    assert sorted(json.loads(line)["type"] for line in lines) == ["log", "metric"]
    batches.close()
    assert len(lines) == 2


def test_progress_is_a_status_of_its_own(engine, graph):
    lines = engine.run(graph({"m": "Measure"}))
    (progress,) = [one for one in lines.events("node_status") if one["status"] == "progress"]
    assert progress["outputs"] == [
        {"output_kind": "progress", "progress": {"epoch": 1, "loss": {"__float__": "inf"}}}
    ]


def test_an_artifact_is_recorded_with_an_id_and_its_place_below_the_data_folder(engine, graph):
    lines = engine.run(graph({"r": "Record"}))
    (artifact,) = lines.events("artifact")
    assert re.fullmatch("[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", artifact.pop("artifact_id"))
    assert artifact == {
        "kind": "checkpoint",
        "name": "model.pt",
        "path": str(engine.folder / "data/models/a/model.pt"),
        "relative_path": "models/a/model.pt",
        "size_bytes": 5,
        "is_folder": False,
        "node_id": "r",
        "meta": {"epoch": 2},
    }


def test_a_recorded_file_gets_a_second_name_where_the_run_is_told_to_keep_it(engine, graph):
    engine.places = dataclasses.replace(engine.places, kept=engine.folder / "outbox")
    (artifact,) = engine.run(graph({"r": "Record"})).events("artifact")
    (kept,) = engine.places.kept.iterdir()
    assert kept.name == artifact["artifact_id"]
    assert kept.samefile(artifact["path"])


def test_a_writing_name_never_leads_out_of_its_family(engine, graph):
    for name in ("../x.pt", "/tmp/x.pt", "a/../../x.pt"):
        outcome = engine.run(graph({"r": ("Record", {"name": name})})).outcome
        assert outcome["outcome"] == "failed"
    assert not list(engine.folder.rglob("x.pt"))


def test_artifact_ids_are_ordered_by_time():
    ids = [artifact_id(now_ms) for now_ms in range(1_700_000_000_000, 1_700_000_000_100)]
    assert ids == sorted(set(ids))


def test_a_container_runs_once_completes_once_and_keeps_what_its_nodes_show(engine, graph):
    lines = engine.run(graph({"n": "Number", "p": "preset:P"}, ["n.out > p.x"], presets=[PRESET]))
    assert lines.outcome["outcome"] == "succeeded"
    assert lines.statuses("p") == ["running", "completed"]
    assert lines.statuses("p__s") == lines.statuses("p__l") == ["running", "completed"]
    assert lines.last("p")["outputs"] == [
        {"output_kind": "text", "text": "value 2.0\nfrom the result", "node_id": "p__l"}
    ]
    order = lines.statuses()
    assert order[-1] == ("p", "completed")
    assert order.index(("p", "running")) < order.index(("p__s", "completed"))


def test_a_container_fails_at_once(engine, graph):
    preset = PRESET | {"nodes": [{"id": "s", "type": "Fail", "params": {}}, PRESET["nodes"][1]]}
    lines = engine.run(
        graph({"n": "Number", "p": "preset:P"}, ["n.out > p.x"], presets=[preset]), error_mode="continue"
    )
    assert lines.statuses("p") == ["running", "error"]
    assert lines.statuses("p__l") == ["skipped"]
    assert lines.outcome["error"].startswith("node p__s (Fail): ValueError")


def test_a_device_that_is_not_there_is_a_warning_and_the_cpu(engine, graph):
    pytest.importorskip("torch")
    lines = engine.run(graph({"n": "Number"}), device="mps:0")
    (warning,) = lines.events("run_warning")
    assert warning["kind"] == "device_unavailable"
    assert lines.outcome["outcome"] == "succeeded"


@pytest.mark.parametrize("option", ["backward_mode", "auto_backward", "record_outputs", "weights_persistent"])
def test_an_option_without_effect_is_said_in_the_log(engine, graph, option):
    lines = engine.run(graph({"n": "Number"}), **{option: True})
    (warning,) = lines.events("run_warning")
    assert warning["kind"] == "option_ignored"
    assert option in warning["detail"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(float("nan")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(JSON)
def test_every_value_comes_back_and_no_line_holds_a_bare_nan(value):
    line = encode({"value": value})

    def refuse(word):
        raise AssertionError(word)

    found = json.loads(line, parse_constant=refuse)
    assert repr(restore(found["value"])) == repr(value)
    assert b"\n" not in line


def test_values_of_numpy_and_torch_become_plain_ones():
    np = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    value = {"a": np.float32(0.5), "b": np.arange(3), "c": torch.tensor([1.0, float("inf")]), "d": (1, {2})}
    assert json.loads(encode(value)) == {
        "a": 0.5,
        "b": [0, 1, 2],
        "c": [1.0, {"__float__": "inf"}],
        "d": [1, [2]],
    }


def test_the_limits_of_a_job_are_followed(engine, graph):
    lines = engine.run(graph({"s": ("Show", {"size": 5000})}), limits=Limits(payload_bytes=1000))
    assert lines.last("s")["outputs"][0]["elided"]
