"""``cdui agent``: make this machine a worker, and look after it."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import StartProblem, UsageProblem
from ..loading.conflicts import NameKind
from .context import Context
from .errors import OneShotStart
from .options import json_option
from .output import print_json, print_table

if TYPE_CHECKING:
    from ..agent.plan import AgentPlan

CORE = ("control", "token", "name", "devices", "foreground", "one_shot", "run_id", "instance")


class StartCommand(click.Command):
    """``agent start`` with the options of the installed connectors and storage backends."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        known = super().get_params(ctx)
        registry = ctx.ensure_object(Context).registry()
        return [*known, *(option.option for option in registry.agent_options())]


@click.group("agent")
def agent_command() -> None:
    """Make this machine a worker: it connects to a server and executes the runs that it is sent."""


@agent_command.command("start", cls=StartCommand)
@click.option(
    "--control", metavar="URL", help="The server's address; without it, the server of this machine."
)
@click.option("--token", help="An enrollment token; needed once. Also read from CODEFYUI_AGENT_TOKEN.")
@click.option("--name", help="The worker's name; the host name by default.")
@click.option("--devices", metavar="LIST", help="Offer these devices only, such as cuda:0,cuda:1.")
@click.option("--foreground", "-f", is_flag=True, help="Stay in the foreground, for systemd and the like.")
@click.option(
    "--one-shot", is_flag=True, help="Take one run, report it and end; in the foreground. For batch jobs."
)
@click.option("--run-id", metavar="ID", help="With --one-shot: take this run only.")
@click.option(
    "--instance",
    metavar="[ID]",
    is_flag=False,
    flag_value="",
    help="With --one-shot: be one of several agents that share the credential and the user data. Without ID, "
    "the SLURM job's own, or a random one.",
)
@click.pass_context
def start(ctx: click.Context, /, **given: Any) -> int:
    """Start an agent. It stays connected until it is stopped, in the background unless told otherwise."""
    from ..agent.command import settle_backends, start_background
    from ..agent.places import Places

    context = ctx.ensure_object(Context)
    plan = _plan(context, given)
    places = Places(user_data=context.user_data, key=plan.key)
    try:
        settle_backends(context.registry(), _of(context, NameKind.BACKEND, given), places)
    except StartProblem as error:
        if plan.one_shot:
            raise OneShotStart(error.message, code=error.code) from error
        raise
    if given["foreground"] or plan.one_shot:
        from ..agent.__main__ import run_foreground

        return run_foreground(plan)
    name = start_background(plan, context.install)
    where = plan.url or "this machine's server"
    if name:
        click.echo(f"Worker {name} is connected to {where}. Stop it with: cdui agent stop")
    else:
        log_file = context.install.logs / f"agent-{plan.key}.log"
        click.echo(f"The agent is running but not connected to {where} yet. Its log: {log_file}")
    return 0


def _plan(context: Context, given: Mapping[str, Any]) -> "AgentPlan":
    from ..agent.devices import read_devices
    from ..agent.instances import default_id
    from ..agent.plan import AgentPlan

    instance = given["instance"]
    return AgentPlan(
        url=_url(given["control"]),
        name=given["name"],
        token=given["token"],
        devices=read_devices(given["devices"] or ""),
        connector_options=_of(context, NameKind.CONNECTOR, given),
        one_shot=given["one_shot"],
        run_id=given["run_id"],
        instance="" if instance is None else instance or default_id(os.environ),
    ).checked()


def _url(text: str | None) -> str | None:
    if text is None:
        return None
    if not text.strip():
        raise UsageProblem("--control needs an address, such as http://192.168.1.5:8000.")
    return text.strip()


def _of(context: Context, kind: NameKind, given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The options of connectors, or of backends, that were given: by descriptor, by option name."""
    found: dict[str, dict[str, Any]] = {}
    for option in context.registry().agent_options():
        value = given.get(option.option.name or "")
        if option.kind is kind and value not in (None, (), [], False):
            # Of options that may be repeated click makes tuples, which JSON doesn't know.
            plain = list(value) if isinstance(value, tuple) else value
            found.setdefault(option.descriptor, {})[option.option.name or ""] = plain
    return found


@agent_command.command("stop")
@click.argument("url", required=False)
@click.option(
    "--after-runs", is_flag=True, help="Take no more runs, and stop when those are done that it has."
)
@json_option
@click.pass_obj
def stop(context: Context, url: str | None, *, after_runs: bool) -> int:
    """Stop the background agent for URL; without it, all of this user-data folder. Runs get 10 s to end."""
    from ..agent.command import background_keys, drain_background, stop_background
    from ..agent.places import key_of

    keys = [key_of(url)] if url else [*background_keys(context.user_data)]
    if after_runs:
        return _told_to_drain(context, [key for key in keys if drain_background(context.user_data, key)])
    writes_for_s = context.writes_for_s
    stopped = [key for key in keys if stop_background(context.user_data, key, writes_for_s=writes_for_s)]
    if context.as_json:
        print_json({"stopped": list(stopped)})
        return 0
    for key in stopped:
        click.echo(f"The agent {key} is stopped.")
    if not stopped:
        click.echo("No background agent is running here.")
    return 0


def _told_to_drain(context: Context, keys: Sequence[str]) -> int:
    if context.as_json:
        print_json({"draining": list(keys)})
        return 0
    for key in keys:
        click.echo(f"The agent {key} takes no more runs, and stops when those are done that it has.")
    if not keys:
        click.echo("No background agent is running here.")
    return 0


@agent_command.command("status")
@json_option
@click.pass_obj
def status(context: Context) -> int:
    """List the agents and credentials of this user-data folder."""
    from ..agent.command import statuses

    found = statuses(context.user_data)
    if context.as_json:
        print_json({"agents": [one.row() for one in found]})
        return 0
    if not found:
        click.echo("No agent here. Start one with: cdui agent start")
        return 0
    rows = [
        (one.key, one.name, "running" if one.running else "stopped", str(one.pid or ""), one.url)
        for one in found
    ]
    print_table(("KEY", "NAME", "STATE", "PID", "CONTROL"), rows)
    return 0


@agent_command.command("forget")
@click.argument("url", required=False)
@click.pass_obj
def forget(context: Context, url: str | None) -> int:
    """Delete the stored credential for URL (without it, for this machine's server); the next start enrolls."""
    from ..agent.command import forget as forget_credential

    if forget_credential(context.user_data, url):
        click.echo("The credential is deleted. The next start enrolls again and needs a token.")
    else:
        click.echo("There was no credential for that address.")
    return 0
