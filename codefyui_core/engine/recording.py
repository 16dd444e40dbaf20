"""Records what nodes give (option ``record_outputs``): copies while the run goes on, written after its outcome.

Copies, because a later node may change a tensor in place. They never fail the run: what can't be copied or is
too large is listed with its size, and why.
"""

import ctypes
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from codefyui_core.outputs import STEPS, Captured, CapturedNode, Kind, OutputStore, Step, write
from codefyui_core.outputs.format import SIZES
from codefyui_core.outputs.writing import Chunk
from codefyui_core.plugin.node import Port

from .histograms import measured
from .job import Limits
from .numbers import plain

CHUNK_BYTES = 8 << 20
NESTED_VALUES = 256
"""Tensors within lists and dicts are described, and shown whole up to so many elements."""
MOST_ITEMS = 100_000
"""Of a list or dict: longer ones are data sets, whose texts would hold the run up."""
TEXT = 2000


class Recorder:
    """What one run recorded so far. Safe from any thread."""

    def __init__(self, store: OutputStore, run_id: str, limits: Limits) -> None:
        self._store = store
        self._run_id = run_id
        self._limits = limits
        self._left = store.limit_bytes or sys.maxsize
        self._nodes: list[CapturedNode] = []
        self._lock = threading.Lock()

    def node(
        self,
        node_id: str,
        type_: str,
        container: str | None,
        ports: Iterable[Port],
        result: Mapping[str, Any],
    ) -> None:
        """Copy a node's outputs and the steps that it showed. Never raises."""
        captured = CapturedNode(node_id=node_id, type=type_, container=container)
        for port in ports:
            captured.ports.append(self._captured(port.name, result.get(port.name)))
        steps = result.get(STEPS)
        if isinstance(steps, list | tuple):
            for number, step in enumerate(steps):
                if isinstance(step, Mapping):
                    with suppress(Exception):  # of texts that a step is named by
                        self._step(captured, number, step)
        with self._lock:
            self._nodes.append(captured)

    def _step(self, node: CapturedNode, number: int, step: Mapping[str, Any]) -> None:
        tensors = step.get("tensors")
        named = {str(name): value for name, value in tensors.items()} if isinstance(tensors, Mapping) else {}
        ports = {name: f"{STEPS}.{number}.{name}" for name in named}
        node.ports += [self._captured(ports[name], value) for name, value in named.items()]
        scalars = plain(step.get("scalars") or {})
        node.steps.append(
            Step(
                name=str(step.get("name", "")),
                description=str(step.get("description", "")),
                scalars=scalars if isinstance(scalars, dict) else {},
                tensors=ports,
            )
        )

    def write(self) -> None:
        """Raises: OSError."""
        write(self._store, self._run_id, self._nodes)

    def _captured(self, port: str, value: Any) -> Captured:
        try:
            found = capture(port, value, self._limits, self._may_take)
        except Exception as error:  # of a value's own methods, or for want of memory
            why = f"{type(error).__name__}: {error}"[:200]
            return Captured(port=port, kind=Kind.VALUE, elided=f"it can't be copied ({why})")
        if found.elided is None and not self._take(found.room):
            return found.without_value(_TOO_MUCH)
        return found

    def _may_take(self, size: int) -> bool:
        """Asked before a copy is made."""
        return size <= self._left

    def _take(self, size: int) -> bool:
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True


_TOO_MUCH = "what this run recorded would be more than CODEFYUI_RUN_OUTPUT_STORE_MAX_MB"


