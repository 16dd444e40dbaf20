"""Runs with files: offers, staging, grants, receipts, retention."""

import asyncio
import json

import pytest

from codefyui_core.errors import Busy, CodefyError, Refused
from codefyui_core.plugin.storage import (
    Because,
    DiscardReason,
    Grant,
    LocalFile,
    Offer,
    Place,
    Receipt,
    Refusal,
    Staged,
    StorageBackend,
    StorageControl,
    StorageKind,
    StoredObject,
    Ticket,
)
from codefyui_core.plugin.views import AttemptView, RunWarning
from codefyui_core.wire.messages import GrantMessage, WantGrant


class BoxTicket(Ticket):
    prefix: str = ""


class Store(StorageControl):
    """A backend by hand."""

    def __init__(self):
        self.answer = Offer()
        self.staged = []
        self.gate = None
        self.failures = []
        self.accepted = []
        self.discarded = []
        self.messages = []
        self.ended = []
        self.renewals = 0
        self.grant = Grant(renew_in_s=50)

    def offer(self, files, worker, facts):
        return self.answer(worker) if callable(self.answer) else self.answer

    def _fail(self):
        if self.failures:
            raise self.failures.pop(0)

    async def stage(self, run, worker, attempt):
        self._fail()
        self.staged.append((run, worker, attempt))
        if self.gate is not None:
            await self.gate.wait()
        return Staged(
            ticket=BoxTicket(prefix=f"{run.id}/{attempt.number}"),
            grant=self.grant,
            warnings=(RunWarning(kind="note", message="staged"),),
        )

    async def renew(self, given):
        self._fail()
        assert isinstance(given.ticket, BoxTicket)
        self.renewals += 1
        return self.grant

    async def told(self, given, message):
        self._fail()
        self.messages.append(message)

    async def accept(self, given, output, receipt):
        self._fail()
        self.accepted.append((output.key, receipt.size_bytes))
        return StoredObject(
            key=output.key,
            kind=output.kind,
            name=output.name,
            relative_path=output.relative_path,
            size_bytes=receipt.size_bytes,
            sha256=receipt.sha256,
            data={"bucket": "b1"},
        )

    async def settled(self, given):
        self.ended.append(given.run.id)

    def place(self, stored):
        bucket = stored.data.get("bucket", "")
        return Place(path=f"box://{bucket}/{stored.relative_path}" if bucket else None)

    async def read(self, stored, span):
        return LocalFile(path=stored.relative_path)

    async def discard(self, order):
        self._fail()
        self.discarded.append(order)


def backend(name="crate", kind=StorageKind.CARRIER, preference=10):
    class Backend(StorageBackend):
        ticket = BoxTicket
        receipt = Receipt

        def control(self, host):
            raise NotImplementedError

        def agent(self, host):
            raise NotImplementedError

    made = Backend()
    made.name, made.title, made.kind, made.preference = name, name, kind, preference
    return made


@pytest.fixture
async def stored(closed_room):
    """A room with one carrier."""
    room = closed_room
    room.store = Store()
    room.stores["crate"] = room.store
    room.backends["crate"] = backend()
    await room.open()
    return room


def reads(kit, tmp_path, name="a.csv"):
    return kit.graph(kit.node("read", "ReadTable", path=name))


@pytest.fixture
def table(tmp_path, kit):
    """A graph that reads an upload that is there."""
    folder = tmp_path / "backend" / "data" / "files"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("1,2\n")
    return kit.graph(kit.node("read", "ReadTable", path="a.csv"))


def artifact(kit, key, **more):
    return kit.event(
        "artifact",
        artifact_id=key,
        kind="checkpoint",
        name=f"{key}.pt",
        relative_path=f"models/{key}.pt",
        path=f"/far/{key}.pt",
        meta={"epoch": 1},
        **more,
    )


@pytest.fixture
async def prepared(stored, table, kit):
    """A worker and the id of a run whose files are being prepared for it."""
    agent = await stored.worker()
    stored.store.gate = asyncio.Event()
    run_id = await stored.submit(table, target="box")
    await kit.until(lambda: stored.store.staged)
    return agent, run_id


