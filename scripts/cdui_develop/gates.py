"""The gates: what must hold of the code besides its tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

from .stages import Stage


def gates(root: Path) -> tuple[Stage, ...]:
    """Every gate but the tests of the docs, which run with the tests too."""
    return (
        _gate(root, "lint", "ruff", "check", "."),
        _gate(root, "format", "ruff", "format", "--check", "."),
        _gate(root, "types", "mypy", *typed_packages(root)),
        _gate(root, "imports", "lint-imports"),
    )


def docs_gate(root: Path) -> Stage:
    """Links, and code blocks that run."""
    return _gate(root, "docs", "pytest", "-q", "tests/docs")


def typed_packages(root: Path) -> list[str]:
    """``-p`` words for mypy: the core, every plugin's package, the web package, and the scripts."""
    names = ["codefyui_core", *sorted(_packages(root)), "cdui_setup", "cdui_develop", "cdui_faults"]
    return [word for name in names for word in ("-p", name)]


def _packages(root: Path) -> Iterator[str]:
    return (
        path.parent.name
        for pattern in ("plugins/*/codefyui_*/__init__.py", "web/codefyui_*/__init__.py")
        for path in root.glob(pattern)
    )


def _gate(root: Path, name: str, tool: str, *words: str) -> Stage:
    return Stage(name=name, command=[str(Path(sys.executable).parent / tool), *words], cwd=root)
