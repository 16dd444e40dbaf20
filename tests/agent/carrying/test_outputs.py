"""Outputs on their way from a worker: beside the run, after it, and when nobody takes them."""

import asyncio
import threading
from pathlib import Path

import pytest

from codefyui_core.agent import agent as agent_module
from codefyui_core.agent.carrying.journal import Journal, Recorded
from codefyui_core.errors import Busy, Refused
from codefyui_core.plugin import Receipt
from codefyui_core.testing.doubles.faulty_backends import (
    BusyBackend,
    CrashingBackend,
    ExpiringBackend,
    RefusingBackend,
    SlowBackend,
)
from codefyui_core.testing.doubles.folder_backend import FolderBackend, Step
from codefyui_core.wire.messages import StopReason


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.carrying.halt.SOON_S", 0.05)


class Choosy(FolderBackend):
    """Publishes in a known order; what ``refuse`` names is refused, what ``hold`` names waits."""

    name = "choosy"

    def __init__(self, spool, parallel=4):
        super().__init__(spool)
        self.published = []
        self.begun = []
        self.refuse = {}
        self.hold = set()
        self.released = asyncio.Event()
        self.parallel = parallel

    def agent(self, host):
        half = super().agent(host)
        half.parallel = self.parallel
        opened = half.open

        def wrapped(*known):
            return _Context(opened(*known), self)

        half.open = wrapped
        return half


class _Context:
    def __init__(self, context, backend):
        self._context = context
        self._backend = backend

    async def __aenter__(self):
        session, backend = await self._context.__aenter__(), self._backend
        publish = session.publish

        async def choosy(output, path, notes, progress):
            backend.begun.append(output.name)
            if output.name in backend.hold:
                await backend.released.wait()
            if output.name in backend.refuse:
                raise backend.refuse[output.name]
            receipt = await publish(output, path, notes, progress)
            backend.published.append(output.name)
            return receipt

        session.publish = choosy
        return session

    async def __aexit__(self, *error):
        return await self._context.__aexit__(*error)


def rows(carried, stored):
    return {one["name"]: one for one in carried.artifacts(stored)}


def failed(carried, stored):
    return carried.warnings(stored, "transfer_failed")


# ---------------------------------------------------------------- while the run executes


@pytest.mark.spec("transfer/uploads-do-not-block-the-run")
async def test_a_slow_upload_holds_up_nothing_of_the_run(carried):
    backend = carried.use(SlowBackend(carried.spool, held={Step.PUBLISH}))
    await carried.line.agent()
    stored, process = await carried.begin()
    carried.write("models/epoch.pt")
    carried.report(process, "models/epoch.pt", "a1")
    for number in range(20):
        process.log(str(number))
    await carried.line.until(lambda: sum(one.type == "log" for one in stored.items) == 20)
    await asyncio.wait_for(backend.waiting.wait(), 10)
    assert carried.artifacts(stored) == []
    process.end("succeeded")
    await carried.line.until(lambda: "exited" in stored.kinds)
    assert stored.final is None
    backend.release()
    await carried.ended(stored)
    assert rows(carried, stored)["epoch.pt"]["state"] == "stored"


async def test_what_was_recorded_is_sent_as_it_was_even_when_the_run_removes_or_replaces_it(carried):
    backend = carried.use(SlowBackend(carried.spool, held={Step.PUBLISH}))
    await carried.line.agent()
    stored, process = await carried.begin()
    for name in ("pruned", "best"):
        carried.write(f"models/{name}.pt", f"{name} 1")
        carried.report(process, f"models/{name}.pt", name)
    await carried.line.until(lambda: len(list(carried.data().parent.glob("outbox/*"))) == 2)
    (carried.data() / "models/pruned.pt").unlink()
    fresh = carried.write("files/fresh", "best 2")
    fresh.replace(carried.data() / "models/best.pt")
    backend.release()
    process.end("succeeded")
    await carried.ended(stored)
    assert (carried.sent("pruned"), carried.sent("best")) == ("pruned 1", "best 1")
    (found,) = [one for one in carried.artifacts(stored) if one["kind"] == "output"]
    assert (found["relative_path"], carried.sent(found["artifact_id"])) == ("models/best.pt", "best 2")
    assert not (carried.data().parent / "outbox").exists()


