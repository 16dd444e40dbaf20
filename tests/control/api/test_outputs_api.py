"""Recorded outputs over HTTP: of the server's own runs from its disk, of all others from their worker."""

import asyncio
import json
from types import SimpleNamespace

import pytest
import torch
from sqlalchemy import update

from codefyui_core.control.api import outputs as outputs_api
from codefyui_core.control.db.tables import runs
from codefyui_core.engine import Limits, Recorder
from codefyui_core.errors import CodefyError
from codefyui_core.outputs import Answer, Question, What
from codefyui_core.runner.api import Go

VALUES = {
    "x": torch.arange(6.0).reshape(2, 3),
    "text": "hello",
    "nothing": None,
    "large": torch.zeros(100, 100),
}


class Recorded:
    """Runs that record, on the server."""

    def __init__(self, app):
        self.app = app
        self.store = app.plane.runs.outputs.store

    async def begin(self, **more):
        return await self.app.running(options={"record_outputs": True}, **more)

    def write(self, run_id):
        """As the run's process does after its outcome."""
        step = {"name": "first", "tensors": {"t": torch.ones(2)}, "scalars": {"k": 1}}
        recorder = Recorder(self.store, run_id, Limits())
        ports = [SimpleNamespace(name=name) for name in VALUES]
        recorder.node("make/one", "Make", None, ports, {**VALUES, "__steps__": [step]})
        recorder.write()

    async def over(self, run_id, process):
        process.finish()
        return await self.app.row_when(run_id, active=False)

    async def run(self):
        run_id, process = await self.begin()
        self.write(run_id)
        await self.over(run_id, process)
        return run_id

    async def get(self, run_id, path="", **query):
        return await self.app.get(f"/api/execution/outputs/{run_id}{path}", params=query)


@pytest.fixture
def recorded(app):
    return Recorded(app)


@pytest.fixture
async def run_id(recorded):
    return await recorded.run()


NODE = "/make%2Fone"


async def test_a_run_lists_what_it_recorded(recorded, run_id):
    found = (await recorded.get(run_id)).json
    (node,) = found["nodes"]
    assert (found["run_id"], node["node_id"], node["type"], node["steps"]) == (run_id, "make/one", "Make", 1)
    assert {port["port"]: port["kind"] for port in node["ports"]} == {
        "x": "tensor", "text": "string", "nothing": "empty", "large": "tensor",
    }  # fmt: skip


async def test_a_value_is_read_whole_or_by_a_slice(recorded, run_id):
    whole = (await recorded.get(run_id, f"{NODE}/x")).json
    assert (whole["values"], whole["dtype"], whole["shape"]) == ([[0, 1, 2], [3, 4, 5]], "float32", [2, 3])
    assert (whole["run_id"], whole["node_id"], whole["port"]) == (run_id, "make/one", "x")
    assert (await recorded.get(run_id, f"{NODE}/x", slice="1,1:")).json["values"] == [4, 5]
    assert (await recorded.get(run_id, f"{NODE}/text")).json["value"] == "hello"


async def test_nothing_is_answered_by_nothing(recorded, run_id):
    for path, query in ((f"{NODE}/nothing", {}), (f"{NODE}/x", {"slice": "0:0"}), (f"{NODE}/text/stats", {})):
        answer = await recorded.get(run_id, path, **query)
        assert (answer.status, answer.body) == (204, b"")


async def test_more_than_asked_for_is_refused(recorded, run_id):
    (await recorded.get(run_id, f"{NODE}/large")).refused(413, "outputs.too_large")
    assert (await recorded.get(run_id, f"{NODE}/large", max_elements=10_000)).status == 200
    for query in ({"max_elements": 1_000_001}, {"max_elements": 0}, {"slice": "5"}, {"slice": "x" * 300}):
        (await recorded.get(run_id, f"{NODE}/x", **query)).refused(400, "request.invalid")


async def test_statistics_and_steps_are_read(recorded, run_id):
    stats = (await recorded.get(run_id, f"{NODE}/x/stats")).json["stats"]
    assert (stats["count"], stats["min"], stats["max"], stats["mean"]) == (6, 0, 5, 2.5)
    (step,) = (await recorded.get(run_id, f"{NODE}/__steps_index")).json["steps"]
    assert (step["name"], step["scalars"]) == ("first", {"k": 1})
    port = step["tensors"][0]["port"]
    assert (await recorded.get(run_id, f"{NODE}/{port}")).json["values"] == [1, 1]


async def test_what_is_not_there_is_not_found(recorded, run_id):
    (await recorded.get(run_id, f"{NODE}/other")).refused(404, "outputs.not_found")
    (await recorded.get(run_id, "/other/x")).refused(404, "outputs.not_found")
    (await recorded.get("f" * 32)).refused(404, "run.not_found")
    plain, process = await recorded.app.running()
    await recorded.over(plain, process)
    (await recorded.get(plain)).refused(404, "outputs.not_found")


async def test_a_run_that_goes_on_has_nothing_to_read_yet(recorded):
    run_id, process = await recorded.begin()
    (await recorded.get(run_id)).refused(409, "run.active")
    process.finish()


