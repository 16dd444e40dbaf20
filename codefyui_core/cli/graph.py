"""``cdui graph``: validate or run a graph file on this machine alone: no server, no database, no queue."""

import asyncio
import logging
import secrets
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from ..errors import CodefyError, UsageProblem
from .context import Context
from .following import JsonView, QuietView, RunView, TerminalView
from .options import json_option
from .output import print_json

if TYPE_CHECKING:
    from ..graph import Document, Issue
    from ..runner.api import Go
    from ..runner.definitions import Catalog
    from ..runner.offline import Said
    from ..runs.conclude import Conclusion

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("graph")
def graph_command() -> None:
    """Validate or run a graph file without a server."""


@graph_command.command("validate")
@click.argument("file", type=FILE)
@json_option
@click.pass_obj
def validate_graph(context: Context, *, file: Path) -> int:
    """Say what is wrong with a graph. Exit status: 0 nothing, 1 something, 2 it can't be read."""
    document, issues = check(context, file)
    if context.as_json:
        print_json({"valid": not issues, "issues": [issue.to_json() for issue in issues]})
    elif issues:
        show_issues(file, issues)
    else:
        nodes = len(cast("list[Any]", document.raw.get("nodes") or []))
        click.echo(f"{file}: valid, {nodes} nodes")
    return 1 if issues else 0


@graph_command.command("run")
@click.argument("file", type=FILE)
@click.option("--device", default="auto", show_default=True, help="cpu, auto, cuda, cuda:N, mps.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Make the run repeatable.")
@click.option(
    "--deterministic", is_flag=True, help="Use torch's deterministic algorithms where there are any."
)
@click.option("--quiet", is_flag=True, help="Print errors only.")
@json_option
@click.pass_obj
def run_graph(context: Context, /, *, file: Path, quiet: bool, **chosen: Any) -> int:
    """Run a graph in a process of its own. Exit status: 0 done, 1 failed or invalid, 2 usage, 130 Ctrl-C."""
    document, issues = check(context, file)
    if issues:
        show_issues(file, issues)
        return 1
    view: RunView = JsonView() if context.as_json else QuietView() if quiet else OfflineView()
    return asyncio.run(_run(context, document, view, chosen))


def check(context: Context, file: Path) -> "tuple[Document, tuple[Issue, ...]]":
    """The document and what is wrong with it.

    Raises: UsageProblem when it can't be read as a graph document.
    """
    from ..graph import Document, validate

    try:
        document = Document.parse(file.read_bytes())
    except (OSError, CodefyError) as error:
        raise UsageProblem(f"{file}: {error}") from error
    return document, validate(document, catalog(context).definitions)


def catalog(context: Context) -> "Catalog":
    """Definitions from the last start's cache, or by a helper process."""
    from ..runner.definitions import collect, read_cached

    registry = context.registry()
    cache = context.user_data / "definitions.json"
    found = read_cached(registry, cache)
    if found is not None:
        return found
    context.user_data.mkdir(parents=True, exist_ok=True)
    return asyncio.run(collect(registry, cache=cache))


def show_issues(file: Path, issues: "tuple[Issue, ...]") -> None:
    """One line an issue on stderr, then the count with what is missing."""
    for issue in issues:
        click.echo(f"{issue.node_id or 'graph'}: {issue.message} [{issue.code}]", err=True)
    click.echo(f"{file}: {len(issues)} issues ({summary(issues)})", err=True)


def summary(issues: "tuple[Issue, ...]") -> str:
    """Codes, each with the node types it is about where there are some."""
    by_code: dict[str, set[str]] = defaultdict(set)
    for issue in issues:
        kind = issue.params.get("type")
        by_code[issue.code].update({str(kind)} if kind and issue.code == "unknown_node_type" else ())
    return "; ".join(
        f"{code}: {', '.join(sorted(types))}" if types else code for code, types in sorted(by_code.items())
    )


class OfflineView(TerminalView):
    """As on the server, and a line for each node that is done."""

    def show(self, event: dict[str, Any]) -> None:
        super().show(event)
        payload = event["payload"]
        if event["type"] == "node_status" and payload["status"] in {
            "completed",
            "cached",
            "skipped",
            "not_selected",
        }:
            took = payload.get("seconds")
            words = payload["status"] if took is None else f"{payload['status']} {took:.2f} s"
            self.console.print(f"{payload['node_id']}  {words}", markup=False)


async def _run(context: Context, document: "Document", view: RunView, chosen: dict[str, Any]) -> int:
    from ..runner.offline import run_offline
    from ..runner.supervisor import Supervisor

    install = context.install
    install.prepare()
    go = offline_go(context, document, chosen)
    supervisor = Supervisor(preload=(), zygote=False, log=logging.getLogger("codefyui.offline"))
    await supervisor.start()
    task = asyncio.ensure_future(_follow(run_offline(supervisor, go), view))
    with suppress(NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    try:
        conclusion = await task
    except asyncio.CancelledError:
        click.echo("Interrupted.", err=True)
        return 130
    finally:
        view.close()
        await supervisor.aclose()
    return _conclude(conclusion)


def offline_go(context: Context, document: "Document", chosen: dict[str, Any]) -> "Go":
    """What the run process is told; the graph's own device counts when none is asked for."""
    from ..runner.api import Go
    from ..runner.install_folders import folder_spec

    asked = chosen["device"]
    wanted = document.settings_device if asked == "auto" and document.settings_device else asked
    device = chosen_device(wanted, tuple(found.device for found in catalog(context).devices))
    options = {key: value for key, value in chosen.items() if value is not None and key != "device"}
    return Go(
        run_id=secrets.token_hex(16),
        attempt=1,
        document=document.raw,
        options=options,
        device=device,
        devices=(device,),
        folders=folder_spec(context.install),
        records=False,
    )


def chosen_device(asked: str, offered: tuple[str, ...]) -> str:
    """The first that fits.

    Raises: UsageProblem for one that this machine doesn't offer.
    """
    from ..runs.devices import matching

    found = matching(asked, offered)
    if not found:
        raise UsageProblem(f"This machine offers no device {asked}; it has {', '.join(offered)}.")
    return found[0]


async def _follow(said: "AsyncIterator[Said | Conclusion]", view: RunView) -> "Conclusion":
    from ..runs.conclude import Conclusion

    conclusion: Conclusion | None = None
    async with aclosing(cast("AsyncGenerator[Said | Conclusion]", said)) as lines:
        async for line in lines:
            if isinstance(line, Conclusion):
                conclusion = line
            elif line.kind == "event" and line.type is not None:
                view.show({"type": line.type, "payload": line.payload})
    assert conclusion is not None
    return conclusion


def _conclude(conclusion: "Conclusion") -> int:
    """The reason is the last line on stderr."""
    sys.stdout.flush()
    if conclusion.cause is None:
        return 0
    click.echo(f"{conclusion.error or conclusion.status.value} [{conclusion.cause.value}]", err=True)
    return 1