async def test_what_the_run_kept_is_sent_although_another_file_took_its_place_before_anybody_looked(carried):
    await carried.line.agent()
    stored, process = await carried.begin()
    kept = Path((await process.went).folders.kept)
    kept.mkdir()
    for version, key in (("best 1", "1" * 32), ("best 2", "2" * 32)):
        carried.write("models/fresh", version).replace(carried.data() / "models/best.pt")
        (kept / key).hardlink_to(carried.data() / "models/best.pt")
    for key in ("1" * 32, "2" * 32):
        carried.report(process, "models/best.pt", key)
    process.end("succeeded")
    await carried.ended(stored)
    assert [carried.sent(key * 32) for key in "12"] == ["best 1", "best 2"]
    assert len(carried.artifacts(stored)) == 2
    assert not kept.exists()


async def test_a_link_in_the_place_of_what_the_run_kept_leads_nowhere(carried, tmp_path):
    await carried.line.agent()
    stored, process = await carried.begin()
    kept = Path((await process.went).folders.kept)
    kept.mkdir()
    (tmp_path / "secret").write_text("secret")
    (kept / ("1" * 32)).symlink_to(tmp_path / "secret")
    carried.write("models/best.pt", "best")
    carried.report(process, "models/best.pt", "1" * 32)
    process.end("succeeded")
    await carried.ended(stored)
    assert carried.sent("1" * 32) == "best"


async def test_no_more_uploads_are_under_way_than_the_backend_takes(carried):
    backend = carried.use(Choosy(carried.spool, parallel=2))
    await carried.line.agent()
    stored, process = await carried.begin()
    backend.hold = {f"{n}.pt" for n in range(5)}
    for number in range(5):
        carried.write(f"models/{number}.pt")
        carried.report(process, f"models/{number}.pt", f"a{number}")
    process.log("all said")
    await carried.line.until(lambda: any(one.type == "log" for one in stored.items))
    await carried.line.until(lambda: len(backend.begun) == 2)
    backend.released.set()
    process.end("succeeded")
    await carried.ended(stored)
    assert len(carried.artifacts(stored)) == 5


class Held:
    """A journal whose first entry takes until it is let go."""

    def __init__(self, monkeypatch):
        self.turns = []
        self.go = threading.Event()
        add = Journal.add

        def held(journal, *entries):
            recorded = [entry.key for entry in entries if isinstance(entry, Recorded)]
            if recorded:
                self.turns.append(recorded)
                assert self.go.wait(10)
            add(journal, *entries)

        monkeypatch.setattr(Journal, "add", held)


def keeping():
    """How many reports are being written down."""
    return sum(task.get_name().startswith("keeping") for task in asyncio.all_tasks())


async def test_files_that_are_reported_one_after_the_other_are_written_down_together(carried, monkeypatch):
    await carried.line.agent()
    stored, process = await carried.begin()
    held = Held(monkeypatch)
    for name in "abcd":
        carried.write(f"models/{name}.pt", name)
    carried.report(process, "models/a.pt", "a")
    await carried.line.until(lambda: held.turns)
    for name in "bcdb":
        carried.report(process, f"models/{name}.pt", name)
    await carried.line.until(lambda: keeping() == 5)
    held.go.set()
    process.end("succeeded")
    await carried.ended(stored)
    assert held.turns == [["a"], ["b", "c", "d"]]
    assert sorted(one["artifact_id"] for one in carried.artifacts(stored)) == ["a", "b", "c", "d"]
    assert [carried.sent(name) for name in "abcd"] == ["a", "b", "c", "d"]


