"""Control half of the mount backend."""

import asyncio
from dataclasses import replace
from pathlib import Path

from codefyui_core.plugin import (
    Assignment,
    AttemptView,
    BadName,
    Because,
    Busy,
    CodefyError,
    ControlStoreHost,
    Discard,
    FileSource,
    FileUse,
    Grant,
    JsonObject,
    LocalFile,
    Offer,
    Output,
    Place,
    Reading,
    Receipt,
    Refusal,
    Refused,
    RunFiles,
    RunView,
    Staged,
    StorageControl,
    StoredObject,
    WorkerView,
)

from .marker import mark, read_marker
from .models import MountFacts, MountTicket, MountWelcome, StoredIn
from .settings import MountSettings
from .shared import Shared
from .stored import NotYet, Recorded, readable_path, remove, verify

LAG_S = 60.0
"""How long a published file may take to show here: as long as an NFS client believes what it knows of a folder
(acdirmax in nfs(5))."""


class MountControl(StorageControl[MountTicket, Receipt, Grant, MountFacts]):
    """Workers are served that see the server's folder under its label; artifacts are files in it."""

    def __init__(self, host: ControlStoreHost) -> None:
        self._host = host
        self._shared: Shared | None = None
        self._unmarked = ""
        """Why the folder has no marker."""
        self._missing: dict[tuple[str, str], float] = {}
        """When a published file was first looked for in vain, by run and key."""

    async def start(self) -> None:
        label = self._host.settings(MountSettings).mount_label
        self._shared = await asyncio.to_thread(self._look, label)
        self._host.log.info("%s", self.condition())

    def _look(self, label: str) -> Shared:
        shared = Shared.of(self._host.folders, label)
        try:
            return replace(shared, id=mark(shared.root))
        except (OSError, CodefyError) as error:
            self._unmarked = str(error)
            self._host.log.warning(
                "mounts of workers can't be compared with %s, as no marker can be kept there: %s",
                shared.root,
                error,
            )
            return shared

    @property
    def _folder(self) -> Shared:
        assert self._shared is not None, "not started"
        return self._shared

    def condition(self) -> str:
        if self._shared is None:
            return ""
        said = f"shares {self._shared.root} as {self._shared.label}"
        if self._shared.apart:
            said += f" without {', '.join(sorted(self._shared.apart))}, which lie elsewhere"
        if self._unmarked:
            said += f"; mounts aren't compared with it ({self._unmarked})"
        return said

    # ------------------------------------------------------------ placement

    def offer(self, files: RunFiles, worker: WorkerView, facts: MountFacts | None) -> Offer | Refusal:
        shared = self._folder
        option = f"`--mount {shared.label}=...`"
        mounted = None if facts is None else facts.of(shared.label)
        if mounted is None:
            # the server's own machine needs no mount, so what the local backend says of it is closer
            because = Because.OFF if worker.same_machine else Because.WORKER
            lack = f"has no `{shared.label}` mount"
            return Refusal(
                because=because,
                reason=f"{worker.name} {lack}",
                lack=lack,
                remedy=f"add {option} to its agent",
            )
        if shared.id is not None and mounted.readable and mounted.id != shared.id:
            lack = f"has a `{shared.label}` mount that holds another folder than the server's"
            return Refusal(
                because=Because.WORKER,
                reason=f"{worker.name} {lack}",
                lack=lack,
                remedy=f"point {option} at the server's folder {shared.root}",
            )
        return self._unshared(files) or Offer()

    def _unshared(self, files: RunFiles) -> Refusal | None:
        """A file that lies outside of the shared folder is one that no worker would find."""
        for use in files.uses:
            lies = self._lies_apart(use)
            if lies is not None:
                shared = self._folder
                return Refusal(
                    because=Because.RUN,
                    reason=f"{use.value} lies outside of {shared.root}",
                    lack=f"can't see {use.value}, which lies in {lies} and not in the shared `{shared.label}`",
                    remedy=f"run it on the server, or keep the file in {shared.root}",
                )
        return None

    def _lies_apart(self, use: FileUse) -> Path | None:
        """Where a file that is read lies, when no worker sees it there."""
        if not use.present:
            return None
        if use.source is FileSource.UPLOAD and use.family in self._folder.apart:
            return self._host.folders.of(use.family)
        if use.source is FileSource.ARTIFACT:
            runs = self._host.run_files
            return None if runs.absolute().is_relative_to(self._folder.root) else runs
        return None

    async def stage(
        self, run: RunView, worker: WorkerView, attempt: AttemptView
    ) -> Staged[MountTicket, Grant]:
        shared = self._folder
        await asyncio.to_thread(self._must_be_there)
        return Staged(ticket=MountTicket(label=shared.label, id=shared.id, root=str(shared.root)))

    def worker_fields(self, worker: WorkerView, facts: MountFacts | None) -> JsonObject:
        mounts: JsonObject = {} if facts is None else {one.label: one.path for one in facts.mounts}
        if worker.same_machine:
            mounts[self._folder.label] = str(self._folder.root)
        return {"mounts": mounts}

    async def welcome(self, worker: WorkerView) -> JsonObject:
        shared = self._folder
        return MountWelcome(label=shared.label, id=shared.id, path=str(shared.root)).model_dump(mode="json")

    # ------------------------------------------------------------ artifacts

    async def accept(self, given: Assignment[MountTicket], output: Output, receipt: Receipt) -> StoredObject:
        ticket = given.ticket
        at = StoredIn(id=ticket.id)
        relative_path = output.relative_path
        if self._folder.holds(ticket.label, ticket.id):
            try:
                relative_path = self._folder.name_of(output.relative_path)
                await asyncio.to_thread(self._must_be_there)
                found = await asyncio.to_thread(verify, self._folder.root, relative_path, receipt)
            except BadName as error:
                raise Refused(error.message, code=error.code) from error
            except NotYet as error:
                self._bear(given.run.id, output.key, error)
                raise
            at = StoredIn(id=self._folder.id, mtime_ns=found.mtime_ns)
        self._missing.pop((given.run.id, output.key), None)
        return StoredObject(
            key=output.key,
            kind=output.kind,
            name=output.name,
            relative_path=relative_path,
            size_bytes=receipt.size_bytes,
            sha256=receipt.sha256,
            label=ticket.label,
            data=at.model_dump(mode="json"),
        )

    def _bear(self, run_id: str, key: str, error: NotYet) -> None:
        """Raises: Refused when it was missing for longer than a view of the share can be late."""
        now = self._host.clock.monotonic()
        since = self._missing.setdefault((run_id, key), now)
        if now - since > LAG_S:
            raise Refused(f"{error.message}; the run may have moved or changed it since") from error

    async def settled(self, given: Assignment[MountTicket]) -> None:
        for key in [key for key in self._missing if key[0] == given.run.id]:
            del self._missing[key]

    def place(self, stored: StoredObject) -> Place:
        if not self._holds(stored):
            return Place(path=None, downloadable=False)
        return Place(path=str(self._folder.root / stored.relative_path))

    async def read(self, stored: StoredObject, span: tuple[int, int | None] | None) -> Reading:
        if not self._holds(stored):
            raise Refused(
                f"{stored.name} lies at {stored.relative_path} in the mount {stored.label}, which this server "
                "doesn't share now",
                code="artifact.not_here",
            )
        await asyncio.to_thread(self._must_be_there)
        return LocalFile(path=await asyncio.to_thread(readable_path, self._folder.root, stored.relative_path))

    def _holds(self, stored: StoredObject) -> bool:
        return self._folder.holds(stored.label, stored.data.get("id"))

    async def discard(self, order: Discard) -> None:
        going = [stored for stored in order.stored if stored.kind not in order.keep_kinds]
        elsewhere = [stored.relative_path for stored in going if not self._holds(stored)]
        stayed = await asyncio.to_thread(self._remove, [stored for stored in going if self._holds(stored)])
        if elsewhere:
            stayed.append(f"{', '.join(elsewhere)} in a mount that this server doesn't share now")
        if stayed:
            raise Refused(f"These files stay: {'; '.join(stayed)}.")

    def _remove(self, going: list[StoredObject]) -> list[str]:
        """What couldn't be removed, and why."""
        stayed: list[str] = []
        try:
            self._must_be_there()
        except Busy as error:
            return [error.message] if going else []
        for stored in going:
            at = StoredIn.model_validate(stored.data)
            try:
                known = Recorded(size_bytes=stored.size_bytes, mtime_ns=at.mtime_ns, sha256=stored.sha256)
                remove(self._folder.root, stored.relative_path, known)
            except (OSError, BadName) as error:
                stayed.append(f"{stored.relative_path} ({error})")
        return stayed

    def _must_be_there(self) -> None:
        """What is missing while the share itself is away isn't known to be gone. Blocking.

        Raises: Busy.
        """
        root = self._folder.root
        if self._folder.id is None:
            return
        try:
            marker = read_marker(root)
        except OSError as error:
            raise Busy(f"{root} can't be read now: {error}") from error
        if marker != self._folder.id:
            raise Busy(
                f"{root} is not the folder that it was when the server started; mount the share again, or restart "
                "the server"
            )
