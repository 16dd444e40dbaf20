"""What a run does with its nodes, and what it says of them, in which order."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codefyui_core.engine import Limits


def test_values_flow_and_every_node_has_its_statuses_in_order(engine, graph):
    lines = engine.run(
        graph({"a": ("Number", {"value": 2}), "b": "Number", "s": "Sum"}, ["a.out > s.a", "b.out > s.b"])
    )
    assert lines.outcome == {"outcome": "succeeded", "error": None, "cause": None}
    assert lines[0]["type"] == "execution_start"
    assert lines[0]["payload"] == {"run_id": "run-1"}
    assert lines.value("s") == 3.0
    for node in "abs":
        assert lines.statuses(node) == ["running", "completed"]
    order = lines.statuses()
    assert order.index(("s", "running")) > order.index(("a", "completed"))
    assert not [line for line in lines if line["kind"] != "event"]


def test_missing_params_get_their_defaults_and_whole_numbers_become_floats(engine, graph):
    lines = engine.run(graph({"a": ("Number", {"value": 3})}))
    assert isinstance(lines.value("a"), float)
    assert engine.run(graph({"a": "Number"})).value("a") == 1.0


def test_which_port_feeds_which_matters(engine, graph):
    nodes = {"a": ("Number", {"value": 5}), "b": ("Number", {"value": 3}), "l": "Less"}
    assert engine.run(graph(nodes, ["a.out > l.a", "b.out > l.b"])).value("l") == 2.0
    assert engine.run(graph(nodes, ["a.out > l.b", "b.out > l.a"])).value("l") == -2.0


def test_a_failing_node_ends_the_run_with_its_id_type_and_words(engine, graph, capfd):
    lines = engine.run(graph({"f": "Fail", "s": "Sum"}, ["f.out > s.a"]))
    assert lines.outcome == {
        "outcome": "failed",
        "error": "node f (Fail): ValueError: no luck with",
        "cause": "user_code",
    }
    assert lines.last("f")["error"] == lines.outcome["error"]
    assert lines.statuses("f") == ["running", "error"]
    assert lines.statuses("s") == []
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("how", "error", "cause"),
    [
        ("codefy", "node f (Fail): explained", "user_code"),
        ("disk", "node f (Fail): OSError: [Errno 28] No space left on device", "disk_full"),
        ("exit", "node f (Fail): SystemExit: 3", "user_code"),
        (
            "nothing",
            "node f (Fail): execute returned NoneType, not a mapping of outputs by port name",
            "user_code",
        ),
    ],
)
def test_each_error_has_its_words_and_its_cause(engine, graph, how, error, cause):
    outcome = engine.run(graph({"f": ("Fail", {"how": how})})).outcome
    assert (outcome["error"], outcome["cause"]) == (error, cause)


@pytest.mark.spec("secret/kept-in-memory-only")
def test_a_secret_that_an_error_repeats_is_starred(engine, graph, capfd):
    lines = engine.run(graph({"f": ("Fail", {"key": "sk-123456"})}))
    assert lines.outcome["error"].endswith("no luck with **********")
    assert "sk-123456" not in str(list(lines)) + capfd.readouterr().err


def test_a_secret_inside_of_a_preset_that_a_node_runs_is_starred_too(engine, graph, capfd):
    preset = {
        "preset_name": "P",
        "category": "Test",
        "nodes": [{"id": "f", "type": "Fail", "params": {"key": "sk-987654"}}],
        "edges": [],
        "exposed_inputs": [{"name": "x", "internal_node": "f", "internal_port": "a", "data_type": "ANY"}],
        "exposed_outputs": [{"name": "y", "internal_node": "f", "internal_port": "out", "data_type": "ANY"}],
        "exposed_params": [],
    }
    lines = engine.run(graph({"i": "Items", "m": "Each"}, ["i.out > m.items"], presets=[preset]))
    assert lines.outcome["error"].endswith("no luck with **********")
    assert "sk-987654" not in str(list(lines)) + capfd.readouterr().err


def test_continue_skips_what_follows_and_runs_the_rest(engine, graph):
    lines = engine.run(
        graph(
            {"f": "Fail", "s": "Sum", "t": "Sum", "n": "Number", "m": "Sum"},
            ["f.out > s.a", "s.out > t.a", "n.out > m.a"],
        ),
        error_mode="continue",
    )
    assert lines.statuses("s") == ["skipped"]
    assert lines.statuses("t") == ["skipped"]
    assert lines.statuses("m") == ["running", "completed"]
    assert lines.outcome["outcome"] == "failed"
    assert lines.outcome["error"].startswith("node f (Fail)")


def test_retry_tries_as_often_as_told_and_says_each_time(engine, graph, monkeypatch):
    monkeypatch.setattr("codefyui_core.engine.execution.RETRY_PAUSE_S", 0.001)
    lines = engine.run(graph({"f": ("Fail", {"times": 2})}), error_mode="retry", max_retries=2)
    assert lines.outcome["outcome"] == "succeeded"
    assert lines.statuses("f") == ["running", "completed"]
    assert sum("attempt" in text for one in lines.events("log") for text in one["lines"]) == 2


def test_retry_gives_up_after_the_last_attempt(engine, graph, monkeypatch):
    monkeypatch.setattr("codefyui_core.engine.execution.RETRY_PAUSE_S", 0.001)
    lines = engine.run(graph({"f": ("Fail", {"times": 3})}), error_mode="retry", max_retries=2)
    assert lines.outcome["outcome"] == "failed"


def test_a_pause_between_attempts_ends_with_a_stop(engine, graph, monkeypatch, classes):
    monkeypatch.setattr("codefyui_core.engine.execution.RETRY_PAUSE_S", 1000)
    lines = engine.run(
        graph({"f": "Fail"}),
        error_mode="retry",
        max_retries=1,
        should_stop=lambda: classes["Fail"].failed > 0,
    )
    assert lines.outcome["outcome"] == "stopped"
    assert lines.statuses("f") == ["running", "interrupted"]


def test_a_stop_reaches_a_running_node_and_nothing_is_begun_after_it(engine, graph, classes):
    node = classes["UntilStopped"]
    lines = engine.run(
        graph({"u": "UntilStopped", "s": "Sum"}, ["u.out > s.a"]), should_stop=node.started.is_set
    )
    assert lines.outcome == {"outcome": "stopped", "error": None, "cause": None}
    assert lines.statuses() == [("u", "running"), ("u", "interrupted")]


def test_a_stop_before_the_first_node_runs_none(engine, graph):
    lines = engine.run(graph({"a": "Number"}), should_stop=lambda: True)
    assert lines.outcome["outcome"] == "stopped"
    assert lines.statuses() == []


def test_a_stop_that_comes_after_the_last_node_does_not_change_a_success(engine, graph, classes):
    executed = classes["Sum"].executed
    document = graph({"a": "Number", "s": "Sum"}, ["a.out > s.a"])
    lines = engine.run(document, should_stop=lambda: bool(executed))
    assert lines.outcome["outcome"] == "succeeded"


def test_a_failure_stands_although_a_stop_came_meanwhile(engine, graph, classes):
    lines = engine.run(graph({"f": "Fail"}), should_stop=lambda: classes["Fail"].failed > 0)
    assert lines.outcome["outcome"] == "failed"


def test_a_failure_asks_what_runs_beside_it_to_stop(engine, graph):
    lines = engine.run(graph({"f": "Fail", "u": "UntilStopped"}))
    assert lines.statuses("u") in (["running", "interrupted"], [])
    assert lines.outcome["error"].startswith("node f (Fail)")


def test_four_nodes_of_a_level_run_at_once(engine, graph, classes):
    classes["Together"].barrier = threading.Barrier(4)
    lines = engine.run(graph(dict.fromkeys("abcd", "Together")))
    assert lines.outcome["outcome"] == "succeeded"


def test_a_seeded_run_is_strictly_serial(engine, graph, classes):
    classes["Together"].barrier = threading.Barrier(1)
    lines = engine.run(graph(dict.fromkeys("abcd", "Together")), seed=0)
    assert lines.statuses() == [(name, status) for name in "abcd" for status in ("running", "completed")]


def test_seeds_depend_on_run_and_node_alone(engine, graph):
    few = engine.run(graph({"d": "Dice"}), seed=7)
    many = engine.run(graph({"c": "Dice", "n": "Number", "d": "Dice"}, ["n.out > d.a"]), seed=7)
    other = engine.run(graph({"d": "Dice"}), seed=8)
    assert few.value("d") == many.value("d")
    assert many.value("c") != many.value("d")
    assert few.value("d")[1] == 7
    assert other.value("d") != few.value("d")


def test_seed_zero_is_a_seed_and_the_document_may_bring_one(engine, graph):
    zero = engine.run(graph({"d": "Dice"}), seed=0).value("d")
    assert zero[1] == 0
    assert zero == engine.run(graph({"d": "Dice"}), seed=0).value("d")
    assert engine.run(graph({"d": "Dice"}, settings={"seed": 0})).value("d") == zero
    assert engine.run(graph({"d": "Dice"})).value("d")[1:] == [None, None]


@pytest.mark.parametrize(("pick", "chosen", "other"), [("left", "a", "b"), ("right", "b", "a")])
def test_a_branch_that_is_not_selected_is_not_executed(engine, graph, pick, chosen, other, classes):
    lines = engine.run(
        graph(
            {"a0": "Number", "a": "Sum", "b0": "Number", "b": "Sum", "c": ("Choose", {"pick": pick})},
            ["a0.out > a.a", "b0.out > b.a", "a.out > c.left", "b.out > c.right"],
        )
    )
    assert lines.outcome["outcome"] == "succeeded"
    assert lines.statuses(other) == lines.statuses(f"{other}0") == ["not_selected"]
    assert lines.statuses(chosen) == ["running", "completed"]
    assert classes["Sum"].executed == [chosen]


def test_a_branch_that_something_else_needs_is_executed(engine, graph):
    lines = engine.run(
        graph(
            {"a": "Number", "b": "Number", "c": "Choose", "s": "Sum"},
            ["a.out > c.left", "b.out > c.right", "b.out > s.a"],
        )
    )
    assert lines.statuses("b") == ["running", "completed"]


def test_a_failure_in_a_branch_that_is_not_needed_does_not_count(engine, graph):
    lines = engine.run(
        graph({"a": "Number", "f": "Fail", "c": "Choose"}, ["a.out > c.left", "f.out > c.right"])
    )
    assert lines.outcome["outcome"] == "succeeded"


def test_what_is_invalid_fails_before_any_node_with_all_the_words(engine, graph):
    lines = engine.run(graph({"a": ("Number", {"value": "x"}), "b": "Nothing"}))
    assert lines.outcome["outcome"] == "failed"
    assert lines.outcome["cause"] == "refused"
    assert lines.statuses() == []
    assert [line["type"] for line in lines] == ["execution_start"]


def test_a_chain_of_five_thousand_nodes_runs(engine, graph):
    count = 5000
    nodes = {"n0": "Number"} | {f"n{i}": "Sum" for i in range(1, count)}
    lines = engine.run(graph(nodes, [f"n{i}.out > n{i + 1}.a" for i in range(count - 1)]))
    assert lines.outcome["outcome"] == "succeeded"
    assert len(lines.statuses()) == 2 * count
    assert lines.value(f"n{count - 1}") == 1.0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_order_of_nodes_gives_the_same_values(data):
    """Random acyclic graphs, described in random order; each node is the sum of its sources."""
    import json
    from pathlib import Path

    from codefyui_core.engine import Job, NodeSet, Places, run
    from codefyui_core.files import Folders
    from codefyui_core.graph import Definitions
    from codefyui_core.plugin.node import DataType, Node, Param, ParamKind, Port
    from codefyui_core.runs.options import RunOptions

    class Start(Node):
        type, category = "Start", "t"
        outputs = (Port(name="trigger", type=DataType.TRIGGER),)

        def execute(self, inputs, params, context):
            return {}

    class Add(Node):
        type, category = "Add", "t"
        inputs = tuple(Port(name=name, type=DataType.ANY, optional=True) for name in "ab")
        outputs = (Port(name="out", type=DataType.ANY),)
        params = (Param(name="own", kind=ParamKind.INT, default=0),)

        def execute(self, inputs, params, context):
            return {"out": params["own"] + sum(inputs.values())}

    count = data.draw(st.integers(1, 12))
    sources = [data.draw(st.lists(st.integers(0, i - 1), max_size=2)) if i else [] for i in range(count)]
    expected = []
    for i in range(count):
        expected.append(i + sum(expected[j] for j in sources[i]))
    order = data.draw(st.permutations(range(count)))
    nodes = [{"id": f"n{i}", "type": "Add", "data": {"params": {"own": i}}} for i in order]
    nodes.append({"id": "go", "type": "Start", "data": {"params": {}}})
    edges = [
        {"source": f"n{j}", "target": f"n{i}", "sourceHandle": "out", "targetHandle": port, "type": "data"}
        for i in range(count)
        for port, j in zip("ab", sources[i], strict=False)
    ]
    edges += [
        {"source": "go", "target": f"n{i}", "sourceHandle": "trigger", "type": "trigger"} for i in order
    ]
    lines = []
    job = Job(
        run_id="r",
        document={"nodes": nodes, "edges": edges},
        options=RunOptions(seed=data.draw(st.none() | st.integers(0, 9))),
        device="cpu",
        places=Places(base=Path(), folders=Folders(root=Path()), downloads=Path()),
        limits=Limits(parallel_nodes=data.draw(st.integers(1, 4))),
    )
    node_set = NodeSet(
        classes={"Add": Add, "Start": Start}, definitions=Definitions.of([Add.define(""), Start.define("")])
    )
    outcome = run(job, node_set, lambda line: lines.append(json.loads(line)["payload"]), lambda: False)
    assert outcome["outcome"] == "succeeded"
    found = {
        one["node_id"]: one["outputs"][0]["scalar"]
        for one in lines
        if one.get("status") == "completed" and "outputs" in one
    }
    assert found == {f"n{i}": expected[i] for i in range(count)}


def test_the_overhead_of_a_node_is_small_enough_for_large_graphs(engine, graph, record_property):
    """Recorded, not asserted: durations are a benchmark's business."""
    nodes = {"n0": "Number"} | {f"n{i}": "Sum" for i in range(1, 1000)}
    document = graph(nodes, [f"n{i}.out > n{i + 1}.a" for i in range(999)])
    began = time.perf_counter()
    lines = engine.run(document)
    record_property("ms_a_node", time.perf_counter() - began)
    assert lines.outcome["outcome"] == "succeeded"
