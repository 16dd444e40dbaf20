"""How commands print: one JSON line for programs, aligned columns for people."""

import json
from collections.abc import Iterable, Sequence

import click
from pydantic import JsonValue


def print_json(value: JsonValue) -> None:
    """One line."""
    click.echo(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as their widest cell, two spaces apart."""
    lines = [list(headings), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
