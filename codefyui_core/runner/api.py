"""What both planes see of the processes of runs: start one, read it, stop it, learn how it ended."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import Field

from codefyui_core.outputs import OutputStore
from codefyui_core.plugin.values import JsonObject, Model
from codefyui_core.runs.events import WarningKind


class FolderSpec(Model):
    """Where a run finds and leaves files; absolute paths as text, so that it can travel."""

    base: str
    """The base folder: relative paths in node parameters are below it; the run works in it."""
    data: str
    """The data folder."""
    moved: dict[str, str] = Field(default_factory=dict)
    """Families that lie elsewhere: family -> folder."""
    samples: str = ""
    """The bundled samples, read where ``data/samples/...`` is named."""
    downloads: str = ""
    """This machine's cache for data sets that nodes download."""
    extra: tuple[str, ...] = ()
    """Further folders that plain paths may be read from (``CODEFYUI_EXTRA_DATA_DIRS``, examples)."""
    known_as: str = ""
    """The server's path of the data folder, where it has another one of the same folder."""
    kept: str = ""
    """Where each recorded file gets a second name, its id: what takes its place later is another file."""


class RecordSpec(Model):
    """Where a run leaves the outputs that it records."""

    folder: str
    """Of all recorded runs of this plane; absolute."""
    limit_bytes: int
    """0: bounded by the number of runs only."""
    keep_runs: int


NOT_RECORDED: JsonObject = {
    "kind": WarningKind.OUTPUTS_NOT_RECORDED.value,
    "count": 1,
    "detail": "the outputs of this run weren't written: it took too long, was ended meanwhile, or the disk refused",
}
"""Of the ``run_warning`` when a run that records has left nothing."""


def record_spec(store: OutputStore) -> RecordSpec:
    return RecordSpec(folder=str(store.root), limit_bytes=store.limit_bytes, keep_runs=store.keep_runs)


class Go(Model):
    """All that a run process learns about its run; sent in memory, never written to a file."""

    run_id: str
    attempt: int
    document: JsonObject
    """SECRET values filled in, installed presets embedded."""
    options: JsonObject
    device: str
    """What nodes compute on: cpu, cuda:0 (after narrowing), mps."""
    devices: tuple[str, ...] = ()
    """The devices that the run was given, by their names on the machine."""
    folders: FolderSpec
    records: bool = True
    """False in the offline runner: nobody keeps artifacts."""
    record: RecordSpec | None = None
    """Record the outputs of all nodes (option ``record_outputs``)."""
    plugins_block: tuple[str, ...] = ()
    plugins_only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What is needed before the process of a run can exist."""

    run_id: str
    attempt: int
    work_dir: Path
    """The process starts in it (the base folder); must exist."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the supervisor's environment, such as ``CUDA_VISIBLE_DEVICES``."""
    cores: int | None = None
    """Threads that torch and BLAS may use; None: all that the machine has."""
    writes_for_s: float | None = None
    """After its outcome it may write what it recorded for so long, and is ended then; None: it records nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What the function that executes a run answers, instead of the outcome's payload alone, when something is
    left to do that mustn't change the outcome any more.
    """

    outcome: JsonObject
    afterwards: Callable[[], None]
    """Called once the outcome was told; what it raises is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the process tree of a run ended, told once every process of it is gone."""

    exit_code: int | None
    signal: int | None
    out_of_memory: bool
    peak_memory_bytes: int | None
    stderr_tail: tuple[str, ...]
    """At most 40 lines, 8 KiB."""
    stopped_in_time: bool
    """False when it was killed because a stop's grace was over."""


class RunProcess(Protocol):
    """One run's process, from the fork to its end. Used from one task, except ``stop`` and ``kill``."""

    @property
    def pid(self) -> int:
        """Of the process that executes user code."""
        ...

    async def ready(self) -> None:
        """The process waits for ``go``.

        Raises: CodefyError ``run.process_lost`` when it ended before (an honest start may be tried again).
        """
        ...

    async def go(self, go: Go) -> None:
        """Let user code run. Once."""
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """What the run says, a JSON object each without its line end:
        ``{"kind": "event"|"environment"|"outcome", "type": ..., "payload": {...}, "ts": ms}``.

        ``event``: a public event. ``environment``: execution facts. ``outcome``: payload
        ``{"outcome": succeeded|failed|stopped, "error": text|null, "cause": code|null}``; at most one, last.
        Text on stdout and stderr arrives as ``event`` of type ``log``. Each line is valid UTF-8 JSON of at
        most 512 KiB. Ends when the tree is gone and the pipes are read, 2 s after the end at most. Not reading
        holds the run at its pipe: nothing is dropped.
        """
        ...

    async def stop(self, grace_s: float, *, lets_write: bool = False) -> None:
        """Ask it to stop now; kill the whole tree when it is still there after ``grace_s``. Idempotent;
        the shortest grace wins. Returns once asked. With ``lets_write`` the grace is over with the outcome:
        what was recorded is still written, for as long as the launch allows.
        """
        ...

    async def kill(self) -> None:
        """End the whole tree at once."""
        ...

    async def ended(self) -> Ending:
        """Waits for the end of the whole tree. Any number of callers."""
        ...


class RunStarter(Protocol):
    """Makes run processes: the supervisor, or a double in tests."""

    async def warm(self) -> None:
        """Begin to prepare, so that the next launch is fast. Returns at once."""
        ...

    async def launch(self, launch: Launch) -> RunProcess:
        """A process of its own, waiting for ``go``.

        Raises: CodefyError ``run.process_lost`` when none could be made.
        """
        ...

    async def aclose(self) -> None:
        """End everything that was started and is still there."""
        ...
