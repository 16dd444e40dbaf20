"""What a completed node's outputs look like to the editor: small descriptions, never the values themselves."""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from codefyui_core.plugin.node import Port
from codefyui_core.plugin.values import JsonObject

from .job import Limits
from .numbers import plain

VALUES = 256
TEXT = 200
_IMAGE_FORMATS = {"iVBORw0KGgo": "png", "/9j/": "jpeg", "R0lGOD": "gif", "UklGR": "webp", "PHN2Zy": "svg"}
"""How the first bytes of each format read in base64."""


class Summaries:
    """Describes outputs by their ports."""

    def __init__(self, limits: Limits, models: Path) -> None:
        """``models`` is the folder whose files get a download path."""
        self._limits = limits
        self._models = models

    def of(
        self, ports: Iterable[Port], result: Mapping[str, Any], text: Sequence[str], *, verbose: bool
    ) -> list[JsonObject]:
        """The ``outputs`` of a node's status: text first, then one entry a port."""
        found = list(_text(text, self._limits.described_bytes))
        found += [self._port(port, result[port.name]) for port in ports if result.get(port.name) is not None]
        steps = result.get("__steps__")
        if verbose and isinstance(steps, list | tuple) and steps:
            found.append({"output_kind": "steps", "steps": [self._step(step) for step in steps]})
        return found

    def _port(self, port: Port, value: Any) -> JsonObject:
        if port.media is not None and (shown := _media(port.media, value)) is not None:
            return {"output_kind": port.media, "port": port.name, port.media: shown}
        kind, summary = self._summary(value)
        return {"output_kind": kind, "port": port.name, kind: summary}

    def _summary(self, value: Any) -> tuple[str, JsonValue]:
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(value, torch.Tensor):
            return "tensor_summary", self._tensor(value)
        if torch is not None and isinstance(value, torch.nn.Module):
            return "model_summary", _model(value)
        if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind in "biufc":
            return "tensor_summary", self._array(value)
        if isinstance(value, bool | int | float):
            return "scalar", plain(value)
        if isinstance(value, str):
            return "string", self._string(value)
        if isinstance(value, list | tuple):
            return "list", _list(value)
        return "value", _short(value)

    def _tensor(self, tensor: Any) -> JsonObject:
        summary: JsonObject = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        if tensor.device.type == "meta" or tensor.layout is not sys.modules["torch"].strided:
            return summary
        tensor = tensor.detach()
        if (count := tensor.numel()) == 0:
            return summary
        if not tensor.is_complex():
            summary |= self._statistics(tensor.reshape(-1), count)
        if count <= VALUES:
            values = tensor.cpu()
            summary["values"] = _texts(values) if tensor.is_complex() else plain(values.tolist())
        return summary

    def _statistics(self, flat: Any, count: int) -> JsonObject:
        """Of a sample at equal steps, when there are many elements. Mean in float32 at least."""
        torch = sys.modules["torch"]
        found: JsonObject = {}
        if count > self._limits.sample_from:
            flat = flat[:: max(1, count // self._limits.sample_size)]
            found["sampled"] = flat.numel()
        wide = flat.float() if flat.dtype in (torch.bool, torch.float16, torch.bfloat16) else flat
        mean = wide.mean(
            dtype=None
            if wide.is_floating_point()
            else torch.float64
            if wide.device.type != "mps"
            else torch.float32
        )
        low, high = torch.aminmax(wide)
        numbers = torch.stack([low.to(mean.dtype), high.to(mean.dtype), mean]).tolist()
        return found | {
            name: _rounded(number) for name, number in zip(("min", "max", "mean"), numbers, strict=True)
        }

    def _array(self, array: Any) -> JsonObject:
        summary: JsonObject = {"shape": list(array.shape), "dtype": str(array.dtype)}
        if array.size and array.dtype.kind != "c":
            sample = array.reshape(-1)
            if array.size > self._limits.sample_from:
                sample = sample[:: max(1, array.size // self._limits.sample_size)]
                summary["sampled"] = int(sample.size)
            summary |= {
                "min": _rounded(float(sample.min())),
                "max": _rounded(float(sample.max())),
                "mean": _rounded(float(sample.mean())),
            }
        if array.size <= VALUES and array.dtype.kind != "c":
            summary["values"] = plain(array.tolist())
        return summary

    def _string(self, value: str) -> JsonObject:
        summary: JsonObject = {"value": value[:TEXT], "length": len(value)}
        if (path := self._download(value)) is not None:
            summary["download_path"] = path
        return summary

    def _download(self, value: str) -> str | None:
        """The name below the models folder of the file that the text names."""
        if len(value) > 4096 or not Path(value).is_absolute():
            return None
        try:
            path = Path(value).resolve()
            root = self._models.resolve()
            return path.relative_to(root).as_posix() if path.is_relative_to(root) and path.is_file() else None
        except (OSError, ValueError):
            return None

    def _step(self, step: Any) -> JsonValue:
        if not isinstance(step, Mapping):
            return _short(step)
        tensors = step.get("tensors") or {}
        return {
            "name": str(step.get("name", "")),
            "description": str(step.get("description", "")),
            "tensors": {str(name): self._summary(tensor)[1] for name, tensor in tensors.items()},
            "scalars": plain(step.get("scalars") or {}),
        }


def _text(lines: Sequence[str], limit: int) -> Iterator[JsonObject]:
    """The last part of what the node logged."""
    if not lines:
        return
    text = "\n".join(lines)
    entry: JsonObject = {"output_kind": "text", "text": text}
    if len(data := text.encode("utf-8", "surrogatepass")) > limit:
        entry |= {"text": data[-limit:].decode("utf-8", "replace"), "cut": True, "bytes": len(data)}
    yield entry


def _media(kind: str, value: Any) -> JsonValue | None:
    """None for a value that isn't what its port declares; then it is summarized like any other."""
    if kind == "image" and isinstance(value, str) and value:
        head, _, body = value.partition(",") if value.startswith("data:") else ("", "", value)
        known = next((name for start, name in _IMAGE_FORMATS.items() if body.startswith(start)), None)
        return {"format": known or head[11:].partition(";")[0] or "png", "encoding": "base64", "data": body}
    if isinstance(value, Mapping) and value:
        return plain(value)
    return None


def _model(model: Any) -> JsonObject:
    parameters = list(model.parameters())
    return {
        "class": type(model).__name__,
        "params": sum(_count(one) for one in parameters),
        "trainable": sum(_count(one) for one in parameters if one.requires_grad),
    }


def _count(parameter: Any) -> int:
    """A lazy module's parameter has no size yet."""
    torch = sys.modules["torch"]
    if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
        return 0
    return int(parameter.numel())


def _list(items: Sequence[Any]) -> JsonObject:
    summary: JsonObject = {"length": len(items), "repr": _short(items)}
    if len(items) <= VALUES and all(_is_plain(item) for item in items):
        summary["values"] = [plain(item) for item in items]
    return summary


def _is_plain(item: Any) -> bool:
    if isinstance(item, list | tuple) and len(item) == 2:
        return all(isinstance(one, int | float) for one in item)
    return (
        item is None or isinstance(item, bool | int | float) or (isinstance(item, str) and len(item) <= TEXT)
    )


def _short(value: Any) -> str:
    """A user's ``__repr__`` may fail or be huge; lists are cut before they are written out."""
    if isinstance(value, list | tuple) and len(value) > VALUES:
        value = value[:VALUES]
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__}: {type(error).__name__} in its repr>"
    return text[:TEXT]


def _texts(values: Any) -> JsonValue:
    return [str(value) for value in values.reshape(-1).tolist()]


def _rounded(number: float) -> JsonValue:
    """Four significant digits after the point for what is near 1, as many as needed for what is tiny."""
    return plain(float(f"{number:.6g}") if math.isfinite(number) else number)
