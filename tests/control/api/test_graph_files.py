"""Saved graphs and examples on disk."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.control.files.examples import Examples
from codefyui_core.control.files.graphs import GraphFiles, file_stem
from codefyui_core.errors import CodefyError

GRAPH = {"name": "My graph", "nodes": [], "edges": [], "own": {"kept": True}}


@pytest.fixture
def files(tmp_path: Path) -> GraphFiles:
    return GraphFiles(folder=tmp_path / "graphs")


def test_what_is_saved_is_loaded_with_unknown_keys(files: GraphFiles) -> None:
    stem = files.save(GRAPH, "My graph", file=None, overwrite=True)
    assert stem == "My_graph"
    assert files.load("My graph") == GRAPH
    assert [(row["name"], row["file"]) for row in files.list()] == [("My graph", "My_graph")]


def test_an_occupied_name_is_kept_unless_overwriting(files: GraphFiles) -> None:
    files.save(GRAPH, "a", file=None, overwrite=True)
    with pytest.raises(CodefyError) as refused:
        files.save({**GRAPH, "nodes": [1]}, "a", file=None, overwrite=False)
    assert refused.value.code == "graph.exists"
    assert files.load("a") == GRAPH


def test_renaming_moves_the_file_and_its_name(files: GraphFiles) -> None:
    files.save(GRAPH, "a", file=None, overwrite=True)
    files.save(GRAPH, "taken", file=None, overwrite=True)
    assert files.rename("a", "b c") == "b_c"
    assert files.load("b c")["name"] == "b c"
    with pytest.raises(CodefyError) as missing:
        files.load("a")
    assert missing.value.code == "graph.not_found"
    with pytest.raises(CodefyError) as taken:
        files.rename("b c", "taken")
    assert taken.value.code == "graph.exists"


def test_deleting_twice_says_that_it_is_gone(files: GraphFiles) -> None:
    files.save(GRAPH, "a", file=None, overwrite=True)
    assert files.delete("a") == "a.json"
    with pytest.raises(CodefyError) as missing:
        files.delete("a")
    assert missing.value.code == "graph.not_found"


@given(st.text(max_size=300))
def test_every_name_stays_a_plain_file_name_or_is_refused(name: str) -> None:
    if not any((c.isascii() and c.isalnum()) or c == "-" for c in name.strip()) or len(name.strip()) > 200:
        with pytest.raises(CodefyError) as refused:
            file_stem(name)
        assert refused.value.code == "graph.bad_name"
        return
    stem = file_stem(name)
    assert all(c.isascii() and (c.isalnum() or c in "-_") for c in stem)


def test_examples_are_found_below_their_folders_only(tmp_path: Path) -> None:
    (tmp_path / "ex" / "deep").mkdir(parents=True)
    (tmp_path / "ex" / "deep" / "one.graph.json").write_text(json.dumps(GRAPH))
    (tmp_path / "ex" / "broken.graph.json").write_text("{")
    (tmp_path / "outside.graph.json").write_text(json.dumps(GRAPH))
    examples = Examples(folders=(("builtin", tmp_path / "ex"),))
    assert [(row["path"], row["category"]) for row in examples.list()] == [("deep/one.graph.json", "deep")]
    assert examples.load("deep/one.graph.json") == GRAPH
    for path in ("../outside.graph.json", "nothing.graph.json", "/etc/passwd", "deep"):
        with pytest.raises(CodefyError):
            examples.load(path)
