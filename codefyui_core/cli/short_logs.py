"""Warnings of a library as single lines on standard error, while a command uses it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _FirstLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return record.getMessage().partition("\n")[0]


@contextmanager
def short_logs(name: str, *, full: bool = False) -> Iterator[None]:
    """Tracebacks of the logger ``name`` are left out unless ``full``."""
    logger, handler = logging.getLogger(name), logging.StreamHandler()
    if not full:
        handler.setFormatter(_FirstLine())
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated
