"""``cdui stop``: the server and the background agent that belongs to it."""

import click

from .client import Running
from .consequences import announce
from .context import Context
from .options import json_option
from .output import print_json


@click.command("stop")
@click.option(
    "--keep-runs", is_flag=True, help="Leave runs on workers executing; the next start takes them over."
)
@json_option
@click.pass_obj
def stop_command(context: Context, *, keep_runs: bool) -> int:
    """Stop the server and this machine's own worker. Says first what becomes of the runs."""
    from .server_process import live_server

    runs = announce(context, live_server(context.user_data), session_token(context), keep_runs=keep_runs)
    stopped_agent = False if keep_runs else stop_local_agent(context)
    stopped_server = stop_this_server(context, keep_runs=keep_runs)
    if context.as_json:
        print_json({"server": stopped_server, "agent": stopped_agent, "runs": runs})
        return 0
    if stopped_agent:
        click.echo("This machine's worker is stopped.")
    click.echo("The server is stopped." if stopped_server else "No server was running here.")
    return 0


def stop_local_agent(context: Context) -> bool:
    """The background agent with the key ``local``; agents of other control planes are left alone."""
    from ..agent.command import stop_background

    return stop_background(context.user_data, "local", writes_for_s=context.writes_for_s)


def stop_this_server(context: Context, *, keep_runs: bool) -> bool:
    """True when there was one."""
    from .server_process import live_server, stop_server

    running: Running | None = live_server(context.user_data)
    if running is None:
        return False
    went = stop_server(running, keep_runs=keep_runs, token=session_token(context))
    if not went:
        click.echo(
            "The server didn't end within 2 s and was killed; runs that hadn't ended are settled at its next start.",
            err=True,
        )
    return True


def session_token(context: Context) -> str | None:
    """The token of the server of this user data."""
    try:
        return (context.user_data / "session.token").read_text(encoding="utf-8").strip()
    except OSError:
        return None
