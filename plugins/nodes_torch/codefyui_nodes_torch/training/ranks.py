"""A training by several processes of this machine, as the run's own process sees it: starts them, passes on what the
first one says, and sees all of them to their ends.

Nothing of a failed rank is waited for: the others would hang in a collective operation for as long as it takes to
give up.
"""

import io
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore

from codefyui_core.plugin import CodefyError, NodeContext, ProcessKilled

from ..base import UnfitError
from ..data.workers import signal_name
from .rank import Failure, Place, RankJob, Trained, main, modules_by_file, packed
from .state import Parts

ASK_S = 0.1
"""Between two questions whether the run is to stop."""
GATHER_S = 1.0
"""After the first sign of a failure: others may follow, and the first one of them is the cause."""
END_S = 10.0
"""The longest that a rank which is done may take to end."""
PRELOAD = ("torch", "torch.distributed", "torch._dynamo", __name__)
"""Imported once, by the process that ranks are forked from."""


def rank_count(asked: int, device: torch.device) -> int:
    """How many ranks a training gets: one for each card that the run was given, two on a CPU, unless asked.

    Raises: UnfitError when there aren't so many cards, or for devices that ranks can't share work on.
    """
    if device.type == "cuda":
        cards = torch.cuda.device_count()
        if asked > cards:
            raise UnfitError(
                f"TrainingLoop: {asked} ranks need {asked} cards, and this run has {cards}; choose more devices for"
                " the run, or fewer ranks."
            )
        return asked or cards
    if device.type != "cpu":
        raise UnfitError(
            f"TrainingLoop: strategy ddp trains on CUDA cards or on the CPU, not on {device.type}; choose single."
        )
    return asked or 2


def train_by_ranks(job: RankJob, size: int, context: NodeContext) -> Trained:
    """Train; the model and optimizer of ``job`` stay as they are.

    Raises: UnfitError for parts that can't be sent; ProcessKilled; CodefyError from a rank's error.
    """
    try:
        data = packed(job)
    except Exception as error:
        # Pickling runs the code of whatever is wired.
        raise UnfitError(
            f"TrainingLoop: strategy ddp sends the training to other processes, and this one can't be sent: {error}."
            " Define classes and functions at the top of their file, or choose single."
        ) from error
    with _meeting_place(size) as port:
        return _Following(context, _start(data, size, port)).result()


