"""``cdui settings``: what is set, to what, and where it comes from."""

from typing import Any, cast

import click

from .context import Context
from .options import json_option, server_options
from .output import print_json, print_table


@click.group("settings", invoke_without_command=True)
@json_option
@click.pass_context
def settings_command(ctx: click.Context) -> None:
    """Show every setting of this installation; secrets are stars."""
    if ctx.invoked_subcommand is not None:
        return
    context = ctx.ensure_object(Context)
    rows = all_rows(context)
    if context.as_json:
        print_json({"settings": cast("Any", rows)})
        return
    print_table(
        ("NAME", "VALUE", "FROM", "DEFAULT"),
        [(row["name"], _text(row["value"]), row["source"], _text(row["default"])) for row in rows],
    )


@settings_command.command("reload")
@server_options
@json_option
@click.pass_obj
def reload_settings(context: Context) -> None:
    """Have the running server read its .env file again, for the settings of plugins."""
    answer = cast("dict[str, Any]", context.api().call("POST", "/api/settings/reload"))
    if context.as_json:
        print_json(cast("Any", answer))
        return
    click.echo(f"Changed: {', '.join(answer['changed']) or 'nothing'}.")
    if answer["needs_restart"]:
        click.echo(f"These count after cdui restart: {', '.join(answer['needs_restart'])}.")


def all_rows(context: Context) -> list[dict[str, Any]]:
    """The core's and every plugin's, as this machine reads them."""
    from ..settings import AgentSettings, ControlSettings, FolderSettings, describe

    layers = context.install.layers
    found = [row for cls in (FolderSettings, ControlSettings, AgentSettings) for row in describe(cls, layers)]
    for brought in context.registry().contributions:
        for cls in brought.settings:
            found += describe(cls, layers, brought.distribution)
    return [dict(row.to_json()) for row in {row.name: row for row in found}.values()]


def _text(value: object) -> str:
    if value is None or value == "":
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
