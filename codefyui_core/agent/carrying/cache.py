"""Inputs of runs by their content: ``agent-cache/<sha256>``, shared by all agents of a user-data folder.

A file gets its name only when it is whole. Nothing here is ever removed by us but what was damaged or half fetched;
people may delete all of it at any time.
"""

import asyncio
import logging
import os
import re
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from codefyui_core.agent.disk import Disk
from codefyui_core.agent.folder import Owner, read_owner_file, write_owner_file
from codefyui_core.errors import Corrupt, Refused
from codefyui_core.files import sha256_of
from codefyui_core.ids import Sha256

from .copies import Stamp, open_file
from .gathered import Gathered, at_once, each

_SHA256 = re.compile(r"[0-9a-f]{64}")
ORPHAN_S = 24 * 3600.0
"""Of a half fetched file that no process owns any more, since its last change."""


class _Fetched(NamedTuple):
    sha256: Sha256
    size_bytes: int
    into: Path
    said: Sha256 | None


class InputCache:
    """Of one agent. Its half fetched files have names of its own."""

    def __init__(self, folder: Path, owner: Owner, log: logging.Logger) -> None:
        self._folder = folder
        self._owner = owner
        self._token = owner.incarnation[:12]
        self._log = log
        self._disk = Disk()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._verified: dict[str, Stamp] = {}
        self._part = 0
        self._checking: Gathered[tuple[Sha256, int], bool] = Gathered(partial(each, self._check))
        self._preparing: Gathered[Sha256, int] = Gathered(partial(each, self._prepare))
        self._settling: Gathered[_Fetched, None] = Gathered(self._settle_all)

    # ------------------------------------------------------------ its life

    def start(self) -> None:
        """Remove what killed agents left half fetched. Blocking."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        dead: set[str] = set()
        alive: set[str] = set()
        for path in self._folder.glob(".*.owner"):
            owner = read_owner_file(path)
            token = path.name[1 : -len(".owner")]
            (dead if owner is not None and owner.gone else alive).add(token)
        for path in self._folder.glob(".*.part"):
            token = path.name.split(".")[-3]
            if token in dead or (token not in alive and _age_s(path) > ORPHAN_S):
                path.unlink(missing_ok=True)
        for token in dead:
            (self._folder / f".{token}.owner").unlink(missing_ok=True)
        write_owner_file(self._folder / f".{self._token}.owner", self._owner)

    def close(self) -> None:
        """Blocking."""
        with suppress(OSError):
            for path in self._folder.glob(f".*.{self._token}.*.part"):
                path.unlink(missing_ok=True)
            (self._folder / f".{self._token}.owner").unlink(missing_ok=True)

    # ------------------------------------------------------------ files

    def open(self, sha256: Sha256) -> int:
        """A descriptor for reading. Raises: FileNotFoundError when somebody deleted it."""
        return open_file(self._path(sha256))

    async def has(self, sha256: Sha256, size_bytes: int) -> bool:
        """It is there, and whole."""
        return await self._checking.sized((sha256, size_bytes), size_bytes)

    @asynccontextmanager
    async def turn(self, sha256: Sha256) -> AsyncIterator[None]:
        """One at a time for one content: what another run of this agent fetches needn't be fetched again."""
        lock = self._turns.setdefault(sha256, asyncio.Lock())
        async with lock:
            yield

    async def begun_bytes(self, sha256: Sha256) -> int:
        """How much an earlier try got. Makes room for the next one."""
        return await self._preparing.one(sha256)

    async def take(
        self, sha256: Sha256, size_bytes: int, fetch: Callable[[Path], Awaitable[Sha256 | None]]
    ) -> None:
        """One try at getting it, prepared by ``begun_bytes``, within its turn. What was fetched stays for the next try,
        unless it is wrong.

        Raises: Corrupt for other content; what ``fetch`` raises.
        """
        into = self._part_of(sha256)
        try:
            said = await fetch(into)
        except asyncio.CancelledError:
            # A thread of the session may still write there.
            self._part += 1
            into.unlink(missing_ok=True)
            raise
        except Corrupt:
            await asyncio.to_thread(into.unlink, missing_ok=True)
            raise
        await self._settling.sized(_Fetched(sha256, size_bytes, into, said), size_bytes)

    def _part_of(self, sha256: Sha256) -> Path:
        return self._folder / f".{sha256}.{self._token}.{self._part}.part"

    def _prepare(self, sha256: Sha256) -> int:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return self._part_of(sha256).stat().st_size
        except OSError:
            return 0

    def _path(self, sha256: Sha256) -> Path:
        """Raises: Refused for what is no hash: it would be another place."""
        if not _SHA256.fullmatch(sha256):
            raise Refused(f"{sha256[:80]!r} is no SHA-256")
        return self._folder / sha256

    def _settle_all(self, together: Sequence["_Fetched"]) -> Sequence[Exception | None]:
        settled = at_once(self._settle, together)
        if not all(settled):
            self._disk.sync_folder(self._folder)
        return settled

    def _settle(self, fetched: "_Fetched") -> None:
        into, sha256 = fetched.into, fetched.sha256
        try:
            size = into.stat().st_size
            found = fetched.said or sha256_of(into)
        except FileNotFoundError as error:
            raise Corrupt("what was fetched is gone again") from error
        if size != fetched.size_bytes or found != sha256:
            into.unlink(missing_ok=True)
            raise Corrupt(
                f"what arrived has other content than it should ({size} of {fetched.size_bytes} bytes)"
            )
        descriptor = os.open(into, os.O_RDWR | getattr(os, "O_BINARY", 0))
        try:
            self._disk.sync(descriptor)
        finally:
            os.close(descriptor)
        into.chmod(0o600)
        path = self._path(sha256)
        into.replace(path)
        self._verified[sha256] = Stamp.of(path.stat())

    def _check(self, known: tuple[Sha256, int]) -> bool:
        sha256, size_bytes = known
        path = self._path(sha256)
        try:
            found = path.lstat()
        except FileNotFoundError:
            return False
        if stat.S_ISREG(found.st_mode) and found.st_size == size_bytes:
            if self._verified.get(sha256) == Stamp.of(found):
                return True
            if sha256_of(path) == sha256:
                self._verified[sha256] = Stamp.of(found)
                return True
        self._log.warning("%s is damaged; it is fetched anew", path)
        return False


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
