"""One file of a run on its way out, and what its ``artifact`` event says."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from codefyui_core.errors import BadName, Refused
from codefyui_core.files import Folders
from codefyui_core.plugin.storage import Output, Receipt
from codefyui_core.plugin.values import JsonObject
from codefyui_core.portable_names import to_portable
from codefyui_core.runs.status import ArtifactState

from .copies import Stamp
from .found import files_below
from .journal import Recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """``payload`` is that of its event, as far as it is known before the file is delivered."""

    key: str
    name: str
    relative_path: str
    path: Path
    """Where the run has it."""
    payload: JsonObject
    snapshot: Path | None = None
    """What it was when it was reported."""
    stamp: Stamp | None = None
    ts: int | None = None
    problem: str = ""
    """Why it can't travel."""

    @property
    def source(self) -> Path:
        return self.snapshot or self.path

    @property
    def output(self) -> Output:
        node, size = self.payload.get("node_id"), self.payload.get("size_bytes")
        return Output(
            key=self.key,
            kind=str(self.payload["kind"]),
            name=self.name,
            relative_path=self.relative_path,
            node_id=node if isinstance(node, str) else None,
            size_bytes=size if isinstance(size, int) else None,
        )

    @property
    def size_bytes(self) -> int:
        """As it was when it was found or reported."""
        if self.stamp is not None:
            return self.stamp.size
        return self.output.size_bytes or 0

    def delivered(self, backend: str, receipt: Receipt) -> JsonObject:
        """The payload of a file that is where it goes."""
        return self.payload | {
            "backend": backend,
            "relative_path": self.relative_path,
            "state": ArtifactState.STORED.value,
            "receipt": receipt.model_dump(mode="json"),
        }

    def left(self) -> JsonObject:
        """The payload of a file that stays on this machine, where it stays. Blocking."""
        kept = self.path
        if self.snapshot is not None and not _is_still(self.path, self.stamp) and self.snapshot.is_file():
            kept = self.snapshot
        return self.payload | {"path": shown(kept), "state": ArtifactState.ON_WORKER.value}

    def let_go(self, *, delivered: bool) -> None:
        """Its snapshot is of no use any more, unless it is all that is left. Blocking."""
        if self.snapshot is not None and (delivered or _is_still(self.path, self.stamp)):
            self.snapshot.unlink(missing_ok=True)


def kind_of(path: Path, folders: Folders) -> tuple[str, bool]:
    """Its name below the data folder, and whether it is a folder. Blocking.

    Raises: Refused for what can't travel.
    """
    relative = folders.relative(path)
    try:
        real = path.resolve()
        if relative is None or (real != path and folders.relative(real) is None):
            raise Refused("it lies outside the run's folder")
        to_portable(relative)
        mode = path.lstat().st_mode
    except BadName as error:
        raise Refused(error.message) from error
    except OSError as error:
        raise Refused(f"it can't be read: {error}") from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise Refused("it is no file or folder")
    return relative, stat.S_ISDIR(mode)


def is_last(payload: Mapping[str, Any]) -> bool:
    """The checkpoint that a stopped run goes on from: it is sent when all else is."""
    meta = payload.get("meta")
    return isinstance(meta, dict) and meta.get("interrupted") is True


def of_record(recorded: Recorded, folders: Folders) -> Iterator[Item]:
    """The file that a run recorded; of a folder, each file, which has its own row. Blocking."""
    payload = recorded.payload
    path = Path(str(payload["path"]))
    relative, problem = portable(folders.relative(path) or str(payload.get("relative_path") or path.name))
    name, _ = portable(str(payload.get("name") or PurePosixPath(relative).name))
    if recorded.snapshot is not None or not path.is_dir() or path.is_symlink():
        snapshot = None if recorded.snapshot is None else Path(recorded.snapshot)
        stamp = Stamp(*recorded.stamp) if len(recorded.stamp) == len(Stamp._fields) else None
        yield Item(
            key=recorded.key,
            name=name,
            relative_path=relative,
            path=path,
            payload=payload,
            snapshot=snapshot,
            stamp=stamp,
            ts=recorded.ts,
            problem=problem,
        )
        return
    for number, (written, found) in enumerate(files_below(path), 1):
        key = f"{recorded.key}/{number}"
        below, problem = portable(written)
        own: JsonObject = {
            "artifact_id": key,
            "name": f"{name}/{below}",
            "path": shown(path / written),
            "is_folder": False,
        }
        yield Item(
            key=key,
            name=f"{name}/{below}",
            relative_path=f"{relative}/{below}",
            path=path / written,
            payload=payload | own | {"size_bytes": found.st_size},
            ts=recorded.ts,
            problem=problem,
        )


def of_found(run_id: str, relative: str, path: Path, found: os.stat_result) -> Item:
    """A file that was written without a word. Its key is the same whenever it is looked for."""
    key = hashlib.sha256(f"{run_id}\n{relative}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
    name, problem = portable(relative)
    payload: JsonObject = {
        "artifact_id": key,
        "kind": "output",
        "name": name,
        "path": shown(path),
        "relative_path": name,
        "size_bytes": found.st_size,
        "is_folder": False,
        "node_id": None,
    }
    return Item(
        key=key,
        name=name,
        relative_path=name,
        path=path,
        payload=payload,
        stamp=Stamp.of(found),
        problem=problem,
    )


def portable(relative: str) -> tuple[str, str]:
    """As it travels: in a form that any control plane can hold, and that gives the name back. Beside it, why there is
    no such form.
    """
    try:
        return to_portable(relative), ""
    except BadName as error:
        return shown(Path(relative)), error.message


def shown(path: Path) -> str:
    """As text that every database holds: bytes that are no UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _is_still(path: Path, stamp: Stamp | None) -> bool:
    try:
        return stamp is not None and Stamp.of(path.lstat()) == stamp
    except OSError:
        return False
