"""The control plane's end of the line: enrollment, admission, sessions, and the rows of workers."""

from .service import WorkerService
from .workers import WorkerRow

__all__ = ["WorkerRow", "WorkerService"]
