"""Plugins that work in the simplest way, or fail in one known way, for tests of the planes."""

from .catalogs import CrashingCatalog, EndingCatalog, HalfCatalog, NoOp
from .connectors import CrashingConnector, FailingConnector, NeverAnswersConnector
from .faulty_backends import (
    BusyBackend,
    CorruptBackend,
    CrashingBackend,
    ExpiringBackend,
    RefusingBackend,
    SlowBackend,
)
from .folder_backend import FolderBackend, Step

__all__ = [
    "BusyBackend",
    "CorruptBackend",
    "CrashingBackend",
    "CrashingCatalog",
    "CrashingConnector",
    "EndingCatalog",
    "ExpiringBackend",
    "FailingConnector",
    "FolderBackend",
    "HalfCatalog",
    "NeverAnswersConnector",
    "NoOp",
    "RefusingBackend",
    "SlowBackend",
    "Step",
]
