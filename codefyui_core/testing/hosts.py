"""What a half gets from its plane, played by a test: keeps what the half does, in memory."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self, TypeVar

from codefyui_core.errors import CodefyError, Refused, TransferStopped
from codefyui_core.files import Folders
from codefyui_core.ids import ArtifactId, LinkId, RunId, Sha256
from codefyui_core.plugin import (
    Arrived,
    Arriving,
    AttemptView,
    Clock,
    Coming,
    ControlHttp,
    Family,
    InputItem,
    JsonObject,
    LinkMemo,
    PluginInfo,
    PluginSettings,
    RunView,
    RunWarning,
    StoredObject,
    Workspace,
)

from .clock import ManualClock

S = TypeVar("S", bound=PluginSettings)


class OwnedTasks:
    """Background tasks of one test; ``aclose`` cancels and awaits them, and raises what one of them raised."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        return task

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


class MemoryDocuments:
    """``Documents`` in a dict; ``sealed`` names the keys that were put sealed."""

    def __init__(self) -> None:
        self.values: dict[str, JsonObject] = {}
        self.sealed: set[str] = set()

    async def get(self, key: str) -> JsonObject | None:
        return self.values.get(key)

    async def put(self, key: str, value: JsonObject, *, sealed: bool = False) -> None:
        self.values[key] = value
        (self.sealed.add if sealed else self.sealed.discard)(key)

    async def delete(self, key: str) -> None:
        self.values.pop(key, None)
        self.sealed.discard(key)

    async def keys(self, prefix: str = "") -> Sequence[str]:
        return sorted(key for key in self.values if key.startswith(prefix))


@dataclass(kw_only=True)
class HostDouble:
    """Common to all: a folder of the test, a clock of the test, settings as given."""

    root: Path
    name: str = "tested"
    clock: Clock = field(default_factory=ManualClock)
    tasks: OwnedTasks = field(default_factory=OwnedTasks)
    given: dict[str, Any] = field(default_factory=dict)
    """Settings by field name; the others have their defaults, whatever the environment says."""
    installed: tuple[PluginInfo, ...] = ()

    @property
    def log(self) -> logging.Logger:
        return logging.getLogger(f"codefyui.{self.name}")

    @property
    def user_data(self) -> Path:
        folder = self.root / "user"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def settings(self, cls: type[S]) -> S:
        defaults = {
            name: one.get_default(call_default_factory=True, validated_data={})
            for name, one in cls.model_fields.items()
            if not one.is_required()
        }
        return cls(**(defaults | {name: self.given[name] for name in cls.model_fields if name in self.given}))

    def plugins(self) -> Sequence[PluginInfo]:
        return self.installed

    async def aclose(self) -> None:
        await self.tasks.aclose()


@dataclass(kw_only=True)
class ControlDouble(HostDouble):
    """Common to the control halves."""

    version: str = "1.0"
    documents: MemoryDocuments = field(default_factory=MemoryDocuments)

    @property
    def folders(self) -> Folders:
        return Folders.below(self.root / "data")


@dataclass
class ListenerDouble:
    """A listener that only has an address."""

    address: str
    closed: bool = False

    async def aclose(self) -> None:
        self.closed = True


@dataclass(kw_only=True)
class ControlLinkDouble(ControlDouble):
    """For the control half of a connector; keeps what it asked for."""

    listeners: dict[LinkId, ListenerDouble] = field(default_factory=dict)
    tokens: dict[LinkId, list[str]] = field(default_factory=dict)
    memos: dict[LinkId, LinkMemo] = field(default_factory=dict)
    gone: list[LinkId] = field(default_factory=list)
    """Links that the half called ``left`` for."""
    changes: list[LinkId] = field(default_factory=list)

    async def listen(self, link: LinkId, *, tcp: bool = False) -> ListenerDouble:
        if link in self.listeners:
            await self.listeners[link].aclose()
        address = f"127.0.0.1:{40000 + len(self.listeners)}" if tcp else str(self.root / f"{link}.sock")
        self.listeners[link] = ListenerDouble(address)
        return self.listeners[link]

    async def token(self, link: LinkId, *, valid_for_s: float = 600) -> str:
        minted = self.tokens.setdefault(link, [])
        minted.append(f"token-{link}-{len(minted) + 1}")
        return minted[-1]

    async def save(self, link: LinkId, memo: LinkMemo) -> None:
        self.memos[link] = memo

    async def left(self, link: LinkId) -> None:
        self.gone.append(link)

    def changed(self, link: LinkId) -> None:
        self.changes.append(link)


