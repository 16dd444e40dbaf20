"""Agent half of the mount backend."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from codefyui_core.plugin import (
    AgentStoreHost,
    AttemptView,
    Busy,
    Folders,
    Grant,
    JsonObject,
    Notes,
    Output,
    Progress,
    Receipt,
    Refused,
    StorageAgent,
    StorageSession,
    Workspace,
)

from .durable import hash_and_sync, sync_tree
from .marker import read_marker
from .models import Mounted, MountFacts, MountTicket, MountWelcome, Saved
from .sight import NoAnswer, Sight, usable

FACTS_WITHIN_S = 3.0
"""Less than the 5 s that an agent waits for facts: a dead share doesn't take the others with it."""
OPEN_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is at a path now."""

    id: str | None
    readable: bool


class MountAgent(StorageAgent[MountTicket, Receipt, Grant, MountFacts]):
    """Offers every saved label whose folder is there at the moment."""

    def __init__(self, host: AgentStoreHost) -> None:
        self._host = host
        self._paths: dict[str, Path] = {}
        self._sights: dict[str, Sight[Seen | None]] = {}
        self._offered: dict[str, Seen | None] = {}
        self._servers: MountWelcome | None = None

    async def start(self) -> None:
        for label, path in Saved.read(self._host.saved).mounts.items():
            self._paths[label] = Path(path)
            self._sights[label] = Sight(partial(look, Path(path)), f"mount {label}")

    async def welcomed(self, data: JsonObject) -> None:
        self._servers = MountWelcome.model_validate(data)
        self._offered.clear()  # so that the log says again what this server makes of them

    async def facts(self) -> MountFacts | None:
        labels = list(self._paths)
        seen = await asyncio.gather(*(self._see(label) for label in labels))
        for label, one in zip(labels, seen, strict=True):
            self._noticed(label, one)
        mounts = tuple(
            Mounted(label=label, path=str(self._paths[label]), id=one.id, readable=one.readable)
            for label, one in zip(labels, seen, strict=True)
            if one is not None
        )
        return MountFacts(mounts=mounts) if mounts else None

    async def _see(self, label: str) -> Seen | None:
        try:
            return await self._sights[label].now(FACTS_WITHIN_S)
        except NoAnswer:
            return None

    def _noticed(self, label: str, seen: Seen | None) -> None:
        """Into the log what changed, for whoever wonders why no runs come."""
        if label in self._offered and self._offered[label] == seen:
            return
        self._offered[label] = seen
        path, servers = self._paths[label], self._servers
        if seen is None:
            self._host.log.warning("mount %s isn't offered: there is no folder %s now", label, path)
        elif servers is not None and label == servers.label and not _is(seen, servers.id):
            self._host.log.warning(
                "mount %s: %s is not the folder that the server shares, which has it at %s; no runs that use "
                "files come from there. Correct --mount, or see that the share is mounted.",
                label,
                path,
                servers.path,
            )
        else:
            self._host.log.info("mount %s is offered: %s", label, path)

    def open(
        self, attempt: AttemptView, ticket: MountTicket, grant: Grant | None
    ) -> AbstractAsyncContextManager["MountSession"]:
        return self._session(ticket)

    @asynccontextmanager
    async def _session(self, ticket: MountTicket) -> AsyncIterator["MountSession"]:
        path = self._paths.get(ticket.label)
        if path is None:
            raise Refused(
                f"this agent has no mount {ticket.label} any more; start it with --mount {ticket.label}=..."
            )
        try:
            seen = await self._sights[ticket.label].now(OPEN_WITHIN_S)
        except NoAnswer as error:
            raise Busy(f"{path} doesn't answer; see whether its file server can be reached") from error
        _check(path, seen, ticket)
        folders = await asyncio.to_thread(Folders.below, path)
        workspace = Workspace(folders=folders, private=False, known_as=Path(ticket.root))
        yield MountSession(workspace, ticket)


class MountSession(StorageSession[Receipt, Grant]):
    """The shared folder, in place. Publishing is making sure that the bytes are on the file server."""

    def __init__(self, workspace: Workspace, ticket: MountTicket) -> None:
        self.workspace = workspace
        self._ticket = ticket

    async def publish(self, output: Output, path: Path, notes: Notes, progress: Progress) -> Receipt:
        return await asyncio.to_thread(self._publish, path, progress)

    def _publish(self, path: Path, progress: Progress) -> Receipt:
        root = self.workspace.folders.root
        _check(root, look(root), self._ticket)
        real, base = path.resolve(), root.resolve()
        if not real.is_relative_to(base) or real == base:
            raise Refused(f"{path} leads out of the shared folder {root}; record a file in it")
        if real.is_dir():
            sync_tree(real, progress)
            return Receipt()
        sha256, size = hash_and_sync(real, base, progress)
        return Receipt(sha256=sha256, size_bytes=size)


def _check(path: Path, seen: Seen | None, ticket: MountTicket) -> None:
    """An empty mount point looks like a folder, too: nothing may be written there.

    Raises: Busy.
    """
    if seen is None:
        raise Busy(f"there is no folder {path} now; mount the share again")
    if not _is(seen, ticket.id):
        raise Busy(f"{path} is not the server's folder {ticket.root} now; mount the share again")


def _is(seen: Seen, marker: str | None) -> bool:
    """A marker that one side can't have or read says nothing against it."""
    return marker is None or not seen.readable or seen.id == marker


def look(path: Path) -> Seen | None:
    """Is there a folder at ``path``, and which one? Blocking."""
    if not usable(path):
        return None
    try:
        return Seen(id=read_marker(path), readable=True)
    except PermissionError:
        return Seen(id=None, readable=False)
    except OSError:
        return None
