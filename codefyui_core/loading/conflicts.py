"""One owner for every name: two distributions that claim one stop the start."""

from collections.abc import Collection, Mapping
from enum import StrEnum

from ..errors import CodefyError

CORE = "codefyui-core"
"""The distribution that owns what the core itself brings."""


class NameKind(StrEnum):
    """The kinds of names that have one owner, as messages call them."""

    PLUGIN = "plugin"
    CONNECTOR = "connector"
    BACKEND = "storage backend"
    CATALOG = "node catalog"
    OPTION = "agent option"
    SETTING = "setting"
    WORKER_FIELD = "worker field"
    ROUTE = "route"
    COMMAND = "command"
    NODE_TYPE = "node type"


Reserved = Mapping[NameKind, Collection[str]]
"""Names that the core holds itself, by kind."""


class PluginConflict(CodefyError):
    """Two plugins claim one name; nothing starts until one of them is blocked or gone."""

    default_code = "plugin.conflict"

    def __init__(self, kind: NameKind, name: str, first: str, second: str) -> None:
        both = f"twice by {first}" if first == second else f"by {first} and by {second}"
        super().__init__(
            f"the {kind.value} {name} is claimed {both}; uninstall one of them, "
            f"or name it in CODEFYUI_PLUGINS_BLOCK"
        )
        self.kind = kind
        self.name = name
        self.owners = (first, second)


class Owners:
    """Who owns which name, while a Registry is being put together."""

    def __init__(self, reserved: Reserved | None = None) -> None:
        self._owners: dict[tuple[NameKind, str], str] = {}
        for kind, names in (reserved or {}).items():
            for name in names:
                self._owners[kind, name] = CORE

    def claim(self, kind: NameKind, name: str, owner: str) -> None:
        """Raises: PluginConflict when the name has an owner already."""
        first = self._owners.get((kind, name))
        if first is not None:
            raise PluginConflict(kind, name, first, owner)
        self._owners[kind, name] = owner

    def of(self, kind: NameKind, name: str) -> str | None:
        return self._owners.get((kind, name))
