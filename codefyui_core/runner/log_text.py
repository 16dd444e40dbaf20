"""Turns what a run prints into ``log`` events and the last lines for its ending."""

import json
from collections import deque
from collections.abc import Sequence

LINE_BYTES = 64 << 10
GATHER_BYTES = 64 << 10
GATHER_S = 0.1
TAIL_LINES = 40
TAIL_BYTES = 8 << 10
LEVELS = {"stdout": "info", "stderr": "warning"}


class Lines:
    """Cuts a byte stream into lines. What a carriage return overwrites (progress bars) is dropped; a line
    over 64 KiB is cut, with its length.
    """

    def __init__(self) -> None:
        self._open = bytearray()
        self._length = 0

    def feed(self, data: bytes) -> list[str]:
        """The lines that ``data`` completes."""
        *whole, rest = data.split(b"\n")
        lines = []
        for part in whole:
            self._add(part)
            lines.append(self._finish())
        self._add(rest)
        return lines

    def end(self) -> list[str]:
        """What is left without a line end."""
        return [self._finish()] if self._length else []

    def _add(self, part: bytes) -> None:
        if self._open.endswith(b"\r") and part:
            self._clear()
        body = part[:-1] if part.endswith(b"\r") else part
        if (cut := body.rfind(b"\r")) >= 0:
            self._clear()
            part = part[cut + 1 :]
        self._length += len(part)
        self._open += part[: max(0, LINE_BYTES - len(self._open))]

    def _clear(self) -> None:
        self._open.clear()
        self._length = 0

    def _finish(self) -> str:
        text = bytes(self._open).removesuffix(b"\r").decode("utf-8", errors="replace")
        if self._length > LINE_BYTES:
            text = f"{text}... [cut; the line has {self._length} bytes]"
        self._clear()
        return text


class Tail:
    """The last lines of a stream: at most 40, 8 KiB."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)

    def add(self, lines: Sequence[str]) -> None:
        self._lines.extend(lines)

    def lines(self) -> tuple[str, ...]:
        kept: list[str] = []
        room = TAIL_BYTES
        for line in reversed(self._lines):
            data = line.encode("utf-8", errors="replace")
            if len(data) + 1 > room:
                if not kept:
                    kept.append(data[-room:].decode("utf-8", errors="replace"))
                break
            kept.append(line)
            room -= len(data) + 1
        return tuple(reversed(kept))


def log_event(stream: str, lines: Sequence[str], ts: int) -> bytes:
    """The event of some lines of one stream, as the run's own pipe would carry it."""
    payload = {"node_id": None, "stream": stream, "level": LEVELS[stream], "lines": list(lines)}
    document = {"kind": "event", "type": "log", "payload": payload, "ts": ts}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