@contextmanager
def _meeting_place(size: int) -> Iterator[int]:
    """A store for the ranks on a free port of this machine alone; torch's own would listen on all interfaces."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        store = TCPStore(
            "127.0.0.1",
            port,
            size,
            is_master=True,
            timeout=timedelta(seconds=60),
            wait_for_workers=False,
            master_listen_fd=listening.detach(),
        )
    try:
        yield port
    finally:
        del store


@dataclass(slots=True)
class _Rank:
    number: int
    process: BaseProcess
    link: Connection
    failure: Failure | None = None
    is_open: bool = True


def _start(data: bytes, size: int, port: int) -> list[_Rank]:
    """Forked from a process that has nothing but libraries: this one may have threads, and a card in use."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    context.set_forkserver_preload(list(PRELOAD))
    threads = max(1, torch.get_num_threads() // size)
    files = modules_by_file()
    ranks: list[_Rank] = []
    try:
        for number in range(size):
            mine, theirs = context.Pipe()
            place = Place(rank=number, size=size, port=port, threads=threads)
            process = context.Process(  # type: ignore[attr-defined]
                target=main, args=(place, theirs, data, files), name=f"rank {number}"
            )
            process.start()
            theirs.close()
            ranks.append(_Rank(number, process, mine))
    except BaseException:
        _end(ranks)
        raise
    return ranks


def _end(ranks: Sequence[_Rank]) -> None:
    for rank in ranks:
        rank.process.kill()
    for rank in ranks:
        rank.process.join()
        rank.link.close()


@dataclass(slots=True)
class _Following:
    """From the start of the ranks to the result of the first one, or to the failure of any."""

    context: NodeContext
    ranks: list[_Rank]
    trained: Trained | None = None
    told_to_stop: bool = False
    _words: dict[str, Callable[..., Any]] = field(init=False)

    def __post_init__(self) -> None:
        run = self.context
        self._words = {
            "derive_seed": run.derive_seed,
            "output_file": run.output_file,
            "metric": run.metric,
            "artifact": run.artifact,
            "progress": run.progress,
            "log": run.log,
        }

    def result(self) -> Trained:
        try:
            while not self._over():
                self._pass_on(ASK_S)
                self._stop_when_asked()
            failed = self._failed()
            if not failed and self.trained is not None:
                self._let_end()
                return self.trained
            self._gather()
            raise self._cause()
        finally:
            _end(self.ranks)

    def _over(self) -> bool:
        return self.trained is not None or self._failed()

    def _failed(self) -> bool:
        return any(rank.failure or rank.process.exitcode for rank in self.ranks)

    def _pass_on(self, within_s: float) -> None:
        """Wait for words or an end, and take all that is there."""
        links = {rank.link: rank for rank in self.ranks if rank.is_open}
        ends = [rank.process.sentinel for rank in self.ranks if rank.process.exitcode is None]
        for ready in wait([*links, *ends], within_s):
            rank = links.get(ready) if isinstance(ready, Connection) else None
            if rank is not None:
                self._read(rank)

    def _read(self, rank: _Rank) -> None:
        try:
            while rank.link.poll():
                self._take(rank, *rank.link.recv())
        except (EOFError, OSError):
            rank.is_open = False

    def _take(self, rank: _Rank, kind: str, *said: Any) -> None:
        match kind:
            case "say":
                self._words[said[0]](*said[1])
            case "ask":
                rank.link.send(("answer", self._words[said[0]](*said[1])))
            case "failed":
                rank.failure = said[0]
            case "done":
                self.trained = _unpacked(said[0])

    def _stop_when_asked(self) -> None:
        if not self.told_to_stop and self.context.should_stop():
            self.told_to_stop = True
            with suppress(OSError):
                self.ranks[0].link.send(("stop",))

    def _gather(self) -> None:
        until = time.monotonic() + GATHER_S
        while (left := until - time.monotonic()) > 0 and not all(
            rank.failure or rank.process.exitcode is not None for rank in self.ranks
        ):
            self._pass_on(left)
        for rank in self.ranks:
            if rank.is_open:
                self._read(rank)

    def _let_end(self) -> None:
        until = time.monotonic() + END_S
        for rank in self.ranks:
            rank.process.join(max(0.0, until - time.monotonic()))

    def _cause(self) -> CodefyError:
        """A killed rank tells nothing; of those that told, the others failed for want of the first."""
        for rank in self.ranks:
            code = rank.process.exitcode
            if code is not None and code < 0:
                return ProcessKilled(
                    f"TrainingLoop: rank {rank.number} was ended by {signal_name(-code)}", signal=-code
                )
        told = [rank.failure for rank in self.ranks if rank.failure is not None]
        if not told:
            codes = {rank.number: rank.process.exitcode for rank in self.ranks if rank.process.exitcode}
            return CodefyError(
                f"TrainingLoop: rank {next(iter(codes), 0)} ended with status {next(iter(codes.values()), None)}"
                " without a word; its standard error is in the run's log.",
                code="node.failed",
            )
        first = min(told, key=lambda failure: failure.at)
        self.context.log(first.story.rstrip())
        error = CodefyError(f"TrainingLoop: rank {first.rank} failed: {first.text}", code="node.failed")
        error.__cause__ = first.error
        return error


def _unpacked(data: bytes) -> Trained:
    trained: Trained = torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
    return trained


def apply(trained: Trained, parts: Parts) -> None:
    """Bring the wired model, optimizer and schedule to where the ranks' are."""
    parts.model.load_state_dict(trained.model)
    parts.optimizer.load_state_dict(dict(trained.optimizer))
    if parts.scheduler is not None and trained.scheduler is not None:
        parts.scheduler.load_state_dict(dict(trained.scheduler))
