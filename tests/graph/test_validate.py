"""Every issue has its code, its node and its facts."""

import pytest

from codefyui_core.graph import Document, validate


def only(document, definitions):
    issues = validate(document, definitions)
    assert len(issues) == 1, [issue.message for issue in issues]
    return issues[0]


def test_a_graph_without_fault_has_no_issues(write, definitions):
    document = write.graph(
        {"go": "Start", "a": "Make", "b": "Pass", "p": "Print"},
        ["go!a", "a.tensor>b.tensor", "b.tensor>p.value"],
    )
    assert validate(document, definitions) == ()


def test_an_issue_as_json_has_four_keys(write, definitions):
    issue = only(write.graph({"go": "Start", "a": "Gone"}, ["go!a"]), definitions)
    shown = issue.to_json()
    assert shown == {
        "message": issue.message,
        "code": "unknown_node_type",
        "node_id": "a",
        "params": {"type": "Gone"},
    }
    assert type(shown["code"]) is str


def test_an_empty_graph_starts_nothing(definitions, codes):
    assert codes(Document.parse("{}")) == [("no_entry_points", None)]


def test_a_graph_without_trigger_starts_nothing(write, codes):
    assert codes(write.graph({"go": "Start", "a": "Make"})) == [("no_entry_points", None)]


def test_a_missing_input_names_port_and_type(write, definitions):
    issue = only(write.graph({"go": "Start", "a": "Add", "m": "Make"}, ["go!m", "m.tensor>a.a"]), definitions)
    assert (issue.code, issue.node_id) == ("missing_input", "a")
    assert issue.params == {"port": "b", "type": "TENSOR"}


def test_a_param_of_the_same_name_stands_in_for_an_input(write, codes):
    document = write.graph({"go": "Start", "m": "Make", "s": "Scale"}, ["go!m", "m.tensor>s.tensor"])
    assert codes(document) == []