async def test_what_a_run_says_after_a_file_is_told_when_the_file_can_not_be_lost_any_more(
    carried, monkeypatch
):
    await carried.line.agent()
    stored, process = await carried.begin()
    held = Held(monkeypatch)
    carried.write("models/a.pt")
    carried.report(process, "models/a.pt", "a")
    process.log("afterwards")
    await carried.line.until(lambda: held.turns)
    for _ in range(50):
        await asyncio.sleep(0)
    spool = next(iter(carried.line.user_data.glob("agent-spool/*/r1.1")))
    assert not any(b"afterwards" in path.read_bytes() for path in spool.glob("[0-9]*.log"))
    held.go.set()
    await carried.line.until(lambda: any(one.type == "log" for one in stored.items))
    process.end("succeeded")
    await carried.ended(stored)


async def test_many_files_cost_no_task_each_and_not_a_line_each(carried):
    backend = carried.use(Choosy(carried.spool, parallel=2))
    await carried.line.agent()
    stored, process = await carried.begin()
    names = [f"output/{number}.png" for number in range(200)]
    for name in names:
        carried.write(name)
    backend.hold = set(names)
    process.end("succeeded")
    await carried.line.until(lambda: len(backend.begun) == 2)
    assert len(asyncio.all_tasks()) < len(names) / 2
    backend.released.set()
    await carried.ended(stored)
    assert sorted(one["name"] for one in carried.artifacts(stored)) == sorted(names)
    lines = carried.warnings(stored, "transfer_progress")
    numbers = [line["index"] for line in lines if line["bytes_done"] == line["bytes_total"]]
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (1, 200)
    assert {line["count"] for line in lines} == {200}
    assert len(numbers) < len(names) / 2


@pytest.mark.spec("transfer/tensorboard-folder-file-by-file", "s3/tensorboard-file-by-file")
async def test_a_folder_is_sent_file_by_file_once_the_run_is_over(carried):
    await carried.line.agent()
    stored, process = await carried.begin()
    carried.write("output/runs/tb/events.0", "0")
    carried.report(process, "output/runs/tb", "f1", kind="tensorboard")
    process.log("said")
    await carried.line.until(lambda: any(one.type == "log" for one in stored.items))
    assert carried.artifacts(stored) == []
    carried.write("output/runs/tb/events.0", "0 and more")
    carried.write("output/runs/tb/train/events.1", "1")
    process.end("succeeded")
    await carried.ended(stored)
    found = sorted(carried.artifacts(stored), key=lambda one: one["artifact_id"])
    assert [(one["artifact_id"], one["kind"], one["name"], one["relative_path"]) for one in found] == [
        ("f1/1", "tensorboard", "tb/events.0", "output/runs/tb/events.0"),
        ("f1/2", "tensorboard", "tb/train/events.1", "output/runs/tb/train/events.1"),
    ]
    assert [carried.sent(one["artifact_id"]) for one in found] == ["0 and more", "1"]
    assert not any(one["is_folder"] for one in found)


@pytest.mark.parametrize("place", ["outside", "link", "linked folder", "absent", "nothing"])
async def test_what_lies_elsewhere_or_is_no_file_stays_with_a_warning(carried, tmp_path, place):
    await carried.line.agent()
    stored, process = await carried.begin()
    outside = tmp_path / "secret.txt"
    outside.write_text("s3cr3t")
    path = carried.write("models/a.pt")
    if place == "link":
        path.unlink()
        path.symlink_to(outside)
    if place == "linked folder":
        path = path.parent / "elsewhere/secret.txt"
        path.parent.symlink_to(outside.parent)
    payload = {"artifact_id": "a1", "kind": "checkpoint", "name": "a.pt", "path": str(path)}
    if place == "outside":
        payload["path"] = str(outside)
    if place == "absent":
        payload["path"] = str(path.with_name("b.pt"))
    if place == "nothing":
        del payload["path"], payload["kind"]
    process.say(type_="artifact", payload=payload)
    await carried.line.until(lambda: failed(carried, stored))
    process.end("succeeded")
    await carried.ended(stored)
    (told,) = failed(carried, stored)
    assert told["detail"].startswith("a.pt stays on the worker: ")
    assert [one["state"] for one in carried.artifacts(stored) if one["artifact_id"] == "a1"] == ["on_worker"]
    assert stored.final == "succeeded"
    sent = carried.spool / "outputs"
    assert not [one for one in sent.rglob("*") if one.is_file() and b"s3cr3t" in one.read_bytes()]


