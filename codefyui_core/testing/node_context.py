"""A run as a node sees it, without a run: for tests of single nodes."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from codefyui_core.errors import CodefyError
from codefyui_core.files import Family, Folders
from codefyui_core.plugin import Node


@dataclass(slots=True, kw_only=True)
class RecordingContext:
    """A ``NodeContext`` that keeps what a node reports, and stops it when told to."""

    root: Path
    """The data folder; families are below it."""
    run_id: str = "0" * 32
    node_id: str = "node"
    device: str = "cpu"
    seed: int | None = None
    deterministic: bool = False
    verbose: bool = False
    records: bool = True
    stop_after: int | None = None
    """``should_stop`` answers True from this many questions on; None: never."""
    presets: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = field(default_factory=dict)
    metrics: list[tuple[str, float, int | None]] = field(default_factory=list)
    artifacts: list[tuple[str, Path, Mapping[str, JsonValue]]] = field(default_factory=list)
    payloads: list[Mapping[str, JsonValue]] = field(default_factory=list)
    """What ``progress`` was given."""
    lines: list[str] = field(default_factory=list)
    asked: int = 0

    @property
    def folders(self) -> Folders:
        return Folders.below(self.root)

    @property
    def downloads(self) -> Path:
        return self.root / "cache"

    def derive_seed(self, label: str) -> int | None:
        if self.seed is None:
            return None
        text = f"{self.seed}/{self.node_id}/{label}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest())

    def generator(self, label: str) -> Any:
        seed = self.derive_seed(label)
        if seed is None:
            return None
        import torch

        return torch.Generator(device=self.device).manual_seed(seed)

    def input_file(self, family: Family, value: str) -> Path:
        path = self.folders.of(family) / value
        if not path.exists():
            raise CodefyError(f"{value}: no such file in {family.value}/", code="files.not_found")
        return path

    def input_path(self, value: str) -> Path:
        path = self.root / value
        if not path.exists():
            raise CodefyError(f"{value}: no such file or folder", code="files.not_found")
        return path

    def output_file(self, family: Family, name: str) -> Path:
        path = self.folders.of(family) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def run_preset(self, name: str, inputs: Mapping[str, Any], label: str) -> Mapping[str, Any]:
        return self.presets[name](inputs)

    def metric(self, name: str, value: float, step: int | None = None) -> None:
        self.metrics.append((name, float(value), step))

    def artifact(self, kind: str, path: Path, meta: Mapping[str, JsonValue] | None = None) -> None:
        self.artifacts.append((kind, path, dict(meta or {})))

    def progress(self, payload: Mapping[str, JsonValue]) -> None:
        self.payloads.append(dict(payload))

    def log(self, text: str) -> None:
        self.lines.append(text)

    def should_stop(self) -> bool:
        self.asked += 1
        return self.stop_after is not None and self.asked > self.stop_after


def defaults(node: type[Node]) -> dict[str, JsonValue]:
    """The declared defaults of a node's params, as the engine fills them in."""
    return {param.name: param.default for param in node.params}


def execute(
    node: type[Node],
    inputs: Mapping[str, Any] | None = None,
    context: RecordingContext | None = None,
    /,
    *,
    root: Path | None = None,
    **params: JsonValue,
) -> Mapping[str, Any]:
    """Run one node as the engine would: a fresh instance, defaults filled in."""
    chosen = context or RecordingContext(root=root or Path.cwd())
    return node().execute(dict(inputs or {}), {**defaults(node), **params}, chosen)
