"""Text files, and tables of numbers."""

import csv
from collections.abc import Mapping
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from pydantic import JsonValue
from typing_extensions import override

from codefyui_core.plugin import DataType, FileRole, Folders, NodeContext, Param, ParamKind, Port

from ..base import TorchNode
from .fingerprint import of_file


class FileReader(TorchNode):
    """``text`` is the file's text with ``\\n`` as line ends and without a byte order mark.

    In mode csv ``tensor`` is (rows, columns) float32; blank lines are skipped, ``nan`` and ``inf`` are
    numbers. In mode text it is empty.
    """

    type = "FileReader"
    category = "IO"
    description = "Reads a text file; in mode csv also its numbers as a table."
    outputs = (
        Port(name="text", type=DataType.STRING, description="The whole file"),
        Port(name="tensor", type=DataType.TENSOR, description="(rows, columns) in mode csv, else empty"),
    )
    params = (
        Param(
            name="path",
            kind=ParamKind.STRING,
            default="",
            path=FileRole.READS,
            description="Relative ones are below the base folder, such as data/files/notes.txt",
        ),
        Param(
            name="mode",
            kind=ParamKind.SELECT,
            default="text",
            options=("text", "csv"),
            description="csv: numbers separated by commas",
        ),
        Param(name="encoding", kind=ParamKind.STRING, default="utf-8", description="How bytes become text"),
        Param(
            name="csv_header",
            kind=ParamKind.BOOL,
            default=True,
            description="The first row holds names and is left out",
        ),
    )

    @classmethod
    @override
    def fingerprint(cls, params: Mapping[str, JsonValue], folders: Folders) -> str | None:
        return of_file(Path(str(params.get("path"))))

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        if not params["path"].strip():
            raise self.unfit("path is empty; write which file to read")
        text = self._text(context.input_path(params["path"]), params["encoding"])
        table = self._table(text, params["csv_header"]) if params["mode"] == "csv" else torch.empty(0)
        return {"text": text, "tensor": table.to(context.device)}

    def _text(self, path: Path, encoding: str) -> str:
        if not path.is_file():
            raise self.unfit(f"path {path} is no file")
        name = "utf-8-sig" if encoding.lower().replace("_", "-") in {"utf-8", "utf8"} else encoding
        try:
            return path.read_text(encoding=name)
        except LookupError as error:
            raise self.unfit(f"encoding {encoding!r} isn't known; try utf-8 or latin-1") from error
        except UnicodeError as error:
            raise self.unfit(
                f"path {path.name} isn't {encoding} text ({error}); choose its encoding"
            ) from error

    def _table(self, text: str, header: bool) -> torch.Tensor:
        reader = csv.reader(StringIO(text), skipinitialspace=True)
        try:
            rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
        except csv.Error as error:
            raise self.unfit(f"path: line {reader.line_num} can't be read as csv: {error}") from error
        for (_, first), (line, row) in pairwise(rows):
            if len(row) != len(first):
                raise self.unfit(f"path: line {line} has {len(row)} cells, the one before {len(first)}")
        columns = len(rows[0][1]) if rows else 0
        numbers = [[self._number(cell, line) for cell in row] for line, row in rows[header:]]
        return torch.tensor(numbers, dtype=torch.float32).reshape(len(numbers), columns)

    def _number(self, cell: str, line: int) -> float:
        try:
            return float(cell)
        except ValueError as error:
            raise self.unfit(
                f"path: line {line} holds {cell!r}, which is no number; use CSVReader for tables with texts or gaps"
            ) from error
