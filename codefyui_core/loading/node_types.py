"""Node classes of all catalogs in one namespace. Called where node modules may be imported: the helper that
writes definitions down, and the process of a run; so both know the same types.
"""

import logging
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..plugin import CatalogProblem, Node, NodeCatalog, NodeDefinition
from .conflicts import NameKind, Owners
from .explain import explain, is_explained
from .registry import Registry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedNode:
    """One node type with its class."""

    definition: NodeDefinition
    node: type[Node]
    catalog: str
    provider: str
    """The distribution that brought the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedNodes:
    """All node types by name, and what gave none."""

    nodes: Mapping[str, LoadedNode]
    problems: tuple[CatalogProblem, ...]


def check_node_types(claims: Iterable[tuple[str, str]]) -> None:
    """Pairs of distribution and node type, each pair once.

    Raises: PluginConflict for a type that two of them claim.
    """
    owners = Owners()
    for distribution, node_type in claims:
        owners.claim(NameKind.NODE_TYPE, node_type, distribution)


def load_nodes(registry: Registry, catalogs: Collection[str] | None = None) -> LoadedNodes:
    """Import the node classes of the named catalogs (None: all). What doesn't import, or isn't a whole node, is
    a problem of its catalog and the rest loads. A catalog that gives way comes last, and what another one has
    already is a problem, too.

    Raises: PluginConflict for a type that two catalogs have, neither of which gives way.
    """
    owners = Owners()
    found: dict[str, LoadedNode] = {}
    problems: list[CatalogProblem] = []
    for catalog in sorted(registry.catalogs, key=lambda one: one.gives_way):
        if catalogs is not None and catalog.name not in catalogs:
            continue
        for one in _classes(catalog, registry.provider_of(catalog.name)):
            if isinstance(one, CatalogProblem):
                problems.append(one)
            elif catalog.gives_way and one.definition.type in found:
                problems.append(_taken(one, found[one.definition.type]))
            else:
                owners.claim(NameKind.NODE_TYPE, one.definition.type, one.provider)
                found[one.definition.type] = one
    return LoadedNodes(nodes=found, problems=tuple(problems))


def _classes(catalog: NodeCatalog, provider: str) -> Iterator[LoadedNode | CatalogProblem]:
    namespace = catalog.name if catalog.namespace is None else catalog.namespace
    try:
        for answer in catalog.nodes():
            yield _loaded(answer, catalog.name, namespace, provider)
    except (Exception, SystemExit) as error:
        log.error(
            "catalog %s failed: %s", catalog.name, error, exc_info=None if is_explained(error) else error
        )
        yield CatalogProblem(source=catalog.name, message=explain(error))


def _loaded(answer: object, catalog: str, namespace: str, provider: str) -> LoadedNode | CatalogProblem:
    if isinstance(answer, CatalogProblem):
        return answer
    if not isinstance(answer, type) or not issubclass(answer, Node):
        return CatalogProblem(
            source=catalog, message=f"{answer!r} is neither a Node class nor a CatalogProblem"
        )
    try:
        definition = answer.define(namespace)
    except Exception as error:
        return CatalogProblem(source=f"{catalog}: {answer.__qualname__}", message=explain(error))
    return LoadedNode(definition=definition, node=answer, catalog=catalog, provider=provider)


def _taken(late: LoadedNode, first: LoadedNode) -> CatalogProblem:
    module = sys.modules.get(late.node.__module__)
    return CatalogProblem(
        source=getattr(module, "__file__", None) or late.node.__module__,
        message=f"the node type {late.definition.type} is taken by {first.provider} ({first.catalog}); rename it",
    )
