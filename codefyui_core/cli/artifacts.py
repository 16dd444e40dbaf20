"""``cdui artifacts``: what runs recorded, onto this disk or away."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import quote

import click

from ..errors import BadName, CodefyError, UsageProblem
from .client import HttpApi
from .context import Context
from .errors import CommandProblem
from .errors import shown as explained
from .fetching import Fetcher, Got, Row, place_of, places_of
from .options import json_option, server_options
from .output import print_json, print_table
from .printing import shown

FOLDER = click.Path(file_okay=False, path_type=Path)
ARRIVING = "arriving"


@click.group("artifacts")
def artifacts_command() -> None:
    """See, download and delete what runs recorded."""


@artifacts_command.command("list")
@click.argument("run")
@click.option("--kind", help="Only these: checkpoint, output, ...")
@server_options
@json_option
@click.pass_obj
def list_artifacts(context: Context, *, run: str, kind: str | None) -> None:
    """What a run recorded, and where it is."""
    rows = [row for row in rows_of(context.api(), run) if kind in (None, row["kind"])]
    if context.as_json:
        print_json(cast("Any", {"artifacts": rows}))
        return
    if not rows:
        click.echo(f"Run {run} recorded nothing.")
        return
    print_table(
        ("ID", "KIND", "NAME", "SIZE", "STATE", "WHERE"),
        [
            (
                shown(row["id"]),
                shown(row["kind"]),
                shown(row["name"]),
                size_of(row),
                row["state"],
                shown(where(row)),
            )
            for row in rows
        ],
    )


@artifacts_command.command("download")
@click.argument("run")
@click.argument("artifact", required=False)
@click.option("--all", "all_", is_flag=True, help="Everything that can be downloaded, in a folder a kind.")
@click.option(
    "-o", "--output", type=FOLDER, default=Path(), help="The folder to write to; this one otherwise."
)
@click.option("--force", is_flag=True, help="Replace other files that have the names.")
@server_options
@json_option
@click.pass_obj
def download_artifacts(
    context: Context, *, run: str, artifact: str | None, all_: bool, output: Path, force: bool
) -> int:
    """Download artifacts: by id, by name, or all. What broke off goes on where it stopped.

    Exit status: 0 all are here, 1 some are not.
    """
    if (artifact is None) is not all_:
        raise UsageProblem("Name one artifact, or give --all. See what there is: cdui artifacts list RUN")
    api = context.api()
    rows = rows_of(api, run)
    if artifact is None:
        return download_all(api, run, rows, output, force=force, as_json=context.as_json)
    row = find(rows, run, artifact)
    with Bars() as bars:
        got = Fetcher(api, output, force=force, told=bars.told).fetch(run, row, place_of(row, apart=False))
    report([got], {}, as_json=context.as_json)
    return 0


@artifacts_command.command("path")
@click.argument("run")
@click.argument("artifact")
@server_options
@json_option
@click.pass_obj
def path_of_artifact(context: Context, *, run: str, artifact: str) -> None:
    """Print where an artifact is."""
    row = find(rows_of(context.api(), run), run, artifact)
    if context.as_json:
        print_json(cast("Any", row))
        return
    if row["state"] == ARRIVING:
        raise CommandProblem(f"{shown(row['name'])} is with {shown(where(row))}. Ask again in a while.")
    if row["path"] is None:
        raise CommandProblem(
            f"This server can't tell a path for {shown(row['name'])}; it is at {shown(where(row))}."
        )
    click.echo(shown(row["path"]))


@artifacts_command.command("delete")
@click.argument("run")
@click.argument("artifact")
@server_options
@json_option
@click.pass_obj
def delete_artifact(context: Context, *, run: str, artifact: str) -> None:
    """Delete one artifact of a run that has ended."""
    api = context.api()
    row = find(rows_of(api, run), run, artifact)
    path = f"/api/runs/{quote(run, safe='')}/artifacts/{quote(row['id'], safe='')}"
    answer = cast("dict[str, Any]", api.call("DELETE", path))
    if context.as_json:
        print_json(cast("Any", answer))
        return
    if answer.get("warning"):
        click.echo(f"warning: {shown(answer['warning'])}", err=True)
    click.echo(f"{shown(row['name'])} is deleted.")


# ---------------------------------------------------------------- rows


def rows_of(api: HttpApi, run: str) -> list[dict[str, Any]]:
    """Raises: ApiProblem ``run.not_found``."""
    return cast("list[dict[str, Any]]", api.call("GET", f"/api/runs/{quote(run, safe='')}/artifacts"))


def find(rows: list[dict[str, Any]], run: str, wanted: str) -> dict[str, Any]:
    """By id, else by the name or the beginning of the id that one alone has.

    Raises: CommandProblem.
    """
    exact = [row for row in rows if row["id"] == wanted]
    found = exact or [row for row in rows if wanted == row["name"] or row["id"].startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandProblem(f"Run {run} has no artifact {wanted}. See: cdui artifacts list {run}")
    ids = ", ".join(shown(row["id"]) for row in found)
    raise CommandProblem(f"{wanted} is more than one artifact of run {run}. Name one by its id: {ids}")


def size_of(row: Row) -> str:
    from ..graph.files_used import size_text

    return "folder" if row["size_bytes"] is None else size_text(row["size_bytes"])


def where(row: Row) -> str:
    """Its path, else its label and name there; of one that is with its backend, what the server waits for."""
    if row["state"] == ARRIVING:
        return f"the storage backend {row['backend']}, which couldn't confirm it yet"
    if row["path"] is not None:
        return str(row["path"])
    return f"{row['label'] or row['backend']}:{row['relative_path'] or row['name']}"


# ---------------------------------------------------------------- downloads


def download_all(
    api: HttpApi, run: str, rows: list[dict[str, Any]], folder: Path, *, force: bool, as_json: bool
) -> int:
    """Everything that can be had; what can't is told. The answer is the exit status."""
    got: list[Got] = []
    failed: dict[str, str] = {}
    with Bars() as bars:
        fetcher = Fetcher(api, folder, force=force, told=bars.told)
        for row, place in places_of([row for row in rows if row["downloadable"]]):
            if isinstance(place, BadName):
                failed[row["id"]] = place.message
                continue
            try:
                got.append(fetcher.fetch(run, row, place))
            except CodefyError as error:
                failed[row["id"]] = explained(error)
    left = {row["id"]: f"{row['name']} is at {where(row)}" for row in rows if not row["downloadable"]}
    report(got, failed, left, as_json=as_json)
    return 1 if failed else 0