class ArrivalsDouble:
    """``Arrivals`` whose unfinished files lie in memory."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.is_another_process = False
        """Than the one that the unfinished files began to come to."""
        self.parts: dict[tuple[RunId, str], bytearray] = {}
        self.placed: dict[tuple[RunId, str], Arrived] = {}
        self.files: dict[tuple[RunId, str], Arriving] = {}
        """What is placed, as it was sent."""
        self.without_row: set[str] = set()
        """Keys of placed files that no artifact tells of."""

    async def offset(self, file: Arriving) -> int:
        placed = self.placed.get((file.run_id, file.key))
        return len(self.parts.get((file.run_id, file.key), b"")) if placed is None else placed.size_bytes

    async def append(self, file: Arriving, offset: int, chunks: AsyncIterator[bytes]) -> int:
        key = (file.run_id, file.key)
        if key in self.placed:
            raise CodefyError(f"{file.name} is here already.", code="upload.exists")
        part = self.parts.setdefault(key, bytearray())
        if len(part) != offset:
            raise CodefyError(f"{file.name} goes on at byte {len(part)}.", code="upload.offset")
        async for chunk in chunks:
            if len(part) + len(chunk) > self.limit_bytes:
                raise CodefyError(f"{file.name} is too large.", code="request.too_large")
            part.extend(chunk)
        return len(part)

    async def finish(self, file: Arriving, *, size_bytes: int, sha256: Sha256 | None) -> Arrived:
        key = (file.run_id, file.key)
        if key not in self.placed:
            if key not in self.parts:
                raise CodefyError(f"Nothing of {file.name} is here.", code="upload.not_found")
            if sha256 is None and self.is_another_process:
                raise CodefyError(f"The beginning of {file.name} isn't known.", code="upload.needs_hash")
            data = bytes(self.parts.pop(key))
            found = Sha256(hashlib.sha256(data).hexdigest())
            if (len(data), found) != (size_bytes, sha256 or found):
                raise CodefyError(f"{file.name} arrived with other content.", code="upload.mismatch")
            self.placed[key], self.files[key] = self._place(file, data, found), file
        return self.placed[key]

    async def take(
        self,
        run: RunId,
        coming: Sequence[Coming],
        chunks: AsyncIterator[bytes],
        agreed: Callable[[], Awaitable[None]],
    ) -> Sequence[Arrived | CodefyError]:
        keys = [one.file.key for one in coming if isinstance(one.file, Arriving)]
        if len(set(keys)) < len(keys):
            raise CodefyError("Two of the files have one key.", code="request.invalid")
        data, broken = bytearray(), None
        try:
            async for chunk in chunks:
                data.extend(chunk)
        except Exception as error:
            broken = error
        await agreed()
        answers, n_bytes = [], len(data)
        for one in coming:
            if len(data) < one.size_bytes:
                break
            answers.append(await self._taken(one, bytes(data[: one.size_bytes])))
            del data[: one.size_bytes]
        if broken is not None:
            raise broken
        if len(answers) < len(coming) or data:
            raise CodefyError(f"{n_bytes} bytes aren't what the files have.", code="request.invalid")
        return answers

    async def _taken(self, one: Coming, data: bytes) -> Arrived | CodefyError:
        if isinstance(one.file, CodefyError):
            return one.file
        key = (one.file.run_id, one.file.key)
        if key not in self.placed:
            self.parts[key] = bytearray(data)
        try:
            return await self.finish(one.file, size_bytes=one.size_bytes, sha256=one.sha256)
        except CodefyError as error:
            return error

    @staticmethod
    def _place(file: Arriving, data: bytes, sha256: Sha256) -> Arrived:
        wanted, number = PurePosixPath(file.name), 0
        while True:
            name = wanted.with_stem(f"{wanted.stem}-{number}") if number else wanted
            path = file.folder / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            if path.read_bytes() == data:
                return Arrived(path=path, relative_path=str(name), size_bytes=len(data), sha256=sha256)
            number += 1

    async def arrived(self, run: RunId, key: str) -> Arrived | None:
        return self.placed.get((run, key))

    async def arrived_among(self, run: RunId, keys: Sequence[str]) -> Mapping[str, Arrived]:
        return {key: self.placed[run, key] for key in keys if (run, key) in self.placed}

    async def unlisted(self, run: RunId) -> Sequence[tuple[Arriving, Arrived]]:
        return [
            (self.files[key], arrived)
            for key, arrived in self.placed.items()
            if key[0] == run and key[1] in self.without_row
        ]

    async def forget(self, run: RunId) -> None:
        for key in [key for key in self.parts if key[0] == run]:
            del self.parts[key]


@dataclass(kw_only=True)
class ControlStoreDouble(ControlDouble):
    """For the control half of a storage backend. ``uploads`` are the inputs of every run."""

    max_upload_bytes: int = 1 << 30
    uploads: dict[tuple[Family, str], bytes] = field(default_factory=dict)
    attempts: dict[RunId, AttemptView] = field(default_factory=dict)
    settling: set[RunId] = field(default_factory=set)
    """Runs that are over, and whose backend is just told of it."""
    recorded: dict[RunId, dict[str, StoredObject]] = field(default_factory=dict)
    warnings: list[tuple[RunId, RunWarning]] = field(default_factory=list)
    offers_changed_count: int = 0

    def __post_init__(self) -> None:
        self.arrivals = ArrivalsDouble(self.max_upload_bytes)

    @property
    def run_files(self) -> Path:
        return self.root / "data" / "runs"

    async def inputs(self, run: RunView) -> tuple[InputItem, ...]:
        for (family, name), data in self.uploads.items():
            path = self.folders.of(family) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return self._items()

    def input_path(self, item: InputItem) -> Path:
        return self.folders.of(item.family) / item.name

    def input_files(self) -> "InputFilesDouble":
        return InputFilesDouble(self)

    async def reads(self, run: RunId) -> Mapping[Sha256, InputItem]:
        return {item.sha256: item for item in self._items()}

    def _items(self) -> tuple[InputItem, ...]:
        return tuple(
            InputItem(
                sha256=Sha256(hashlib.sha256(data).hexdigest()),
                size_bytes=len(data),
                family=family,
                name=name,
            )
            for (family, name), data in self.uploads.items()
        )

    async def attempt(self, run: RunId) -> AttemptView | None:
        return self.attempts.get(run)

    async def record(self, attempt: AttemptView, stored: StoredObject) -> ArtifactId:
        if self.attempts.get(attempt.run_id) != attempt and attempt.run_id not in self.settling:
            raise Refused(f"attempt {attempt.number} is over", code="run.attempt_over")
        self.recorded.setdefault(attempt.run_id, {}).setdefault(stored.key, stored)
        return ArtifactId(stored.key)

    async def stored(self, run: RunId) -> Sequence[StoredObject]:
        return tuple(self.recorded.get(run, {}).values())

    async def warn(self, run: RunId, warning: RunWarning) -> None:
        self.warnings.append((run, warning))

    def offers_changed(self) -> None:
        self.offers_changed_count += 1


@dataclass(frozen=True)
class InputFilesDouble:
    """``InputFiles`` that opens one file at a time."""

    host: ControlStoreDouble

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing is held."""

    def size(self, item: InputItem) -> int:
        return self.host.input_path(item).stat().st_size

    def open(self, item: InputItem) -> BinaryIO:
        return self.host.input_path(item).open("rb")