async def test_a_worker_that_is_drained_while_files_are_prepared_gets_nothing(stored, prepared, kit):
    agent, run_id = prepared
    agent.drained = True
    stored.store.gate.set()
    await kit.until(lambda: stored.time._sleepers)
    await stored.time.advance(1)
    await kit.until(lambda: run_id not in stored.service.board.holds)
    row = await stored.row(run_id)
    assert (row["status"], row["queue_reason_code"]) == ("queued", "queue.worker_drained")
    assert agent.assigns(run_id) == []
    agent.drained = False
    stored.service.offers_changed(agent.id)
    await agent.got(run_id)


@pytest.mark.point(2)
async def test_a_server_that_died_while_it_prepared_files_prepares_them_again(stored, prepared, kit):
    agent, run_id = prepared
    await stored.restart()
    assert await stored.status(run_id) == "queued"
    stored.store.gate.set()
    await agent.connect()
    await agent.got(run_id)
    assert [run.id for run, _, _ in stored.store.staged] == [run_id, run_id]
    assert len(agent.assigns(run_id)) == 1


@pytest.mark.spec("catalog/queued-run-rechecked-before-send")
async def test_types_that_are_gone_once_files_are_prepared_fail_the_run(stored, prepared):
    agent, run_id = prepared
    agent.node_types = frozenset({"Start"})
    stored.store.gate.set()
    assert "ReadTable" in (await stored.becomes(run_id, "failed"))["error"]
    assert agent.assigns(run_id) == []


async def test_a_run_with_files_is_staged_and_its_ticket_travels(stored, table):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    await agent.got(run_id)
    (assign,) = agent.assigns(run_id)
    assert (assign.backend, assign.ticket) == ("crate", {"inputs": [], "prefix": f"{run_id}/1"})
    assert assign.grant == {"expires_in_s": None, "renew_in_s": 50.0}
    assert assign.grant_version == 1
    ((run, worker, attempt),) = stored.store.staged
    assert run.files.uses_files
    assert (worker.name, attempt.number) == ("box", 1)
    assert await stored.warnings(run_id) == ["note"]


async def test_a_worker_that_just_connected_is_not_refused_before_it_told_what_it_offers(stored, table):
    """Between its welcome and its first report nothing is known of its storage."""
    asked = []

    def once_known(worker):
        asked.append(worker.name)
        return Offer()

    agent = stored.agent("box")
    await stored.service.hello(agent.id, agent.incarnation, ())
    stored.directory.links[agent.id] = agent
    stored.store.answer = Refusal(because=Because.WORKER, reason="no facts", lack="told nothing")
    run_id = await stored.submit(table, target="box")
    assert await stored.status(run_id) == "queued"
    stored.store.answer = once_known
    agent.ready = True
    await stored.service.welcomed(agent.id)
    await agent.got(run_id)
    assert "box" in asked


async def test_a_run_without_files_needs_no_backend(stored):
    agent = await stored.worker()
    run_id = await stored.submit(target="box")
    await agent.got(run_id)
    assert agent.assigns(run_id)[0].backend is None
    assert stored.store.staged == []


@pytest.mark.spec("placement/named-non-mount-worker-400-at-submit", "placement/refusal-message-text")
async def test_refusals_are_joined_into_one_message(closed_room, table):
    room = closed_room
    share, carrier, off = Store(), Store(), Store()
    share.answer = Refusal(
        because=Because.WORKER,
        reason="no mount",
        lack="has no `data` mount",
        remedy="add `--mount data=...` to its agent",
    )
    carrier.answer = Refusal(
        because=Because.RUN, reason="x", remedy="make the run fit the transfer backend: a plain path"
    )
    off.answer = Refusal(because=Because.OFF, reason="off", remedy="turn it on")
    room.stores |= {"mount": share, "transfer": carrier, "s3": off}
    room.backends |= {
        "mount": backend("mount", StorageKind.SHARED),
        "transfer": backend("transfer", preference=20),
        "s3": backend("s3", preference=10),
    }
    await room.open()
    await room.worker("gpu-box")
    with pytest.raises(CodefyError) as refused:
        await room.submit(table, target="gpu-box")
    assert refused.value.code == "storage.refused"
    assert refused.value.message == (
        "worker gpu-box has no `data` mount; add `--mount data=...` to its agent, "
        "or make the run fit the transfer backend: a plain path"
    )


