"""People's own node files."""

from itertools import product
from pathlib import Path

import pytest

from codefyui_core.builtin.custom.catalog import CustomCatalog
from codefyui_core.builtin.custom.folder import custom_nodes_folder
from codefyui_core.loading import load, load_nodes
from codefyui_core.plugin import CatalogProblem, NodeCatalog
from codefyui_core.settings import Install
from codefyui_core.testing.node_context import RecordingContext
from codefyui_core.testing.suites import CatalogSuite

NODE = '''
from dataclasses import dataclass
from codefyui_core.plugin import DataType, Node, Port

@dataclass
class Helper:
    factor: int = 2

class Base(Node):
    category = "Mine"

class Twice(Base):
    """Doubles."""
    type = "Twice"
    description = "Doubles a number."
    inputs = (Port(name="x", type=DataType.SCALAR),)
    outputs = (Port(name="y", type=DataType.SCALAR),)

    def execute(self, inputs, params, context):
        return {"y": Helper().factor * inputs["x"]}
'''

FOREIGN = """
from app.core.node_base import BaseNode

class Twice(BaseNode):
    NODE_NAME = "Twice"

    def define_inputs(self):
        return []
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    return tmp_path / "own"


def _problems(folder: Path) -> list[CatalogProblem]:
    return [one for one in CustomCatalog(folder).nodes() if isinstance(one, CatalogProblem)]


class TestCustomHoldsToTheContract(CatalogSuite):
    @pytest.fixture
    def catalog(self, folder: Path) -> NodeCatalog:
        (folder / "twice.py").write_text(NODE)
        return CustomCatalog(folder)


def test_a_file_gives_its_node(folder: Path, tmp_path: Path) -> None:
    (folder / "twice.py").write_text(NODE)
    (node,) = CustomCatalog(folder).nodes()
    assert not isinstance(node, CatalogProblem)
    assert node.define("").type == "Twice"
    assert node().execute({"x": 21}, {}, RecordingContext(root=tmp_path)) == {"y": 42}


def test_a_folder_that_is_not_there_gives_nothing(tmp_path: Path) -> None:
    assert list(CustomCatalog(tmp_path / "absent").nodes()) == []


def test_notes_and_hidden_files_are_left_alone(folder: Path) -> None:
    for name in ("_draft.py", ".#twice.py", "notes.txt"):
        (folder / name).write_text("1/0")
    (folder / "package.py").mkdir()
    assert list(CustomCatalog(folder).nodes()) == []


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import nothing_of_that_name", "nothing_of_that_name"),
        ("def (", "SyntaxError"),
        ("\0", "null bytes"),
        ("raise SystemExit(1)", "SystemExit"),
        ("x = 1", "no class derived"),
        (FOREIGN, "docs/porting.md"),
    ],
)
def test_a_file_without_a_node_is_a_problem_and_the_rest_loads(folder: Path, source: str, said: str) -> None:
    (folder / "a_bad.py").write_text(source)
    (folder / "twice.py").write_text(NODE)
    found = list(CustomCatalog(folder).nodes())
    assert [one.type for one in found if not isinstance(one, CatalogProblem)] == ["Twice"]
    (problem,) = [one for one in found if isinstance(one, CatalogProblem)]
    assert said in problem.message
    assert problem.source == str(folder / "a_bad.py")


def test_the_porting_page_is_there() -> None:
    assert (Path(__file__).parents[2] / "docs" / "porting.md").read_text().startswith("# ")


def test_two_files_with_one_type_keep_the_first(folder: Path) -> None:
    (folder / "a.py").write_text(NODE)
    (folder / "b.py").write_text(NODE)
    (problem,) = _problems(folder)
    assert problem.source.endswith("b.py")
    assert "a.py" in problem.message


def test_a_type_of_another_catalog_is_left_to_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "map.py").write_text(NODE.replace('"Twice"', '"Map"'))
    (folder / "twice.py").write_text(NODE)
    monkeypatch.setenv("CODEFYUI_CUSTOM_NODES_DIR", str(folder))
    found = load_nodes(load(plane=None), ["builtin", "custom"])
    assert found.nodes["Map"].catalog == "builtin"
    assert found.nodes["Twice"].catalog == "custom"
    (problem,) = found.problems
    assert problem.source.endswith("map.py")
    assert "rename it" in problem.message


def test_a_changed_file_is_read_again(folder: Path) -> None:
    (folder / "twice.py").write_text(NODE)
    list(CustomCatalog(folder).nodes())
    (folder / "twice.py").write_text(NODE.replace('"Twice"', '"Thrice"'))
    (node,) = CustomCatalog(folder).nodes()
    assert not isinstance(node, CatalogProblem)
    assert node.type == "Thrice"


def test_the_folder_is_watched_even_before_it_is_there(tmp_path: Path) -> None:
    assert CustomCatalog(tmp_path / "later").watch == (tmp_path / "later",)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"CODEFYUI_CUSTOM_NODES_DIR": "/n", "CODEFYUI_DATA_DIR": "/d"}, "/n"),
        (
            {"CODEFYUI_CUSTOM_NODES_DIR": "", "CODEFYUI_DATA_DIR": "/d", "CODEFYUI_DIR": "/i"},
            "/d/custom_nodes",
        ),
        ({"CODEFYUI_DIR": "/i", "CODEFYUI_USER_DATA_DIR": "/u"}, "/i/backend/data/custom_nodes"),
        ({"CODEFYUI_USER_DATA_DIR": "/u"}, "/u/backend/data/custom_nodes"),
    ],
)
def test_the_folder_follows_the_settings(environ: dict[str, str], expected: str) -> None:
    assert custom_nodes_folder(environ) == Path(expected)
    assert custom_nodes_folder({}).parts[-4:] == (".codefyui", "backend", "data", "custom_nodes")


_VARIABLES = ("CODEFYUI_CUSTOM_NODES_DIR", "CODEFYUI_DATA_DIR", "CODEFYUI_DIR", "CODEFYUI_USER_DATA_DIR")


@pytest.mark.parametrize("given", list(product([True, False], repeat=4)))
def test_the_folder_is_the_one_that_the_installation_names(
    given: tuple[bool, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    chosen = [name for name, is_given in zip(_VARIABLES, given, strict=True) if is_given]
    environ = {name: str(tmp_path / name.lower()) for name in chosen}
    assert custom_nodes_folder(environ) == Install.find(environ=environ).custom_nodes
    at_home = dict.fromkeys(chosen, "~/x")
    assert custom_nodes_folder(at_home) == Install.find(environ=at_home).custom_nodes
