"""Graphs through the whole chain: a supervisor with warm libraries, a run process, installed and own nodes."""

import asyncio
import json
import logging
import sys

import pytest
import pytest_asyncio

from codefyui_core.loading import load
from codefyui_core.runner.api import FolderSpec, Go, Launch
from codefyui_core.runner.offline import run_offline
from codefyui_core.runner.supervisor import Supervisor
from codefyui_core.runs.conclude import Conclusion

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(sys.platform != "linux", reason="keepers are Linux's"),
]

OWN_NODES = '''
"""Own nodes of these tests."""
import os, sys, time, random
from codefyui_core.plugin import DataType, Node, Param, ParamKind, Port

class Own(Node):
    type, category = "Own", "Test"
    params = (Param(name="do", kind=ParamKind.STRING, default=""),)
    outputs = (Port(name="out", type=DataType.ANY),)

    def execute(self, inputs, params, context):
        match params["do"]:
            case "abort":
                os.abort()
            case "wait":
                context.progress({"step": 1})
                while not context.should_stop():
                    time.sleep(0.005)
                return {"out": 1, "__interrupted__": True}
            case "print":
                print("printed")
            case "facts":
                import torch, numpy
                return {"out": [torch.get_num_threads(), random.random(), float(numpy.random.rand()), float(torch.rand(()))]}
            case "numb":
                while True:
                    time.sleep(1)
            case "ask":
                return {"out": [str(context.input_path("data/samples/iris.csv")), str(context.downloads)]}
        return {"out": params["do"]}
'''


class Runs:
    def __init__(self, folder, starter):
        self.folder = folder
        self.starter = starter

    def go(self, nodes, wires=(), options=None, **more):
        made = [{"id": "start", "type": "Start", "data": {"params": {}}}]
        made += [
            {"id": one, "type": kind, "data": {"params": params}} for one, (kind, params) in nodes.items()
        ]
        edges = [
            {"source": "start", "target": one, "sourceHandle": "trigger", "type": "trigger"} for one in nodes
        ]
        edges += [
            {"source": one, "sourceHandle": port, "target": other, "targetHandle": into, "type": "data"}
            for one, port, other, into in wires
        ]
        folders = FolderSpec(
            base=str(self.folder),
            data=str(self.folder / "data"),
            samples=str(self.folder / "samples"),
            downloads=str(self.folder / "downloads"),
        )
        document = {"name": "t", "nodes": made, "edges": edges}
        return Go(
            run_id="a" * 32,
            attempt=1,
            document=document,
            options=options or {},
            device="cpu",
            folders=folders,
            **more,
        )

    async def begin(self, go, **launch):
        process = await self.starter.launch(Launch(run_id="a", attempt=1, work_dir=self.folder, **launch))
        await process.ready()
        await process.go(go)
        return process

    async def run(self, go, **launch):
        async with asyncio.timeout(60):
            process = await self.begin(go, **launch)
            lines = [json.loads(line) async for line in process.lines()]
            return lines, await process.ended()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in ("own", "data", "samples"):
        (folder / name).mkdir()
    (folder / "own/own.py").write_text(OWN_NODES)
    (folder / "samples/iris.csv").write_text("a\n1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CODEFYUI_CUSTOM_NODES_DIR", str(folder / "own"))
        patch.setenv("OMP_NUM_THREADS", "3")
        preload = load(plane=None).preload
        async with Supervisor(preload=preload, zygote=True, log=logging.getLogger("tests")) as starter:
            async with asyncio.timeout(90):
                while not starter.is_warm:
                    await asyncio.sleep(0.05)
            assert starter.left_out == {}
            yield Runs(folder, starter)


def statuses(lines, node):
    return [
        line["payload"]["status"]
        for line in lines
        if line["type"] == "node_status" and line["payload"]["node_id"] == node
    ]


async def test_a_graph_of_installed_nodes_runs_to_its_outcome(runs):
    lines, ending = await runs.run(
        runs.go({"a": ("TextInput", {"value": "hello"}), "p": ("Print", {})}, [("a", "text", "p", "value")])
    )
    assert lines[0]["type"] == "execution_start" or lines[0]["kind"] == "environment"
    assert lines[-1]["payload"] == {"outcome": "succeeded", "error": None, "cause": None}
    assert statuses(lines, "p") == ["running", "completed"]
    assert ending.exit_code == 0
    assert ending.peak_memory_bytes > 10 << 20


@pytest.mark.spec("fingerprint/numerics-switches")
async def test_the_facts_of_the_run_are_told(runs):
    lines, _ = await runs.run(
        runs.go({"a": ("TextInput", {})}, options={"deterministic": True}, devices=("cpu",))
    )
    first, last = [line["payload"] for line in lines if line["kind"] == "environment"]
    assert {"codefyui", "python", "torch", "accelerators", "plugins", "environment"} <= first[
        "fingerprint"
    ].keys()
    assert first["fingerprint"]["environment"]["OMP_NUM_THREADS"] == "3"
    assert first["resolved"]["numerics"]["default_dtype"] == "float32"
    assert first["resolved"]["numerics"]["deterministic_algorithms"] is True
    assert first["resolved"]["devices"] == ["cpu"]
    assert last["peak_memory"]["host_bytes"] > 1 << 20


