"""Which node types a worker has, beside those of this server."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from codefyui_core.plugin.values import JsonObject


class OwnDefinitions(Protocol):
    """``graph.Definitions``, as far as it is looked at here."""

    @property
    def nodes(self) -> Mapping[str, object]: ...
    @property
    def hash(self) -> str: ...


class OwnCatalog(Protocol):
    """``runner.definitions.Catalog``, as far as it is looked at here."""

    @property
    def definitions(self) -> OwnDefinitions: ...


Own = Callable[[], OwnCatalog | None]
"""This server's catalog; None while it is still being collected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A worker's catalog against ours."""

    hash: str
    missing: tuple[str, ...]
    """Types that the worker lacks."""
    extra: tuple[str, ...]
    """Types that only the worker has."""
    equal: bool

    def row(self) -> JsonObject:
        return {"hash": self.hash, "missing": list(self.missing), "extra": list(self.extra)}


def compare(own: OwnCatalog | None, catalog_hash: str, types: frozenset[str]) -> Comparison:
    """Equal hashes mean equal definitions; else the types tell who lacks what."""
    if own is None or own.definitions.hash == catalog_hash:
        return Comparison(hash=catalog_hash, missing=(), extra=(), equal=True)
    ours = frozenset(own.definitions.nodes)
    return Comparison(
        hash=catalog_hash, missing=tuple(sorted(ours - types)), extra=tuple(sorted(types - ours)), equal=False
    )
