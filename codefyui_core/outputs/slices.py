"""Slices such as ``0,:,2:8`` of a shape, and where their bytes lie. Pure."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from codefyui_core.errors import CodefyError

_NUMBER = r"\s*([+-]?\d{1,18})?\s*"
_AXIS = re.compile(rf"{_NUMBER}(?:(:){_NUMBER}(?::{_NUMBER})?)?", re.ASCII)
WHOLE_SPAN_BYTES = 64
"""Elements that lie no farther apart are read together with what is between them."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What is taken of one axis."""

    start: int
    step: int
    count: int
    kept: bool = True
    """False for an index, which takes the axis away."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Read ``bytes`` at ``offset``; of these, ``size`` bytes at every ``pitch`` are wanted."""

    offset: int
    bytes: int
    pitch: int
    size: int


def parse(text: str | None, shape: Sequence[int]) -> tuple[Axis, ...]:
    """One part an axis, as Python reads it: ``:``, ``3``, ``-1``, ``2:8``, ``::4``. Axes that aren't named are
    taken whole; steps are positive.

    Raises: CodefyError ``request.invalid``.
    """
    parts = [] if text is None or not text.strip() else text.split(",")
    if len(parts) > len(shape):
        raise _invalid(f"the slice {text} has {len(parts)} parts, and the value has {len(shape)} axes")
    parts += [":"] * (len(shape) - len(parts))
    return tuple(_axis(part, size) for part, size in zip(parts, shape, strict=True))


def _axis(part: str, size: int) -> Axis:
    found = _AXIS.fullmatch(part)
    if found is None or not part.strip():
        raise _invalid(f"{part.strip()!r} is no part of a slice; write an index, or start:stop:step")
    first, colon, stop, step = found.groups()
    if colon is None:
        return _index(int(first), size)
    by = 1 if step is None else int(step)
    if by < 1:
        raise _invalid("a slice's step has to be 1 or more")
    numbers = range(*slice(_number(first), _number(stop), by).indices(size))
    return Axis(numbers.start, by, len(numbers))


def _index(index: int, size: int) -> Axis:
    if not -size <= index < size:
        raise _invalid(f"the index {index} is out of range; this axis has {size}")
    return Axis(index % size, 1, 1, kept=False)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def selected(axes: Sequence[Axis]) -> tuple[int, ...]:
    """The shape of what is taken."""
    return tuple(axis.count for axis in axes if axis.kept)


def elements(axes: Sequence[Axis]) -> int:
    """How many elements are taken."""
    return math.prod(axis.count for axis in axes)


def pieces(axes: Sequence[Axis], shape: Sequence[int], itemsize: int) -> Iterator[Piece]:
    """Where they lie in row-major order, as few reads as they allow, in the order of the result."""
    if elements(axes) == 0:
        return
    strides = _strides(shape, itemsize)
    last = len(shape) - 1
    while last >= 0 and axes[last].count == shape[last] and axes[last].step == 1:
        last -= 1
    if last < 0:
        size = math.prod(shape) * itemsize
        yield Piece(0, size, size, size)
        return
    outer = [_offsets(axis, stride) for axis, stride in zip(axes[:last], strides[:last], strict=True)]
    for place in product(*outer):
        yield from _run(axes[last], strides[last], sum(place))


def _strides(shape: Sequence[int], itemsize: int) -> list[int]:
    strides, step = [], itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def _offsets(axis: Axis, stride: int) -> range:
    first, step = axis.start * stride, axis.step * stride
    return range(first, first + axis.count * step, step)


def _run(axis: Axis, stride: int, base: int) -> Iterator[Piece]:
    first = base + axis.start * stride
    pitch = axis.step * stride
    if axis.step == 1:
        yield Piece(first, axis.count * stride, axis.count * stride, axis.count * stride)
    elif pitch <= WHOLE_SPAN_BYTES:
        yield Piece(first, (axis.count - 1) * pitch + stride, pitch, stride)
    else:
        for number in range(axis.count):
            yield Piece(first + number * pitch, stride, stride, stride)


def _invalid(message: str) -> CodefyError:
    return CodefyError(message, code="request.invalid")
