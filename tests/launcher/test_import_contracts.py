"""The import contracts cover every plugin, and what they can't say about halves is said here."""

import tomllib
from pathlib import Path

import grimp
import pytest

REPOSITORY = Path(__file__).parents[2]
CONFIG = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]


def plugin_packages() -> list[str]:
    patterns = ("plugins/*/codefyui_*/__init__.py", "web/codefyui_*/__init__.py")
    return sorted(path.parent.name for pattern in patterns for path in REPOSITORY.glob(pattern))


def contract(name: str) -> dict[str, list[str]]:
    return next(one for one in CONFIG["contracts"] if one["name"].startswith(name))


def test_every_plugin_is_held_to_the_contracts() -> None:
    packages = plugin_packages()
    assert sorted(CONFIG["root_packages"]) == sorted(["codefyui_core", *packages])
    assert sorted(contract("Plugins know the plugin API")["source_modules"]) == packages
    assert sorted(contract("Plugins don't know each other")["modules"]) == packages
    assert set(packages) <= set(contract("The core names no plugin")["forbidden_modules"])


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(
        *plugin_packages(), include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def within(graph: grimp.ImportGraph, module: str) -> set[str]:
    return {name for name in graph.modules if name == module or name.startswith(f"{module}.")}


@pytest.mark.parametrize("package", plugin_packages())
def test_the_halves_of_a_plugin_do_not_know_each_other(graph: grimp.ImportGraph, package: str) -> None:
    control, agent = (within(graph, f"{package}.{half}") for half in ("control", "agent"))
    crossing = [
        (one, other)
        for one in control | agent
        for other in graph.find_modules_directly_imported_by(one)
        if (one in control and other in agent) or (one in agent and other in control)
    ]
    assert crossing == []


@pytest.mark.parametrize("package", plugin_packages())
def test_the_models_of_a_plugin_need_no_server_and_no_command_line(
    graph: grimp.ImportGraph, package: str
) -> None:
    used = {
        name
        for module in within(graph, f"{package}.models")
        for name in graph.find_modules_directly_imported_by(module)
    }
    assert used.isdisjoint({"aiohttp", "click"})


VENDORS = {"torch": "codefyui_nodes_torch", "boto3": "codefyui_storage_s3"}


@pytest.mark.parametrize(("vendor", "owner"), sorted(VENDORS.items()))
def test_a_vendors_library_has_one_user(graph: grimp.ImportGraph, vendor: str, owner: str) -> None:
    if vendor not in graph.modules:
        return
    users = {name.partition(".")[0] for name in graph.find_modules_that_directly_import(vendor)}
    assert users <= {owner}
