"""What one plugin brings, after its answers were checked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..plugin import Connector, NodeCatalog, PluginSettings
from ..plugin.storage import AnyBackend
from .answers import variables
from .conflicts import NameKind
from .hooks import Hooks


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """One plugin's descriptors by name, and its hooks for what is asked later."""

    entry_point: str
    distribution: str
    hooks: Hooks
    connectors: Mapping[str, Connector] = field(default_factory=dict)
    backends: Mapping[str, AnyBackend] = field(default_factory=dict)
    catalogs: Mapping[str, NodeCatalog] = field(default_factory=dict)
    settings: tuple[type[PluginSettings], ...] = ()

    @property
    def brings(self) -> tuple[str, ...]:
        """As the list of plugins words it."""
        return (
            *(f"connector {name}" for name in self.connectors),
            *(f"storage {name}" for name in self.backends),
            *(f"catalog {name}" for name in self.catalogs),
        )

    def claims(self) -> Iterator[tuple[NameKind, tuple[str, ...]]]:
        """The names that are to be this plugin's alone. Options, routes and commands are claimed by those
        who ask for them.
        """
        yield NameKind.CONNECTOR, tuple(self.connectors)
        yield NameKind.BACKEND, tuple(self.backends)
        yield NameKind.CATALOG, tuple(self.catalogs)
        yield NameKind.SETTING, tuple(name for cls in self.settings for name in variables(cls))
        yield (
            NameKind.WORKER_FIELD,
            tuple(name for one in self.backends.values() for name in one.worker_fields),
        )
