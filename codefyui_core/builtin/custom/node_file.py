"""One file of somebody's own nodes: imports it and finds its node classes."""

import ast
import importlib.util
import inspect
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from codefyui_core.plugin import CatalogProblem, Node

log = logging.getLogger(__name__)

_PACKAGE = "codefyui_custom_nodes"
_PORTING = "docs/porting.md"


def node_files(folder: Path) -> tuple[Path, ...]:
    """The files to read, in name order. None when the folder isn't there."""
    if not folder.is_dir():
        return ()
    return tuple(sorted(path for path in folder.glob("*.py") if path.is_file() and path.name[0] not in "._"))


def nodes_in(path: Path) -> Iterator[type[Node] | CatalogProblem]:
    """Its node classes in the order of their names; a problem instead when there are none to be had."""
    try:
        foreign = _classes_of_the_other_contract(path)
        module = None if foreign else _import(path)
    except (Exception, SystemExit) as error:
        log.warning("custom node file %s doesn't load", path, exc_info=error)
        yield CatalogProblem(source=str(path), message=f"doesn't load: {type(error).__name__}: {error}")
        return
    if module is None:
        yield CatalogProblem(
            source=str(path),
            message=f"{', '.join(foreign)}: written for NODE_NAME and define_*; {_PORTING} says how to port it",
        )
        return
    found = tuple(_node_classes(module))
    if not found:
        yield CatalogProblem(source=str(path), message="has no class derived from codefyui_core.plugin.Node")
    yield from found


def _classes_of_the_other_contract(path: Path) -> tuple[str, ...]:
    """Looked for in the text, since such a file seldom imports here."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    return tuple(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and _is_foreign(node))


def _is_foreign(node: ast.ClassDef) -> bool:
    assigned = {
        target.id
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name)
    }
    methods = {statement.name for statement in node.body if isinstance(statement, ast.FunctionDef)}
    return "NODE_NAME" in assigned and any(name.startswith("define_") for name in methods)


def _import(path: Path) -> ModuleType:
    name = f"{_PACKAGE}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _node_classes(module: ModuleType) -> Iterator[type[Node]]:
    for _, value in inspect.getmembers(module, inspect.isclass):
        if not issubclass(value, Node) or value.__module__ != module.__name__ or inspect.isabstract(value):
            continue
        if isinstance(getattr(value, "type", None), str):
            yield value