# ---------------------------------------------------------------- the order


@pytest.mark.spec("transfer/interrupt-checkpoint-uploaded-last", "s3/upload-order-and-end-report")
async def test_the_checkpoint_of_a_stopped_run_is_sent_last(carried):
    backend = carried.use(Choosy(carried.spool))
    await carried.line.agent()
    stored, process = await carried.begin()
    await carried.line.control.ask_stop()
    await carried.line.until(lambda: process.stops)
    backend.hold = {"epoch.pt"}
    carried.write("models/epoch.pt")
    carried.report(process, "models/epoch.pt", "a1")
    carried.write("models/interrupted.pt", "resume here")
    carried.report(process, "models/interrupted.pt", "a2", meta={"interrupted": True})
    carried.write("output/plot.png")
    process.end("stopped")
    await carried.line.until(lambda: "output/plot.png" in backend.published)
    assert "interrupted.pt" not in backend.begun
    backend.released.set()
    await carried.ended(stored)
    assert backend.published == ["output/plot.png", "epoch.pt", "interrupted.pt"]
    assert [one["name"] for one in carried.artifacts(stored)][-1] == "interrupted.pt"
    assert stored.kinds[-1] == "end"
    assert (stored.items[-1].payload["outcome"], stored.items[-1].payload["stop_reason"]) == (
        "stopped",
        "user",
    )
    assert failed(carried, stored) == []


# ---------------------------------------------------------------- failures


@pytest.mark.spec("transfer/retry-when-control-plane-unreachable")
async def test_a_busy_backend_is_tried_until_it_takes_the_file(carried):
    backend = carried.use(BusyBackend(carried.spool, times=4, at={Step.PUBLISH}))
    await carried.line.agent()
    stored, process = await carried.begin()
    carried.write("output/plot.png", "pixels")
    process.end("succeeded")
    await carried.ended(stored)
    assert backend.steps.count(Step.PUBLISH) == 5
    (row,) = carried.artifacts(stored)
    assert (row["state"], carried.sent(row["artifact_id"])) == ("stored", "pixels")


async def test_an_expired_grant_is_renewed_beside_a_run(carried):
    backend = carried.use(ExpiringBackend(carried.spool))
    carried.grants = lambda: backend.grant_now().model_dump(mode="json")
    await carried.line.agent()
    grant = backend.grant_now().model_dump(mode="json")
    stored, process = await carried.begin("r1", grant=grant, grant_version=1)
    for number in range(4):
        carried.write(f"output/{number}.png", str(number))
    process.end("succeeded")
    await carried.ended(stored)
    assert {one["state"] for one in carried.artifacts(stored)} == {"stored"}
    assert carried.wants


@pytest.mark.spec(
    "transfer/oversize-output-stays-on-worker",
    "transfer/undelivered-file-listed-at-worker-path",
    "transfer/undelivered-file-warns-transfer-failed",
    "s3/refused-upload-stays-on-worker",
)
@pytest.mark.parametrize("kind", ["refused", "crashing"])
async def test_a_file_that_is_refused_stays_is_listed_and_warned_of(carried, kind):
    double = {"refused": RefusingBackend, "crashing": CrashingBackend}[kind]
    backend = carried.use(double(carried.spool, at={Step.PUBLISH}))
    await carried.line.agent()
    stored, process = await carried.begin()
    carried.write("models/epoch.pt", "epoch")
    carried.report(process, "models/epoch.pt", "a1")
    carried.write("output/plot.png", "pixels")
    process.end("succeeded")
    await carried.ended(stored)
    assert backend.steps.count(Step.PUBLISH) == 2
    found = rows(carried, stored)
    assert {one["state"] for one in found.values()} == {"on_worker"}
    assert found["epoch.pt"]["path"] == str(carried.data() / "models/epoch.pt")
    assert found["output/plot.png"]["path"] == str(carried.data() / "output/plot.png")
    assert {one["detail"].partition(" stays")[0] for one in failed(carried, stored)} == set(found)
    assert stored.final == "succeeded"
    assert (carried.data() / "models/epoch.pt").read_text() == "epoch"


