"""When a storage backend hears that nothing more comes from an attempt, and what is asked of it when a run goes."""

import asyncio
from types import SimpleNamespace

import pytest
from sqlalchemy import insert, select

from codefyui_core.control.db.tables import uploads
from codefyui_core.errors import Busy, Refused
from codefyui_core.files import Family
from codefyui_core.graph import Definitions
from codefyui_core.plugin.node import DataType, NodeDefinition, Param, ParamKind, Port
from codefyui_core.plugin.storage import (
    DiscardReason,
    Offer,
    Place,
    Receipt,
    Staged,
    StorageBackend,
    StorageControl,
    StorageKind,
    StoredObject,
    Ticket,
)
from codefyui_core.plugin.views import FileRole
from codefyui_core.wire.messages import VerdictKind


class Store(StorageControl):
    """A backend that notes what it is told."""

    def __init__(self):
        self.settled_attempts = []
        self.orders = []
        self.failures = []

    def offer(self, files, worker, facts):
        return Offer()

    async def stage(self, run, worker, attempt):
        return Staged(ticket=Ticket())

    async def accept(self, given, output, receipt):
        return StoredObject(
            key=output.key, kind=output.kind, name=output.name, relative_path="x", size_bytes=1, sha256=None
        )

    async def settled(self, given):
        if self.failures:
            raise self.failures.pop(0)
        self.settled_attempts.append((given.run.id, given.attempt.number))

    def place(self, stored):
        return Place(path=stored.name)

    async def read(self, stored, span):
        raise NotImplementedError

    async def discard(self, order):
        self.orders.append(order)
        if self.failures:
            raise self.failures.pop(0)


class Crate(StorageBackend):
    name, title, kind, preference = "crate", "Crate", StorageKind.CARRIER, 10
    receipt = Receipt

    def control(self, host):
        raise NotImplementedError

    def agent(self, host):
        raise NotImplementedError


@pytest.fixture
async def crate(closed_room):
    closed_room.crate = closed_room.stores["crate"] = Store()
    closed_room.backends["crate"] = Crate()
    return closed_room


@pytest.fixture
def files(kit, tmp_path):
    """A graph that reads an upload that is there."""
    folder = tmp_path / "backend" / "data" / "files"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("1,2\n")
    return kit.graph(kit.node("read", "ReadTable", path="a.csv"))


async def executing(room, files, **agent):
    worker = await room.worker(**agent)
    run_id = await room.submit(files, target="box")
    return worker, run_id, await worker.accept(run_id)


async def told(room, kit, *attempts):
    await kit.until(lambda: room.crate.settled_attempts == list(attempts))
    await room.settled()
    assert room.crate.settled_attempts == list(attempts)


# ---------------------------------------------------------------- settled


async def test_an_end_settles_the_attempt_once(crate, kit, files):
    room = await crate.open()
    agent, run_id, key = await executing(room, files)
    await room.settled()
    assert room.crate.settled_attempts == []
    await agent.report(key, agent.exited())
    assert room.crate.settled_attempts == []
    await agent.report(key, agent.end())
    await told(room, kit, (run_id, 1))


async def test_an_attempt_that_its_worker_refused_is_settled_before_the_next_one(crate, kit, files):
    room = await crate.open()
    agent = await room.worker()
    agent.refuses = True
    run_id = await room.submit(files, target="box")
    await agent.refuse(await agent.assigned(run_id))
    await told(room, kit, (run_id, 1))
    agent.refuses = None
    await room.pass_time(11)
    key = await agent.accept(run_id)
    assert key == (run_id, 2)
    await agent.finish(key)
    await told(room, kit, (run_id, 1), (run_id, 2))


async def test_a_lost_grace_settles_only_when_the_worker_is_heard_of(crate, kit, files):
    room = await crate.open()
    agent, run_id, key = await executing(room, files)
    await agent.drop()
    await room.pass_time(301)
    await room.becomes(run_id, "interrupted")
    await room.settled()
    assert room.crate.settled_attempts == []
    assert (await agent.connect())[run_id].kind is VerdictKind.LATE
    await agent.finish(key, "stopped", stop_reason="late")
    await told(room, kit, (run_id, 1))


async def test_a_worker_that_comes_back_without_the_run_settles_it(crate, kit, files):
    room = await crate.open()
    agent, run_id, _ = await executing(room, files)
    await agent.drop()
    agent.spool.clear()
    await agent.connect()
    await room.becomes(run_id, "interrupted")
    await told(room, kit, (run_id, 1))