async def test_without_any_backend_a_worker_gets_no_files_and_the_server_has_its_own(room, table):
    await room.worker()
    with pytest.raises(CodefyError) as refused:
        await room.submit(table, target="box")
    assert refused.value.code == "storage.refused"
    (await room.process(await room.submit(table))).finish()


@pytest.mark.spec(
    "placement/any-skips-workers-that-cannot-carry-files",
    "placement/any-prefers-mount-worker",
    "placement/any-tries-non-mount-worker-last",
    "transfer/used-when-any-finds-no-free-mount-worker",
)
async def test_any_takes_a_shared_folder_first_then_a_carrier_and_skips_who_has_neither(
    closed_room, kit, table
):
    room = closed_room
    share, carrier = Store(), Store()
    no = Refusal(because=Because.WORKER, reason="no mount")
    share.answer = lambda worker: Offer() if worker.name == "shared" else no
    carrier.answer = lambda worker: no if worker.name == "neither" else Offer()
    room.stores |= {"mount": share, "transfer": carrier}
    room.backends |= {"mount": backend("mount", StorageKind.SHARED), "transfer": backend("transfer")}
    await room.open()
    agents = {name: await room.worker(name) for name in ("neither", "carried", "shared")}
    runs = [await room.submit(table, target="any") for _ in range(5)]
    await kit.until(lambda: sum(len(agent.spool) for agent in agents.values()) == 4)
    given = {name: len(agent.spool) for name, agent in agents.items()}
    assert given == {"neither": 0, "carried": 2, "shared": 2}
    assert {assign.backend for assign in agents["shared"].received if hasattr(assign, "backend")} == {"mount"}
    assert await room.status(runs[4]) == "queued"


async def test_a_fallback_is_told_in_the_log(closed_room, table):
    room = closed_room
    first, second = Store(), Store()
    first.answer = Refusal(because=Because.OFF, reason="off", fallback="the bucket is away; sent over HTTP")
    room.stores |= {"s3": first, "transfer": second}
    room.backends |= {"s3": backend("s3", preference=1), "transfer": backend("transfer", preference=2)}
    await room.open()
    agent = await room.worker()
    run_id = await room.submit(table, target="box")
    await agent.got(run_id)
    assert "storage_fallback" in await room.warnings(run_id)


async def test_a_backend_that_is_busy_is_asked_again_and_the_run_waits(stored, table, kit):
    agent = await stored.worker()
    stored.store.failures = [Busy("not now", retry_after_s=2)]
    run_id = await stored.submit(table, target="box")
    await kit.until(lambda: not stored.store.failures)
    assert (await stored.row(run_id))["queue_reason_code"] == "queue.staging"
    await kit.until(lambda: stored.time._sleepers)
    await stored.time.advance(3)
    await agent.got(run_id)


async def test_a_backend_that_refuses_fails_the_run_in_its_own_words(stored, table):
    await stored.worker()
    stored.store.failures = [Refused("a.csv is gone; upload it again")]
    run_id = await stored.submit(table, target="box")
    row = await stored.becomes(run_id, "failed")
    assert (row["error"], row["cause"]) == ("a.csv is gone; upload it again", "storage")
    assert stored.board_used() == {}


async def test_a_backend_with_a_bug_costs_its_run_alone(stored, table):
    agent = await stored.worker()
    stored.store.failures = [ZeroDivisionError("oops")]
    run_id = await stored.submit(table, target="box")
    assert (await stored.becomes(run_id, "failed"))["cause"] == "refused"
    second = await stored.submit(table, target="box")
    await agent.got(second)


