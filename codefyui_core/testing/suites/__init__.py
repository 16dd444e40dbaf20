"""What every connector, storage backend and node catalog must hold to. Subclass a suite in a test file, override
the fixtures that it documents, and run pytest with ``asyncio_mode = "auto"``.

A suite is imported when it is asked for: a node pack is tested with the bare core, where aiohttp isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .catalog import CatalogSuite
    from .connector import ConnectorSuite
    from .link import LinkSuite
    from .storage import StorageSuite

__all__ = ["CatalogSuite", "ConnectorSuite", "LinkSuite", "StorageSuite"]

_MODULES = {
    "CatalogSuite": "catalog",
    "ConnectorSuite": "connector",
    "LinkSuite": "link",
    "StorageSuite": "storage",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
