"""Reads the entry points, imports the plugins, asks their hooks, and puts the Registry together."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import TypeVar

from ..plugin import Connector, NodeCatalog, Plane, PluginInfo, PluginState
from ..plugin.storage import AnyBackend
from . import answers
from .conflicts import NameKind, Owners, Reserved
from .contribution import Contribution
from .explain import explain, is_explained
from .hooks import Hooks
from .installed import Installed, installed, is_switched_off, unknown_names
from .registry import Registry

log = logging.getLogger(__name__)

T = TypeVar("T")
D = TypeVar("D", Connector, AnyBackend, NodeCatalog)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """One plugin after it was read; ``brought`` is None for one that isn't used."""

    info: PluginInfo
    brought: Contribution | None = None


def load(
    *,
    plane: Plane | None,
    block: Collection[str] = (),
    only: Collection[str] = (),
    entry_points: Iterable[EntryPoint] | None = None,
    reserved: Reserved | None = None,
) -> Registry:
    """All installed plugins, one by one in name order. A broken one is listed as failed and the rest loads.

    ``plane`` None: neither plane, but the CLI or the helper; then all settings classes are kept. ``block`` and
    ``only`` name plugins by entry point or distribution. ``reserved`` names are the core's own.

    Raises: PluginConflict when two plugins claim one name.
    """
    plugins = installed(entry_points)
    for name in unknown_names(plugins, [*block, *only]):
        log.warning("CODEFYUI_PLUGINS_BLOCK or _ONLY names %s, and no such plugin is installed", name)
    owners = Owners(reserved)
    read = []
    for plugin in plugins:
        if is_switched_off(plugin, block=block, only=only):
            read.append(_Read(info=_info(plugin, PluginState.BLOCKED)))
            continue
        owners.claim(NameKind.PLUGIN, plugin.name, plugin.distribution)
        one = _read(plugin)
        if one.brought is not None:
            _claim(one.brought, owners)
        read.append(one)
    return Registry.of(
        infos=[one.info for one in read],
        contributions=[one.brought for one in read if one.brought is not None],
        plane=plane,
    )


def _read(plugin: Installed) -> _Read:
    """Raises nothing that a plugin could cause, but what the person at the keyboard does."""
    try:
        brought = _ask(plugin)
    except (Exception, SystemExit) as error:
        traceback = None if is_explained(error) else error
        log.error(
            "plugin %s of %s failed to load: %s", plugin.name, plugin.distribution, error, exc_info=traceback
        )
        return _Read(info=_info(plugin, PluginState.FAILED, error=explain(error)))
    return _Read(
        info=_info(plugin, PluginState.LOADED, brings=brought.brings, hooks=brought.hooks.names),
        brought=brought,
    )


def _ask(plugin: Installed) -> Contribution:
    hooks = Hooks(plugin.entry_point.load())

    def answer(hook: str, check: Callable[[object], tuple[T, ...]]) -> tuple[T, ...]:
        return check(hooks.ask(hook)) if hook in hooks.names else ()

    return Contribution(
        entry_point=plugin.name,
        distribution=plugin.distribution,
        hooks=hooks,
        connectors=_by_name(answer("codefyui_connectors", answers.connectors)),
        backends=_by_name(answer("codefyui_storage_backends", answers.backends)),
        catalogs=_by_name(answer("codefyui_node_catalogs", answers.catalogs)),
        settings=answer("codefyui_settings", answers.settings),
    )


def _by_name(found: tuple[D, ...]) -> Mapping[str, D]:
    named = {item.name: item for item in found}
    if len(named) != len(found):
        raise answers.WrongAnswer("two descriptors of one kind have the same name")
    return named


def _claim(brought: Contribution, owners: Owners) -> None:
    for kind, names in brought.claims():
        for name in names:
            owners.claim(kind, name, brought.distribution)


def _info(
    plugin: Installed,
    state: PluginState,
    *,
    brings: tuple[str, ...] = (),
    hooks: tuple[str, ...] = (),
    error: str = "",
) -> PluginInfo:
    return PluginInfo(
        entry_point=plugin.name,
        distribution=plugin.distribution,
        version=plugin.version,
        revision=plugin.revision,
        state=state,
        brings=brings,
        hooks=hooks,
        error=error,
    )