@pytest.mark.parametrize("late", [False, True])
async def test_a_worker_that_is_removed_settles_what_it_held(crate, kit, files, late):
    room = await crate.open()
    agent, run_id, _ = await executing(room, files)
    if late:
        await agent.drop()
        await room.pass_time(301)
        await room.becomes(run_id, "interrupted")
    await room.remove("box")
    await room.becomes(run_id, "interrupted")
    await told(room, kit, (run_id, 1))


async def test_a_run_that_was_taken_over_is_settled_by_the_next_server(crate, kit, files):
    room = await crate.open()
    agent, run_id, key = await executing(room, files)
    await room.restart()
    await agent.connect()
    await room.settled()
    assert room.crate.settled_attempts == []
    await agent.finish(key)
    await told(room, kit, (run_id, 1))


async def test_a_busy_backend_is_told_again_and_one_that_refuses_is_not(crate, kit, files):
    room = await crate.open()
    agent, run_id, key = await executing(room, files)
    room.crate.failures = [Busy("away", retry_after_s=2)]
    await agent.finish(key)
    await kit.until(lambda: not room.crate.failures)
    await kit.until(lambda: room.time._sleepers)
    await room.pass_time(3)
    await told(room, kit, (run_id, 1))
    second = await agent.accept(await room.submit(files, target="box"))
    room.crate.failures = [Refused("no")]
    await agent.finish(second)
    await kit.until(lambda: not room.crate.failures)
    await told(room, kit, (run_id, 1))


async def test_a_backend_is_not_told_of_both_ends_at_once(crate, kit, files):
    room = await crate.open()
    agent, run_id, key = await executing(room, files)
    gate, asked = asyncio.Event(), asyncio.Event()

    async def settled(given):
        asked.set()
        await gate.wait()
        room.crate.settled_attempts.append((given.run.id, given.attempt.number))

    room.crate.settled = settled
    await agent.finish(key)
    await asked.wait()
    deleting = asyncio.create_task(room.service.delete(run_id))
    await room.settled()
    assert room.crate.orders == []
    gate.set()
    await deleting
    assert (room.crate.settled_attempts, len(room.crate.orders)) == ([(run_id, 1)], 1)


async def test_a_run_that_is_removed_does_not_wait_for_its_busy_backend(crate, kit, files):
    room = await crate.open()
    agent, run_id, key = await executing(room, files)
    room.crate.failures = [Busy("away")]
    await agent.finish(key)
    await kit.until(lambda: not room.crate.failures)
    await kit.until(lambda: room.time._sleepers)
    assert (await room.service.delete(run_id))["deleted"]
    assert (room.crate.settled_attempts, len(room.crate.orders)) == ([], 1)


# ---------------------------------------------------------------- a run that goes


def artifact(kit, key, kind="checkpoint", **more):
    return kit.event("artifact", artifact_id=key, kind=kind, name=key, path=f"/far/{key}", **more)


@pytest.mark.spec("s3/cleanup-aborts-unfinished-uploads")
async def test_the_backend_of_a_run_is_asked_also_when_nothing_is_listed(crate, kit, files):
    room = await crate.open()
    agent, run_id, key = await executing(room, files)
    await agent.finish(key)
    await room.becomes(run_id, "succeeded")
    assert await room.service.delete(run_id) == {"run_id": run_id, "deleted": True}
    (order,) = room.crate.orders
    assert (order.why, order.stored, order.run.id) == (DiscardReason.DELETE, (), run_id)


@pytest.mark.spec("s3/cleanup-keeps-output-objects", "transfer/placed-outputs-survive-clean-up")
async def test_only_what_the_backend_has_is_named_to_it_and_outputs_are_to_stay(crate, kit, files):
    room = await crate.open()
    agent, run_id, key = await executing(room, files)
    there = {"receipt": {"size_bytes": 1}}
    await agent.report(
        key, artifact(kit, "a", **there), artifact(kit, "b", "output", **there), artifact(kit, "c")
    )
    await agent.finish(key)
    await room.becomes(run_id, "succeeded")
    await room.service.delete(run_id)
    (order,) = room.crate.orders
    assert [one.key for one in order.stored] == ["a", "b"]
    assert order.keep_kinds == {"output"}


