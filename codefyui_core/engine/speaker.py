"""Public events as lines of the pipe, each within its cap."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from codefyui_core.plugin.values import JsonObject

from .numbers import encode

Emit = Callable[[bytes], None]
"""Takes one JSON line without its end; blocks while the reader holds the run. Safe from any thread."""


class Speaker:
    """Writes events. Nothing is dropped: what is over the cap is replaced by its size."""

    def __init__(self, emit: Emit, cap_bytes: int) -> None:
        self._emit = emit
        self._cap = cap_bytes

    def event(self, type_name: str, payload: Mapping[str, Any]) -> None:
        line = _line("event", type_name, payload)
        if len(line) > self._cap and len(encode(payload)) > self._cap:
            line = _line("event", type_name, self._fitting(payload))
        self._emit(line)

    def environment(self, facts: Mapping[str, Any]) -> None:
        """Execution facts; not an event."""
        self._emit(_line("environment", None, facts))

    def _fitting(self, payload: Mapping[str, Any]) -> JsonObject:
        """Outputs are elided, the largest first, until the rest fits; of other payloads the largest values."""
        fitting = dict(payload)
        if isinstance(outputs := payload.get("outputs"), list):
            fitting["outputs"] = self._elided(fitting, outputs)
        for name in sorted(fitting, key=lambda key: -_size(fitting[key])):
            if len(encode(fitting)) <= self._cap:
                break
            fitting[name] = self._cut(fitting[name])
        return fitting

    def _elided(self, payload: JsonObject, outputs: list[Any]) -> list[Any]:
        kept = list(outputs)
        sizes = [_size(output) for output in outputs]
        rest = len(encode({**payload, "outputs": []}))
        room = self._cap - rest
        for index in sorted(range(len(kept)), key=lambda one: -sizes[one]):
            if sum(sizes) + len(sizes) <= room:
                break
            kept[index] = {
                **{
                    name: outputs[index][name]
                    for name in ("output_kind", "port", "node_id")
                    if name in outputs[index]
                },
                "elided": True,
                "bytes": sizes[index],
                "cap_bytes": self._cap,
            }
            sizes[index] = _size(kept[index])
        return kept

    def _cut(self, value: Any) -> Any:
        if isinstance(value, str):
            return value[: self._cap // 16] + f"... [cut; {len(value)} characters]"
        return {"elided": True, "bytes": _size(value), "cap_bytes": self._cap}


def _size(value: Any) -> int:
    return len(encode({"": value})) - 5


def _line(kind: str, type_name: str | None, payload: Mapping[str, Any]) -> bytes:
    return encode({"kind": kind, "type": type_name, "payload": payload, "ts": time.time_ns() // 1_000_000})