async def test_outputs_are_removed_on_request_and_the_run_stays(recorded, run_id):
    path = f"/api/execution/outputs/{run_id}"
    (await recorded.app.ask("DELETE", path, token=None)).refused(403, "auth.token")
    assert (await recorded.app.ask("DELETE", path)).json == {"run_id": run_id, "removed": True}
    assert (await recorded.app.ask("DELETE", path)).json == {"run_id": run_id, "removed": False}
    (await recorded.get(run_id)).refused(404, "outputs.not_found")
    assert (await recorded.app.get(f"/api/runs/{run_id}")).status == 200


async def test_a_run_takes_its_outputs_with_it(recorded, run_id):
    assert recorded.store.has(run_id)
    assert (await recorded.app.ask("DELETE", f"/api/runs/{run_id}")).status == 200
    assert not recorded.store.has(run_id)


async def test_a_run_of_the_server_that_left_nothing_says_so_and_its_outcome_stands(recorded):
    run_id, process = await recorded.begin()
    recorded.store.begin(run_id)
    row = await recorded.over(run_id, process)
    assert row["status"] == "succeeded"
    events = (await recorded.app.get(f"/api/runs/{run_id}/events")).json["events"]
    warnings = [event["payload"]["kind"] for event in events if event["type"] == "run_warning"]
    assert warnings == ["outputs_not_recorded"]
    assert list(recorded.store.root.iterdir()) == []


async def test_a_run_is_told_to_record_only_when_it_was_asked_to(recorded, monkeypatch):
    told = []
    validate = Go.__init__
    monkeypatch.setattr(
        Go, "__init__", lambda self, **given: (told.append(given), validate(self, **given))[1]
    )
    for options in ({"record_outputs": True}, {}):
        _, process = await recorded.app.running(options=options)
        process.finish()
    assert [given["record"] is not None for given in told] == [True, False]
    assert told[0]["record"].folder == str(recorded.store.root)


# ------------------------------------------------------------ of workers


class Worker:
    """Answers as a worker does, or never."""

    def __init__(self):
        self.asked = []
        self.told = []
        self.answer = Answer({"kind": "scalar"}, b"5")
        self.cancelled = asyncio.Event()

    async def ask(self, run_id, question, timeout_s):
        self.asked.append((run_id, question, timeout_s))
        if self.answer is None:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        if isinstance(self.answer, CodefyError):
            raise self.answer
        return self.answer

    def tell(self, run_id, question):
        self.told.append((run_id, question.what))


@pytest.fixture
async def remote(recorded, run_id, monkeypatch):
    """The run as if a worker had executed it; ``worker`` is connected once it is set."""
    recorded.store.remove(run_id)
    async with recorded.app.plane.db.begin() as connection:
        await connection.execute(
            update(runs).where(runs.c.id == run_id).values(worker_id="w" * 32, worker_name="box")
        )
    found = SimpleNamespace(run_id=run_id, worker=None)
    monkeypatch.setattr(recorded.app.plane.runs.outputs, "_worker", lambda _: found.worker)
    return found


@pytest.mark.spec("limits/captures-need-connection")
async def test_outputs_of_a_worker_that_is_away_can_not_be_read(recorded, remote):
    answer = await recorded.get(remote.run_id, f"{NODE}/x")
    answer.refused(503, "outputs.away")
    assert "worker box" in answer.json["detail"]
    remote.worker = Worker()
    assert (await recorded.get(remote.run_id, f"{NODE}/x")).json["value"] == 5


@pytest.mark.spec("limits/captures-stay-on-worker", "setting/worker-output-fetch-timeout")
async def test_outputs_of_a_worker_come_from_it_and_leave_no_copy_here(recorded, remote):
    remote.worker = Worker()
    await recorded.get(remote.run_id, f"{NODE}/x", slice="0", max_elements=7)
    question = Question(what=What.VALUE, node="make/one", port="x", slice="0", max_elements=7)
    assert remote.worker.asked == [(remote.run_id, question, 60)]
    assert not recorded.store.has(remote.run_id)


async def test_a_worker_that_is_late_is_a_gateway_that_timed_out(recorded, remote):
    remote.worker = Worker()
    remote.worker.answer = CodefyError("too late", code="outputs.timeout")
    (await recorded.get(remote.run_id)).refused(504, "outputs.timeout")


async def test_a_worker_that_sends_nonsense_is_a_bad_gateway(recorded, remote):
    remote.worker = Worker()
    remote.worker.answer = Answer({"kind": "tensor", "stored": "float32", "selected": [3]}, b"123")
    (await recorded.get(remote.run_id, f"{NODE}/x")).refused(502, "storage.corrupt")


async def test_a_removed_run_is_removed_at_its_worker_too(recorded, remote):
    remote.worker = Worker()
    assert (await recorded.app.ask("DELETE", f"/api/runs/{remote.run_id}")).status == 200
    assert remote.worker.told == [(remote.run_id, What.REMOVE)]


async def test_a_client_that_leaves_ends_the_read(recorded, remote, monkeypatch):
    monkeypatch.setattr(outputs_api, "LOOK_S", 0.01)
    remote.worker = Worker()
    remote.worker.answer = None
    reading = asyncio.create_task(recorded.get(remote.run_id))
    async with asyncio.timeout(15):
        while not remote.worker.asked:
            await asyncio.sleep(0.005)
        reading.cancel()
        await remote.worker.cancelled.wait()


def test_the_described_defaults_are_those_of_the_reference():
    query = outputs_api.ValueQuery()
    assert (query.slice, query.max_elements) == (None, 4096)
    assert json.loads(query.model_dump_json()) == {"slice": None, "max_elements": 4096}
