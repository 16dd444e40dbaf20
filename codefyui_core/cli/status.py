"""``cdui status``: server, workers and queue in a few lines."""

from typing import Any, cast

import click

from .context import Context
from .options import json_option, server_options
from .output import print_json, print_table


@click.command("status")
@server_options
@json_option
@click.pass_obj
def status_command(context: Context) -> int:
    """Show the server, its workers and what waits. Exit status 1 when no server is running."""
    api = context.api()
    health = cast("dict[str, Any]", api.call("GET", "/api/health"))
    workers = cast("dict[str, Any]", api.call("GET", "/api/workers"))
    conditions = cast("dict[str, Any]", api.call("GET", "/api/plugins"))["conditions"]
    active = cast(
        "dict[str, Any]",
        api.call("GET", "/api/runs?status=queued&status=running&status=disconnected&limit=500"),
    )
    if context.as_json:
        print_json(
            {
                "server": {"url": api.server.url, **health},
                "workers": workers["workers"],
                "runs": active["runs"],
                "conditions": conditions,
            }
        )
        return 0
    waiting = f" (waiting for {', '.join(health['waiting_for'])})" if health["waiting_for"] else ""
    click.echo(f"Server   {api.server.url}  {health['status']}{waiting}, version {health['version']}")
    for name, text in sorted(conditions.items()):
        click.echo(f"{name.capitalize()}: {text}")
    _show_workers(workers["workers"])
    _show_runs(active["runs"])
    return 0


def _show_workers(workers: list[dict[str, Any]]) -> None:
    if not workers:
        click.echo("Workers  none (add this machine: cdui agent start)")
        return
    click.echo()
    print_table(
        ("WORKER", "STATUS", "DEVICES", "RUNNING", "QUEUED"),
        [
            (
                worker["name"],
                worker["status"],
                ", ".join(device["device"] for device in worker["devices"]),
                str(worker["running"]),
                str(worker["queued"]),
            )
            for worker in workers
        ],
    )


def _show_runs(runs: list[dict[str, Any]]) -> None:
    click.echo()
    if not runs:
        click.echo("No run is waiting or executing.")
        return
    print_table(
        ("RUN", "STATUS", "NAME", "WORKER", "WAITS FOR"),
        [
            (
                run["id"],
                run["status"],
                run["name"],
                run.get("worker") or "",
                run.get("queue_reason") or "",
            )
            for run in runs
        ],
    )