@pytest.mark.parametrize(
    ("param", "value", "code"),
    [
        ("factor", "2", "param_not_number"),
        ("factor", True, "param_not_number"),
        ("factor", [1], "param_not_number"),
        ("factor", {}, "param_not_number"),
        ("factor", -10.5, "param_below_min"),
        ("factor", 11, "param_above_max"),
        ("factor", 10**400, "param_above_max"),
        ("count", False, "param_not_number"),
        ("count", "x", "param_not_number"),
        ("count", 2.5, "param_wrong_type"),
        ("count", -1, "param_below_min"),
        ("count", 1e300, "param_above_max"),
        ("mode", "medium", "param_not_in_options"),
        ("mode", 1, "param_not_in_options"),
        ("mode", ["fast"], "param_not_in_options"),
        ("on", 1, "param_wrong_type"),
        ("on", "true", "param_wrong_type"),
        ("grid", 5, "param_wrong_type"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(write, definitions, param, value, code):
    nodes = [write.node("go", "Start"), write.node("m", "Make"), write.node("s", "Scale", **{param: value})]
    issue = only(write.graph(nodes, ["go!m", "m.tensor>s.tensor"]), definitions)
    assert (issue.code, issue.node_id, issue.params["param"]) == (code, "s", param)


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("factor", 3),
        ("factor", -10),
        ("count", 3.0),
        ("count", 9),
        ("mode", "slow"),
        ("on", False),
        ("grid", [[1, 2]]),
        ("factor", None),
    ],
)
def test_a_value_that_fits_is_taken(write, codes, param, value):
    nodes = [write.node("go", "Start"), write.node("m", "Make"), write.node("s", "Scale", **{param: value})]
    assert codes(write.graph(nodes, ["go!m", "m.tensor>s.tensor"])) == []


def test_text_params_take_text_only(write, codes):
    nodes = [write.node("go", "Start"), write.node("m", "Make", shape=4)]
    assert codes(write.graph(nodes, ["go!m"])) == [("param_wrong_type", "m")]


def test_a_bound_comes_with_the_issue(write, definitions):
    nodes = [write.node("go", "Start"), write.node("m", "Make"), write.node("s", "Scale", count=10)]
    issue = only(write.graph(nodes, ["go!m", "m.tensor>s.tensor"]), definitions)
    assert issue.params == {"param": "count", "value": 10, "min": 0.0, "max": 9.0}


def test_a_secret_is_never_in_an_issue(write, definitions):
    nodes = [write.node("go", "Start"), write.node("c", "Chat", key=271828)]
    issue = only(write.graph(nodes, ["go!c"]), definitions)
    assert issue.code == "param_wrong_type"
    assert "271828" not in str(issue.to_json())


def test_ports_that_are_not_there_are_named_on_their_own_node(write, codes):
    document = write.graph(
        {"go": "Start", "a": "Make", "p": "Print"}, ["go!a", "a.gone>p.value", "a.tensor>p.gone"]
    )
    assert codes(document) == [("invalid_output_port", "a"), ("invalid_input_port", "p")]


def test_ports_follow_the_params(write, codes):
    nodes = [
        write.node("go", "Start"),
        write.node("m", "Make"),
        write.node("s", "Split", chunks=3),
        write.node("p", "Print"),
    ]
    assert codes(write.graph(nodes, ["go!m", "m.tensor>s.tensor", "s.chunk_2>p.value"])) == []
    assert codes(write.graph(nodes, ["go!m", "m.tensor>s.tensor", "s.chunk_3>p.value"])) == [
        ("invalid_output_port", "s")
    ]


@pytest.mark.parametrize(
    ("source", "port", "target", "into", "fits"),
    [
        ("Picture", "image", "Pass", "tensor", True),
        ("Number", "value", "Pass", "tensor", False),
        ("Text", "text", "Pass", "tensor", False),
        ("Chain", "transform", "Pass", "tensor", False),
        ("Chain", "transform", "Print", "value", True),
        ("Make", "tensor", "Chat", "text", False),
    ],
)
def test_types_have_to_join(write, definitions, source, port, target, into, fits):
    issues = validate(
        write.graph({"go": "Start", "a": source, "b": target}, ["go!a", f"a.{port}>b.{into}"]), definitions
    )
    assert [issue.code for issue in issues] == ([] if fits else ["type_mismatch"])


def test_a_type_mismatch_names_both_ports_and_types(write, definitions):
    issue = only(
        write.graph({"go": "Start", "a": "Text", "b": "Pass"}, ["go!a", "a.text>b.tensor"]), definitions
    )
    assert issue.node_id == "b"
    assert issue.params == {
        "source": "a",
        "source_port": "text",
        "source_type": "STRING",
        "target": "b",
        "target_port": "tensor",
        "target_type": "TENSOR",
    }


def test_two_wires_into_one_input_are_refused(write, definitions):
    issue = only(
        write.graph(
            {"go": "Start", "a": "Make", "b": "Make", "c": "Pass"},
            ["go!a", "go!b", "a.tensor>c.tensor", "b.tensor>c.tensor"],
        ),
        definitions,
    )
    assert (issue.code, issue.node_id, issue.params) == ("input_wired_twice", "c", {"port": "tensor"})


def test_a_cycle_among_running_nodes_names_its_path(write, definitions):
    issue = only(
        write.graph(
            {"go": "Start", "m": "Make", "a": "Add", "b": "Pass", "p": "Print"},
            ["go!m", "m.tensor>a.a", "a.tensor>b.tensor", "b.tensor>a.b", "b.tensor>p.value"],
        ),
        definitions,
    )
    assert (issue.code, issue.node_id) == ("cycle", "a")
    assert issue.params["path"] == ["a", "b", "a"]


def test_a_node_may_not_feed_itself(write, definitions):
    issue = only(write.graph({"go": "Start", "a": "Pass"}, ["go!a", "a.tensor>a.tensor"]), definitions)
    assert issue.params["path"] == ["a", "a"]


def test_a_cycle_that_nothing_starts_is_no_matter(write, codes):
    document = write.graph(
        {"go": "Start", "m": "Make", "a": "Pass", "b": "Pass"},
        ["go!m", "a.tensor>b.tensor", "b.tensor>a.tensor"],
    )
    assert codes(document) == []


def test_nodes_that_nothing_starts_are_judged_too(write, codes):
    assert codes(write.graph({"go": "Start", "m": "Make", "x": "Gone", "y": "Pass"}, ["go!m"])) == [
        ("unknown_node_type", "x"),
        ("missing_input", "y"),
    ]


def test_an_unknown_node_type_is_the_only_complaint_about_its_wires(write, codes):
    document = write.graph(
        {"go": "Start", "x": "Gone", "y": "Pass"}, ["go!x", "x.any>y.tensor", "y.tensor>x.thing"]
    )
    assert codes(document)[0] == ("unknown_node_type", "x")
    assert {code for code, _ in codes(document)} == {"unknown_node_type", "cycle"}


def test_doubled_ids_are_reported_as_such(write, codes):
    nodes = [write.node("go", "Start"), write.node("a", "Make"), write.node("a", "Make")]
    assert codes(write.graph(nodes, ["go!a"])) == [("duplicate_id", "a")]


def test_edges_without_ends_are_reported(write, definitions):
    document = write.graph(
        {"go": "Start", "a": "Make", "p": "Print"},
        ["go!a", "a.tensor>p.value", "gone.x>p.y", "a.tensor>lost.x", "gone!a", "go!lost"],
    )
    assert [(issue.code, issue.node_id) for issue in validate(document, definitions)] == [
        ("edge_source_missing", "p"),
        ("edge_target_missing", "a"),
        ("trigger_source_missing", "a"),
        ("trigger_target_missing", "go"),
    ]


def test_broken_nodes_and_edges_are_reported_by_number(definitions):
    document = Document.parse(
        {
            "nodes": [
                7,
                {},
                {"id": 3, "type": "Make"},
                {"id": "a"},
                {"id": "b", "type": "Make", "data": []},
                {"id": "c", "type": "Make", "data": {"params": [1]}},
                {"id": "d", "type": "Make", "data": None},
            ],
            "edges": [
                None,
                {"source": "b"},
                {"source": 1, "target": "b"},
                {"source": "b", "target": "c", "sourceHandle": 4},
            ],
        }
    )
    found = [
        (issue.code, issue.node_id, issue.params.get("index")) for issue in validate(document, definitions)
    ]
    assert found == [
        ("malformed_node", None, 0),
        ("malformed_node", None, 1),
        ("malformed_node", None, 2),
        ("malformed_node", "a", 3),
        ("malformed_node", "b", 4),
        ("malformed_node", "c", 5),
        ("malformed_edge", None, 0),
        ("malformed_edge", None, 1),
        ("malformed_edge", None, 2),
        ("malformed_edge", None, 3),
        ("no_entry_points", None, None),
    ]


def test_notes_and_their_edges_are_dropped(write, codes):
    document = write.graph(
        {"go": "Start", "a": "Make", "n": "note"}, ["go!a", "n.x>a.y", "go!n", "a.tensor>n.z"]
    )
    assert codes(document) == []


@pytest.mark.parametrize(
    "edge",
    [
        {"type": "trigger"},
        {"type": "trigger", "targetHandle": "", "sourceHandle": "trigger"},
        {"targetHandle": "__trigger"},
        {"sourceHandle": "trigger"},
        {"sourceHandle": "trigger", "type": "data", "targetHandle": None},
    ],
)
def test_a_trigger_edge_is_known_by_its_type_or_its_handles(write, codes, edge):
    raw = write.raw({"go": "Start", "a": "Make"})
    raw["edges"].append({"source": "go", "target": "a", **edge})
    assert codes(Document.parse(raw)) == []


def test_a_trigger_comes_from_a_start_only(write, codes):
    assert codes(write.graph({"go": "Start", "a": "Make", "b": "Make"}, ["go!a", "a!b"])) == [
        ("invalid_output_port", "a")
    ]


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"device": "gpu"}, "device"),
        ({"device": 1}, "device"),
        ({"device": "cuda:"}, "device"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"seed": "1"}, "seed"),
        ({"seed": True}, "seed"),
    ],
)
def test_settings_are_checked(write, definitions, settings, setting):
    issue = only(write.graph({"go": "Start", "a": "Make"}, ["go!a"], settings=settings), definitions)
    assert (issue.code, issue.params) == ("settings_invalid", {"setting": setting})


@pytest.mark.parametrize(
    "settings", [{}, {"device": None}, {"device": "cuda:3", "seed": 2**32 - 1}, {"device": "auto", "seed": 0}]
)
def test_settings_that_fit_are_taken(write, codes, settings):
    assert codes(write.graph({"go": "Start", "a": "Make"}, ["go!a"], settings=settings)) == []