@dataclass(kw_only=True)
class AgentDouble(HostDouble):
    """For the agent half of a connector."""


@dataclass(kw_only=True)
class AgentStoreDouble(AgentDouble):
    """For the agent half of a storage backend."""

    saved: JsonObject = field(default_factory=dict)
    connection: ControlHttp | None = None
    """What ``http`` answers; see ``served_routes``."""
    told: list[tuple[AttemptView, JsonObject]] = field(default_factory=list)

    def http(self, attempt: AttemptView | None = None) -> ControlHttp:
        if self.connection is None:
            raise AssertionError("the backend asked for http; give the host a connection")
        return self.connection

    def workspace(self, attempt: AttemptView) -> Workspace:
        folder = self.user_data / "agent-runs" / attempt.run_id
        folder.mkdir(parents=True, exist_ok=True)
        return Workspace(folders=Folders.below(folder), private=True)

    async def tell(self, attempt: AttemptView, message: JsonObject) -> None:
        self.told.append((attempt, message))


class NotesDouble:
    """The notes of one upload, in memory."""

    def __init__(self, notes: Mapping[str, Any] | None = None) -> None:
        self.notes: JsonObject = dict(notes or {})

    def read(self) -> JsonObject:
        return dict(self.notes)

    async def write(self, notes: JsonObject) -> None:
        self.notes = dict(notes)


class ProgressDouble:
    """Counts; ``stop_after`` bytes it raises ``TransferStopped``."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.n_bytes = 0
        self._stop_after = stop_after

    def advance(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        if self._stop_after is not None and self.n_bytes > self._stop_after:
            raise TransferStopped("the test stops the transfer here")
