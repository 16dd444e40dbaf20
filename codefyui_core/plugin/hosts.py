"""What a half gets from its plane. There is no other way in: no database, no globals, no plane internals.

Four hosts, one for each kind of half, so that a half holds only what it may use. All methods are safe to
call from the plane's event loop; none blocks.
"""

import asyncio
import logging
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self, TypeVar

from pydantic import JsonValue

from ..errors import CodefyError
from ..files import Folders
from ..ids import ArtifactId, LinkId, RunId, Sha256
from .connector import LinkMemo
from .settings import PluginSettings
from .storage import Arrived, Arriving, Coming, InputItem, StoredObject, Workspace
from .values import JsonObject
from .views import AttemptView, PluginInfo, RunView, RunWarning

if TYPE_CHECKING:
    import aiohttp

S = TypeVar("S", bound=PluginSettings)


class Clock(Protocol):
    """Time, passed in so that tests own it. Decide by ``monotonic``; only show ``now``."""

    def monotonic(self) -> float: ...
    def now(self) -> datetime: ...
    async def sleep(self, seconds: float) -> None: ...


class Tasks(Protocol):
    """Background tasks that the plane owns: cancelled and awaited after ``aclose``; an exception is logged
    as the plugin's, and ends nothing else.
    """

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]: ...


class Host(Protocol):
    """Common to all four."""

    @property
    def name(self) -> str:
        """The descriptor's name."""
        ...

    @property
    def log(self) -> logging.Logger: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def user_data(self) -> Path:
        """The user-data folder of this install, for files that a person may look for."""
        ...

    def settings(self, cls: type[S]) -> S:
        """The plugin's settings as they are now. Ask at each use and compare: settings may be reloaded."""
        ...

    def plugins(self) -> Sequence[PluginInfo]:
        """What is installed on this plane."""
        ...


class Documents(Protocol):
    """Small JSON documents of one plugin, in the control plane's database (64 KiB each).

    ``sealed`` ones are encrypted at rest with the install's own key.
    """

    async def get(self, key: str) -> JsonObject | None: ...
    async def put(self, key: str, value: JsonObject, *, sealed: bool = False) -> None: ...
    async def delete(self, key: str) -> None: ...
    async def keys(self, prefix: str = "") -> Sequence[str]: ...


class ControlHost(Host, Protocol):
    """Common to the control halves."""

    @property
    def version(self) -> str: ...
    @property
    def folders(self) -> Folders:
        """The control plane's data folder (the project's, with ``--project``)."""
        ...

    @property
    def documents(self) -> Documents: ...


class Listener(Protocol):
    """A private way in for one link's agent, on the same application."""

    @property
    def address(self) -> str:
        """The socket's path, or ``127.0.0.1:port``; as ``ssh -R`` takes it."""
        ...

    async def aclose(self) -> None:
        """Also closes what is connected through it."""
        ...


class ControlLinkHost(ControlHost, Protocol):
    """For the control half of a connector that keeps links."""

    async def listen(self, link: LinkId, *, tcp: bool = False) -> Listener:
        """A Unix socket in a fresh folder of mode 0700, or (``tcp``) an ephemeral port on 127.0.0.1.

        It answers what an agent uses and nothing else (see ``Route.on_links``), whatever Host a request
        names; enrollment attempts are limited per link, apart from every other way in; its WebSocket lets in
        this link's worker alone. A second call closes the first one's.

        Raises: CodefyError naming path and limit, when the path is too long.
        """
        ...

    async def token(self, link: LinkId, *, valid_for_s: float = 600) -> str:
        """A fresh enrollment token for one use: it enrolls the link's worker, or re-keys it once enrolled,
        and no other.
        """
        ...

    async def save(self, link: LinkId, memo: LinkMemo) -> None:
        """Replace the link's memo (secret fields sealed)."""
        ...

    async def left(self, link: LinkId) -> None:
        """A LEAVING link is cleaned up, or given up and logged; forget it for good."""
        ...

    def changed(self, link: LinkId) -> None:
        """``status`` would answer differently now; the panels are told."""
        ...