def capture(port: str, value: Any, limits: Limits, may_take: Callable[[int], bool]) -> Captured:
    """A copy of one value. Raises whatever the value's methods raise."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if value is None:
        return Captured(port=port, kind=Kind.EMPTY)
    if torch is not None and isinstance(value, torch.Tensor) and _has_elements(value):
        return _tensor(port, value, limits, may_take)
    if torch is not None and isinstance(value, torch.nn.Module):
        return Captured(port=port, kind=Kind.MODEL, value=_model(value))
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc":
        return _array(port, value, limits, may_take)
    if isinstance(value, str):
        return _string(port, value, may_take)
    if isinstance(value, Mapping):
        pairs = (f"{json.dumps(str(key))}:{_text(item)}".encode() for key, item in value.items())
        return _items(port, Kind.DICT, len(value), pairs, may_take)
    if isinstance(value, list | tuple):
        found = _items(port, Kind.LIST, len(value), (_text(item).encode() for item in value), may_take)
        if found.elided is None:
            found.stats = _of_numbers(value, limits)
        return found
    if isinstance(value, bool | int | float) or (
        numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "biuf"
    ):
        return Captured(port=port, kind=Kind.SCALAR, value=plain(value))
    return Captured(port=port, kind=Kind.VALUE, value=_short(value))


# ------------------------------------------------------------ tensors and arrays


def _has_elements(tensor: Any) -> bool:
    """Sparse, quantized and meta tensors have no elements that could be laid out."""
    return bool(tensor.device.type != "meta" and tensor.layout is sys.modules["torch"].strided) and not bool(
        tensor.is_quantized
    )


def _tensor(port: str, tensor: Any, limits: Limits, may_take: Callable[[int], bool]) -> Captured:
    torch = sys.modules["torch"]
    dtype = str(tensor.dtype).removeprefix("torch.")
    wide = tensor.detach() if dtype in SIZES else tensor.detach().to(torch.float32)
    found = Captured(
        port=port,
        kind=Kind.TENSOR,
        bytes=wide.numel() * wide.element_size(),
        dtype=dtype,
        stored=dtype if dtype in SIZES else "float32",
        shape=tuple(tensor.shape),
    )
    if not may_take(found.bytes):
        return found.without_value(_TOO_MUCH)
    copy = torch.empty(wide.shape, dtype=wide.dtype, device="cpu")
    copy.copy_(wide)
    found.chunks = lambda: _memory(copy.data_ptr(), found.bytes, copy)
    found.stats = lambda: measured(_as_array(copy), limits.sample_from, limits.sample_size)
    return found


def _as_array(tensor: Any) -> Any:
    """None without numpy."""
    torch = sys.modules["torch"]
    narrow = tensor.dtype is torch.bfloat16
    return (tensor.float() if narrow else tensor).numpy()


def _memory(address: int, size: int, owner: object) -> Iterator[Chunk]:
    """The bytes at an address, whose owner is kept meanwhile."""
    for start in range(0, size, CHUNK_BYTES):
        length = min(CHUNK_BYTES, size - start)
        yield memoryview((ctypes.c_char * length).from_address(address + start)).cast("B")
    del owner


def _array(port: str, array: Any, limits: Limits, may_take: Callable[[int], bool]) -> Captured:
    numpy = sys.modules["numpy"]
    dtype = str(array.dtype.newbyteorder("="))
    stored = dtype if dtype in SIZES else "complex128" if array.dtype.kind == "c" else "float64"
    found = Captured(
        port=port,
        kind=Kind.TENSOR,
        bytes=array.size * SIZES[stored],
        dtype=dtype,
        stored=stored,
        shape=tuple(array.shape),
    )
    if not may_take(found.bytes):
        return found.without_value(_TOO_MUCH)
    copy = numpy.array(array, dtype=numpy.dtype(stored).newbyteorder("<"), order="C", copy=True)
    found.chunks = lambda: [memoryview(copy.reshape(-1)).cast("B")] if copy.size else []
    found.stats = lambda: measured(copy, limits.sample_from, limits.sample_size)
    return found


# ------------------------------------------------------------ texts, lists, models


def _string(port: str, text: str, may_take: Callable[[int], bool]) -> Captured:
    narrow = text.isascii()
    size = len(text) * (1 if narrow else 4)
    found = Captured(
        port=port,
        kind=Kind.STRING,
        bytes=size,
        stored="latin-1" if narrow else "utf-32-le",
        length=len(text),
    )
    if not may_take(size):
        return found.without_value(_TOO_MUCH)
    found.chunks = lambda: [text.encode(found.stored or "", "surrogatepass")]
    return found


def _items(
    port: str, kind: Kind, count: int, texts: Iterable[bytes], may_take: Callable[[int], bool]
) -> Captured:
    found = Captured(port=port, kind=kind, length=count)
    if count > MOST_ITEMS:
        return found.without_value(f"it has more than {MOST_ITEMS} items")
    items, ends = [], [0]
    for item in texts:
        items.append(item)
        found.bytes += len(item)
        ends.append(found.bytes)
        if not may_take(found.bytes):
            return found.without_value(_TOO_MUCH)
    found.chunks, found.table = lambda: items, ends
    return found


def _of_numbers(values: Sequence[Any], limits: Limits) -> Callable[[], Any] | None:
    """Statistics of a flat list of numbers."""
    kept = tuple(values)
    if not kept or not all(type(one) in {int, float, bool} for one in kept):
        return None

    def stats() -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return None
        array = numpy.array(kept)
        return measured(array, limits.sample_from, limits.sample_size) if array.dtype.kind in "biuf" else None

    return stats


def _text(value: Any) -> str:
    return json.dumps(_described(value), separators=(",", ":"), allow_nan=False)


def _described(value: Any) -> Any:
    """As JSON, but tensors and models within are described instead of written out."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if isinstance(value, Mapping):
        return {str(key): _described(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    if torch is not None and isinstance(value, torch.nn.Module):
        return {"__model__": type(value).__name__}
    if (torch is not None and isinstance(value, torch.Tensor)) or (
        numpy is not None and isinstance(value, numpy.ndarray)
    ):
        return {"__tensor__": _outline(value)}
    return plain(value)


def _outline(tensor: Any) -> dict[str, Any]:
    outline = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    small = 1
    for size in tensor.shape:
        small *= size
    return {**outline, "values": plain(tensor)} if small <= NESTED_VALUES else outline


def _model(model: Any) -> dict[str, Any]:
    named = list(model.named_parameters())
    uninitialized = sys.modules["torch"].nn.parameter.UninitializedParameter
    parameters = [
        {
            "name": name,
            "shape": None if isinstance(one, uninitialized) else list(one.shape),
            "dtype": str(one.dtype).removeprefix("torch."),
            "trainable": bool(one.requires_grad),
        }
        for name, one in named
    ]
    known = [one for _, one in named if not isinstance(one, uninitialized)]
    return {
        "class": type(model).__name__,
        "params": sum(int(one.numel()) for one in known),
        "trainable": sum(int(one.numel()) for one in known if one.requires_grad),
        "parameters": parameters,
    }


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= TEXT else f"{text[: TEXT - 3]}..."
