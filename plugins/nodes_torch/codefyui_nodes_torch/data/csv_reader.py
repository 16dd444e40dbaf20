"""Tables from CSV files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from pydantic import JsonValue
from typing_extensions import override

from codefyui_core.plugin import (
    CodefyError,
    DataType,
    Family,
    Folders,
    NodeContext,
    Param,
    ParamKind,
    Port,
)

from ..base import TorchNode, UnfitError
from ..io.fingerprint import of_file


class CSVReader(TorchNode):
    type = "CSVReader"
    category = "Data"
    description = "The number columns of a CSV file as a float32 tensor, one column's texts as labels. Empty cells become NaN."
    outputs = (
        Port(name="tensor", type=DataType.TENSOR, description="(rows, columns), float32"),
        Port(name="labels", type=DataType.LIST, description="The target column as texts; empty without one"),
        Port(name="columns", type=DataType.LIST, description="Names of the tensor's columns"),
    )
    params = (
        Param(
            name="path",
            kind=ParamKind.DATA_FILE,
            default="data/samples/iris.csv",
            family=Family.FILES,
            description="An uploaded file, or a bundled sample",
        ),
        Param(
            name="target_column",
            kind=ParamKind.STRING,
            default="",
            description="Column of labels; empty none",
        ),
        Param(
            name="include_columns",
            kind=ParamKind.STRING,
            default="",
            description="Columns by name, separated by commas; empty takes all columns of numbers but the target",
        ),
        Param(
            name="skip_header",
            kind=ParamKind.BOOL,
            default=True,
            description="The first row holds the names; otherwise they are 0, 1, 2 …",
        ),
    )

    @classmethod
    @override
    def fingerprint(cls, params: Mapping[str, JsonValue], folders: Folders) -> str | None:
        named = Path(str(params.get("path", "")))
        return of_file(folders.of(Family.FILES) / named, folders.root.parent / named)

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        if not params["path"]:
            raise self.unfit("path is empty; choose a file")
        table = _read(context.input_file(Family.FILES, params["path"]), has_header=params["skip_header"])
        target = params["target_column"].strip()
        if target and target not in table.columns:
            raise self.unfit(f"no column {target!r}; there are {_listed(table)}")
        chosen = self._columns(table, params["include_columns"], target)
        values = _numbers(table, chosen)
        empty = int(np.isnan(values).sum())
        if empty:
            context.log(f"{empty} cells of {params['path']} are empty and become NaN")
        return {
            "tensor": torch.from_numpy(values).to(context.device),
            "labels": [str(value) for value in table[target]] if target else [],
            "columns": chosen,
        }

    def _columns(self, table: pd.DataFrame, include: str, target: str) -> list[str]:
        named = [name.strip() for name in include.split(",") if name.strip()]
        unknown = [name for name in named if name not in table.columns]
        if unknown:
            raise self.unfit(f"no column {', '.join(map(repr, unknown))}; there are {_listed(table)}")
        if named:
            return named
        numeric = table.select_dtypes(include=["number", "bool"]).columns
        return [str(name) for name in numeric if name != target]


def _read(path: Path, *, has_header: bool) -> pd.DataFrame:
    try:
        table = pd.read_csv(path, header=0 if has_header else None)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as problem:
        raise CodefyError(
            f"{path.name} can't be read as a table: {problem}", code="files.unreadable"
        ) from problem
    table.columns = pd.Index([str(name) for name in table.columns])
    return table


def _numbers(table: pd.DataFrame, columns: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """(rows, columns), float32.

    Raises: UnfitError naming the first column that holds texts.
    """
    values = np.empty((len(table), len(columns)), dtype=np.float32)
    for place, name in enumerate(columns):
        try:
            values[:, place] = table[name].to_numpy(dtype=np.float32, na_value=np.nan)
        except (TypeError, ValueError) as problem:
            raise UnfitError(
                f"CSVReader: column {name!r} holds texts ({problem}); leave it out of include_columns, or make"
                " it the target_column"
            ) from problem
    return values


def _listed(table: pd.DataFrame) -> str:
    return ", ".join(map(str, table.columns))
