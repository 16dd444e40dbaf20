"""The suites: tests by pytest, those that start services apart, and the editor's by vitest."""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .stages import Stage

SHARED = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
"""Between processes: one more than the two cores that the suite is made for, as about half of a test's time is waiting.
pytest_order.py says which modules go first.
"""
NO_TESTS = 5
"""pytest's status when nothing was collected."""
AGAIN = ("--reruns", "1", "-raR")
"""A test that fails is tried once more, and the closing line counts it: machines under load are late now and then, and
one of thousands of tests must not cost the whole run. Whoever sees a number there has a test to mend.
"""


def suites(root: Path, *, fast: bool, extra: Sequence[str]) -> Iterator[Stage]:
    """In the order in which they run. ``extra`` goes to pytest."""
    yield _pytest(root, "tests", "not service", extra)
    if not fast:
        yield _pytest(root, "services", "service", ["--durations=15", *extra])
    npm = shutil.which("npm")
    if npm and not extra and _has_web_tests(root):
        yield from _web(root, npm)


def _pytest(root: Path, name: str, marker: str, extra: Sequence[str]) -> Stage:
    command = [sys.executable, "-m", "pytest", *SHARED, *AGAIN, "-m", marker, *extra]
    accepted = frozenset({0, NO_TESTS})
    return Stage(name=name, command=command, cwd=root, loud=True, accepted=accepted)


def _has_web_tests(root: Path) -> bool:
    package = root / "web" / "package.json"
    return package.is_file() and "test" in json.loads(package.read_text()).get("scripts", {})


def _web(root: Path, npm: str) -> Iterator[Stage]:
    web = root / "web"
    if not (web / "node_modules" / ".package-lock.json").is_file():  # npm writes it last
        yield Stage(name="web packages", command=[npm, "ci", "--no-audit", "--no-fund"], cwd=web)
    yield Stage(
        name="web",
        command=[npm, "test", "--silent"],
        cwd=web,
        environ={"CI": "true", "NO_COLOR": "1"},
        loud=True,
    )
