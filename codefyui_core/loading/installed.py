"""What the installer recorded of a plugin: its distribution, version and commit."""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, entry_points

from ..plugin.markers import PROJECT
from .conflicts import CORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """One entry point and where it came from."""

    entry_point: EntryPoint
    distribution: str
    version: str = ""
    revision: str = ""

    @property
    def name(self) -> str:
        return self.entry_point.name


def installed(found: Iterable[EntryPoint] | None = None) -> tuple[Installed, ...]:
    """The plugins that are installed, in name order; of equal names by distribution."""
    points = entry_points(group=PROJECT) if found is None else found
    return tuple(
        sorted((_described(point) for point in points), key=lambda one: (one.name, one.distribution))
    )


def is_switched_off(plugin: Installed, *, block: Collection[str], only: Collection[str]) -> bool:
    """A plugin is named by its entry point or its distribution. ``only`` never leaves out the core's own,
    without which no graph runs; ``block`` does, if somebody asks for it.
    """
    if _is_named(plugin, block):
        return True
    return bool(only) and plugin.distribution != CORE and not _is_named(plugin, only)


def unknown_names(plugins: Sequence[Installed], names: Collection[str]) -> tuple[str, ...]:
    """Names of switches that fit no installed plugin, which is most often a slip of the pen."""
    return tuple(name for name in names if not any(_is_named(plugin, (name,)) for plugin in plugins))


def _is_named(plugin: Installed, names: Collection[str]) -> bool:
    wanted = {_canonical(name) for name in names}
    return not wanted.isdisjoint({_canonical(plugin.name), _canonical(plugin.distribution)})


def _canonical(name: str) -> str:
    """PEP 503: case and the kind of separator don't tell distributions apart."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _described(point: EntryPoint) -> Installed:
    dist = point.dist
    if dist is None:
        return Installed(entry_point=point, distribution=point.module.partition(".")[0])
    return Installed(
        entry_point=point, distribution=dist.name, version=dist.version, revision=_revision(dist)
    )


def _revision(dist: Distribution) -> str:
    """The commit in ``direct_url.json`` (PEP 610), which installers write for sources under version control."""
    try:
        recorded = json.loads(dist.read_text("direct_url.json") or "{}")
        commit = recorded.get("vcs_info", {}).get("commit_id", "")
    except (ValueError, AttributeError):
        return ""
    return commit if isinstance(commit, str) else ""
