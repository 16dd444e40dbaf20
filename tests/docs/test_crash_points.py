"""The page of crash points and the tests that pin them."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
POINTS = 54


def points_of_the_page():
    text = (ROOT / "docs" / "crash-points.md").read_text(encoding="utf-8")
    return [int(number) for number in re.findall(r"^\| (\d+) \|", text, re.M)]


def marked():
    """Number -> the tests that carry it."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for mark in getattr(node, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.point":
                    for number in mark.args:
                        found.setdefault(ast.literal_eval(number), []).append(f"{path.name}::{node.name}")
    return found


def test_the_page_has_each_point_once():
    assert sorted(points_of_the_page()) == list(range(1, POINTS + 1))


def test_each_point_has_a_test_and_no_test_names_another():
    assert sorted(marked()) == list(range(1, POINTS + 1))
