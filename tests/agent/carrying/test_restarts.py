"""Agents and control planes that are started again while files are on their way."""

import asyncio
import json
import os
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from codefyui_core.agent.carrying.journal import Journal
from codefyui_core.agent.disk import Disk
from codefyui_core.errors import Busy
from codefyui_core.testing.doubles.faulty_backends import SlowBackend
from codefyui_core.testing.doubles.folder_backend import FolderBackend, Step
from codefyui_core.wire.messages import GrantMessage, VerdictKind


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.carrying.halt.SOON_S", 0.05)


class Breaking(FolderBackend):
    """Takes the first ``takes`` files, and hangs with the others until it is released by a new agent."""

    name = "breaking"

    def __init__(self, spool, takes):
        super().__init__(spool)
        self.takes = takes
        self.noted = []
        self.published = []
        self.keeps_receipts = False
        """A publish doesn't return once the file has arrived."""

    async def before(self, step):
        if step is Step.PUBLISH:
            if self.takes == 0:
                raise Busy("not now")
            self.takes -= 1

    def agent(self, host):
        half = super().agent(host)
        opened = half.open

        @asynccontextmanager
        async def noting(*known):
            async with opened(*known) as session:
                session.publish = partial(self._publish, session.publish)
                yield session

        half.open = noting
        return half

    async def _publish(self, publish, output, path, notes, progress):
        self.noted.append((output.name, notes.read()))
        await notes.write({"upload": output.key})
        receipt = await publish(output, path, notes, progress)
        self.published.append(output.name)
        if self.keeps_receipts:
            await asyncio.get_running_loop().create_future()
        return receipt


def journal(carried):
    return next(iter(carried.line.user_data.glob("agent-spool/*/r1.1/files.log")))


async def half_published(carried, takes=1, outcome="succeeded"):
    """An agent that was killed while it published: one file of four had been taken."""
    backend = carried.use(Breaking(carried.spool, takes))
    agent = await carried.line.agent()
    stored, process = await carried.begin("r1", carried.upload("input.csv", b"before"))
    carried.write("models/epoch.pt", "epoch")
    carried.report(process, "models/epoch.pt", "a1")
    carried.write("output/tb/events", "events")
    carried.report(process, "output/tb", "f1", kind="tensorboard")
    await carried.line.until(lambda: len(carried.artifacts(stored)) == min(takes, 1))
    process.log("said")
    await carried.line.until(lambda: any(one.type == "log" for one in stored.items))
    carried.write("files/input.csv", "after")
    carried.write("output/plot.png", "pixels")
    process.end(outcome, error="loss is nan" if outcome == "failed" else None)
    await carried.line.until(lambda: "exited" in stored.kinds)
    await carried.line.until(lambda: len({name for name, _ in backend.noted}) == 4)
    await agent.kill()
    await carried.line.control.offline()
    backend.noted.clear()
    return backend, stored


@pytest.mark.point(24)
async def test_the_next_agent_delivers_what_is_left_and_the_runs_real_end(carried):
    backend, stored = await half_published(carried, outcome="failed")
    carried.grants = dict
    backend.takes = 100
    await carried.line.agent()
    await carried.ended(stored)
    assert carried.line.desk.hellos[-1][0].phase == "publishing"
    assert (carried.wants[0].have_version, carried.wants[0].run_id) == (0, "r1")
    found = {one["name"]: one for one in carried.artifacts(stored)}
    assert set(found) == {"epoch.pt", "tb/events", "output/plot.png", "files/input.csv"}
    assert {one["state"] for one in found.values()} == {"stored"}
    sent = {name: carried.sent(one["artifact_id"]) for name, one in found.items()}
    assert sent == {
        "epoch.pt": "epoch",
        "tb/events": "events",
        "output/plot.png": "pixels",
        "files/input.csv": "after",
    }
    ids = [one["artifact_id"] for one in carried.artifacts(stored)]
    assert len(ids) == len(set(ids))
    assert "epoch.pt" not in dict(backend.noted)
    assert all(notes["upload"] for _, notes in backend.noted)
    end = stored.items[-1].payload
    assert (end["outcome"], end["error"]) == ("failed", "loss is nan")
    assert stored.kinds.count("exited") == stored.kinds.count("end") == 1
    await carried.line.until(lambda: carried.line.spools() == [])


@pytest.mark.point(24)
async def test_what_a_loss_of_power_cut_or_added_after_the_runs_end_is_not_delivered_as_what_it_wrote(
    carried,
):
    backend, stored = await half_published(carried)
    (carried.data() / "output" / "plot.png").write_text("pix")
    carried.write("models/other.pt", "of nobody")
    carried.grants = dict
    backend.takes = 100
    await carried.line.agent()
    await carried.ended(stored)
    states = {one["name"]: one["state"] for one in carried.artifacts(stored)}
    assert states == {
        "epoch.pt": "stored",
        "tb/events": "stored",
        "output/plot.png": "on_worker",
        "files/input.csv": "stored",
    }
    (warning,) = carried.warnings(stored, "transfer_failed")
    assert "output/plot.png stays on the worker: it isn't what it was when the run ended" in warning["detail"]


