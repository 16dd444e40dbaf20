"""What the helper writes down, and when it is asked again."""

import json
import os
from pathlib import Path

import pytest

from codefyui_core.loading import load
from codefyui_core.runner.definitions import Catalog, HelperFailed, collect, read_cached
from codefyui_core.runner.devices import devices

NODE = """
from codefyui_core.plugin import Node, Port, DataType

class {name}(Node):
    type = "{name}"
    category = "Trial"
    outputs = (Port(name="value", type=DataType.SCALAR),)

    def execute(self, inputs, params, context):
        return {{"value": 1.0}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of custom nodes, watched by the catalog of that name."""
    monkeypatch.setenv("CODEFYUI_CUSTOM_NODES_DIR", str(tmp_path / "nodes"))
    monkeypatch.setenv("CODEFYUI_PLUGINS_ONLY", "")
    (tmp_path / "nodes").mkdir()
    return tmp_path / "nodes"


async def read(cache: Path | None = None) -> Catalog:
    """Only the core's own plugin: torch isn't what these tests are about."""
    return await collect(load(plane=None, only=("builtin",)), cache=cache, only=("builtin",))


async def test_definitions_devices_and_fingerprint_come_from_another_process(folder: Path) -> None:
    (folder / "mine.py").write_text(NODE.format(name="Mine") + "\nprint('noise on stdout')\n")
    catalog = await read()
    assert {"Start", "Print", "Map", "Mine"} <= set(catalog.definitions.nodes)
    assert catalog.providers["Start"] == "builtin"
    assert catalog.providers["Mine"] == "custom"
    assert catalog.devices[0].device == "cpu"
    assert catalog.fingerprint["python"]
    assert len(catalog.digest) == 64


async def test_the_cache_holds_until_a_file_changes(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "definitions.json"
    registry = load(plane=None, only=("builtin",))
    assert read_cached(registry, cache) is None
    written = await read(cache)
    assert read_cached(registry, cache) == written
    (folder / "new.py").write_text(NODE.format(name="New"))
    assert read_cached(registry, cache) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"format": 1}', "null"])
async def test_a_damaged_cache_counts_as_none(folder: Path, tmp_path: Path, damage: str) -> None:
    cache = tmp_path / "definitions.json"
    cache.write_text(damage)
    assert read_cached(load(plane=None, only=("builtin",)), cache) is None


async def test_the_cache_of_other_plugins_counts_as_none(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "definitions.json"
    await read(cache)
    stored = json.loads(cache.read_text())
    stored["for"]["plugins"] = ["another 1.0"]
    cache.write_text(json.dumps(stored))
    assert read_cached(load(plane=None, only=("builtin",)), cache) is None


async def test_a_file_that_ends_the_helper_costs_its_own_catalog(folder: Path) -> None:
    (folder / "deadly.py").write_text("import os\nos._exit(7)\n")
    catalog = await read()
    assert "Start" in catalog.definitions.nodes
    assert [
        problem
        for problem in catalog.problems
        if "deadly" in problem.source + problem.message or "custom" in problem.source
    ]


async def test_a_file_that_does_not_import_is_listed_and_the_rest_loads(folder: Path) -> None:
    (folder / "broken.py").write_text("raise RuntimeError('no')\n")
    (folder / "whole.py").write_text(NODE.format(name="Whole"))
    catalog = await read()
    assert "Whole" in catalog.definitions.nodes
    assert [problem.source for problem in catalog.problems] == [str(folder / "broken.py")]


async def test_a_helper_that_hangs_is_ended_and_said(folder: Path) -> None:
    (folder / "hangs.py").write_text("import time\ntime.sleep(600)\n")
    with pytest.raises(HelperFailed, match="didn't end within"):
        await collect(load(plane=None, only=("builtin",)), cache=None, only=("builtin",), timeout_s=0.2)


async def test_node_modules_never_enter_this_process(folder: Path) -> None:
    marker = folder / "marker"
    (folder / "marks.py").write_text(
        f"import os, pathlib\npathlib.Path({str(marker)!r}).write_text(str(os.getpid()))\n"
    )
    await read()
    assert int(marker.read_text()) != os.getpid()


def test_this_machine_offers_its_processor() -> None:
    first = devices()[0]
    assert first.device == "cpu"
    assert first.memory_total_bytes is not None
    assert first.memory_total_bytes > 1 << 28
