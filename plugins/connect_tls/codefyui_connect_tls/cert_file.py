"""The proxy's certificate file, read again only when it has changed."""

from dataclasses import dataclass
from pathlib import Path

from .spki import fingerprint_of, first_in

LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The key of the first certificate in it, or why there is none."""

    fingerprint: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stamp:
    path: Path
    inode: int
    size: int
    mtime_ns: int


class CertFile:
    """Remembers what it saw by name, inode, size and time of change. Blocking."""

    def __init__(self) -> None:
        self._stamp: _Stamp | None = None
        self._seen = Seen()

    def look(self, text: str) -> Seen:
        path = Path(text)
        if not path.is_absolute():
            return Seen(problem=f"{text} is not an absolute path")
        try:
            found = path.stat()
            stamp = _Stamp(path=path, inode=found.st_ino, size=found.st_size, mtime_ns=found.st_mtime_ns)
            if stamp != self._stamp:
                self._seen = _read(path)
                self._stamp = stamp
        except OSError as error:
            return Seen(problem=f"{text} can't be read: {error.strerror or error}")
        return self._seen


def _read(path: Path) -> Seen:
    with path.open("rb") as file:
        data = file.read(LIMIT_BYTES)
    try:
        return Seen(fingerprint=fingerprint_of(first_in(data)))
    except ValueError as error:
        return Seen(problem=f"{path} is no certificate in PEM: {error}")
