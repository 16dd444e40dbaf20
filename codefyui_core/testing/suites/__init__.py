"""What every connector, storage backend and node catalog must hold to. Subclass a suite in a test file, override
the fixtures that it documents, and run pytest with ``asyncio_mode = "auto"``.
"""

from .catalog import CatalogSuite
from .connector import ConnectorSuite
from .link import LinkSuite
from .storage import StorageSuite

__all__ = ["CatalogSuite", "ConnectorSuite", "LinkSuite", "StorageSuite"]