async def test_cancelling_while_files_are_prepared_sends_nothing(stored, table, kit):
    agent = await stored.worker()
    stored.store.failures = [Busy("not now", retry_after_s=2)]
    run_id = await stored.submit(table, target="box")
    await kit.until(lambda: not stored.store.failures)
    await stored.service.cancel(run_id)
    assert await stored.status(run_id) == "cancelled"
    await kit.until(lambda: stored.time._sleepers)
    await stored.time.advance(3)
    await kit.until(lambda: not stored.service.board.holds)
    assert agent.received == []


async def test_a_receipt_is_accepted_before_its_event_is_stored(stored, table, kit):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    key = await agent.accept(run_id)
    receipt = {"sha256": "a" * 64, "size_bytes": 12}
    await agent.report(key, {"kind": "told", "payload": {"backend": "crate", "message": {"part": 1}}})
    await agent.report(key, artifact(kit, "k1", receipt=receipt), artifact(kit, "k2"))
    rows = {row["id"]: row for row in await stored.service.artifacts(run_id)}
    assert stored.store.messages == [{"part": 1}]
    assert stored.store.accepted == [("k1", 12)]
    assert (rows["k1"]["state"], rows["k1"]["backend"]) == ("stored", "crate")
    assert rows["k1"]["path"] == "box://b1/models/k1.pt"
    assert rows["k1"]["size_bytes"] == 12
    assert (rows["k2"]["state"], rows["k2"]["path"]) == ("on_worker", "/far/k2.pt")
    assert "bucket" not in json.dumps(await stored.log(run_id))
    row, reading = await stored.service.artifact_reading(run_id, "k1")
    assert (row["id"], reading.path) == ("k1", "models/k1.pt")
    with pytest.raises(CodefyError) as elsewhere:
        await stored.service.artifact_reading(run_id, "k2")
    assert elsewhere.value.code == "artifact.not_here"
    await agent.finish(key)
    await kit.until(lambda: stored.store.ended == [run_id])


@pytest.mark.spec("mount/artifact-of-unheld-mount-has-null-path")
async def test_what_has_a_label_is_never_shown_at_its_workers_path(stored, table, kit, monkeypatch):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    key = await agent.accept(run_id)

    async def accept(given, output, receipt):
        name = output.relative_path
        return StoredObject(
            key=output.key, kind="x", name=name, relative_path=name, size_bytes=1, sha256=None, label="data"
        )

    monkeypatch.setattr(stored.store, "accept", accept)
    await agent.report(key, artifact(kit, "k1", receipt={"size_bytes": 1}))
    (row,) = await stored.service.artifacts(run_id)
    assert (row["state"], row["path"], row["label"]) == ("stored", None, "data")
    await agent.finish(key)


async def test_a_refused_receipt_leaves_the_file_on_its_worker(stored, table, kit):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    key = await agent.accept(run_id)
    stored.store.failures = [Refused("too large")]
    await agent.report(key, artifact(kit, "k1", receipt={"size_bytes": 1}))
    await agent.report(key, artifact(kit, "k2", receipt={"size_bytes": "many"}))
    assert {row["state"] for row in await stored.service.artifacts(run_id)} == {"on_worker"}
    assert await left(stored, run_id) == [
        "k1.pt stays on the worker: too large",
        "k2.pt stays on the worker: its receipt can't be read",
    ]


async def test_a_file_that_the_worker_left_there_is_told_of_by_the_worker_alone(stored, table, kit):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    key = await agent.accept(run_id)
    await agent.report(key, artifact(kit, "k1", state="on_worker"))
    (row,) = await stored.service.artifacts(run_id)
    assert row["state"] == "on_worker"
    assert await left(stored, run_id) == []


async def left(room, run_id):
    """What people are told of files that stay on the worker."""
    kinds = [one["payload"] for one in await room.log(run_id) if one["type"] == "run_warning"]
    return [one["detail"] for one in kinds if one["kind"] == "transfer_failed"]


