"""``cdui plugin``: what is installed."""

from dataclasses import asdict
from typing import cast

import click
from pydantic import JsonValue

from ..plugin.views import PluginInfo
from .context import Context
from .options import json_option
from .output import print_json, print_table


@click.group("plugin")
def plugin_command() -> None:
    """See the installed plugins."""


@plugin_command.command("list")
@json_option
@click.pass_obj
def list_plugins(context: Context) -> None:
    """All plugins, the ones that are blocked or failed too."""
    plugins = context.plugins()
    if context.as_json:
        print_json({"plugins": [cast("JsonValue", _row(info)) for info in plugins]})
        return
    print_table(("NAME", "DISTRIBUTION", "VERSION", "STATE", "BRINGS"), (_cells(info) for info in plugins))
    for info in plugins:
        if info.error:
            click.echo(f"\n{info.entry_point} ({info.distribution}): {info.error}")


def _row(info: PluginInfo) -> dict[str, object]:
    lists = {"brings": list(info.brings), "hooks": list(info.hooks)}
    return asdict(info) | {"state": info.state.value} | lists


def _cells(info: PluginInfo) -> tuple[str, ...]:
    return (info.entry_point, info.distribution, info.version, info.state.value, ", ".join(info.brings))
