"""Says what a stop of the server will do to how many runs, before it is done."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import click

from ..errors import CodefyError
from ..plugin.values import JsonObject
from .client import HttpApi, Running, Server
from .context import Context


@dataclass(frozen=True, slots=True)
class Consequences:
    """As the server that is to stop tells them; nothing from one that can't be asked."""

    row: JsonObject = field(default_factory=dict)

    def lines(self, *, keep_runs: bool) -> Sequence[str]:
        return cast("Sequence[str]", self.row.get("if_kept" if keep_runs else "if_stopped") or ())

    @property
    def numbers(self) -> JsonObject:
        """For ``--json``."""
        return {name: value for name, value in self.row.items() if not name.startswith("if_")}


def consequences(running: Running, token: str | None) -> Consequences:
    """Ask the server."""
    if token is None:
        return Consequences()
    api = HttpApi(Server(url=running.url, token=token), timeout_s=5)
    try:
        answer: Any = api.call("GET", "/api/server/stop")
    except CodefyError:
        return Consequences()
    return Consequences(answer if isinstance(answer, dict) else {})


def announce(context: Context, running: Running | None, token: str | None, *, keep_runs: bool) -> JsonObject:
    """Print the lines, unless the output is JSON. Answers the numbers."""
    found = Consequences() if running is None else consequences(running, token)
    if not context.as_json:
        for line in found.lines(keep_runs=keep_runs):
            click.echo(line)
    return found.numbers
