"""The suite for node catalogs."""

import inspect
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from codefyui_core.loading import answers
from codefyui_core.plugin import (
    CatalogProblem,
    DataType,
    Node,
    NodeCatalog,
    NodeDefinition,
    Param,
    ParamKind,
    Port,
)

_NUMERIC = {ParamKind.INT, ParamKind.FLOAT}


class CatalogSuite:
    """Override ``catalog``."""

    heavy: tuple[str, ...] = ("torch", "aiohttp", "sqlalchemy", "click")
    """Modules that making the descriptor must not import, since both planes do it."""

    @pytest.fixture
    def catalog(self) -> NodeCatalog:
        """The descriptor under test."""
        raise NotImplementedError("override the fixture `catalog`")

    @pytest.fixture
    def nodes(self, catalog: NodeCatalog) -> tuple[type[Node], ...]:
        found = tuple(catalog.nodes())
        problems = [f"{one.source}: {one.message}" for one in found if isinstance(one, CatalogProblem)]
        assert not problems, "\n".join(problems)
        return tuple(one for one in found if not isinstance(one, CatalogProblem))

    @pytest.fixture
    def definitions(self, catalog: NodeCatalog, nodes: tuple[type[Node], ...]) -> tuple[NodeDefinition, ...]:
        namespace = catalog.name if catalog.namespace is None else catalog.namespace
        return tuple(node.define(namespace) for node in nodes)

    def test_the_descriptor_is_one_that_the_loader_takes(self, catalog: NodeCatalog) -> None:
        assert answers.catalogs([catalog]) == (catalog,)

    def test_making_the_descriptor_imports_nothing_heavy(self, catalog: NodeCatalog) -> None:
        module = type(catalog).__module__
        code = f"import sys, importlib; importlib.import_module({module!r}); print(' '.join(sys.modules))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            timeout=120,
        )
        assert not set(self.heavy) & set(done.stdout.split())

    def test_types_are_unique(self, definitions: tuple[NodeDefinition, ...]) -> None:
        types = [one.type for one in definitions]
        assert len(set(types)) == len(types)

    def test_the_definitions_are_the_same_when_asked_again(
        self, catalog: NodeCatalog, definitions: tuple[NodeDefinition, ...]
    ) -> None:
        namespace = catalog.name if catalog.namespace is None else catalog.namespace
        again = [one.define(namespace) for one in catalog.nodes() if not isinstance(one, CatalogProblem)]
        assert again == list(definitions)

    def test_definitions_survive_being_sent(self, definitions: tuple[NodeDefinition, ...]) -> None:
        for one in definitions:
            assert NodeDefinition.model_validate_json(one.model_dump_json()) == one

    def test_every_node_says_what_it_does(self, definitions: tuple[NodeDefinition, ...]) -> None:
        silent = [one.type for one in definitions if not one.description.strip() or not one.category.strip()]
        assert not silent

    def test_port_and_param_names_are_unique(self, definitions: tuple[NodeDefinition, ...]) -> None:
        for one in definitions:
            for items in (one.inputs, one.outputs, one.params):
                names = [item.name for item in items]
                assert len(set(names)) == len(names), one.type

    def test_port_types_are_known(
        self, catalog: NodeCatalog, definitions: tuple[NodeDefinition, ...]
    ) -> None:
        known = {one.value for one in DataType} | set(catalog.data_types)
        for one, port in _ports(definitions):
            assert str(port.type) in known, f"{one.type}.{port.name}: declare {port.type} in data_types"

    def test_repeated_ports_follow_an_int_param(self, definitions: tuple[NodeDefinition, ...]) -> None:
        for one, port in _ports(definitions):
            where = f"{one.type}.{port.name}"
            assert (port.repeat is not None) == ("{n}" in port.name), where
            if port.repeat is not None:
                kinds = {param.name: param.kind for param in one.params}
                assert kinds.get(port.repeat.param) is ParamKind.INT, where
                assert 0 <= port.repeat.minimum <= port.repeat.maximum, where

    def test_defaults_are_values_that_the_param_allows(self, definitions: tuple[NodeDefinition, ...]) -> None:
        for one in definitions:
            for param in one.params:
                assert _allows(param), f"{one.type}.{param.name}: default {param.default!r}"

    def test_conditions_name_params_that_are_there(self, definitions: tuple[NodeDefinition, ...]) -> None:
        for one in definitions:
            names = {param.name for param in one.params}
            for param in one.params:
                assert set(param.visible_when) <= names, f"{one.type}.{param.name}"
            assert {rule.when for rule in one.files if rule.when} <= names, one.type

    def test_execute_takes_inputs_params_and_context(self, nodes: tuple[type[Node], ...]) -> None:
        for node in nodes:
            assert not inspect.isabstract(node), node.type
            inspect.signature(node.execute).bind(node, {}, {}, None)

    def test_presets_have_a_name_and_nodes(self, catalog: NodeCatalog) -> None:
        for preset in catalog.presets():
            document = json.loads(json.dumps(preset.document, allow_nan=False))
            assert document.get("preset_name") or document.get("name"), preset.source
            assert document.get("nodes"), preset.source

    def test_examples_are_graphs(self, catalog: NodeCatalog) -> None:
        folder = catalog.examples()
        if folder is None:
            return
        graphs = sorted(Path(folder).rglob("*.json"))
        assert graphs, f"{folder} holds no graph"
        for graph in graphs:
            assert json.loads(graph.read_bytes()).get("nodes"), graph


def _ports(definitions: tuple[NodeDefinition, ...]) -> Iterator[tuple[NodeDefinition, Port]]:
    for one in definitions:
        for port in (*one.inputs, *one.outputs):
            yield one, port


def _allows(param: Param) -> bool:
    """None means that the param has no default."""
    value = param.default
    if value is None:
        return True
    if param.kind in _NUMERIC:
        return _is_number(param, value)
    if param.kind is ParamKind.BOOL:
        return isinstance(value, bool)
    if param.kind is ParamKind.SELECT:
        return value in param.options
    return True


def _is_number(param: Param, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    if param.kind is ParamKind.INT and value != int(value):
        return False
    return (param.minimum is None or value >= param.minimum) and (
        param.maximum is None or value <= param.maximum
    )