@pytest.mark.point(24)
async def test_what_is_to_be_delivered_is_on_the_disk_before_the_end_is_written_down(carried, monkeypatch):
    synced = set()
    sync = Disk.sync

    def noting(disk, descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        sync(disk, descriptor)

    monkeypatch.setattr(Disk, "sync", noting)
    await half_published(carried, takes=0)
    names = ("models/epoch.pt", "output/tb/events", "output/plot.png", "files/input.csv")
    outbox = carried.data().parent / "outbox"
    snapshots = {path.stat().st_ino for path in outbox.iterdir()}
    files = {(carried.data() / name).stat().st_ino for name in names[1:]}
    assert snapshots
    assert snapshots | files <= synced


@pytest.mark.point(24)
async def test_a_receipt_that_was_journalled_and_not_yet_told_is_told_and_not_sent_again(carried):
    backend, stored = await half_published(carried)
    (segment,) = journal(carried).parent.glob("[0-9]*.log")
    raw = segment.read_bytes()
    at = raw.index(b'"artifact_id":"a1"')
    segment.write_bytes(raw[:at] + b"X" + raw[at + 1 :])
    stored.items = [one for one in stored.items if one.type != "artifact"]
    carried.grants = dict
    backend.takes = 100
    await carried.line.agent()
    await carried.ended(stored)
    assert "epoch.pt" not in dict(backend.noted)
    (row,) = [one for one in carried.artifacts(stored) if one["artifact_id"] == "a1"]
    assert row["state"] == "stored"


@pytest.mark.point(24)
async def test_an_agent_killed_again_and_again_still_delivers_each_file_once(carried):
    backend, stored = await half_published(carried)
    carried.grants = dict

    def listed():
        # An event that a trimmed spool can't show may be told again; the control plane lists each id once.
        return {one["artifact_id"] for one in carried.artifacts(stored)}

    for _ in range(3):
        backend.takes = 1
        before = listed()
        agent = await carried.line.agent()
        await carried.line.until(lambda before=before: listed() > before)
        if stored.final:
            break
        await agent.kill()
        await carried.line.control.offline()
    backend.takes = 100
    if not stored.final:
        await carried.line.agent()
        await carried.ended(stored)
    assert len(listed()) == 4
    assert sorted(backend.published) == ["epoch.pt", "files/input.csv", "output/plot.png", "tb/events"]
    assert stored.final == "succeeded"
    assert stored.kinds.count("exited") == stored.kinds.count("end") == 1


@pytest.mark.point(24)
async def test_a_file_whose_receipt_was_lost_with_the_agent_is_sent_again_as_the_same_one(carried):
    backend, stored = await half_published(carried)
    carried.grants = dict
    backend.takes, backend.keeps_receipts = 1, True
    agent = await carried.line.agent()
    await carried.line.until(lambda: len(backend.published) == 2)
    await agent.kill()
    await carried.line.control.offline()
    again = backend.published[-1]
    assert again not in {one["name"] for one in carried.artifacts(stored)}
    backend.noted.clear()
    backend.takes, backend.keeps_receipts = 100, False
    await carried.line.agent()
    await carried.ended(stored)
    assert dict(backend.noted)[again]["upload"]
    names = [one["name"] for one in carried.artifacts(stored)]
    assert (names.count(again), backend.published.count(again)) == (1, 2)
    assert {one["state"] for one in carried.artifacts(stored)} == {"stored"}
    outputs = carried.spool / "outputs" / "r1"
    arrived = {path.relative_to(outputs).as_posix() for path in outputs.rglob("*") if path.is_file()}
    assert arrived == {one["artifact_id"] for one in carried.artifacts(stored)}
    assert len(set(names)) == 4
    assert stored.kinds.count("exited") == stored.kinds.count("end") == 1


@pytest.mark.point(44)
async def test_the_ticket_that_was_lost_is_asked_for_until_it_comes(carried):
    backend, stored = await half_published(carried)
    backend.takes = 100
    await carried.line.agent()
    await carried.line.until(lambda: len(carried.wants) >= 3)
    assert stored.final is None
    carried.grants = lambda: {"expires_in_s": 60.0}
    await carried.ended(stored)
    assert {one["state"] for one in carried.artifacts(stored)} == {"stored"}


@pytest.mark.point(44)
async def test_a_control_plane_that_is_started_again_sends_new_credentials_into_the_middle_of_a_run(carried):
    """A run goes on with what came with its assignment, and what comes later is taken without being asked for."""
    backend = carried.use(SlowBackend(carried.spool, held={Step.PUBLISH}))
    await carried.line.agent()
    stored, process = await carried.begin("r1", grant={"expires_in_s": 5.0}, grant_version=1)
    carried.write("output/plot.png", "pixels")
    await carried.line.control.crash()
    await carried.line.control.start()
    link = await carried.line.control.online()
    link.send(GrantMessage(run_id="r1", attempt=1, version=9, grant={"expires_in_s": 7.0}))
    process.end("succeeded")
    await carried.line.until(backend.waiting.is_set)
    backend.release()
    await carried.ended(stored)
    assert [one["state"] for one in carried.artifacts(stored)] == ["stored"]


@pytest.mark.point(24)
async def test_an_agent_killed_before_it_could_say_that_the_processes_are_gone_says_so_next_time(carried):
    backend, stored = await half_published(carried)
    (segment,) = journal(carried).parent.glob("[0-9]*.log")
    raw = segment.read_bytes()
    segment.write_bytes(raw[: raw.index(b'{"kind":"exited"') - 24])
    stored.position -= len(stored.items) - stored.kinds.index("exited")
    del stored.items[stored.kinds.index("exited") :]
    carried.grants = dict
    backend.takes = 100
    await carried.line.agent()
    await carried.ended(stored)
    assert stored.kinds.count("exited") == 1
    assert {one["state"] for one in carried.artifacts(stored)} == {"stored"}


async def test_without_a_ticket_within_the_window_everything_is_listed_where_it_is(carried):
    await carried.grace(0.2)
    _, stored = await half_published(carried, takes=1)
    await carried.line.agent()
    await carried.ended(stored)
    found = {one["name"]: one for one in carried.artifacts(stored)}
    assert {name for name, one in found.items() if one["state"] == "on_worker"} == {
        "tb/events",
        "output/plot.png",
        "files/input.csv",
    }
    (told,) = carried.warnings(stored, "transfer_failed")
    assert told["count"] == 3
    assert stored.final == "succeeded"


async def test_a_run_that_is_over_at_the_control_plane_ends_with_its_files_where_they_are(carried):
    _, stored = await half_published(carried)
    stored.kind = VerdictKind.LATE
    await carried.line.agent()
    await carried.ended(stored)
    await carried.line.until(lambda: carried.line.spools() == [])
    assert stored.kinds[-2:] == ["exited", "end"]
    assert carried.wants == []


async def test_a_ticket_that_is_waited_for_is_given_up_when_the_run_is_over(carried):
    _, stored = await half_published(carried)
    await carried.line.agent()
    await carried.line.until(lambda: carried.wants)
    stored.kind = VerdictKind.LATE
    carried.line.control.cut()
    await carried.ended(stored)
    await carried.line.until(lambda: carried.line.spools() == [])


async def test_what_a_lost_process_had_recorded_and_nobody_sent_is_listed_and_counted(carried):
    backend = carried.use(Breaking(carried.spool, takes=1))
    agent = await carried.line.agent()
    stored, process = await carried.begin()
    for name in ("a", "b", "c"):
        carried.write(f"models/{name}.pt", name)
        carried.report(process, f"models/{name}.pt", name)
        await carried.line.until(lambda name=name: f"{name}.pt" in dict(backend.noted))
    fresh = carried.write("files/fresh", "other")
    fresh.replace(carried.data() / "models/c.pt")
    await carried.line.until(lambda: carried.artifacts(stored))
    await agent.kill()
    await carried.line.control.offline()
    await carried.line.agent()
    await carried.ended(stored)
    found = {one["artifact_id"]: one for one in carried.artifacts(stored)}
    assert {key: one["state"] for key, one in found.items()} == {
        "a": "stored",
        "b": "on_worker",
        "c": "on_worker",
    }
    assert found["b"]["path"] == str(carried.data() / "models/b.pt")
    assert Path(found["c"]["path"]).read_text() == "c"
    (told,) = carried.warnings(stored, "transfer_failed")
    assert told["count"] == 2
    assert found["b"]["path"] in told["detail"]
    assert stored.items[-1].payload["stop_reason"] == "agent_restarted"


async def test_the_journal_says_what_the_next_process_needs_and_no_credential(carried):
    await half_published(carried)
    ledger = Journal(journal(carried), carried.line.starter).ledger
    assert set(ledger.placed) == {"files/input.csv"}
    assert set(ledger.recorded) == {"a1", "f1"}
    assert set(ledger.settled) == {"a1"}
    assert json.dumps(ledger.settled["a1"].payload["receipt"])


async def test_when_the_next_agent_itself_fails_the_runs_log_says_where_its_files_are(carried, monkeypatch):
    async def fails(*_, **__):
        raise ZeroDivisionError("a bug")

    _, stored = await half_published(carried)
    carried.grants = dict
    monkeypatch.setattr("codefyui_core.agent.carrying.sending.Sending.finish", fails)
    await carried.line.agent()
    await carried.ended(stored)
    (warning,) = carried.warnings(stored, "transfer_failed")
    assert str(carried.data().parent) in warning["detail"]
    assert stored.kinds.count("end") == 1
