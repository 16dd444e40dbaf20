"""What a file holds, in a few letters, so that cached results end when it changes."""

from pathlib import Path

from codefyui_core.plugin import sha256_of

from ..fresh import never_again

HASHED_BYTES = 8 << 20
"""Files up to this size are hashed; of larger ones size and time must do."""


def of_file(*places: Path) -> str:
    """The first of ``places`` that is a file. When none is, no earlier result fits any more: the node says
    what is wrong, or finds the file where this function doesn't look.
    """
    for path in places:
        try:
            if path.is_file():
                return _of(path)
        except OSError:
            continue
    return never_again()


def _of(path: Path) -> str:
    facts = path.stat()
    text = f"{facts.st_size}-{facts.st_mtime_ns}"
    return f"{text}-{sha256_of(path)}" if facts.st_size <= HASHED_BYTES else text
