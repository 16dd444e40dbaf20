"""``cdui workers``: who executes runs, and how they come in."""

from typing import Any, cast
from urllib.parse import quote

import click

from .context import Context
from .options import json_option, server_options
from .output import print_json, print_table


@click.group("workers")
def workers_command() -> None:
    """See workers, make enrollment tokens, drain, re-key and remove workers."""


@workers_command.command("list")
@server_options
@json_option
@click.pass_obj
def list_workers(context: Context) -> None:
    """All workers, connected or not."""
    found = cast("dict[str, Any]", context.api().call("GET", "/api/workers"))
    if context.as_json:
        print_json(cast("Any", found))
        return
    if not found["workers"]:
        click.echo("No worker yet. On this machine: cdui agent start. On another: cdui workers token.")
        return
    print_table(
        ("NAME", "STATUS", "VERSION", "DEVICES", "ADDRESS", "RUNNING"),
        [
            (
                worker["name"],
                worker["status"] + (" (drained)" if worker["drained"] else ""),
                worker["version"] or "",
                ", ".join(device["device"] for device in worker["devices"]),
                (worker["address"] or "") + (" (plain HTTP)" if worker["plain_http"] else ""),
                str(worker["running"]),
            )
            for worker in found["workers"]
        ],
    )
    for worker in found["workers"]:
        if worker["status_reason"]:
            click.echo(f"{worker['name']}: {worker['status_reason']}")


@workers_command.command("token")
@click.option(
    "--valid", "valid_s", type=click.FloatRange(min=1), default=86400, show_default=True, help="Seconds."
)
@click.option(
    "--uses", type=click.IntRange(min=1), default=1, show_default=True, help="How many agents may use it."
)
@click.option("--worker", help="Re-key this worker: the token enrolls no other.")
@click.option("--address", help="What the agent dials; this server's address by default.")
@server_options
@json_option
@click.pass_obj
def make_token(
    context: Context, *, valid_s: float, uses: int, worker: str | None, address: str | None
) -> None:
    """Make an enrollment token. It is shown once."""
    body = {"valid_s": valid_s, "uses": uses, "worker": worker, "address": address}
    made = cast("dict[str, Any]", context.api().call("POST", "/api/workers/tokens", {**body}))
    if context.as_json:
        print_json(cast("Any", made))
        return
    click.echo(f"Run this on the worker (valid until {made['expires_at']}, {made['uses_left']} use(s)):\n")
    click.echo(f"    {made['command']}")
    for note in made["notes"]:
        click.echo(f"\n{note['text']}")
        for line in (note["command"], note["value"]):
            if line:
                click.echo(f"\n    {line}")


@workers_command.command("drain")
@click.argument("name")
@server_options
@json_option
@click.pass_obj
def drain_worker(context: Context, *, name: str) -> None:
    """Give a worker no new runs; those that it executes go on."""
    _drain(context, name, "drain", f"{name} gets no new runs until: cdui workers undrain {name}")


@workers_command.command("undrain")
@click.argument("name")
@server_options
@json_option
@click.pass_obj
def undrain_worker(context: Context, *, name: str) -> None:
    """Give a drained worker runs again."""
    _drain(context, name, "undrain", f"{name} gets runs again.")


def _drain(context: Context, name: str, order: str, text: str) -> None:
    answer = context.api().call("POST", f"/api/workers/{quote(name, safe='')}/{order}")
    if context.as_json:
        print_json(answer)
    else:
        click.echo(text)


@workers_command.command("policy")
@click.argument("name")
@click.argument("device")
@click.argument("policy", type=click.Choice(["count", "memory"]))
@server_options
@json_option
@click.pass_obj
def set_policy(context: Context, *, name: str, device: str, policy: str) -> None:
    """Admit runs to a card by count, or by the memory that is free on it. NAME: a worker, or server."""
    place = "system" if name == "server" else f"workers/{quote(name, safe='')}"
    path = f"/api/{place}/devices/{quote(device, safe='')}"
    answer = context.api().call("PATCH", path, {"policy": policy})
    if context.as_json:
        print_json(answer)
        return
    how = (
        "takes as many runs as its free memory has room for"
        if policy == "memory"
        else "counts its runs again"
    )
    click.echo(f"{device} of {name} {how}.")


@workers_command.command("remove")
@click.argument("name")
@server_options
@json_option
@click.pass_obj
def remove_worker(context: Context, *, name: str) -> None:
    """Revoke a worker's credential: its runs end interrupted, runs that wait for it fail."""
    removed = context.api().call("DELETE", f"/api/workers/{quote(name, safe='')}")
    if context.as_json:
        print_json(removed)
        return
    click.echo(f"{name} is removed.")


@workers_command.command("refused")
@server_options
@json_option
@click.pass_obj
def list_refused(context: Context) -> None:
    """Connections that were refused since the server's start, the newest of each name."""
    found = cast("dict[str, Any]", context.api().call("GET", "/api/workers"))
    if context.as_json:
        print_json({"refused": found["refused"]})
        return
    if not found["refused"]:
        click.echo("No connection was refused since the server's start.")
        return
    print_table(
        ("NAME", "ADDRESS", "WHEN", "TIMES", "REASON"),
        [
            (row["name"], row["address"] or "", str(row["at"]), str(row["count"]), row["reason"])
            for row in found["refused"]
        ],
    )
