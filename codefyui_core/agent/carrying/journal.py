"""``files.log`` of an attempt: what is known of its files, for a process that comes after this one. Never a credential.

A line is a checksum and a JSON object. A line that is torn or damaged is skipped.
"""

import json
import logging
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import google_crc32c
from pydantic import Field, TypeAdapter, ValidationError

from codefyui_core.agent.disk import Disk
from codefyui_core.files import write_private
from codefyui_core.plugin.values import JsonObject, Model

from .gathered import Gathered

REWRITE_BYTES = 4 << 20
"""Of lines that newer ones replace, before the file is written anew."""


class Placed(Model):
    """An input in the run's folder."""

    t: Literal["placed"] = "placed"
    relative: str
    """Below the data folder, as its output would be named."""
    sha256: str
    stamp: tuple[int, ...]


class Recorded(Model):
    """A file or folder that the run reported."""

    t: Literal["recorded"] = "recorded"
    key: str
    payload: JsonObject
    ts: int | None = None
    snapshot: str | None = None
    stamp: tuple[int, ...] = ()


class Found(Model):
    """What the run had left without a word when its processes were gone. On the disk since."""

    t: Literal["found"] = "found"
    stamps: dict[str, tuple[int, ...]]
    """By the key of the output."""


class Noted(Model):
    """What a session wants to know of an upload later."""

    t: Literal["noted"] = "noted"
    key: str
    notes: JsonObject


class Settled(Model):
    """A file is where it goes, or stays on this machine."""

    t: Literal["settled"] = "settled"
    key: str
    payload: JsonObject
    """Of its ``artifact`` event."""
    ts: int | None = None


Entry: TypeAlias = Annotated[Placed | Recorded | Found | Noted | Settled, Field(discriminator="t")]
_ENTRY: TypeAdapter[Placed | Recorded | Found | Noted | Settled] = TypeAdapter(Entry)


@dataclass(slots=True)
class Ledger:
    """What the entries say together."""

    placed: dict[str, Placed] = field(default_factory=dict)
    recorded: dict[str, Recorded] = field(default_factory=dict)
    found: Found | None = None
    noted: dict[str, Noted] = field(default_factory=dict)
    settled: dict[str, Settled] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        match entry:
            case Placed():
                self.placed[entry.relative] = entry
            case Recorded():
                self.recorded[entry.key] = entry
            case Found():
                self.found = entry
            case Noted():
                self.noted[entry.key] = entry
            case Settled():
                self.settled[entry.key] = entry
                self.noted.pop(entry.key, None)

    def entries(self) -> Iterable[Entry]:
        yield from self.placed.values()
        yield from self.recorded.values()
        if self.found is not None:
            yield self.found
        yield from self.noted.values()
        yield from self.settled.values()

    @property
    def unsettled(self) -> list[Recorded]:
        """As they were recorded. A folder counts while it isn't settled as a whole."""
        return [one for key, one in self.recorded.items() if key not in self.settled]


class Journal:
    """Opened by one process. ``add`` may be called from threads."""

    def __init__(self, path: Path, log: logging.Logger) -> None:
        self.ledger = Ledger()
        self._path = path
        self._log = log
        self._lock = threading.Lock()
        self._replaced = 0
        self._writing: Gathered[Sequence[Entry], None] = Gathered(self._add_all)
        data = _read(path)
        for entry in read_entries(data):
            self.ledger.add(entry)
        self._torn = bool(data) and not data.endswith(b"\n")
        self._is_named = bool(data)
        """Its folder has it on the disk."""

    def add(self, *entries: Entry) -> None:
        """On the disk when it returns. On a full disk it is remembered by this process alone. Blocking."""
        lines = [_line(entry) for entry in entries]
        with self._lock:
            for entry, line in zip(entries, lines, strict=True):
                self._replaced += len(line) if isinstance(entry, Noted) else 0
                self.ledger.add(entry)
            try:
                self._rewrite() if self._replaced > REWRITE_BYTES else self._append(b"".join(lines))
            except OSError as error:
                self._torn = True
                self._log.warning("%s can't be written: %s", self._path, error)

    async def write(self, *entries: Entry) -> None:
        """The same. What waits meanwhile goes to the disk with one sync."""
        await self._writing.one(entries)

    async def aclose(self) -> None:
        """Until all of it is there."""
        await self._writing.aclose()

    def _add_all(self, together: Sequence[Sequence[Entry]]) -> Sequence[None]:
        self.add(*(entry for entries in together for entry in entries))
        return [None] * len(together)

    def _append(self, lines: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        descriptor = os.open(self._path, flags, 0o600)
        try:
            data = memoryview(b"\n" * self._torn + lines)
            while data:
                data = data[os.write(descriptor, data) :]
            self._torn = False
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not self._is_named:
            Disk().sync_folder(self._path.parent)
            self._is_named = True

    def _rewrite(self) -> None:
        write_private(self._path, b"".join(map(_line, self.ledger.entries())))
        self._replaced, self._torn = 0, False


def read_entries(data: bytes) -> Iterable[Entry]:
    """The good ones, in order."""
    for line in data.split(b"\n"):
        checksum, _, text = line.partition(b" ")
        if text and checksum == _checksum(text):
            try:
                # By json: what a run says may hold lone surrogates.
                yield _ENTRY.validate_python(json.loads(text))
            except (ValidationError, ValueError):
                continue  # of a newer version


def _line(entry: Entry) -> bytes:
    text = json.dumps(entry.model_dump(mode="json"), separators=(",", ":")).encode()
    return _checksum(text) + b" " + text + b"\n"


def _checksum(text: bytes) -> bytes:
    return f"{google_crc32c.value(text):08x}".encode()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


class JournalNotes:
    """Implements ``plugin.storage.Notes``."""

    def __init__(self, journal: Journal, key: str) -> None:
        self._journal = journal
        self._key = key

    def read(self) -> JsonObject:
        noted = self._journal.ledger.noted.get(self._key)
        return {} if noted is None else dict(noted.notes)

    async def write(self, notes: JsonObject) -> None:
        await self._journal.write(Noted(key=self._key, notes=notes))
