"""Which errors of the database pass by themselves: it is busy, full, restarting or away. Wrong data never does."""

import logging

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft

PASSING_CLASSES = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATE: connection, rollback of a deadlock, resources, lock not available, operator, system.
(https://www.postgresql.org/docs/current/errcodes-appendix.html) Of a PostgreSQL that starts or stops, the
driver's adapter tells nothing but the code.
"""


def is_outage(error: BaseException) -> bool:
    """The same may work later."""
    if isinstance(error, OperationalError | InterfaceError | NoConnectionLeft | OSError | TimeoutError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return error.connection_invalidated or state.startswith(PASSING_CLASSES)


def log_failure(log: logging.Logger, error: BaseException, message: str, *values: object) -> None:
    """One line for an outage; for anything else, where in the code it came from, too."""
    if is_outage(error):
        log.warning("%s: %s", message % values, error)
    else:
        log.error(message, *values, exc_info=error)
