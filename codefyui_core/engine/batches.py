"""Metrics and logged lines, gathered for a moment so that a tight loop doesn't make an event a step."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from codefyui_core.plugin.values import JsonObject

from .speaker import Speaker

POINTS = 64
METRICS_S = 0.5
LOG_BYTES = 64 << 10
LOG_S = 0.1


@dataclass(slots=True, kw_only=True)
class Batches:
    """Flushed when they are full, when their time is over, and on demand. Safe from any thread."""

    speaker: Speaker
    monotonic: Callable[[], float] = time.monotonic
    _points: list[JsonObject] = field(default_factory=list)
    _lines: dict[str, list[str]] = field(default_factory=dict)
    _bytes: int = 0
    _metrics_due: float | None = None
    _log_due: float | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _thread: threading.Thread | None = None
    _closed: bool = False

    def metric(self, point: JsonObject) -> None:
        with self._changed:
            self._points.append(point)
            if len(self._points) >= POINTS:
                self._flush_metrics()
            elif self._metrics_due is None:
                self._metrics_due = self.monotonic() + METRICS_S
                self._wake()

    def log(self, node_id: str, lines: list[str]) -> None:
        with self._changed:
            self._lines.setdefault(node_id, []).extend(lines)
            self._bytes += sum(map(len, lines)) + len(lines)
            if self._bytes >= LOG_BYTES:
                self._flush_log()
            elif self._log_due is None:
                self._log_due = self.monotonic() + LOG_S
                self._wake()

    def flush(self) -> None:
        with self._changed:
            self._flush_log()
            self._flush_metrics()

    def close(self) -> None:
        with self._changed:
            self._flush_log()
            self._flush_metrics()
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _flush_metrics(self) -> None:
        self._metrics_due = None
        if self._points:
            points, self._points = self._points, []
            self.speaker.event("metric", {"points": points})

    def _flush_log(self) -> None:
        self._log_due, self._bytes = None, 0
        if self._lines:
            gathered, self._lines = self._lines, {}
            for node_id, lines in gathered.items():
                payload = {"node_id": node_id, "stream": "node", "level": "info", "lines": lines}
                self.speaker.event("log", payload)

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_time, name="batches", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _keep_time(self) -> None:
        with self._changed:
            while not self._closed:
                now = self.monotonic()
                if self._log_due is not None and self._log_due <= now:
                    self._flush_log()
                if self._metrics_due is not None and self._metrics_due <= now:
                    self._flush_metrics()
                due = [at for at in (self._log_due, self._metrics_due) if at is not None]
                self._changed.wait(max(0.001, min(due) - now) if due else None)
