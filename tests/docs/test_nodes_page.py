"""``docs/nodes.md`` against the definitions of the catalogs."""

import re
from pathlib import Path

import pytest

import write_node_page
from codefyui_core.plugin import NodeDefinition

PAGE = Path(__file__).parents[2] / "docs" / "nodes.md"
WRITE_IT = "the page is behind the definitions; run .venv/bin/python scripts/write_node_page.py"


@pytest.fixture(scope="module")
def nodes() -> list[NodeDefinition]:
    return write_node_page.definitions()


def test_every_node_type_has_its_section_and_no_section_is_left_over(nodes: list[NodeDefinition]) -> None:
    sections = re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(sections) == sorted(node.type for node in nodes), WRITE_IT


def test_ports_params_and_defaults_on_the_page_are_those_of_the_definitions(
    nodes: list[NodeDefinition],
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    behind = [node.type for node in nodes if write_node_page.section(node) not in text]
    assert behind == [], WRITE_IT


def test_the_page_is_what_the_script_writes(nodes: list[NodeDefinition]) -> None:
    assert PAGE.read_text(encoding="utf-8") == write_node_page.page(nodes, write_node_page.presets()), (
        WRITE_IT
    )
