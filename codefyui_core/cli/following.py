"""Follows a run on the terminal: a bar with loss and accuracy, what it prints, how it ended."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from .client import HttpApi, Unreachable

FINAL = frozenset({"succeeded", "failed", "cancelled", "interrupted"})


class RunView(Protocol):
    """Shows events as they come."""

    def show(self, event: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class JsonView:
    """One event a line."""

    def show(self, event: dict[str, Any]) -> None:
        click.echo(json.dumps(event, separators=(",", ":")))

    def close(self) -> None:
        """Nothing is open."""


class QuietView:
    """Nothing but the end."""

    def show(self, event: dict[str, Any]) -> None:
        """Left out."""

    def close(self) -> None:
        """Nothing is open."""


@dataclass(slots=True)
class TerminalView:
    """A bar a training node, and one for files under way, on a terminal; plain lines elsewhere."""

    console: Console = field(
        default_factory=lambda: Console(file=sys.stdout, highlight=False, soft_wrap=True)
    )
    progress: Progress | None = None
    tasks: dict[str, TaskID] = field(default_factory=dict)
    numbers: dict[str, dict[str, float]] = field(default_factory=dict)
    waits: str = ""

    def show(self, event: dict[str, Any]) -> None:
        payload = event["payload"]
        match event["type"]:
            case "metric":
                self._metric(payload)
            case "node_status":
                self._status(payload)
            case "log":
                for line in payload["lines"]:
                    self.console.print(line, markup=False)
            case "run_warning" if payload.get("kind") == "transfer_progress":
                self._transfer(payload)
            case "run_warning":
                detail = payload.get("detail") or payload.get("message") or payload.get("kind")
                self.console.print(f"warning: {detail}", markup=False)

    def waiting(self, reason: str) -> None:
        """Why it hasn't started; said once a reason."""
        if reason and reason != self.waits:
            self.waits = reason
            self.console.print(f"waiting: {reason}", markup=False)

    def close(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None

    def _metric(self, payload: dict[str, Any]) -> None:
        for point in payload["points"]:
            if isinstance(point.get("value"), int | float):
                self.numbers.setdefault(point.get("node_id") or "", {})[point["name"]] = point["value"]

    def _status(self, payload: dict[str, Any]) -> None:
        node = payload["node_id"]
        for report in progress_of(payload):
            if report.get("event") == "epoch":
                self._advance(node, report)
        if payload["status"] == "error":
            self.console.print(f"{node}: {payload.get('error')}", markup=False, style="red")

    def _advance(self, node: str, report: dict[str, Any]) -> None:
        epoch, total = int(report["epoch"]), int(report["total_epochs"])
        words = self._words(node, report)
        if not self.console.is_terminal:
            self.console.print(f"epoch {epoch}/{total}  {words}", markup=False)
            return
        self._bar(node, epoch, total, shown=f"{epoch}/{total}", words=words)

    def _transfer(self, payload: dict[str, Any]) -> None:
        """A bar a direction: the files come one after the other, or a few at once."""
        done, total = payload.get("bytes_done"), payload.get("bytes_total")
        detail = str(payload.get("detail"))
        if not self.console.is_terminal or not isinstance(done, int) or not isinstance(total, int):
            self.console.print(detail, markup=False)
            return
        from ..graph.files_used import size_text

        way = "inputs" if payload.get("direction") == "in" else "outputs"
        number = f"{payload.get('index')}/{payload.get('count')}"
        words = f"{payload.get('file')}  {size_text(done)} of {size_text(total)}"
        self._bar(f"\0{way}", done, total, shown=number, words=words, label=way)

    def _bar(
        self, key: str, done: int, total: int, *, shown: str, words: str, label: str | None = None
    ) -> None:
        if self.progress is None:
            self.progress = Progress(
                TextColumn("{task.fields[label]}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[shown]}", markup=False),
                TextColumn("{task.description}", markup=False),
                TimeElapsedColumn(),
                console=self.console,
            )
            self.progress.start()
        if key not in self.tasks:
            self.tasks[key] = self.progress.add_task(words, total=total, label=label or key, shown=shown)
        self.progress.update(
            self.tasks[key], completed=done, total=max(total, 1), description=words, shown=shown
        )

    def _words(self, node: str, report: dict[str, Any]) -> str:
        numbers = self.numbers.get(node, {})
        shown = [f"loss {report['loss']:.4f}"] if isinstance(report.get("loss"), int | float) else []
        if isinstance(report.get("val_loss"), int | float):
            shown.append(f"val_loss {report['val_loss']:.4f}")
        accuracy = report.get("val_accuracy", numbers.get("val_accuracy"))
        if isinstance(accuracy, int | float):
            shown.append(f"val_accuracy {accuracy:.4f}")
        return "  ".join(shown)


def progress_of(payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The progress reports in a ``node_status`` payload."""
    for output in payload.get("outputs") or ():
        report = output.get("progress")
        if output.get("output_kind") == "progress" and isinstance(report, dict):
            yield report


def follow(api: HttpApi, run_id: str, view: RunView, *, timeout_s: float | None = None) -> dict[str, Any]:
    """Until the run has ended; a broken line is taken up again after the last event seen.

    Returns: the run's row; still active when the time was over first.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    last: str | None = None
    try:
        while True:
            row = cast("dict[str, Any]", api.call("GET", f"/api/runs/{run_id}"))
            if row["status"] == "queued":
                _wait_in_queue(view, row)
            elif row["status"] in FINAL and (last or "0") == str(row["last_cursor"]):
                return row
            else:
                last = _read(api, run_id, view, last, deadline)
            if deadline is not None and time.monotonic() >= deadline:
                return row
    finally:
        view.close()


def _wait_in_queue(view: RunView, row: dict[str, Any]) -> None:
    if isinstance(view, TerminalView):
        view.waiting(row.get("queue_reason") or "")
    time.sleep(0.1)


def _read(api: HttpApi, run_id: str, view: RunView, last: str | None, deadline: float | None) -> str | None:
    try:
        for event in api.events(f"/api/runs/{run_id}/events", after=last):
            if event.event == "closed":
                return last
            last = event.id or last
            view.show(json.loads(event.data))
            if deadline is not None and time.monotonic() >= deadline:
                return last
    except Unreachable:
        time.sleep(1)
    return last
