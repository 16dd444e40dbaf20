"""The guide shows the example pack as it is."""

import re
from pathlib import Path

import pytest

from codefyui_core.graph import Definitions, Document, validate
from codefyui_core.loading import Registry, load, load_nodes
from codefyui_core.testing.distributions import FakeSite

ROOT = Path(__file__).parents[2]
PACK = ROOT / "examples" / "node-pack"
_FILE = re.compile(r"^`([^`\n]+)`\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_file_in_the_guide_is_the_files_own_text(docs: Path) -> None:
    shown = dict(_FILE.findall((docs / "plugins.md").read_text(encoding="utf-8")))
    assert {"pyproject.toml", "codefyui_example_pack/plugin.py", "tests/test_example_pack.py"} <= set(shown)
    for name, text in shown.items():
        assert text == (PACK / name).read_text(encoding="utf-8"), name


def test_links_of_the_pages_lead_somewhere(docs: Path) -> None:
    for page in (docs / "plugins.md", docs / "porting.md", *sorted((docs / "hooks").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.fixture
def registry(site: FakeSite, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.syspath_prepend(str(PACK))
    site.install("example", "from codefyui_example_pack.plugin import *", plugin="example")
    return load(plane=None, only=["example"])


def test_the_packs_preset_is_a_graph_that_can_run(registry: Registry) -> None:
    nodes = load_nodes(registry, ["builtin", "example"]).nodes
    (catalog,) = (one for one in registry.catalogs if one.name == "example")
    definitions = Definitions.of(
        [one.definition for one in nodes.values()], [one.document for one in catalog.presets()]
    )
    document = Document.parse(
        {
            "nodes": [
                {"id": "s", "type": "Start", "position": {"x": 0, "y": 0}, "data": {"params": {}}},
                {
                    "id": "in",
                    "type": "GraphInput",
                    "position": {"x": 0, "y": 0},
                    "data": {"params": {"type": "json", "default": "[1, 2, 3]"}},
                },
                {
                    "id": "p",
                    "type": "preset:Smooth and print",
                    "position": {"x": 0, "y": 0},
                    "data": {"params": {}},
                },
            ],
            "edges": [
                {
                    "id": "t",
                    "source": "s",
                    "sourceHandle": "trigger",
                    "target": "in",
                    "targetHandle": "__trigger",
                    "type": "trigger",
                },
                {"id": "d", "source": "in", "sourceHandle": "value", "target": "p", "targetHandle": "series"},
            ],
        }
    )
    assert validate(document, definitions) == ()
