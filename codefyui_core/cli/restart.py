"""``cdui restart``: a planned restart that leaves runs on workers executing."""

import os

import click

from ..errors import CodefyError
from .context import Context
from .errors import NoServer
from .options import json_option
from .output import print_json
from .stop import session_token, stop_this_server


@click.command("restart")
@json_option
@click.pass_obj
def restart_command(context: Context) -> int:
    """Stop and start the server. Runs on workers go on; runs of the server itself end interrupted."""
    from urllib.parse import urlsplit

    from .server_process import live_server, start_background

    before = live_server(context.user_data)
    if before is None:
        raise NoServer
    _announce(context)
    stop_this_server(context, keep_runs=True)
    parts = urlsplit(before.url)
    install = context.install
    running = start_background(
        ["--host", parts.hostname or "127.0.0.1", "--port", str(parts.port or 8000)],
        log_file=install.logs / "server.log",
        environ=os.environ,
        user_data=install.user_data,
    )
    if context.as_json:
        print_json({"url": running.url, "pid": running.pid, "version": running.version})
    else:
        click.echo(f"CodefyUI {running.version} is running at {running.url}")
    return 0


def _announce(context: Context) -> None:
    """What will become of how many runs, before anything happens."""
    if session_token(context) is None or context.as_json:
        return
    try:
        listed = context.api().call("GET", "/api/runs?status=running&limit=500")
    except CodefyError:
        return
    rows = listed.get("runs", []) if isinstance(listed, dict) else []
    runs = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if not runs:
        return
    own = sum(1 for row in runs if row.get("worker_id") is None)
    kept = len(runs) - own
    click.echo(f"{kept} run(s) on workers go on; {own} run(s) of this server end interrupted.")
