"""What a run says of its nodes, in the order in which it happens. Containers get statuses merged of theirs."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.status import NodeStatus

from .batches import LOG_BYTES, Batches
from .speaker import Speaker

_SUMMARIES = frozenset({"tensor_summary", "model_summary", "scalar", "string", "list", "value"})
"""Output kinds that a container leaves to its inner nodes."""


@dataclass(slots=True, kw_only=True)
class _Container:
    """A preset or subgraph instance while its nodes run."""

    left: int
    begun: bool = False
    failed: bool = False
    ended: set[NodeStatus] = field(default_factory=set)
    outputs: list[JsonObject] = field(default_factory=list)

    def verdict(self) -> NodeStatus:
        """Once every node of it has ended: the worst there was, else the one that all share."""
        for status in (NodeStatus.INTERRUPTED, NodeStatus.SKIPPED):
            if status in self.ended:
                return status
        ended = self.ended - {NodeStatus.NOT_SELECTED}
        if not ended:
            return NodeStatus.NOT_SELECTED
        return NodeStatus.CACHED if ended == {NodeStatus.CACHED} else NodeStatus.COMPLETED


class Reporter:
    """Safe from any thread."""

    def __init__(self, speaker: Speaker, containers: Mapping[str, str]) -> None:
        """``containers``: the container of each node that has one."""
        self._speaker = speaker
        self._batches = Batches(speaker=speaker)
        self._of = containers
        self._containers: dict[str, _Container] = {}
        for container in containers.values():
            self._containers.setdefault(container, _Container(left=0)).left += 1
        self._lock = threading.Lock()

    def start(self, run_id: str) -> None:
        self._speaker.event("execution_start", {"run_id": run_id})

    def running(self, node_id: str) -> None:
        self._status(node_id, NodeStatus.RUNNING)
        container = self._of.get(node_id)
        if container is not None:
            with self._lock:
                first = not self._containers[container].begun
                self._containers[container].begun = True
            if first:
                self._status(container, NodeStatus.RUNNING)

    def ended(
        self,
        node_id: str,
        status: NodeStatus,
        *,
        error: str | None = None,
        outputs: list[JsonObject] | None = None,
    ) -> None:
        """A node's last status. What it logged and measured comes before it."""
        self._batches.flush()
        self._status(node_id, status, error=error, outputs=outputs)
        container = self._of.get(node_id)
        if container is not None:
            self._merge(container, node_id, status, error, outputs or [])

    def progress(self, node_id: str, payload: Mapping[str, JsonValue]) -> None:
        entry: JsonObject = {"output_kind": "progress", "progress": dict(payload)}
        self._status(node_id, NodeStatus.PROGRESS, outputs=[entry])
        if (container := self._of.get(node_id)) is not None:
            self._status(container, NodeStatus.PROGRESS, outputs=[{**entry, "node_id": node_id}])

    def log(self, node_id: str, lines: Iterable[str]) -> None:
        """Lines over 64 KiB are cut with their length."""
        self._batches.log(node_id, [_cut(line) for line in lines])

    def metric(self, node_id: str, name: str, value: float, step: int | None) -> None:
        self._batches.metric({"name": name, "value": value, "step": step, "node_id": node_id})

    def artifact(
        self,
        node_id: str,
        key: str,
        kind: str,
        path: Path,
        relative: str | None,
        meta: Mapping[str, JsonValue],
    ) -> None:
        """A file or folder that is whole on disk."""
        self._speaker.event(
            "artifact",
            {
                "artifact_id": key,
                "kind": kind,
                "name": path.name,
                "path": str(path),
                "relative_path": relative,
                "size_bytes": size_of(path),
                "is_folder": path.is_dir(),
                "node_id": node_id,
                "meta": dict(meta),
            },
        )

    def warning(self, kind: str, detail: str, count: int = 1) -> None:
        self._speaker.event("run_warning", {"kind": kind, "count": count, "detail": detail})

    def close(self) -> None:
        """Everything that was gathered is out after it."""
        self._batches.close()

    def _merge(
        self, name: str, node_id: str, status: NodeStatus, error: str | None, outputs: list[JsonObject]
    ) -> None:
        container = self._containers[name]
        with self._lock:
            container.left -= 1
            container.ended.add(status)
            container.outputs += [
                {**output, "node_id": node_id}
                for output in outputs
                if output["output_kind"] not in _SUMMARIES
            ]
            fails = status is NodeStatus.ERROR and not container.failed
            container.failed = container.failed or fails
            done = container.left == 0 and not container.failed
        if fails:
            self._status(name, NodeStatus.ERROR, error=error)
        elif done:
            self._status(name, container.verdict(), outputs=container.outputs or None)

    def _status(
        self,
        node_id: str,
        status: NodeStatus,
        *,
        error: str | None = None,
        outputs: list[JsonObject] | None = None,
    ) -> None:
        payload: dict[str, Any] = {"node_id": node_id, "status": status.value}
        if error is not None:
            payload["error"] = error
        if outputs is not None:
            payload["outputs"] = outputs
        self._speaker.event("node_status", payload)


def _cut(line: str) -> str:
    return (
        line
        if len(line) <= LOG_BYTES
        else f"{line[:LOG_BYTES]}... [cut; the line has {len(line)} characters]"
    )


def size_of(path: Path) -> int:
    """Of a file, or of all files below a folder; links aren't followed."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(one.lstat().st_size for one in path.rglob("*") if one.is_file() and not one.is_symlink())
