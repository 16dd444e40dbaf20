"""The catalog lists every family, and its presets fit its nodes."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import codefyui_nodes_torch
from codefyui_core.plugin import CatalogProblem, Node
from codefyui_nodes_torch.families import FAMILIES, classes, module_names
from codefyui_nodes_torch.plugin import TorchCatalog, codefyui_node_catalogs


@pytest.fixture(scope="module")
def nodes():
    return {node.type: node for node in TorchCatalog().nodes() if not isinstance(node, CatalogProblem)}


def test_every_family_imports_and_brings_nodes():
    problems = [node for node in TorchCatalog().nodes() if isinstance(node, CatalogProblem)]
    assert problems == []
    assert [name for name in module_names() if not list(classes([name]))] == []


def test_no_module_with_nodes_is_left_out():
    found = {name for name in _modules() if list(classes([name]))}
    assert found - set(module_names()) == set()


def _modules():
    root = Path(codefyui_nodes_torch.__file__).parent
    for path in root.rglob("*.py"):
        if path.name != "__init__.py":
            yield ".".join((root.name, *path.relative_to(root).with_suffix("").parts))


def test_families_are_listed_once_in_alphabetical_order():
    assert list(FAMILIES) == sorted(set(FAMILIES))


def test_types_are_unique_and_bare():
    types = [node.type for node in TorchCatalog().nodes()]
    assert len(types) == len(set(types))
    assert all(node.define("").type == node.type for node in TorchCatalog().nodes())


def test_every_node_says_what_it_does(nodes):
    assert [name for name, node in nodes.items() if not node.description] == []


def test_params_and_ports_are_named_once(nodes):
    for node in nodes.values():
        for named in (node.params, node.inputs, node.outputs):
            names = [item.name for item in named]
            assert len(names) == len(set(names)), node.type


def test_defaults_are_within_their_options_and_bounds(nodes):
    for node in nodes.values():
        for param in node.params:
            if param.options:
                assert param.default in param.options
            if param.minimum is not None:
                assert param.default >= param.minimum
            if param.maximum is not None:
                assert param.default <= param.maximum


def test_a_module_that_does_not_import_costs_its_own_nodes_only(tmp_path, monkeypatch):
    (tmp_path / "broken_family.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    problem, *rest = classes(["broken_family", f"{Node.__module__}", "codefyui_nodes_torch.tensor.create"])
    assert problem == CatalogProblem(
        source="broken_family", message="ModuleNotFoundError: No module named 'no_such_library'"
    )
    assert [node.type for node in rest] == ["TensorCreate"]


def test_the_hook_gives_one_catalog_with_bare_names():
    (catalog,) = codefyui_node_catalogs()
    assert (catalog.name, catalog.namespace) == ("torch", "")


def test_the_entry_point_imports_no_heavy_library():
    code = (
        "import sys, codefyui_nodes_torch.plugin as p; list(p.codefyui_node_catalogs());"
        "print(*{'torch', 'numpy', 'sklearn', 'matplotlib', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_preloaded_modules_import_and_start_no_thread():
    code = (
        "import importlib, os, codefyui_nodes_torch.plugin as p;"
        "[importlib.import_module(name) for name in p.TorchCatalog.preload];"
        "import torch; print(len(os.listdir('/proc/self/task')), torch.cuda.is_initialized())"
    )
    alone = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=alone
    )
    assert (done.stdout.split(), done.stderr) == (["1", "False"], "")


@pytest.fixture(scope="module")
def presets():
    return {preset.document["preset_name"]: preset for preset in TorchCatalog().presets()}


def test_the_presets_are_there_with_their_sources(presets):
    assert sorted(presets) == ["Simple CNN Classifier", "Training Pipeline"]
    assert (
        presets["Simple CNN Classifier"].source == "codefyui_nodes_torch/presets/simple_cnn_classifier.json"
    )


@pytest.mark.parametrize("name", ["Simple CNN Classifier", "Training Pipeline"])
def test_a_preset_fits_its_nodes(name, presets, nodes):
    document = presets[name].document
    inner = {node["id"]: nodes[node["type"]] for node in document["nodes"]}
    for node in document["nodes"]:
        assert set(node["params"]) <= {param.name for param in inner[node["id"]].params}
    for edge in document["edges"]:
        source = _port(inner[edge["source"]].outputs, edge["sourceHandle"])
        assert source.type == _port(inner[edge["target"]].inputs, edge["targetHandle"]).type
    for side, ports in (("exposed_inputs", "inputs"), ("exposed_outputs", "outputs")):
        for port in document[side]:
            found = _port(getattr(inner[port["internal_node"]], ports), port["internal_port"])
            assert found.type == port["data_type"]
    for exposed in document["exposed_params"]:
        _check_param(exposed, inner, document)


def _port(ports, name):
    (found,) = [port for port in ports if port.name == name]
    return found


def _check_param(exposed, inner, document):
    (param,) = [p for p in inner[exposed["internal_node"]].params if p.name == exposed["param_name"]]
    (stored,) = [node for node in document["nodes"] if node["id"] == exposed["internal_node"]]
    given = exposed["param_def"]
    assert given["name"] == param.name
    assert given["param_type"] == param.kind
    assert tuple(given.get("options", ())) == param.options
    assert given["default"] == stored["params"][param.name]
    assert (given.get("min_value"), given.get("max_value")) == (param.minimum, param.maximum)