@pytest.mark.spec("fingerprint/devices-before-narrowing", "fingerprint/digests-equal-when-unchanged")
async def test_what_a_run_is_confined_to_does_not_change_its_fingerprint(runs):
    digests = set()
    for launch in ({}, {"env": {"CUDA_VISIBLE_DEVICES": "1"}, "cores": 1}):
        lines, _ = await runs.run(runs.go({"a": ("TextInput", {})}), **launch)
        digests |= {line["payload"]["digest"] for line in lines if "digest" in line["payload"]}
    assert len(digests) == 1


async def test_forked_runs_have_their_cores_and_share_no_randomness(runs):
    found = []
    for _ in range(2):
        lines, _ = await runs.run(runs.go({"o": ("Own", {"do": "facts"})}), cores=2)
        (done,) = [
            one["payload"]
            for one in lines
            if one["payload"].get("status") == "completed" and one["payload"]["node_id"] == "o"
        ]
        found.append(done["outputs"][0]["list"]["values"])
    (threads, *first), (_, *second) = found
    assert threads == 2
    assert not set(first) & set(second)


async def test_a_seed_gives_the_same_numbers_in_every_process(runs):
    found = []
    for _ in range(2):
        lines, _ = await runs.run(runs.go({"o": ("Own", {"do": "facts"})}, options={"seed": 5}), cores=1)
        found.append([one["payload"].get("outputs") for one in lines if one["payload"].get("node_id") == "o"])
    assert found[0] == found[1]


async def test_a_node_that_kills_the_process_leaves_no_outcome(runs):
    lines, ending = await runs.run(runs.go({"o": ("Own", {"do": "abort"})}))
    assert ending.signal == 6
    assert not [line for line in lines if line["kind"] == "outcome"]
    assert statuses(lines, "o") == ["running"]


async def test_a_stop_reaches_the_node(runs):
    process = await runs.begin(runs.go({"o": ("Own", {"do": "wait"})}))
    lines = []
    async for line in process.lines():
        lines.append(json.loads(line))
        if lines[-1]["payload"].get("status") == "progress":
            await process.stop(grace_s=60)
    assert lines[-1]["payload"]["outcome"] == "stopped"
    assert statuses(lines, "o") == ["running", "progress", "interrupted"]
    assert (await process.ended()).exit_code == 0


async def test_a_node_that_does_not_listen_is_ended_after_the_grace(runs):
    process = await runs.begin(runs.go({"o": ("Own", {"do": "numb"})}))
    async for line in process.lines():
        if statuses([json.loads(line)], "o") == ["running"]:
            await process.stop(grace_s=0.05)
    ending = await process.ended()
    assert ending.signal == 9
    assert not ending.stopped_in_time


async def test_nodes_find_samples_and_downloads_where_the_run_has_them(runs):
    lines, _ = await runs.run(runs.go({"o": ("Own", {"do": "ask"})}))
    outputs = [one["payload"]["outputs"] for one in lines if one["payload"].get("outputs")]
    assert outputs[0][0]["list"]["values"] == [
        str(runs.folder / "samples/iris.csv"),
        str(runs.folder / "downloads"),
    ]


async def test_unknown_types_and_options_are_refused_in_words(runs):
    for go in (runs.go({"o": ("NoSuch", {})}), runs.go({"a": ("TextInput", {})}, options={"no": 1})):
        lines, ending = await runs.run(go)
        assert lines[-1]["payload"]["outcome"] == "failed"
        assert lines[-1]["payload"]["cause"] == "refused"
        assert ending.exit_code == 1


async def test_an_own_file_that_ends_the_process_costs_no_run_without_own_nodes(runs):
    bad = runs.folder / "own/bad.py"
    bad.write_text("import os\nos._exit(5)\n")
    try:
        lines, _ = await runs.run(runs.go({"a": ("TextInput", {})}))
        assert lines[-1]["payload"]["outcome"] == "succeeded"
    finally:
        bad.unlink()


async def test_an_offline_run_says_everything_and_concludes(runs):
    said = [one async for one in run_offline(runs.starter, runs.go({"o": ("Own", {"do": "print"})}))]
    assert isinstance(said[-1], Conclusion)
    assert said[-1].status == "succeeded"
    assert ["printed"] in [one.payload.get("lines") for one in said[:-1]]
    assert isinstance(
        [one async for one in run_offline(runs.starter, runs.go({"x": ("No", {})}))][-1], Conclusion
    )


async def test_an_offline_run_that_is_left_ends(runs):
    stream = run_offline(runs.starter, runs.go({"o": ("Own", {"do": "wait"})}))
    async for said in stream:
        if said.payload.get("status") == "progress":
            break
    await stream.aclose()
    assert not runs.starter._runs