class Arrivals(Protocol):
    """Takes files in that are sent to the control plane: continued where they broke off, placed once, never over
    another file. What is unfinished lies hidden in the folder that it is for. All of it survives a crash.
    """

    async def offset(self, file: Arriving) -> int:
        """How many bytes of it are here: where to go on."""
        ...

    async def append(self, file: Arriving, offset: int, chunks: AsyncIterator[bytes]) -> int:
        """Continue it at ``offset``; the new offset. What arrived before a broken line stays.

        Raises: CodefyError ``upload.offset`` when it goes on elsewhere, ``upload.exists`` when it is placed,
        ``request.too_large`` over ``max_upload_bytes``, ``storage.full``; BadName.
        """
        ...

    async def finish(self, file: Arriving, *, size_bytes: int, sha256: Sha256 | None) -> Arrived:
        """Check it and give it its name: its own; that of a file there with the same content; or one with a number
        when other content has the name. The same answer however often it is asked for. ``sha256``: None when its bytes
        were checked on their way, all of them.

        Raises: CodefyError ``upload.mismatch`` (what arrived is dropped), ``upload.needs_hash`` when there is none
        and some of the bytes came to a process before this one (what a loss of power left of them isn't known),
        ``upload.not_found`` when nothing of it is here, ``storage.full``; BadName.
        """
        ...

    async def take(
        self,
        run: RunId,
        coming: Sequence[Coming],
        chunks: AsyncIterator[bytes],
        agreed: Callable[[], Awaitable[None]],
    ) -> Sequence[Arrived | CodefyError]:
        """Whole files of one run that come together, one after another with nothing between: each as by ``append`` and
        ``finish``, at the cost of few files. The answers in the same order; an error is that file's own, and nothing of
        it is left: that of ``Coming``, ``upload.mismatch``, ``storage.full``, ``storage.refused``, or BadName.

        ``agreed`` is asked when all is here: what it raises is raised, and nothing gets a name. What came whole before a
        broken line is placed before the error is raised. Raises: CodefyError ``request.invalid`` when two files have
        one key, and when more or fewer bytes come than the files have.
        """
        ...

    async def arrived(self, run: RunId, key: str) -> Arrived | None:
        """What ``finish`` answered; None: it isn't placed."""
        ...

    async def arrived_among(self, run: RunId, keys: Sequence[str]) -> Mapping[str, Arrived]:
        """The same of many at once: those that are placed, by key."""
        ...

    async def unlisted(self, run: RunId) -> Sequence[tuple[Arriving, Arrived]]:
        """Files of a run that are placed, and that no artifact tells of as stored: as they were sent, and where they
        came to lie.
        """
        ...

    async def forget(self, run: RunId) -> None:
        """Drop what is unfinished of a run, with its bytes. Files that are being placed are waited for."""
        ...


class InputFiles(Protocol):
    """Inputs of runs where they lie, many at a time: their folders are opened once. Blocks, so it is for a thread; one
    at a time. No link is followed.
    """

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def size(self, item: InputItem) -> int:
        """Raises: OSError, BadName."""
        ...

    def open(self, item: InputItem) -> BinaryIO:
        """Raises: OSError, BadName."""
        ...


class ControlStoreHost(ControlHost, Protocol):
    """For the control half of a storage backend."""

    @property
    def max_upload_bytes(self) -> int: ...
    @property
    def arrivals(self) -> Arrivals:
        """For a backend whose workers send files here."""
        ...

    @property
    def run_files(self) -> Path:
        """Where ``<run id>/<kind>/<name>`` of runs lie on this machine: what goes with its run."""
        ...

    async def inputs(self, run: RunView) -> tuple[InputItem, ...]:
        """The uploads and artifacts that the run reads, on this machine and hashed now (remembered while
        size and times stay the same).

        Raises: Refused when one is gone.
        """
        ...

    def input_path(self, item: InputItem) -> Path:
        """Where the bytes of one of ``inputs`` are. Read only."""
        ...

    def input_files(self) -> InputFiles:
        """To read several of ``reads``."""
        ...

    async def reads(self, run: RunId) -> Mapping[Sha256, InputItem]:
        """The inputs of the attempt that holds the run, by hash, as its ticket has them. Nothing else is for its
        worker.
        """
        ...

    async def attempt(self, run: RunId) -> AttemptView | None:
        """The attempt that holds the run now."""
        ...

    async def record(self, attempt: AttemptView, stored: StoredObject) -> ArtifactId:
        """List an artifact. Idempotent by the object's ``key``; refused for an attempt that is over, but for what is
        found while it is settled: that is listed without an event, and a file that counts as left on the worker
        becomes stored.
        """
        ...

    async def stored(self, run: RunId) -> Sequence[StoredObject]:
        """What is recorded for the run by this backend."""
        ...

    async def warn(self, run: RunId, warning: RunWarning) -> None: ...

    def offers_changed(self) -> None:
        """``offer`` may answer differently from now on; waiting runs are looked at again."""
        ...


class AgentHost(Host, Protocol):
    """For the agent half of a connector, and common to both kinds. Agents have no database."""


class ControlHttp(Protocol):
    """Requests to the control plane over the agent's own dial: same address, trust and credential."""

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        json: JsonValue = None,
        data: bytes | AsyncIterable[bytes] | None = None,
    ) -> "AbstractAsyncContextManager[aiohttp.ClientResponse]":
        """One request, one try, no redirects.

        Raises: Busy when there is no connection or the answer is 408, 429, 502, 503 or 504 (a failed connection
        has been shown to the connector); Refused for any other 4xx, with the server's own code, or
        ``proxy.<status>`` when it was not our server that answered.
        """
        ...


class AgentStoreHost(AgentHost, Protocol):
    """For the agent half of a storage backend."""

    @property
    def saved(self) -> JsonObject:
        """What the descriptor's ``settle`` answered when the agent was started."""
        ...

    def http(self, attempt: AttemptView | None = None) -> ControlHttp:
        """``attempt``: send its fence (``X-CodefyUI-Attempt``) with every request."""
        ...

    def workspace(self, attempt: AttemptView) -> Workspace:
        """A private data folder for this run alone (made on first call). The core puts the inputs there,
        finds what the run wrote, and removes it by the agent's retention.
        """
        ...

    async def tell(self, attempt: AttemptView, message: JsonObject) -> None:
        """Send a message to ``StorageControl.told``. Returns once it is on the agent's disk; delivered at
        least once, in order, ahead of any later receipt.
        """
        ...
