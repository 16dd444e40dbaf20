"""``cdui run FILE``: queue a graph, follow it, answer by the exit status how it ended."""

import secrets
from pathlib import Path
from typing import Any, cast

import click

from ..errors import CodefyError, UsageProblem
from ..plugin.values import JsonObject
from .client import HttpApi
from .context import Context
from .following import FINAL, JsonView, QuietView, RunView, TerminalView, follow
from .options import json_option, server_options
from .output import print_json

POOL = "one-shot"
"""The target that means any one-shot agent; no worker may have that name."""


@click.command("run")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--name", help="The run's name; the graph's own by default.")
@click.option("--target", help="server, any, one-shot, or a worker's name.")
@click.option("--device", default="auto", show_default=True, help="cpu, auto, cuda, cuda:N, mps.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Make the run repeatable.")
@click.option(
    "--deterministic", is_flag=True, help="Use torch's deterministic algorithms where there are any."
)
@click.option("--record-outputs", is_flag=True, help="Keep every node's outputs for inspection.")
@click.option("--wait/--detach", default=True, help="Follow the run, or return when it is queued.")
@click.option(
    "--timeout", type=click.FloatRange(min=0), help="Seconds to follow it; the run goes on after that."
)
@click.option("--quiet", is_flag=True, help="Only the last line.")
@click.option(
    "--download",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for everything that the run recorded, once it has ended.",
)
@server_options
@json_option
@click.pass_obj
def run_command(
    context: Context,
    /,
    *,
    file: Path,
    wait: bool,
    timeout: float | None,
    quiet: bool,
    download: Path | None,
    **chosen: Any,
) -> int:
    """Run a graph file on the server, or on a worker with --target.

    Exit status: 0 it succeeded, 1 it or a download didn't, 2 usage, 130 Ctrl-C (the run goes on).
    """
    if download is not None and not wait:
        raise UsageProblem("--download needs to wait for the run: leave out --detach")
    graph = read_graph(file)
    api = context.api()
    run_id = submit(
        api, graph, name=chosen["name"] or str(graph.get("name") or file.stem), options=options_of(chosen)
    )
    if not wait:
        if context.as_json:
            print_json({"run_id": run_id})
        else:
            click.echo(run_id)
        return 0
    view: RunView = JsonView() if context.as_json else QuietView() if quiet else TerminalView()
    try:
        row = follow(api, run_id, view, timeout_s=timeout)
    except KeyboardInterrupt:
        click.echo(
            f"\nThe run goes on: cdui status, or stop it on the page of {api.server.url}. run {run_id}",
            err=True,
        )
        return 130
    ended = row["status"] in FINAL
    fetched = fetch_all(api, row["id"], download, as_json=context.as_json) if download and ended else 0
    return conclude(row, as_json=context.as_json) or fetched


def fetch_all(api: HttpApi, run_id: str, folder: Path, *, as_json: bool) -> int:
    """What the run recorded, whatever became of it. The answer is an exit status."""
    from .artifacts import download_all, rows_of

    return download_all(api, run_id, rows_of(api, run_id), folder, force=False, as_json=as_json)


def conclude(row: dict[str, Any], *, as_json: bool) -> int:
    """Say how it ended; the answer is the exit status."""
    status = row["status"]
    if as_json:
        print_json(cast("JsonObject", row))
    elif status not in FINAL:
        click.echo(f"run {row['id']} is still {status}; stopped following it.", err=True)
    else:
        if row.get("error"):
            cause = f" [{row['cause']}]" if row.get("cause") else ""
            click.echo(f"{row['error']}{cause}", err=True)
        click.echo(f"run {row['id']} {status}")
    return 0 if status == "succeeded" else 1


def read_graph(file: Path) -> JsonObject:
    """Raises: UsageProblem when it isn't a graph document."""
    from ..graph import Document

    try:
        return Document.parse(file.read_bytes()).raw
    except (OSError, CodefyError) as error:
        raise UsageProblem(f"{file}: {error}") from error


def options_of(chosen: dict[str, Any]) -> JsonObject:
    """Only what was given: the rest is the server's and the graph's to decide."""
    options: JsonObject = {"device": chosen["device"]}
    for key in ("target", "seed"):
        if chosen[key] is not None:
            options[key] = chosen[key]
    if chosen["target"] == POOL:
        options["target"] = {"pool": POOL}
    for key in ("deterministic", "record_outputs"):
        if chosen[key]:
            options[key] = True
    return options


def submit(api: HttpApi, graph: JsonObject, *, name: str, options: JsonObject) -> str:
    """Queue a run; a lost answer can't double it."""
    body: JsonObject = {
        "graph": graph,
        "name": name[:64],
        "options": options,
        "submit_id": secrets.token_hex(16),
    }
    answer = cast("dict[str, Any]", api.call("POST", "/api/runs", body))
    return str(answer["run_id"])
