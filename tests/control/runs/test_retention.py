"""Which ended runs stay, and what stays of those that go."""

import pytest

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.storage import DiscardReason, Place
from codefyui_core.settings import ControlSettings
from codefyui_core.wire.messages import VerdictKind


class Discards:
    """A backend by hand, of which nothing but removals is asked here."""

    def __init__(self):
        self.orders = []

    async def discard(self, order):
        self.orders.append(order)

    def place(self, stored):
        return Place()

    def kept(self, run_id):
        (order,) = [order for order in self.orders if order.run.id == run_id]
        return order.why, set(order.keep_kinds)


@pytest.fixture
def store(closed_room):
    made = Discards()
    closed_room.stores |= {"local": made, "worker": made}
    return made


async def with_checkpoint(room, kit, run_id, process):
    process.say(type_="artifact", artifact_id=f"c-{run_id}", kind="checkpoint", path=f"/x/{run_id}")

    async def listed():
        return bool(await room.service.artifacts(run_id))

    await kit.until(listed)


async def begun(room, kit):
    run_id = await room.submit()
    process = await room.process(run_id)
    await with_checkpoint(room, kit, run_id, process)
    return run_id, process


async def left(room):
    return {row["id"] for row in (await room.service.list())["runs"]}


def gone(room, run_id):
    async def is_so():
        return run_id not in await left(room)

    return is_so


def test_two_hundred_ended_runs_are_kept_unless_it_is_set():
    assert ControlSettings().run_retention_keep_last == 200


async def test_none_is_kept_with_0_and_each_goes_when_it_ends(closed_room, store, kit):
    room = await closed_room.open(run_retention_keep_last=0)
    run_id, process = await begun(room, kit)
    process.finish()
    await kit.until(gone(room, run_id))
    assert store.kept(run_id) == (DiscardReason.RETENTION, {"output"})


async def test_old_runs_go_at_a_start_too_and_the_newest_stay(closed_room, store, kit):
    room = await closed_room.open(run_retention_keep_last=-1)
    runs = []
    for _ in range(3):
        run_id, process = await begun(room, kit)
        process.finish()
        await room.becomes(run_id, "succeeded")
        await room.time.advance(1)
        runs.append(run_id)
    await room.settled()
    assert await left(room) == set(runs)
    await room.restart(run_retention_keep_last=1)
    await kit.until(gone(room, runs[0]))
    await kit.until(gone(room, runs[1]))
    assert await left(room) == {runs[2]}


@pytest.mark.parametrize(("outcome", "cause"), [("failed", "user_code"), ("stopped", "cancelled")])
async def test_the_checkpoints_of_failed_and_cancelled_runs_go_with_them(
    closed_room, store, kit, outcome, cause
):
    room = await closed_room.open(run_retention_keep_last=0)
    run_id, process = await begun(room, kit)
    if outcome == "stopped":
        await room.service.cancel(run_id)
    process.finish(outcome, error="e", cause=None)
    await kit.until(gone(room, run_id))
    assert store.kept(run_id) == (DiscardReason.RETENTION, {"output"})


async def test_the_checkpoints_of_a_run_that_its_stopped_agent_cancelled_stay(closed_room, store, kit):
    """Its status is cancelled, but a shutdown ended it: somebody wants to go on from there."""
    room = await closed_room.open(run_retention_keep_last=0)
    agent = await room.worker()
    run_id = await room.submit(target="box")
    key = await agent.accept(run_id)
    payload = {"artifact_id": "c", "kind": "checkpoint", "path": "/x/c", "backend": "local"}
    await agent.report(key, {"kind": "event", "type": "artifact", "payload": payload})
    await agent.finish(key, "stopped", stop_reason="agent_stop")
    await kit.until(gone(room, run_id))
    assert store.kept(run_id) == (DiscardReason.RETENTION, {"output", "checkpoint"})


async def test_a_run_that_may_still_execute_stays_until_it_is_settled(closed_room, store, kit):
    room = await closed_room.open(run_retention_keep_last=0)
    agent = await room.worker()
    run_id = await room.submit(target="box")
    key = await agent.accept(run_id)
    payload = {"artifact_id": "c", "kind": "checkpoint", "path": "/x/c", "backend": "local"}
    await agent.report(key, {"kind": "event", "type": "artifact", "payload": payload})
    await agent.drop()
    await room.pass_time(301)
    await room.becomes(run_id, "interrupted")
    other, process = await begun(room, kit)
    process.finish()
    await kit.until(gone(room, other))
    assert await left(room) == {run_id}
    verdict = (await agent.connect())[run_id]
    assert verdict.kind is VerdictKind.LATE
    await agent.finish(key, "stopped", stop_reason="late")
    await kit.until(gone(room, run_id))
    assert store.kept(run_id) == (DiscardReason.RETENTION, {"output", "checkpoint"})


@pytest.mark.point(51)
async def test_a_run_that_was_deleted_while_unsettled_is_discarded_when_its_worker_is_back(
    closed_room, store, kit
):
    room = await closed_room.open()
    agent = await room.worker(devices=(kit.device("cuda:0"),))
    run_id = await room.submit(target="box", device="cuda:0")
    key = await agent.accept(run_id)
    await agent.drop()
    with pytest.raises(CodefyError) as caught:
        await room.service.delete(run_id)
    assert caught.value.code == "run.active"
    await room.pass_time(301)
    await room.becomes(run_id, "interrupted")
    assert (await room.service.delete(run_id))["deleted"] is True
    agent.spool[key].devices, agent.spool[key].phase = ("cuda:0",), "running"
    verdict = (await agent.connect())[run_id]
    assert (verdict.kind, verdict.recorded) == (VerdictKind.DISCARD, None)
    waiting = await room.submit(target="box", device="cuda:0")
    await room.settled()
    assert await room.status(waiting) == "queued"


async def test_a_person_who_deletes_an_interrupted_run_deletes_its_checkpoints(closed_room, store, kit):
    room = await closed_room.open()
    run_id, _ = await begun(room, kit)
    await room.restart()
    await room.becomes(run_id, "interrupted")
    await room.service.delete(run_id)
    assert store.kept(run_id) == (DiscardReason.DELETE, {"output"})
