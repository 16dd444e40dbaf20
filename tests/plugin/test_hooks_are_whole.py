"""No hook without a page that has its exact signature, and none without a test."""

import ast
import inspect
from pathlib import Path

import pytest

from codefyui_core.plugin import hookspecs


def _signatures() -> dict[str, str]:
    """As they stand in the source: ``codefyui_web_root() -> Path | None``."""
    tree = ast.parse(inspect.getsource(hookspecs))
    return {
        node.name: f"{node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}"
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.returns is not None
    }


def test_there_are_seven_hooks() -> None:
    assert len(_signatures()) == 7


@pytest.mark.parametrize("hook", _signatures())
def test_a_hook_has_a_page_whose_heading_is_its_signature(hook: str, docs: Path) -> None:
    heading, *_ = (docs / "hooks" / f"{hook}.md").read_text(encoding="utf-8").splitlines()
    assert heading == f"# `{_signatures()[hook]}`"


@pytest.mark.parametrize("hook", _signatures())
def test_a_hook_has_a_test_file_that_asks_it(hook: str) -> None:
    tests = (Path(__file__).parent / "hooks" / f"test_{hook}.py").read_text(encoding="utf-8")
    tree = ast.parse(tests)
    named = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert any(node.name.startswith("test_") for node in named)
    assert f'documented("{hook}")' in tests


def test_no_page_is_about_a_hook_that_is_gone(docs: Path) -> None:
    pages = {page.stem for page in (docs / "hooks").glob("*.md")} - {"README"}
    assert pages == set(_signatures())


def test_the_table_of_hooks_has_them_all(docs: Path) -> None:
    table = (docs / "hooks" / "README.md").read_text(encoding="utf-8")
    assert all(f"[{hook}]({hook}.md)" in table for hook in _signatures())
