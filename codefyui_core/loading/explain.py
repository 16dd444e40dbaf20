"""An error of a plugin as one line for the list of plugins."""

from ..errors import CodefyError


def is_explained(error: BaseException) -> bool:
    """Written for people; a traceback would add nothing."""
    return isinstance(error, CodefyError)


def explain(error: BaseException) -> str:
    if isinstance(error, CodefyError):
        return error.message
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
