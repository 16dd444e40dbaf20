"""What node catalogs bring beside classes; asked alike by the helper and by each run."""

import logging
from collections.abc import Collection, Iterator

from codefyui_core.loading import Registry
from codefyui_core.plugin.node import CatalogProblem, NodeCatalog, Preset

log = logging.getLogger(__name__)


def chosen(registry: Registry, names: Collection[str] | None = None) -> Iterator[NodeCatalog]:
    return (one for one in registry.catalogs if names is None or one.name in names)


def presets(registry: Registry, names: Collection[str] | None = None) -> Iterator[Preset | CatalogProblem]:
    """A catalog that fails to answer is a problem of its own."""
    for catalog in chosen(registry, names):
        try:
            yield from catalog.presets()
        except (Exception, SystemExit) as error:
            log.exception("the presets of catalog %s failed", catalog.name)
            yield CatalogProblem(
                source=catalog.name, message=f"its presets don't load: {type(error).__name__}: {error}"
            )


def data_types(registry: Registry, names: Collection[str] | None = None) -> tuple[str, ...]:
    return tuple(name for catalog in chosen(registry, names) for name in catalog.data_types)
