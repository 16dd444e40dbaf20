"""One rank of a training: a process of its own that trains its part in step with the others.

The first rank speaks for all: what it reports goes to the run over a pipe. It is started by ``ranks``, never by hand.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import pickle
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from pydantic import JsonValue
from torch._C._distributed_c10d import TCPStore

from codefyui_core.plugin import Family

from ..data.sharing import LoaderPlan
from .early_stopping import EarlyStopping
from .keeping import Keeper
from .loop import Training
from .reports import Reporter, open_tensorboard
from .state import Files, History, Parts, Settings
from .team import Ranks

JOIN_S = 120.0
"""The longest that ranks wait for each other, also in a step: as long as one may be slower than the others."""
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
"""Names of the interface that leads nowhere else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankJob:
    """What every rank is told; the parts in one, as the optimizer's parameters are the model's."""

    parts: Parts
    """Without loaders."""
    train: LoaderPlan
    validate: LoaderPlan | None
    settings: Settings
    files: Files
    run_id: str
    node_id: str
    records: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which rank, among how many, and where they meet."""

    rank: int
    size: int
    port: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What the first rank hands back."""

    model: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    scheduler: Mapping[str, Any] | None
    history: History
    stopping: EarlyStopping
    interrupted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a rank gave up."""

    rank: int
    at: float
    """``time.monotonic``, which all processes of a machine share: the others fail after it, for want of it."""
    error: BaseException | None
    """None when it can't be sent."""
    text: str
    story: str


class RankContext:
    """The run as a rank sees it: the part of ``NodeContext`` that a training needs. Only the first rank's
    words go anywhere.
    """

    def __init__(self, link: Connection, job: RankJob, rank: int) -> None:
        self.run_id, self.node_id, self.records = job.run_id, job.node_id, job.records
        self._link, self._speaks = link, rank == 0
        self._stop = False

    def derive_seed(self, label: str) -> int | None:
        found: int | None = self._ask("derive_seed", label)
        return found

    def output_file(self, family: Family, name: str) -> Path:
        path: Path = self._ask("output_file", family, name)
        return path

    def metric(self, name: str, value: float, step: int | None = None) -> None:
        self._say("metric", name, value, step)

    def artifact(self, kind: str, path: Path, meta: Mapping[str, JsonValue] | None = None) -> None:
        self._say("artifact", kind, path, meta)

    def progress(self, payload: Mapping[str, JsonValue]) -> None:
        self._say("progress", payload)

    def log(self, text: str) -> None:
        self._say("log", text)

    def should_stop(self) -> bool:
        while not self._stop and self._link.poll():
            self._take(self._link.recv())
        return self._stop

    def _say(self, method: str, *words: Any) -> None:
        if self._speaks:
            self._link.send(("say", method, words))

    def _ask(self, method: str, *words: Any) -> Any:
        self._link.send(("ask", method, words))
        while True:
            message = self._link.recv()
            if message[0] == "answer":
                return message[1]
            self._take(message)

    def _take(self, message: Sequence[Any]) -> None:
        self._stop |= message[0] == "stop"


class Silent(Keeper):
    """Writes nothing: the first rank does."""

    def _write(self, folder: str, moment: str, state: Any, meta: Any) -> Path:
        return Path()


def main(place: Place, link: Connection, data: bytes, files: Mapping[str, str]) -> None:
    """The process. Ends with status 1 when the rank failed, which it has told then."""
    sys.meta_path.append(FileFinder(files))
    try:
        torch.set_num_threads(place.threads)
        job: RankJob = torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
        _meet(place, job.settings.device)
        trained = _train(job, place, link)
        dist.barrier()
        if place.rank == 0:
            link.send(("done", packed(trained)))
    except BaseException as error:
        link.send(("failed", _failure(place.rank, error)))
        sys.exit(1)


def _meet(place: Place, device: torch.device) -> None:
    """Join the group, over interfaces that lead nowhere else."""
    if name := LOOPBACK.get(sys.platform):
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = name
    within = timedelta(seconds=JOIN_S)
    store = TCPStore("127.0.0.1", place.port, place.size, is_master=False, timeout=within)
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(place.rank)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=store,
        rank=place.rank,
        world_size=place.size,
        timeout=within,
    )


def _train(job: RankJob, place: Place, link: Connection) -> Trained:
    team = Ranks()
    context: Any = RankContext(link, job, place.rank)
    cuda = job.settings.device.type == "cuda"
    settings = replace(job.settings, device=torch.device("cuda", place.rank) if cuda else job.settings.device)
    parts = replace(
        job.parts,
        loader=team.share(job.train),
        val_loader=None if job.validate is None else team.share_to_measure(job.validate),
    )
    speaks = place.rank == 0
    files = job.files
    board = open_tensorboard(files.board) if speaks and files.board is not None else None
    reporter = Reporter(context, time.monotonic, board)
    keeping = Keeper if speaks else Silent
    keeper = keeping(context, files.every_epochs, files.every_steps)
    training = Training(parts, settings, context, reporter, keeper, team)
    if files.start is not None:
        training.resume(files.start)
    try:
        training.run()
    finally:
        reporter.close()
    scheduler = parts.scheduler
    return Trained(
        model=parts.model.state_dict(),
        optimizer=parts.optimizer.state_dict(),
        scheduler=None if scheduler is None else scheduler.state_dict(),
        history=training.history,
        stopping=training.stopping,
        interrupted=training.interrupted,
    )


def packed(value: Any) -> bytes:
    """With tensors by value: the pickler of multiprocessing would share their memory among the ranks.

    Raises: whatever pickling raises for what can't be sent.
    """
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _failure(rank: int, error: BaseException) -> Failure:
    story = "".join(traceback.format_exception(error))
    at, text = time.monotonic(), f"{type(error).__name__}: {error}"
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  what was made in the same line
    except Exception:
        return Failure(rank=rank, at=at, error=None, text=text, story=story)
    return Failure(rank=rank, at=at, error=error, text=text, story=story)


def modules_by_file() -> dict[str, str]:
    """Modules that were loaded from a file outside of the import path (people's own node files): name -> file.

    Another process needs to be told of them before it can read what is made of their classes.
    """
    found = {}
    for name, module in list(sys.modules.items()):
        top, dot, _ = name.partition(".")
        file = getattr(module, "__file__", None)
        if dot and top not in sys.modules and isinstance(file, str):
            found[name] = file
    return found


class FileFinder(importlib.abc.MetaPathFinder):
    """Imports modules by the files of ``modules_by_file``."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._packages = {name.rpartition(".")[0] for name in files}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in self._files:
            return importlib.util.spec_from_file_location(fullname, self._files[fullname])
        if fullname in self._packages:
            return importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        return None
