"""``docs/architecture.md`` against the import contracts, the folders, the machine and the tables."""

import re
import tomllib
from pathlib import Path

from codefyui_core.control.db.tables import metadata
from codefyui_core.runs.machine import State

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def first_cells(heading: str) -> list[str]:
    found = re.search(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert found is not None, heading
    return [line.split("|")[1].strip() for line in found.group(1).splitlines()]


def test_rooms_are_those_of_the_import_contract_in_its_order() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (rooms, *_) = project["tool"]["importlinter"]["contracts"]
    layers = [room for layer in rooms["layers"] for room in re.split(r"\s*[|:]\s*", layer)]
    shown = [cell.strip("`") for cell in first_cells("room")]
    assert [room for room in layers if room in shown] == shown
    assert all(
        (ROOT / "codefyui_core" / room).with_suffix(".py").exists() for room in set(layers) - set(shown)
    )


def test_every_folder_of_the_core_is_a_room() -> None:
    folders = {path.parent.name for path in (ROOT / "codefyui_core").glob("*/__init__.py")}
    assert folders <= {cell.strip("`") for cell in first_cells("room")}


def test_states_are_those_of_the_machine() -> None:
    assert first_cells("state") == [state.value for state in State]


def test_every_table_is_named() -> None:
    assert set(re.findall(r"`(\w+)`", " ".join(first_cells("table")))) == set(metadata.tables)
