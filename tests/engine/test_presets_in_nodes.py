"""Nodes that run a preset for each item, and the cache of results."""

import pytest

from codefyui_core.engine import ResultCache
from codefyui_core.engine.cache import result_key


def preset(nodes, edges, into, out):
    return {
        "preset_name": "P",
        "category": "Test",
        "nodes": [{"id": node_id, "type": type_name, "params": {}} for node_id, type_name in nodes.items()],
        "edges": [
            {"source": one.split(".")[0], "sourceHandle": one.split(".")[1]}
            | {"target": other.split(".")[0], "targetHandle": other.split(".")[1]}
            for one, other in (edge.split(" > ") for edge in edges)
        ],
        "exposed_inputs": [
            {"name": "x", "internal_node": into.split(".")[0], "internal_port": into.split(".")[1]}
        ],
        "exposed_outputs": [
            {"name": "y", "internal_node": out.split(".")[0], "internal_port": out.split(".")[1]}
        ],
        "exposed_params": [],
    }


@pytest.fixture
def each(engine, graph):
    def run(document, items="[1, 1, 2]", **options):
        return engine.run(
            graph({"i": ("Items", {"items": items}), "m": "Each"}, ["i.out > m.items"], presets=[document]),
            **options,
        )

    return run


def results(lines):
    found = lines.last("m")["outputs"][0]["list"]
    return found["repr"]


def test_a_preset_runs_once_for_each_item_and_says_nothing_of_its_nodes(each, classes):
    lines = each(preset({"s": "Sum"}, [], "s.a", "s.out"))
    assert results(lines) == "[{'y': 1.0}, {'y': 1.0}, {'y': 2.0}]"
    assert classes["Sum"].executed == ["m__s"] * 3
    assert {node for node, _ in lines.statuses()} == {"i", "m"}


def test_what_does_not_depend_on_the_item_is_computed_once(each, classes):
    lines = each(preset({"n": "Number", "s": "Sum"}, ["n.out > s.b"], "s.a", "s.out"))
    assert results(lines) == "[{'y': 2.0}, {'y': 2.0}, {'y': 3.0}]"
    assert classes["Number"].executed == ["m__n"]


@pytest.mark.parametrize("options", [{}, {"seed": 3}])
def test_weights_are_the_same_for_every_item_so_that_equal_items_give_equal_results(each, options):
    first, second, other = eval(results(each(preset({"w": "Weights"}, [], "w.a", "w.out"), **options)))
    assert first == second
    assert first["y"][1] is not None
    assert first["y"][1:] == other["y"][1:]


def test_unseeded_runs_differ_in_their_weights(each):
    document = preset({"w": "Weights"}, [], "w.a", "w.out")
    assert results(each(document)) != results(each(document))
    assert results(each(document, seed=1)) == results(each(document, seed=1))


def test_a_failure_inside_names_both_nodes(each):
    lines = each(preset({"f": "Fail"}, [], "f.a", "f.out"), error_mode="retry", max_retries=0)
    assert lines.outcome["error"].startswith("node m (Each): node m__f (Fail): ValueError: no luck")


def test_a_stop_between_items_interrupts_the_node(each, classes):
    executed = classes["Sum"].executed
    lines = each(preset({"s": "Sum"}, [], "s.a", "s.out"), should_stop=lambda: len(executed) >= 2)
    assert lines.outcome["outcome"] == "stopped"
    assert lines.statuses("m") == ["running", "interrupted"]
    assert len(executed) == 2


def test_a_stop_inside_of_an_item_interrupts_the_node(each, classes):
    node = classes["UntilStopped"]
    lines = each(preset({"u": "UntilStopped"}, [], "u.a", "u.out"), should_stop=node.started.is_set)
    assert lines.outcome["outcome"] == "stopped"
    assert lines.statuses("m") == ["running", "interrupted"]


def test_equal_graphs_are_taken_from_a_sessions_cache(engine, graph, classes):
    cache = ResultCache()
    document = graph({"n": "Number", "s": "Sum"}, ["n.out > s.a"])
    engine.run(document, cache=cache)
    lines = engine.run(document, cache=cache)
    assert lines.statuses("s") == ["running", "cached"]
    assert lines.value("s") == 1.0
    assert classes["Sum"].executed == ["s"]


def test_swapped_wires_another_param_or_seed_are_not_taken_from_the_cache(engine, graph):
    cache = ResultCache()
    nodes = {"a": ("Number", {"value": 5}), "b": ("Number", {"value": 3}), "l": "Less"}
    first = engine.run(graph(nodes, ["a.out > l.a", "b.out > l.b"]), cache=cache)
    swapped = engine.run(graph(nodes, ["a.out > l.b", "b.out > l.a"]), cache=cache)
    assert (first.value("l"), swapped.value("l")) == (2.0, -2.0)
    assert swapped.statuses("a") == ["running", "cached"]
    again = engine.run(graph(nodes, ["a.out > l.b", "b.out > l.a"]), cache=cache, seed=1)
    assert again.statuses("l") == ["running", "completed"]


def test_what_follows_a_node_that_is_not_cacheable_is_not_cached(engine, graph):
    cache = ResultCache()
    document = graph({"d": "Dice", "l": "Log"}, ["d.out > l.value"])
    engine.run(document, cache=cache)
    lines = engine.run(document, cache=cache)
    assert lines.statuses("l") == ["running", "completed"]
    assert len(cache) == 1  # Start


def test_verbose_runs_pass_the_cache_by(engine, graph):
    cache = ResultCache()
    engine.run(graph({"n": "Number"}), cache=cache)
    assert engine.run(graph({"n": "Number"}), cache=cache, verbose=True).statuses("n") == [
        "running",
        "completed",
    ]


def test_the_least_recently_used_goes_first_by_entries_and_by_bytes():
    cache = ResultCache(entries=2, bytes=0)
    for name in "ab":
        cache.put(name, {"v": name})
    assert cache.get("a") == {"v": "a"}
    cache.put("c", {"v": "c"})
    assert cache.get("b") is None
    assert cache.get("a") is not None
    small = ResultCache(entries=100, bytes=3000)
    for name in "abcdef":
        small.put(name, {"v": "x" * 1000})
    assert 0 < len(small) < 4
    small.put("large", {"v": "x" * 5000})
    assert small.get("large") is None
    assert small.get("f") is not None


def test_a_cached_tensor_is_not_changed_by_what_is_done_to_the_result():
    torch = pytest.importorskip("torch")
    cache = ResultCache()
    original = torch.ones(2)
    cache.put("k", {"v": [original]})
    original.zero_()
    cache.get("k")["v"][0].zero_()
    assert cache.get("k")["v"][0].tolist() == [1.0, 1.0]


def test_the_key_depends_on_everything_that_the_result_does():
    base = {
        "type_name": "T",
        "params": {"p": 1},
        "sources": [("a", "k", "out"), ("b", "l", "out")],
        "device": "cpu",
        "seed": None,
        "fingerprint": None,
    }
    others = [
        {"type_name": "U"},
        {"params": {"p": 2}},
        {"sources": [("b", "k", "out"), ("a", "l", "out")]},
        {"sources": [("a", "k", "two"), ("b", "l", "out")]},
        {"device": "cuda:0"},
        {"seed": 0},
        {"fingerprint": "x"},
    ]
    keys = [result_key(**base), *(result_key(**(base | other)) for other in others)]
    assert len(set(keys)) == len(keys)
    assert result_key(**(base | {"sources": base["sources"][::-1]})) == keys[0]
