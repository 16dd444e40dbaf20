"""What the helper process finds out, what becomes of one that dies, and what is kept in a file."""

import asyncio
import json
import logging
import sys

import pytest

from codefyui_core.errors import CodefyError
from codefyui_core.loading import load
from codefyui_core.runner import definitions
from codefyui_core.runner.definitions import HelperFailed, collect, merge, read_cached
from codefyui_core.runner.fingerprint import digest

OWN = """
from codefyui_core.plugin import Node, Port

class {name}(Node):
    type, category = "{name}", "Own"
    outputs = (Port(name="{port}", type="ANY"),)

    def execute(self, inputs, params, context):
        return {{}}
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setenv("CODEFYUI_CUSTOM_NODES_DIR", str(folder))
    (folder / "one.py").write_text(OWN.format(name="One", port="out"))
    return folder


@pytest.fixture
def registry(own):
    return load(plane=None, block=("codefyui-nodes-torch",))


@pytest.fixture
def gather(registry, tmp_path):
    async def run(**options):
        return await collect(
            registry, cache=tmp_path / "user/definitions.json", block=("codefyui-nodes-torch",), **options
        )

    return run


@pytest.mark.spec("catalog/helper-process-at-start", "catalog/loaded-the-way-a-run-loads")
async def test_the_helper_tells_types_providers_problems_devices_and_the_environment(gather, own):
    (own / "broken.py").write_text("import nothing_of_this_name\n")
    (own / "taken.py").write_text(OWN.format(name="Print", port="out"))
    before = set(sys.modules)
    catalog = await gather()
    assert not [name for name in set(sys.modules) - before if name.startswith("codefyui_custom_nodes")]
    assert {"Start", "Map", "One"} <= catalog.definitions.nodes.keys()
    assert (catalog.providers["Map"], catalog.providers["One"]) == ("builtin", "custom")
    problems = {problem.source.rpartition("/")[2]: problem.message for problem in catalog.problems}
    assert "nothing_of_this_name" in problems["broken.py"]
    assert any("taken" in message for message in problems.values())
    assert catalog.devices[0].device == "cpu"
    assert catalog.devices[0].memory_total_bytes > 1 << 28
    assert catalog.watch == (own,)
    assert catalog.digest == digest(catalog.fingerprint)


@pytest.mark.spec("fingerprint/collected-by-helper")
async def test_the_fingerprint_covers_the_six_items(gather, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    found = (await gather()).fingerprint
    assert found["codefyui"].keys() == {"version", "commit"}
    assert sys.version.split()[0] in found["python"]
    assert {"torch", "accelerators"} <= found.keys()
    assert found["plugins"]["codefyui-core"].keys() == {"version", "revision"}
    assert found["environment"]["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


async def test_a_changed_own_file_changes_the_fingerprint_and_the_hash(gather, own):
    first = await gather()
    (own / "one.py").write_text(OWN.format(name="One", port="other"))
    second = await gather()
    assert first.digest != second.digest
    assert first.definitions.hash != second.definitions.hash


async def test_what_was_collected_is_read_back_until_a_file_changes(gather, registry, own, tmp_path):
    cache = tmp_path / "user/definitions.json"
    assert read_cached(registry, cache) is None
    catalog = await gather()
    assert read_cached(registry, cache) == catalog
    (own / "two.py").write_text(OWN.format(name="Two", port="out"))
    assert read_cached(registry, cache) is None
    await gather()
    assert "Two" in read_cached(registry, cache).definitions.nodes


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[1]", b'{"format": 1}', b'{"format": 99, "stamp": "x"}', b"\xff"]
)
def test_a_damaged_file_is_as_none(registry, tmp_path, content):
    path = tmp_path / "definitions.json"
    path.write_bytes(content)
    assert read_cached(registry, path) is None


@pytest.mark.spec("catalog/helper-failure-logged")
async def test_a_file_that_ends_the_helper_costs_its_own_catalog_only(gather, own, caplog):
    (own / "deadly.py").write_text("import os\nos.abort()\n")
    catalog = await gather()
    assert "Map" in catalog.definitions.nodes
    assert "One" not in catalog.definitions.nodes
    (problem,) = catalog.problems
    assert problem.source == "custom"
    assert "signal 6" in problem.message
    assert "signal 6" in caplog.text


async def test_a_helper_that_hangs_is_ended_with_what_it_started(gather, own, tmp_path, alive, monkeypatch):
    pid_file = tmp_path / "pid"
    (own / "hangs.py").write_text(
        f"import subprocess, sys, time\np = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pid_file)!r}, 'w').write(str(p.pid))\ntime.sleep(600)\n"
    )
    monkeypatch.setattr(definitions, "_one_by_one", _nothing)
    for timeout_s in (3, 20):
        with pytest.raises(HelperFailed, match=f"longer than {timeout_s} s"):
            await gather(timeout_s=timeout_s)
        if pid_file.exists():
            break  # else the machine was too busy for it to come that far
    async with asyncio.timeout(10):
        while alive(int(pid_file.read_text())):
            await asyncio.sleep(0.01)


async def _nothing(registry, helper, error):
    raise error


def _document(catalog, *types):
    node = {"category": "c", "description": "", "inputs": [], "outputs": [], "params": [], "files": []}
    return {
        "definitions": {
            "nodes": [{"type": name, **node} for name in types],
            "presets": [],
            "data_types": [catalog],
        },
        "providers": dict.fromkeys(types, catalog),
        "problems": [],
        "devices": [],
        "fingerprint": {},
        "digest": "",
        "examples": [],
        "watch": [],
    }


def test_catalogs_that_were_asked_alone_are_put_together():
    merged = merge([_document("plugin:a", "X"), _document("plugin:b", "Y"), _document("custom", "Y", "Z")])
    assert [node["type"] for node in merged["definitions"]["nodes"]] == ["X", "Y", "Z"]
    assert merged["providers"] == {"X": "plugin:a", "Y": "plugin:b", "Z": "custom"}
    assert "Y is taken by plugin:b" in merged["problems"][0]["message"]
    assert merged["definitions"]["data_types"] == ["custom", "plugin:a", "plugin:b"]


def test_two_distributions_with_one_type_are_a_conflict_that_names_both():
    with pytest.raises(CodefyError) as caught:
        merge([_document("plugin:a", "X"), _document("plugin:b", "X")])
    assert caught.value.code == "plugin.conflict"
    assert "a" in caught.value.message
    assert "b" in caught.value.message


async def test_a_conflict_in_the_helper_is_told_as_one_and_not_tried_again(registry, tmp_path):
    """The helper's own way out, in a process that runs into one as it would."""
    python = tmp_path / "python"
    code = (
        "from codefyui_core.loading import NameKind, PluginConflict; "
        "raise PluginConflict(NameKind.NODE_TYPE, 'X', 'pack-a', 'pack-b')"
    )
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
    python.chmod(0o755)
    with pytest.raises(CodefyError) as caught:
        await collect(registry, cache=None, python=str(python))
    assert caught.value.code == "plugin.conflict"
    assert "pack-a" in caught.value.message
    assert "pack-b" in caught.value.message


async def test_a_file_that_cannot_be_written_is_logged_and_costs_nothing_else(registry, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING):
        catalog = await collect(
            registry, cache=tmp_path / "file/definitions.json", block=("codefyui-nodes-torch",)
        )
    assert "Map" in catalog.definitions.nodes
    assert "definitions.json" in caplog.text


def test_a_catalog_survives_json(registry, tmp_path):
    from codefyui_core.runner.helper import describe

    catalog = definitions.Catalog.from_json(json.loads(json.dumps(describe(registry))))
    assert definitions.Catalog.from_json(json.loads(json.dumps(catalog.to_json()))) == catalog