@pytest.mark.spec("s3/retention-keeps-checkpoint-of-interrupted-run")
async def test_retention_keeps_the_checkpoint_of_a_lost_run_and_delete_does_not(crate, kit, files):
    room = await crate.open(run_retention_keep_last=0)
    agent, run_id, _ = await executing(room, files)
    await agent.drop()
    agent.spool.clear()
    await agent.connect()
    await kit.until(lambda: room.crate.orders)
    assert room.crate.orders[0].keep_kinds == {"output", "checkpoint"}
    assert room.crate.orders[0].run.id == run_id


@pytest.mark.spec("s3/cleanup-unreachable-bucket-logged", "s3/delete-unreachable-bucket-warning-field")
@pytest.mark.parametrize("failure", [Busy("the bucket is away"), RuntimeError("a bug")])
async def test_a_backend_that_fails_holds_no_run_back(crate, kit, files, caplog, failure):
    room = await crate.open()
    agent, run_id, key = await executing(room, files)
    await agent.finish(key)
    await room.becomes(run_id, "succeeded")
    await room.settled()
    room.crate.failures = [failure]
    answer = await room.service.delete(run_id)
    assert str(failure) in answer["warning"]
    assert str(failure) in caplog.text
    assert (await room.service.list())["runs"] == []


async def test_a_backend_that_is_off_is_a_warning_only_when_it_holds_something(crate, kit, files):
    room = await crate.open()
    agent = await room.worker()
    warnings = []
    for items in ((), (artifact(kit, "a", receipt={"size_bytes": 1}),)):
        run_id = await room.submit(files, target="box")
        key = await agent.accept(run_id)
        await agent.report(key, *items)
        await agent.finish(key)
        await room.becomes(run_id, "succeeded")
        await room.settled()
        room.stores.pop("crate", None)
        warnings.append((await room.service.delete(run_id)).get("warning"))
        room.stores["crate"] = room.crate
    assert warnings[0] is None
    assert "crate" in warnings[1]


async def test_rows_of_uploads_go_with_their_run(crate, kit, files):
    room = await crate.open()
    agent, run_id, key = await executing(room, files)
    row = {"run_id": run_id, "item_id": "a", "state": "placed", "relative_path": "a", "created_at": 0}
    async with room.database.begin() as connection:
        await connection.execute(insert(uploads).values(**row))
    await agent.finish(key)
    await room.becomes(run_id, "succeeded")
    await room.service.delete(run_id)
    async with room.database.read() as connection:
        assert (await connection.execute(select(uploads))).all() == []


@pytest.mark.spec("transfer/placed-outputs-survive-clean-up")
@pytest.mark.parametrize("last", ["delete", "retention"])
async def test_what_a_saver_wrote_under_a_name_of_ones_own_is_ones_own(crate, kit, last):
    """It lies in a data folder as any file that a person put there; what the run named itself is the run's."""
    save = NodeDefinition(
        type="Save",
        category="Test",
        params=(
            Param(
                name="path",
                kind=ParamKind.STRING,
                default="",
                path=FileRole.WRITES,
                family=Family.MODELS,
            ),
        ),
    )
    start = NodeDefinition(
        type="Start", category="Test", outputs=(Port(name="trigger", type=DataType.TRIGGER),)
    )
    room = crate
    room.catalog = SimpleNamespace(definitions=Definitions.of([start, save]), devices=room.catalog.devices)
    store = room.stores["local"] = Store()
    await room.open(run_retention_keep_last=0 if last == "retention" else -1)
    run_id = await room.submit(kit.graph(kit.node("save", "Save", path="./deep/m")))
    process = await room.process(run_id)
    models = room.folder / "backend" / "data" / "models"
    for name in ("deep/m.pt", "deep/m", "deep/m2.pt", "run-e1.pt"):
        (models / name).parent.mkdir(parents=True, exist_ok=True)
        (models / name).write_bytes(b"w")
        process.say(
            type_="artifact", artifact_id=name, kind="checkpoint", path=str(models / name), data={"base": "/"}
        )
    process.finish()
    if last == "delete":
        await room.becomes(run_id, "succeeded")
        await room.service.delete(run_id)
    await kit.until(lambda: store.orders)
    (order,) = store.orders
    assert [one.relative_path for one in order.stored] == ["models/deep/m2.pt", "models/run-e1.pt"]
    assert [list(one.data) for one in order.stored] == [["mtime_ns"]] * 2
