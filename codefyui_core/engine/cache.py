"""Results of nodes that need not be computed again."""

import hashlib
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from codefyui_core.plugin.values import JsonObject

Result = Mapping[str, Any]


def result_key(
    *,
    type_name: str,
    params: JsonObject,
    sources: Iterable[tuple[str, str, str]],
    device: str,
    seed: int | None,
    fingerprint: str | None,
) -> str:
    """SHA-256 over all that a result depends on; ``sources`` are (target port, key of the source, its port)."""
    document = [type_name, params, sorted(sources), device, seed, fingerprint]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(slots=True, kw_only=True)
class ResultCache:
    """Least recently used out first, by entries and by bytes. What goes in and comes out are copies of
    tensors, so that an in-place operation downstream never changes what is kept.
    """

    entries: int = 256
    bytes: int = 1024 << 20
    """0: not bounded."""
    _results: "OrderedDict[str, tuple[Result, int]]" = field(default_factory=OrderedDict)
    _held: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: str) -> Result | None:
        with self._lock:
            found = self._results.get(key)
            if found is None:
                return None
            self._results.move_to_end(key)
        result: Result = copied(found[0])
        return result

    def put(self, key: str, result: Result) -> None:
        size = size_of(result)
        if self.bytes and size > self.bytes:
            return
        kept = copied(result)
        with self._lock:
            self._drop(key)
            self._results[key] = (kept, size)
            self._held += size
            while len(self._results) > self.entries or (self.bytes and self._held > self.bytes):
                self._drop(next(iter(self._results)))

    def clear(self) -> None:
        with self._lock:
            self._results.clear()
            self._held = 0

    def __len__(self) -> int:
        return len(self._results)

    def _drop(self, key: str) -> None:
        _, size = self._results.pop(key, (None, 0))
        self._held -= size


def copied(value: Any) -> Any:
    """Tensors and arrays cloned, containers rebuilt, anything else as it is."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.clone()
    if numpy is not None and isinstance(value, numpy.ndarray):
        return value.copy()
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    if type(value) is list or type(value) is tuple:
        return type(value)(copied(item) for item in value)
    return value


def size_of(value: Any) -> int:
    """Bytes, roughly: what tensors, arrays and texts hold."""
    if isinstance(value, Mapping):
        return 64 + sum(size_of(item) for item in value.values())
    if isinstance(value, list | tuple):
        return 64 + sum(size_of(item) for item in value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.nn.Module):
        return sum(one.nbytes for one in value.state_dict().values() if hasattr(one, "nbytes"))
    size = getattr(value, "nbytes", None)
    return size if isinstance(size, int) else sys.getsizeof(value, 64)