async def test_a_file_that_stays_is_listed_where_its_bytes_are_though_the_run_wrote_another_in_its_place(
    carried,
):
    backend = carried.use(Choosy(carried.spool))
    await carried.line.agent()
    stored, process = await carried.begin()
    backend.refuse = {"best.pt": Refused("too large")}
    backend.hold = {"best.pt"}
    carried.write("models/best.pt", "one")
    carried.report(process, "models/best.pt", "a1")
    await carried.line.until(lambda: backend.begun)
    carried.write("files/fresh", "two").replace(carried.data() / "models/best.pt")
    backend.released.set()
    process.end("succeeded")
    await carried.ended(stored)
    (row,) = [one for one in carried.artifacts(stored) if one["artifact_id"] == "a1"]
    assert Path(row["path"]).read_text() == "one"


async def test_a_receipt_and_a_name_are_the_backends_and_the_cores(carried):
    await carried.line.agent()
    stored, process = await carried.begin()
    carried.write("models/epoch.pt", "epoch")
    carried.report(process, "models/epoch.pt", "a1", name="epoch.pt")
    process.end("succeeded")
    await carried.ended(stored)
    (row,) = carried.artifacts(stored)
    receipt = Receipt.model_validate(row["receipt"])
    assert receipt.size_bytes == 5
    assert (row["backend"], row["node_id"], row["meta"]) == ("folder", "n", {})


# ---------------------------------------------------------------- stops


async def publishing(carried, backend, *names, outcome="succeeded"):
    """A run whose process is gone, with an upload that hangs."""
    stored, process = await carried.begin()
    for name in names:
        carried.write(f"output/{name}")
    process.end(outcome)
    await carried.line.until(
        lambda: backend.begun if isinstance(backend, Choosy) else backend.waiting.is_set()
    )
    await carried.line.until(lambda: "exited" in stored.kinds)
    return stored


@pytest.mark.spec("transfer/stop-during-final-uploads")
async def test_a_stop_during_the_last_uploads_leaves_the_rest_and_says_once_how_many(carried):
    backend = carried.use(Choosy(carried.spool, parallel=2))
    backend.hold = {"output/b.png", "output/c.png"}
    await carried.line.agent()
    stored = await publishing(carried, backend, "a.png", "b.png", "c.png", "d.png")
    await carried.line.until(lambda: carried.artifacts(stored))
    await carried.line.until(lambda: len(backend.begun) == 3)
    await carried.line.control.ask_stop()
    await carried.ended(stored)
    found = rows(carried, stored)
    assert {name: one["state"] for name, one in found.items()} == {
        "output/a.png": "stored",
        "output/b.png": "on_worker",
        "output/c.png": "on_worker",
        "output/d.png": "on_worker",
    }
    (told,) = failed(carried, stored)
    assert told["count"] == 3
    assert told["detail"].startswith("3 files stay on the worker")
    assert stored.final == "succeeded"
    assert stored.items[-1].payload["stop_reason"] is None
    assert "output/d.png" not in backend.begun