async def test_what_an_upload_listed_is_not_listed_again_by_its_item(stored, table, kit):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    key = await agent.accept(run_id)
    attempt = await stored.service.attempt_of(run_id)
    assert attempt == AttemptView(run_id=run_id, number=1, worker_id=agent.id)
    thing = StoredObject(
        key="k1",
        kind="output",
        name="k1",
        relative_path="output/k1",
        size_bytes=1,
        sha256=None,
        data={"bucket": "b"},
    )
    assert await stored.service.record(attempt, thing, "crate") == "k1"
    assert await stored.service.record(attempt, thing, "crate") == "k1"
    answer = await agent.report(key, artifact(kit, "k1", receipt={"size_bytes": 1}))
    assert answer.seq == 2
    assert (await stored.types(run_id)).count("artifact") == 1
    assert [one.key for one in await stored.service.stored(run_id, "crate")] == ["k1"]
    await agent.finish(key)
    await kit.until(lambda: not stored.service._outbox.holds(key))
    with pytest.raises(CodefyError) as over:
        await stored.service.record(attempt, thing, "crate")
    assert over.value.code == "run.attempt_over"
    assert await stored.service.attempt_of(run_id) is None


@pytest.mark.point(44)
async def test_grants_are_renewed_when_due_when_asked_for_and_after_a_restart(stored, table, kit):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    key = await agent.accept(run_id)

    def versions():
        return [one.version for one in agent.received if isinstance(one, GrantMessage)]

    await stored.pass_time(51)
    await kit.until(lambda: versions() == [2])
    await stored.service.want_grant(agent.id, WantGrant(run_id=run_id, attempt=1, have_version=2))
    await kit.until(lambda: versions() == [2, 3])
    await stored.restart()
    await agent.connect()
    await kit.until(lambda: versions() == [2, 3, 4])
    last = [one for one in agent.received if isinstance(one, GrantMessage)][-1]
    assert (last.backend, last.ticket["prefix"]) == ("crate", f"{run_id}/1")
    await agent.finish(key)
    await stored.pass_time(60)
    assert versions() == [2, 3, 4]


@pytest.mark.point(44)
async def test_an_agent_that_is_back_before_its_backend_gets_a_grant_when_that_is_on(stored, table, kit):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    await agent.accept(run_id)
    store = stored.stores.pop("crate")
    await stored.restart()
    await agent.connect()
    await stored.pass_time(51)
    assert store.renewals == 0
    stored.stores["crate"] = store
    stored.service.stores_changed()
    await kit.until(lambda: [one.version for one in agent.received if isinstance(one, GrantMessage)] == [2])
    stored.service.stores_changed()
    await stored.pass_time(1)
    assert store.renewals == 1


async def test_a_server_that_stops_while_a_grant_is_issued_leaves_it_to_the_next(stored, table, kit, caplog):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    await agent.accept(run_id)
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def renew(given):
        asked.set()
        await goes_on.wait()
        return stored.store.grant

    stored.store.renew = renew
    await stored.service.want_grant(agent.id, WantGrant(run_id=run_id, attempt=1, have_version=1))
    await asked.wait()
    (issuing,) = (task for task in asyncio.all_tasks() if task.get_name() == f"grant {run_id}")
    await stored.service.writer.aclose()
    goes_on.set()
    await asyncio.wait({issuing}, timeout=10)
    assert issuing.exception() is None
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.point(44)
@pytest.mark.parametrize("server_too", [False, True])
async def test_an_agent_that_lost_its_memory_gets_backend_and_ticket_with_the_grant(
    stored, table, kit, server_too
):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    key = await agent.accept(run_id)
    await agent.report(key, agent.exited())
    agent.spool[key].phase = "publishing"
    (assign,) = agent.assigns(run_id)
    if server_too:
        await stored.restart()
    else:
        await agent.drop()
    agent.received.clear()
    verdicts = await agent.connect()
    assert verdicts[run_id].kind == "resume"
    want = WantGrant(run_id=run_id, attempt=1, have_version=0, why="lost")
    await stored.service.want_grant(agent.id, want)

    def whole():
        return [one for one in agent.received if isinstance(one, GrantMessage) and one.ticket is not None]

    newest = (await kit.until(whole))[-1]
    assert (newest.backend, newest.ticket) == ("crate", assign.ticket)
    assert newest.grant == {"expires_in_s": None, "renew_in_s": 50.0}
    assert newest.version > assign.grant_version
    await agent.report(key, agent.end())
    assert await stored.status(run_id) == "succeeded"


