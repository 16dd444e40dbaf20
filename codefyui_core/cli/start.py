"""``cdui start``: the control plane, in the background or in the foreground."""

import os
from pathlib import Path

import click

from .context import Context
from .errors import StopServerFirst
from .options import json_option, server_options
from .output import print_json


@click.command("start")
@click.option(
    "-f", "--foreground", is_flag=True, help="Stay in the foreground (under systemd, or to watch the log)."
)
@click.option(
    "--project",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Work in this project folder.",
)
@server_options
@json_option
@click.pass_obj
def start_command(context: Context, *, foreground: bool, project: Path | None) -> int:
    """Start the server. Without -f it runs in the background, and the command returns when it answers."""
    project = None if project is None else project.absolute()
    context.set_project(project)
    install = context.install
    arguments = server_arguments(context, project)
    if foreground:
        from ..control.serve import main

        return main(arguments)
    from .server_process import healthy, live_server, start_background

    running = live_server(install.user_data)
    already = running is not None and healthy(running)
    if already and running is not None and project is not None and running.project != str(project):
        place = running.project or "the installation's data folder"
        raise StopServerFirst(f"A server is running at {running.url}, in {place}. Stop it first: cdui stop")
    if running is None or not already:
        running = start_background(
            arguments, log_file=install.logs / "server.log", environ=os.environ, user_data=install.user_data
        )
    if context.as_json:
        print_json({"url": running.url, "pid": running.pid, "version": running.version, "already": already})
        return 0
    click.echo(f"CodefyUI {running.version} is {'already ' if already else ''}running at {running.url}")
    return 0


def server_arguments(context: Context, project: Path | None) -> list[str]:
    """The flags that were given, for the server's own command line."""
    arguments = []
    for option, variable in (("--host", "CODEFYUI_HOST"), ("--port", "CODEFYUI_PORT")):
        value = context.install.layers.flags.get(variable)
        if value:
            arguments += [option, value]
    return [*arguments, "--project", str(project)] if project is not None else arguments
