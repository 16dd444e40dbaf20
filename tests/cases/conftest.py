"""Faults that users of such systems met elsewhere, tried here: with what the rooms' own tests are made of."""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).parents[1]


def _module(file: str, name: str) -> ModuleType:
    """Test folders aren't packages: what several of them share is loaded by its file."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, TESTS / file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


_agents = _module("agent/conftest.py", "cases_agent_fixtures")
_databases = _module("control/conftest.py", "cases_database_fixtures")
_runs = _module("control/runs/conftest.py", "cases_run_fixtures")
_api = _module("control/api/conftest.py", "cases_api_fixtures")
_sites = _module("e2e/site.py", "e2e_site")

line, quick = _agents.line, _agents.quick
database_url = _databases.database_url
room, kit = _runs.room, _runs.kit
app, make_app_of, empty_database = _api.app, _api.make_app_of, _api.empty_database


@pytest.fixture
def site(tmp_path, request):
    """Nothing is started yet; its node files are those of this folder, too."""
    made = _sites.Site(root=tmp_path)
    shutil.copytree(Path(__file__).with_name("custom_nodes"), made.data / "custom_nodes")
    failed_before = request.session.testsfailed
    yield made
    try:
        made.aclose()
    finally:
        if request.session.testsfailed > failed_before:
            print(made.story())


@pytest.fixture(name="until")
def _until():
    return _api.until


@pytest.fixture
def graph_of():
    """Of about so many bytes."""
    return lambda size: _api.graph(note="x" * size)


@pytest.fixture
def poison_graph():
    return _sites.graph("CasesPoison")