def report(
    got: list[Got], failed: dict[str, str], left: dict[str, str] | None = None, *, as_json: bool
) -> None:
    """What is here, what isn't, and where the rest is."""
    from ..graph.files_used import size_text

    if as_json:
        files = [
            {
                "artifact_id": one.artifact_id,
                "path": str(one.path),
                "size_bytes": one.size_bytes,
                "sha256": one.sha256,
            }
            for one in got
        ]
        print_json(cast("Any", {"files": files, "failed": failed, "elsewhere": left or {}}))
        return
    for one in got:
        click.echo(f"{one.path}  {size_text(one.size_bytes)}{', was here already' if one.already else ''}")
    for text in (left or {}).values():
        click.echo(f"not downloaded: {shown(text)}", err=True)
    for text in failed.values():
        click.echo(f"failed: {shown(text)}", err=True)


class Bars:
    """One bar a file on a terminal; nothing elsewhere, as each file has its line in the end."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._tasks: dict[str, Any] = {}
        self._progress: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
            from rich.progress import TransferSpeedColumn as Speed

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), Speed())
            self._progress = self._stack.enter_context(
                Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
            )
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def told(self, place: str, done: int, size: int | None) -> None:
        if self._progress is None:
            return
        if place not in self._tasks:
            self._tasks[place] = self._progress.add_task(shown(place), total=size)
        self._progress.update(self._tasks[place], completed=done, total=size)