async def test_a_stop_that_ended_the_run_is_none_of_its_uploads_even_when_it_is_said_again(carried):
    backend = carried.use(Choosy(carried.spool))
    backend.hold = {"output/a.png"}
    await carried.line.agent()
    stored, process = await carried.begin()
    stored.stop = StopReason.USER
    await carried.line.control.ask_stop()
    await carried.line.until(lambda: process.stops)
    carried.write("output/a.png", "pixels")
    process.end("stopped")
    await carried.line.until(lambda: backend.begun)
    welcomes = carried.line.desk.welcomes
    carried.line.control.cut()
    await carried.line.until(lambda: carried.line.desk.welcomes > welcomes)
    backend.released.set()
    await carried.ended(stored)
    assert [one["state"] for one in carried.artifacts(stored)] == ["stored"]
    assert failed(carried, stored) == []


async def test_a_stop_of_the_agent_lets_the_uploads_end(carried, monkeypatch):
    monkeypatch.setattr(agent_module, "STOP_GRACE_S", 0.0)
    monkeypatch.setattr(agent_module, "KILL_WITHIN_S", 0.0)
    backend = carried.use(SlowBackend(carried.spool, held={Step.PUBLISH}))
    agent = await carried.line.agent()
    stored = await publishing(carried, backend, "a.png")
    agent.stop_asked.set()
    await carried.line.until(lambda: agent.task and not stored.final)
    backend.release()
    assert await agent.ended() == 0
    assert stored.final == "succeeded"
    assert [one["state"] for one in carried.artifacts(stored)] == ["stored"]


async def test_what_a_stopped_agent_couldn_t_send_is_sent_by_the_next_one(carried, monkeypatch):
    for name in ("STOP_GRACE_S", "KILL_WITHIN_S", "FILES_WITHIN_S"):
        monkeypatch.setattr(agent_module, name, 0.0)
    backend = carried.use(SlowBackend(carried.spool, held={Step.PUBLISH}))
    carried.grants = dict
    agent = await carried.line.agent()
    stored = await publishing(carried, backend, "a.png", "b.png")
    assert await agent.stop() == 0
    assert stored.final is None
    assert failed(carried, stored) == []
    backend.release()
    await carried.line.agent()
    await carried.ended(stored)
    assert {one["state"] for one in carried.artifacts(stored)} == {"stored"}
    assert len(carried.artifacts(stored)) == 2
    assert stored.final == "succeeded"


async def test_a_run_that_is_over_at_the_control_plane_gives_its_uploads_up(carried):
    backend = carried.use(SlowBackend(carried.spool, held={Step.PUBLISH}))
    await carried.line.agent()
    stored = await publishing(carried, backend, "a.png")
    stored.final = "interrupted"
    carried.line.control.cut()
    await carried.line.until(lambda: carried.line.spools() == [])


# ---------------------------------------------------------------- outages


@pytest.mark.spec("transfer/run-ending-in-outage-still-delivers", "s3/retry-through-outage")
async def test_a_run_that_ends_in_an_outage_delivers_its_files_and_its_end_afterwards(carried):
    class Reached(Choosy):
        async def before(self, step):
            if step is Step.PUBLISH and not carried.line.control.service.live():
                raise Busy("There is no connection to the control plane.")

    carried.use(Reached(carried.spool))
    await carried.line.agent()
    stored, process = await carried.begin()
    await carried.line.control.crash()
    carried.write("output/a.png", "pixels")
    process.end("succeeded")
    await carried.line.until(lambda: list(carried.line.user_data.rglob("outcome.json")))
    await carried.line.control.start()
    await carried.ended(stored)
    (row,) = carried.artifacts(stored)
    assert (row["state"], stored.final) == ("stored", "succeeded")


async def test_when_the_agent_itself_fails_the_runs_log_says_where_its_files_are(carried, monkeypatch):
    async def fails(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("codefyui_core.agent.carrying.sending.Sending.finish", fails)
    await carried.line.agent()
    stored, process = await carried.begin()
    process.end("succeeded")
    await carried.ended(stored)
    (warning,) = failed(carried, stored)
    assert str(carried.data().parent) in warning["detail"]
    assert stored.final == "succeeded"
