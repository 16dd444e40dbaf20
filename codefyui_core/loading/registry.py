"""The Registry: what is installed and what it brings, as a value that an app, an agent or a command holds."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..plugin import Connector, Fact, NodeCatalog, Plane, PluginInfo, PluginSettings, PluginState
from ..plugin.commands import Commands
from ..plugin.storage import AnyBackend
from . import answers
from .commands import CommandWatch
from .conflicts import NameKind, Reserved
from .contribution import Contribution
from .explain import explain, is_explained
from .options import AgentOption, agent_options

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Everything that the plugins brought. Fixed once loaded, but for the state of single plugins, which
    ``mark`` changes as their halves start or fail.
    """

    connectors: Mapping[str, Connector]
    backends: Mapping[str, AnyBackend]
    catalogs: tuple[NodeCatalog, ...]
    settings: tuple[type[PluginSettings], ...]
    """Those that the plane reads; all of them without a plane."""
    contributions: tuple[Contribution, ...]
    _infos: dict[str, PluginInfo]

    @classmethod
    def of(
        cls, *, infos: Sequence[PluginInfo], contributions: Sequence[Contribution], plane: Plane | None
    ) -> "Registry":
        """Put together what was read and found free of conflicts."""
        return cls(
            connectors={name: one for brought in contributions for name, one in brought.connectors.items()},
            backends={name: one for brought in contributions for name, one in brought.backends.items()},
            catalogs=tuple(one for brought in contributions for one in brought.catalogs.values()),
            settings=tuple(
                one
                for brought in contributions
                for one in brought.settings
                if plane is None or plane in one.planes
            ),
            contributions=tuple(contributions),
            _infos={_key(info): info for info in infos},
        )

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """All that are installed, the blocked and the failed too, in name order."""
        return tuple(self._infos.values())

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules for a process that is forked for each run: the plugins' own, which every run asks, and those that
        catalogs name.
        """
        plugins = [module for brought in self.contributions for module in brought.hooks.modules]
        return (*plugins, *(module for catalog in self.catalogs for module in catalog.preload))

    @property
    def failed(self) -> tuple[PluginInfo, ...]:
        return tuple(info for info in self.plugins if info.state is PluginState.FAILED)

    def mark(self, entry_point: str, state: PluginState, error: str = "") -> PluginInfo:
        """A half is starting, has started, is off or has failed; the answer is what the lists show now.

        Raises: KeyError for a plugin that wasn't loaded.
        """
        self._infos[entry_point] = replace(self._infos[entry_point], state=state, error=error)
        return self._infos[entry_point]

    def charge(self, entry_point: str, error: BaseException) -> PluginInfo:
        """A plugin failed: log it, with the traceback unless it explains itself, and list it as failed."""
        log.error("plugin %s failed: %s", entry_point, error, exc_info=None if is_explained(error) else error)
        return self.mark(entry_point, PluginState.FAILED, explain(error))

    def owner(self, kind: NameKind, name: str) -> Contribution:
        """Who brought the connector, storage backend or node catalog of that name.

        Raises: KeyError when nobody did.
        """
        for brought in self.contributions:
            if any(claimed is kind and name in names for claimed, names in brought.claims()):
                return brought
        raise KeyError(f"{kind.value} {name}")

    def provider_of(self, catalog: str) -> str:
        """The distribution that brought a node catalog."""
        return self.owner(NameKind.CATALOG, catalog).distribution

    def web_root(self) -> Path | None:
        """The editor's built files, from the first plugin in name order that has them."""
        for brought, answer in self._ask("codefyui_web_root"):
            try:
                root = answers.web_root(answer)
            except answers.WrongAnswer as error:
                self.charge(brought.entry_point, error)
                continue
            if root is not None:
                return root
        return None

    def observe(self, fact: Fact) -> None:
        """Tell every observer, one by one. A failing one is logged and told again the next time."""
        for brought in self._with("codefyui_observe"):
            try:
                brought.hooks.ask("codefyui_observe", fact=fact)
            except Exception:
                log.exception("plugin %s failed to observe %s", brought.entry_point, type(fact).__name__)

    def add_commands(self, cli: Commands) -> None:
        """Let every plugin add its commands.

        Raises: PluginConflict for a command whose name is taken, naming both distributions.
        """
        watch = CommandWatch(cli.group())
        for brought, _ in self._ask("codefyui_commands", cli=cli):
            watch.look(brought.distribution)

    def agent_options(self, reserved: Reserved | None = None) -> tuple[AgentOption, ...]:
        """The options that connectors and backends add to ``cdui agent start``. Those of a plugin that fails
        to answer are left out, and it is listed as failed.

        Raises: PluginConflict for an option with two owners.
        """
        return agent_options(self.contributions, charge=self.charge, reserved=reserved)

    def _with(self, hook: str) -> Iterator[Contribution]:
        return (brought for brought in self.contributions if hook in brought.hooks.names)

    def _ask(self, hook: str, **arguments: Any) -> Iterator[tuple[Contribution, Any]]:
        for brought in self._with(hook):
            try:
                answer = brought.hooks.ask(hook, **arguments)
            except (Exception, SystemExit) as error:
                self.charge(brought.entry_point, error)
            else:
                yield brought, answer


def _key(info: PluginInfo) -> str:
    """Loaded plugins have names of their own; a blocked one may share its name with another."""
    return (
        f"{info.entry_point} ({info.distribution})" if info.state is PluginState.BLOCKED else info.entry_point
    )
