"""Code on the pages works: Python runs, commands exist, documents parse."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from pytest_examples import CodeExample, EvalExample, find_examples

from codefyui_core.cli.table import COMMANDS

REPOSITORY = Path(__file__).parents[2]
LAUNCHER = {"install", "update", "check", "test", "faults", "--version", "--help", "--json"}
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|[\s;&|(])(?:\./|~/CodefyUI/|\S*/)?cdui +(\S+)", re.MULTILINE)


def examples() -> list[CodeExample]:
    """Python blocks; one whose title says ``{test="..."}`` is run by the test that it names."""
    paths = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "docs"]
    found = find_examples(*(path for path in paths if path.exists()))
    return [example for example in found if "test" not in example.prefix_settings()]


@pytest.mark.parametrize("example", examples(), ids=str)
def test_python_runs(
    example: CodeExample, eval_example: EvalExample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples" / "node-pack"))  # the pack that the guide builds
    eval_example.run(example)


def test_documents_parse(page: Path) -> None:
    readers = {"json": json.loads, "toml": tomllib.loads}
    for language, text in FENCE.findall(page.read_text()):
        if language in readers:
            readers[language](text)


def test_commands_exist(page: Path) -> None:
    blocks = [
        text for language, text in FENCE.findall(page.read_text()) if language in {"sh", "bash", "console"}
    ]
    used = {name for text in blocks for name in COMMAND.findall(text)}
    assert used - LAUNCHER - set(COMMANDS) == set()
