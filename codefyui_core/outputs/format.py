"""The two files of a recorded run: ``index.json`` says what there is, ``data.bin`` holds the bytes of it.

Elements of tensors are little endian in row-major order, texts have one width a character, and items of lists
are JSON texts with a table of where each begins. So any part is found by arithmetic, and nothing is unpickled.
"""

from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue, NonNegativeInt

from codefyui_core.plugin.values import JsonObject, Model

INDEX, DATA = "index.json", "data.bin"
FORMAT = 1
STEPS = "__steps__"
"""Tensors of steps are ports by the name ``__steps__.<step>.<tensor>``."""
OFFSET_BYTES = 8
"""One entry of a list's table."""
ELEMENTS = {
    "bool": "?",
    "uint8": "B",
    "int8": "b",
    "uint16": "H",
    "int16": "h",
    "uint32": "I",
    "int32": "i",
    "uint64": "Q",
    "int64": "q",
    "float16": "e",
    "bfloat16": "",
    "float32": "f",
    "float64": "d",
    "complex64": "f",
    "complex128": "d",
}
"""Element types as they are stored -> ``struct`` format; of complex numbers that of each half."""
SIZES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes of one element."""
TEXTS = {"latin-1": 1, "utf-32-le": 4}
"""Encodings of texts -> bytes of one character."""


class Kind(StrEnum):
    """What a value was."""

    TENSOR = "tensor"
    """Also an array of numpy."""
    SCALAR = "scalar"
    STRING = "string"
    LIST = "list"
    """Or a tuple."""
    DICT = "dict"
    MODEL = "model"
    """Its class and the shapes of its parameters; weights aren't recorded."""
    VALUE = "value"
    """Anything else, as a short text."""
    EMPTY = "empty"
    """The port gave nothing."""


class Span(Model):
    """A piece of ``data.bin``."""

    offset: NonNegativeInt
    bytes: NonNegativeInt


class Recorded(Model):
    """One value."""

    port: str
    kind: Kind
    bytes: NonNegativeInt = 0
    """What it takes here, or would take when ``elided``."""
    dtype: str | None = None
    """As its library names it."""
    stored: str | None = None
    """Element type or encoding in ``data.bin``."""
    shape: tuple[NonNegativeInt, ...] | None = None
    length: NonNegativeInt | None = None
    """Characters of a string, items of a list or dict."""
    value: JsonValue = None
    """Of a scalar and of anything else that is short."""
    data: Span | None = None
    table: Span | None = None
    """Of a list or dict with n items: n + 1 offsets into ``data``, 8 bytes each."""
    stats: Span | None = None
    """A JSON object."""
    elided: str | None = None
    """Why nothing of it was kept."""


class Step(Model):
    """One step that a node showed of its work (option ``verbose``)."""

    name: str
    description: str = ""
    scalars: JsonObject = Field(default_factory=dict)
    tensors: dict[str, str] = Field(default_factory=dict)
    """Name -> port."""


class RecordedNode(Model):
    """What one node gave."""

    node_id: str
    type: str
    container: str | None = None
    """The preset or subgraph instance that it is part of."""
    ports: tuple[Recorded, ...] = ()
    steps: tuple[Step, ...] = ()


class Index(Model):
    """``index.json``."""

    format: Literal[1] = 1
    run_id: str
    recorded_at_ms: int
    data_bytes: NonNegativeInt
    nodes: tuple[RecordedNode, ...] = ()
