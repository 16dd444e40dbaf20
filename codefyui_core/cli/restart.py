"""``cdui restart``: a planned restart that leaves runs on workers executing."""

import os

import click

from .consequences import announce
from .context import Context
from .errors import NoServer
from .options import json_option
from .output import print_json
from .stop import session_token, stop_this_server


@click.command("restart")
@json_option
@click.pass_obj
def restart_command(context: Context) -> int:
    """Stop and start the server. Runs on workers go on. Says first what becomes of how many runs."""
    from urllib.parse import urlsplit

    from .server_process import live_server, start_background

    before = live_server(context.user_data)
    if before is None:
        raise NoServer
    runs = announce(context, before, session_token(context), keep_runs=True)
    stop_this_server(context, keep_runs=True)
    parts = urlsplit(before.url)
    install = context.install
    project = [] if before.project is None else ["--project", before.project]
    running = start_background(
        ["--host", parts.hostname or "127.0.0.1", "--port", str(parts.port or 8000), *project],
        log_file=install.logs / "server.log",
        environ=os.environ,
        user_data=install.user_data,
    )
    if context.as_json:
        print_json({"url": running.url, "pid": running.pid, "version": running.version, "runs": runs})
    else:
        click.echo(f"CodefyUI {running.version} is running at {running.url}")
    return 0
