"""Options that many commands share. They note their value in the command's context."""

from collections.abc import Callable
from typing import TypeVar

import click

from .context import Context

F = TypeVar("F", bound="Callable[..., object] | click.Command")


def _note_json(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Context).as_json = True


def _note_flag(variable: str) -> Callable[[click.Context, click.Parameter, object], None]:
    def note(ctx: click.Context, _parameter: click.Parameter, value: object) -> None:
        ctx.ensure_object(Context).set_flag(variable, value)

    return note


def json_option(command: F) -> F:
    """``--json``: the command looks at ``context.as_json``."""
    return click.option(
        "--json", is_flag=True, expose_value=False, callback=_note_json, help="Print JSON, one line."
    )(command)


def server_options(command: F) -> F:
    """``--host`` and ``--port`` of the server that the command talks to, or starts."""
    host = click.option(
        "--host", expose_value=False, callback=_note_flag("CODEFYUI_HOST"), help="The server's address."
    )
    port = click.option(
        "--port",
        type=click.IntRange(0, 65535),
        expose_value=False,
        callback=_note_flag("CODEFYUI_PORT"),
        help="The server's port.",
    )
    return host(port(command))
