"""``docs/graphs.md`` against the graph room and the options of runs."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from codefyui_core.engine.run import NOT_HERE_YET
from codefyui_core.graph import Definitions, Document, IssueCode, validate
from codefyui_core.graph.inline import EXPANDED_LIMIT, NESTING_LIMIT
from codefyui_core.graph.json_text import DEPTH_LIMIT
from codefyui_core.loading import load, load_nodes
from codefyui_core.plugin import DataType, ParamKind
from codefyui_core.runs.options import ErrorMode, RunOptions
from codefyui_core.runs.status import NodeStatus

TEXT = (Path(__file__).parents[2] / "docs" / "graphs.md").read_text(encoding="utf-8")


def table(first_heading: str) -> Mapping[str, str]:
    """The first two cells of each row of the table that begins with a heading."""
    found = re.search(rf"^\| {re.escape(first_heading)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert found is not None, first_heading
    rows = (re.split(r"(?<!\\)\|", line) for line in found.group(1).splitlines())
    return {cells[1].strip(): cells[2].strip() for cells in rows}


def words(cells: Iterable[str]) -> set[str]:
    return {word for cell in cells for word in re.findall(r"`([^`]+)`", cell)}


def test_every_issue_code_is_explained_once_and_no_other_is() -> None:
    assert words(table("code")) == {code.value for code in IssueCode}


def test_options_are_those_of_a_run_with_their_defaults() -> None:
    shown = {name.strip("`"): json.loads(default.strip("`")) for name, default in table("option").items()}
    defaults = RunOptions().model_dump(mode="json")
    assert shown == {name: defaults[name] for name in RunOptions.model_fields}


def test_options_without_effect_are_shown_as_such() -> None:
    rows = {name for name in NOT_HERE_YET if f"| `{name}` | `false` | has no effect in this version" in TEXT}
    assert rows == set(NOT_HERE_YET)
    assert TEXT.count("has no effect in this version") == len(NOT_HERE_YET)


@pytest.mark.parametrize(
    ("heading", "values"), [("kind", ParamKind), ("`error_mode`", ErrorMode), ("status", NodeStatus)]
)
def test_closed_lists_are_whole(heading: str, values: Iterable[str]) -> None:
    assert words(table(heading)) == {str(value) for value in values}


def test_types_of_wires_are_all_named() -> None:
    section = TEXT.partition("### Types of wires")[2].partition("##")[0]
    assert {str(one) for one in DataType} <= set(re.findall(r"`([A-Z_]+)`", section))


def test_limits_are_those_of_the_code() -> None:
    assert f"deeper than {DEPTH_LIMIT} levels" in TEXT
    assert TEXT.count(f"up to {NESTING_LIMIT} levels deep") == 2
    assert TEXT.count(f"{EXPANDED_LIMIT:,} nodes and edges") == 2


def test_the_example_runs_as_the_page_says(tmp_path: Path) -> None:
    (example, *_) = re.findall(r"^```json\n(.*?)^```", TEXT, re.M | re.S)
    (tmp_path / "ones.graph.json").write_text(example, encoding="utf-8")
    cdui = [sys.executable, "-m", "codefyui_core.cli", "graph"]
    settings = {name: text for name, text in os.environ.items() if not name.startswith("CODEFYUI_")}
    settings["CODEFYUI_USER_DATA_DIR"] = str(tmp_path / "user-data")
    said = []
    for word in ("validate", "run"):
        ran = subprocess.run(
            [*cdui, word, "ones.graph.json"],
            check=False,
            cwd=tmp_path,
            env=settings,
            capture_output=True,
            text=True,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        said.append(ran.stdout)
    assert said[0] == "ones.graph.json: valid, 4 nodes\n"
    assert "[result] tensor([[3., 3.],\n        [3., 3.]])" in said[1]
    assert [line.split()[0] for line in said[1].splitlines() if "completed" in line] == [
        "go",
        "ones",
        "times",
        "show",
    ]


def test_the_graphs_on_the_page_are_valid() -> None:
    definitions = Definitions.of(
        one.definition for one in load_nodes(load(plane=None), ["builtin", "torch"]).nodes.values()
    )
    example, preset, subgraph = map(json.loads, re.findall(r"^```json\n(.*?)^```", TEXT, re.M | re.S))
    assert validate(Document.parse(example), definitions) == ()
    edges = [edge for edge in example["edges"] if edge["target"] == "ones"]
    for type_, brought in (
        ("preset:Scale and print", {"presets": [preset]}),
        ("subgraph:twice", {"subgraphs": [subgraph]}),
    ):
        nodes = [*example["nodes"][:2], {"id": "in", "type": type_, "data": {}}]
        wire = {"source": "ones", "sourceHandle": "tensor", "target": "in", "targetHandle": "x"}
        document = {"nodes": nodes, "edges": [*edges, wire], **brought}
        assert validate(Document.parse(document), definitions) == (), type_