# ---------------------------------------------------------------- retention


async def ended(room, outcome="succeeded", files=()):
    run_id = await room.submit()
    process = await room.process(run_id)
    for key in files:
        process.say(type_="artifact", artifact_id=key, kind="checkpoint", path=f"/x/{key}")
    process.finish(outcome, error="e")
    await room.becomes(run_id, outcome)
    await room.time.advance(1)
    return run_id


async def test_the_newest_ended_runs_are_kept_and_older_ones_go_with_their_files(closed_room, kit):
    room = closed_room
    store = room.stores["local"] = Store()
    await room.open(run_retention_keep_last=2)
    runs = [await ended(room, files=[f"f{n}"]) for n in range(4)]

    async def left():
        return {row["id"] for row in (await room.service.list())["runs"]}

    await kit.until(lambda: same(left(), set(runs[2:])))
    assert [order.why for order in store.discarded] == [DiscardReason.RETENTION] * 2
    assert [order.stored[0].key for order in store.discarded] == ["f0", "f1"]
    assert {frozenset(order.keep_kinds) for order in store.discarded} == {frozenset({"output"})}


async def same(found, wanted):
    return await found == wanted


async def test_retention_keeps_the_checkpoints_of_runs_that_a_shutdown_ended(closed_room, kit):
    room = closed_room
    store = room.stores["local"] = Store()
    await room.open()
    run_id = await room.submit()
    process = await room.process(run_id)
    process.say(type_="artifact", artifact_id="f", kind="checkpoint", path="/x/f")
    await kit.until(lambda: listed(room, run_id))
    await room.restart(run_retention_keep_last=0)
    await kit.until(lambda: store.discarded)
    assert store.discarded[0].keep_kinds == {"output", "checkpoint"}


async def listed(room, run_id):
    return bool(await room.service.artifacts(run_id))


async def test_retention_may_be_off_and_spares_what_is_not_over(closed_room):
    room = await closed_room.open(run_retention_keep_last=-1)
    run_id = await ended(room)
    waiting = await room.submit(target="any")
    await room.restart(run_retention_keep_last=0)
    await asyncio.sleep(0)
    assert await room.status(waiting) == "queued"
    assert run_id


async def test_files_that_cannot_be_removed_are_a_warning_and_the_run_goes(closed_room):
    room = closed_room
    store = room.stores["local"] = Store()
    await room.open()
    run_id = await ended(room, files=["f"])
    store.failures = [Busy("the bucket is away")]
    answer = await room.service.delete(run_id)
    assert answer["deleted"] is True
    assert "away" in answer["warning"]


async def test_what_a_run_without_a_backend_records_stays_on_its_worker(room, kit):
    agent = await room.worker()
    run_id = await room.submit(target="box")
    key = await agent.accept(run_id)
    await agent.report(key, artifact(kit, "k1"))
    (row,) = await room.service.artifacts(run_id)
    assert (row["state"], row["backend"], row["path"]) == ("on_worker", "worker", "/far/k1.pt")
    assert room.service.lease_fits(run_id, agent.spool[key].lease)
    assert not room.service.lease_fits(run_id, "0" * 32)


async def test_what_a_late_run_wrote_is_not_shown_to_its_backend(stored, table, kit):
    agent = await stored.worker()
    run_id = await stored.submit(table, target="box")
    key = await agent.accept(run_id)
    await agent.drop()
    await stored.pass_time(301)
    await stored.becomes(run_id, "interrupted")
    await agent.connect()
    await agent.report(key, artifact(kit, "k1", receipt={"size_bytes": 1}))
    assert stored.store.accepted == []
    assert await stored.service.artifacts(run_id) == []
