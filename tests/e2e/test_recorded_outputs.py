"""Recorded outputs with real processes: written by runs, kept where they executed, read through the server."""

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_site import Process, Site, graph, wait_for

pytestmark = pytest.mark.service

NODE = '''
"""A node that gives values of several kinds, and may make the disk of its process slow."""

import os
import time
from pathlib import Path

import torch
from codefyui_core.plugin import DataType, Node, Param, ParamKind, Port


class Gives(Node):
    type, category = "TrialGives", "Trial"
    outputs = (
        Port(name="tensor", type=DataType.TENSOR),
        Port(name="text", type=DataType.STRING),
        Port(name="labels", type=DataType.TENSOR),
    )
    params = (Param(name="slow_until", kind=ParamKind.STRING, default=""),)

    def execute(self, inputs, params, context):
        if params["slow_until"]:
            os.fsync = lambda _: wait(Path(params["slow_until"]))
        tensor = torch.arange(200_000, dtype=torch.float32).reshape(200, 1000)
        return {"tensor": tensor, "text": "hello", "labels": torch.tensor([1, 0, 1])}


def wait(file):
    while not file.exists():
        time.sleep(0.01)
'''


class Place:
    """One server and one worker."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def start_agent(self, **env: str) -> Process:
        return self.site.start_agent("box", **env)

    def submit(self, target: str = "box", slow_until: Path | None = None) -> str:
        params = {"slow_until": str(slow_until or "")}
        return self.site.submit(graph("TrialGives", params), target=target, record_outputs=True)

    def run(self, target: str = "box") -> str:
        run_id = self.submit(target)
        assert self.site.wait_end(run_id)["status"] == "succeeded"
        return run_id

    def read(self, run_id: str, path: str = "") -> tuple[int, Any]:
        """Status and body."""
        url = f"{self.site.url}/api/execution/outputs/{run_id}{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def kept(self, owner: str) -> list[str]:
        """Runs whose outputs are on the disk of the server, or of the agent."""
        roots = {
            "server": self.site.user_data / "run-outputs",
            "box": self.site.root / "agent-box" / "agent-outputs",
        }
        return sorted(path.parent.name for path in roots[owner].rglob("index.json"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    site = Site(root=tmp_path_factory.mktemp("site"), settings={})
    nodes = site.data / "custom_nodes"
    nodes.mkdir(parents=True)
    (nodes / "gives.py").write_text(NODE)
    try:
        site.start_server()
        yield Place(site)
    finally:
        site.aclose()


def test_runs_of_the_server_are_read_from_its_own_disk_and_go_with_their_run(place: Place) -> None:
    run_id = place.run("server")
    assert place.read(run_id, "/node/tensor?slice=-1,-1")[1]["values"] == 199_999
    assert place.kept("server") == [run_id]
    place.site.api().call("DELETE", f"/api/runs/{run_id}")
    assert (place.read(run_id)[0], place.kept("server")) == (404, [])


@pytest.mark.timeout(400)
@pytest.mark.spec(
    "limits/captures-stay-on-worker",
    "limits/captures-need-connection",
    "setting/agent-stop-waits-for-outputs-write",
    "setting/worker-outputs-write-timeout",
    "setting/worker-output-store-max-mb",
)
def test_a_worker_keeps_what_its_runs_record_whatever_becomes_of_its_agent(place: Place) -> None:
    agent = place.start_agent()
    first = place.run()
    reads_well(place, first)
    assert (place.kept("box"), place.kept("server")) == ([first], [])

    second = stopped_while_it_writes(place, agent)
    status, refused = place.read(second, "/node/text")
    assert (status, refused["code"]) == (503, "outputs.away")
    assert "box" in refused["detail"]

    place.start_agent(CODEFYUI_WORKER_OUTPUTS_WRITE_TIMEOUT_S="2", CODEFYUI_RUN_OUTPUT_STORE_MAX_MB="1")
    assert place.read(second, "/node/text")[1]["value"] == "hello"
    assert (place.read(first)[0], place.kept("box")) == (404, [second])

    third = place.submit(slow_until=place.site.root / "never")
    assert place.site.wait_end(third)["status"] == "succeeded"
    kinds = [one["payload"]["kind"] for one in place.site.events(third) if one["type"] == "run_warning"]
    assert (kinds, place.read(third)[0]) == (["outputs_not_recorded"], 404)
    fourth = place.run()
    assert place.kept("box") == [fourth]


def reads_well(place: Place, run_id: str) -> None:
    status, listed = place.read(run_id)
    node = next(node for node in listed["nodes"] if node["node_id"] == "node")
    assert (status, [port["kind"] for port in node["ports"]]) == (200, ["tensor", "string", "tensor"])
    assert place.read(run_id, "/node/tensor?slice=3,:4")[1]["values"] == [3000, 3001, 3002, 3003]
    assert place.read(run_id, "/node/text")[1]["value"] == "hello"
    assert place.read(run_id, "/node/labels/stats")[1]["stats"]["values"] == [[0, 1], [1, 2]]
    assert place.read(run_id, "/node/tensor")[0] == 413
    whole = place.read(run_id, "/node/tensor?max_elements=200000")[1]["values"]
    assert sum(map(sum, whole)) == sum(range(200_000))


def stopped_while_it_writes(place: Place, agent: Process) -> str:
    """A run whose outputs were being written when its agent was asked to stop."""
    go_on = place.site.root / "go-on"
    run_id = place.submit(slow_until=go_on)
    outputs = place.site.root / "agent-box" / "agent-outputs"
    wait_for(lambda: list(outputs.glob(f"*/.{run_id}.writing/data.bin")), what="the write to begin")
    agent.popen.send_signal(signal.SIGTERM)
    wait_for(lambda: "stopping" in agent.said(), what="the stop to be noticed")
    assert agent.popen.poll() is None
    go_on.touch()
    assert agent.wait(60) == 0
    assert place.site.wait_end(run_id)["status"] == "succeeded"
    return run_id
