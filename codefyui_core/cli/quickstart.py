"""``cdui quickstart``: from nothing to a trained model on a worker, in one command."""

import os
import socket
import time
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import click

from .client import HttpApi, Running, Server
from .context import Context
from .errors import CommandProblem
from .following import TerminalView, follow
from .run import read_graph, submit

EXAMPLE = "digits-cnn.graph.json"
ONLINE_WITHIN_S = 90.0
PORTS = range(8000, 8100)


class QuickstartProblem(CommandProblem):
    """A step of it didn't work; the message says which."""


@click.command("quickstart")
@click.pass_obj
def quickstart_command(context: Context) -> int:
    """Start the server and a worker on this machine, and train a small network on it."""
    running = start_server(context)
    click.echo(f"[1/3] Server running at {running.url}")
    api = HttpApi(Server(url=running.url, token=_token(context)))
    worker = start_worker(context, api)
    click.echo(f"[2/3] Worker {worker} is online")
    graph = read_graph(example_file(context))
    click.echo("[3/3] Training a convolutional network on 1,797 handwritten digits, on that worker")
    run_id = submit(api, graph, name="digits-cnn", options={"target": worker})
    row = follow(api, run_id, TerminalView())
    if row["status"] != "succeeded":
        raise QuickstartProblem(
            f"The run ended {row['status']}: {row.get('error') or 'no reason given'}. Its page: {running.url}"
        )
    report(api, row)
    return 0


def start_server(context: Context) -> Running:
    """The server of this user data: the one that runs, else a new one on the first free port."""
    from .server_process import healthy, live_server, start_background

    install = context.install
    running = live_server(install.user_data)
    if running is not None and healthy(running):
        return running
    port = free_port(Running.read(install.user_data), install.layers.find("CODEFYUI_PORT"))
    return start_background(
        ["--port", str(port)],
        log_file=install.logs / "server.log",
        environ=os.environ,
        user_data=install.user_data,
    )


def free_port(last: Running | None, told: tuple[str, object] | None) -> int:
    """The port that was told; else that of the last start, else the first free one from 8000 to 8099.

    Raises: QuickstartProblem when none is free.
    """
    if told is not None:
        return int(told[0])
    before = urlsplit(last.url).port if last is not None else None
    for port in ([before] if before else []) + list(PORTS):
        if _free(port):
            return port
    raise QuickstartProblem(
        "No port from 8000 to 8099 is free. Choose one: CODEFYUI_PORT=9000 cdui quickstart"
    )


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def start_worker(context: Context, api: HttpApi) -> str:
    """Start this machine's own worker, as ``cdui agent start`` without an address starts it.

    Returns: its name, once it is online and its nodes are known.
    """
    from ..agent.command import start_same_host

    name = start_same_host(context.install)
    deadline = time.monotonic() + ONLINE_WITHIN_S
    while time.monotonic() < deadline:
        health = cast("dict[str, Any]", api.call("GET", "/api/health"))
        listed = cast("dict[str, Any]", api.call("GET", "/api/workers"))
        row = next((worker for worker in listed["workers"] if worker["name"] == name), None)
        if row is not None and row["status"] in {"online", "degraded"} and health["status"] == "ready":
            return name
        time.sleep(0.1)
    raise QuickstartProblem(
        f"The worker {name} isn't online after {ONLINE_WITHIN_S:.0f} s. Its log: {context.install.logs}/agent-local.log"
    )


def example_file(context: Context) -> Path:
    """Raises: QuickstartProblem when the examples aren't installed."""
    folder = context.install.examples
    if folder is None or not (folder / EXAMPLE).is_file():
        raise QuickstartProblem(f"The example {EXAMPLE} isn't in this installation (looked in {folder}).")
    return folder / EXAMPLE


def report(api: HttpApi, row: dict[str, Any]) -> None:
    """What came out, where it is, what to do next."""
    artifacts = cast("list[dict[str, Any]]", api.call("GET", f"/api/runs/{row['id']}/artifacts"))
    models = [artifact for artifact in artifacts if artifact["kind"] == "output"]
    accuracy = (row.get("final_metrics") or {}).get("val_accuracy")
    click.echo()
    click.echo(f"val_accuracy  {accuracy:.4f}" if accuracy is not None else "val_accuracy  not reported")
    for model in models:
        click.echo(f"model         {model['path'] or model['name']}")
    click.echo(f"checkpoints   {sum(artifact['kind'] == 'checkpoint' for artifact in artifacts)}")
    click.echo(f"open          {api.server.url}")
    click.echo("stop both     ./cdui stop")


def _token(context: Context) -> str:
    return (context.user_data / "session.token").read_text(encoding="utf-8").strip()
