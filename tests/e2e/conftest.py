"""Sites for tests of whole systems."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


def _module(name: str) -> ModuleType:
    """Test folders aren't packages: the shared module is loaded by its file."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("site.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


site_module = _module("e2e_site")


@pytest.fixture(scope="module")
def plugins(request: pytest.FixtureRequest) -> dict[str, str]:
    """Settings of the sites: a module whose graphs need them says ``TORCH_NODES = True``."""
    return {} if getattr(request.module, "TORCH_NODES", False) else dict(site_module.WITHOUT_TORCH)


@pytest.fixture
def site(
    tmp_path: Path, plugins: dict[str, str], request: pytest.FixtureRequest
) -> Iterator["site_module.Site"]:
    """Nothing is started yet."""
    made = site_module.Site(root=tmp_path, settings=dict(plugins))
    failed_before = request.session.testsfailed
    yield made
    try:
        made.aclose()
    finally:
        if request.session.testsfailed > failed_before:
            print(made.story())


@pytest.fixture(scope="module")
def shared_site(
    tmp_path_factory: pytest.TempPathFactory, plugins: dict[str, str]
) -> Iterator["site_module.Site"]:
    """A server with one worker named box, for the tests of one module that leave it as it was."""
    made = site_module.Site(root=tmp_path_factory.mktemp("site"), settings=dict(plugins))
    try:
        made.start_server()
        made.start_agent("box")
        yield made
    finally:
        made.aclose()
