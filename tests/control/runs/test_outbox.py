"""What a storage backend can't answer at once: nothing waits for it, and it is asked until it answers."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from codefyui_core.control.db.tables import artifacts, storage_outbox
from codefyui_core.control.runs import outbox
from codefyui_core.control.runs.outbox import ASKED_MOST_S, FIRST_S, MOST_S, wait_s
from codefyui_core.errors import Busy, CodefyError, Refused
from codefyui_core.plugin.storage import (
    LocalFile,
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


class Store(StorageControl):
    """A backend that notes its calls in order. ``busy`` and ``refused`` say what it answers, by key or message;
    ``gates`` hold calls up.
    """

    def __init__(self):
        self.calls = []
        self.busy = set()
        self.refused = {}
        self.broken = set()
        self.gates = {}
        self.under_way = 0
        self.most_under_way = 0
        self.orders = []

    async def _call(self, what, name):
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if name in self.gates:
                await self.gates[name].wait()
            await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        if name in self.busy or "all" in self.busy:
            raise Busy(f"no answer for {name}")
        if name in self.refused:
            raise Refused(self.refused[name])
        if name in self.broken:
            raise RuntimeError("a bug")
        self.calls.append((what, name))

    def offer(self, files, worker, facts):
        return Offer()

    async def stage(self, run, worker, attempt):
        return Staged(ticket=Ticket())

    async def told(self, given, message):
        await self._call("told", message["say"])

    async def accept(self, given, output, receipt):
        await self._call("accept", output.key)
        assert given.attempt.run_id == given.run.id
        return StoredObject(
            key=output.key,
            kind=output.kind,
            name=output.name,
            relative_path=output.relative_path,
            size_bytes=receipt.size_bytes,
            sha256=receipt.sha256,
            data={"number": 1},
        )

    async def settled(self, given):
        await self._call("settled", given.attempt.number)

    def place(self, stored):
        return Place(path=f"crate://{stored.relative_path}")

    async def read(self, stored, span):
        return LocalFile(path=stored.relative_path)

    async def discard(self, order):
        self.orders.append(order)


class Crate(StorageBackend):
    name, title, kind, preference = "crate", "Crate", StorageKind.CARRIER, 10
    receipt = Receipt

    def control(self, host):
        raise NotImplementedError

    def agent(self, host):
        raise NotImplementedError


@pytest.fixture
async def begun(closed_room, kit, tmp_path):
    """A run that executes on a worker, with a backend."""
    room = closed_room
    room.stores["crate"] = store = Store()
    room.backends["crate"] = Crate()
    await room.open()
    folder = tmp_path / "backend" / "data" / "files"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("1,2\n")
    agent = await room.worker()
    run_id = await room.submit(kit.graph(kit.node("read", "ReadTable", path="a.csv")), target="box")
    key = await agent.accept(run_id)
    return SimpleNamespace(room=room, store=store, agent=agent, run_id=run_id, key=key)


def published(kit, name, **receipt):
    return kit.event(
        "artifact",
        artifact_id=name,
        kind="checkpoint",
        name=f"{name}.pt",
        relative_path=f"models/{name}.pt",
        path=f"/far/{name}.pt",
        meta={"epoch": 1},
        receipt={"sha256": "a" * 64, "size_bytes": 12} | receipt,
    )


def said(word):
    return {"kind": "told", "payload": {"backend": "crate", "message": {"say": word}}}


async def states(begun):
    rows = await begun.room.service.artifacts(begun.run_id)
    return {row["id"]: row["state"] for row in rows}


async def become(begun, kit, **wanted):
    """Wait for the states of artifacts, with time passing."""

    async def are_so():
        await begun.room.time.advance(1)
        return await states(begun) == wanted

    await kit.until(are_so)


async def owed(begun):
    async with begun.room.database.read() as connection:
        columns = (storage_outbox.c.call, storage_outbox.c.attempt)
        return [
            tuple(row) for row in await connection.execute(select(*columns).order_by(storage_outbox.c.seq))
        ]


async def nothing_owed(begun, kit):
    async def is_so():
        await begun.room.time.advance(1)
        return await owed(begun) == []

    await kit.until(is_so)


async def warned(begun):
    log = await begun.room.log(begun.run_id)
    payloads = [one["payload"] for one in log if one["type"] == "run_warning"]
    return [one["detail"] for one in payloads if one["kind"] == "transfer_failed"]


# ---------------------------------------------------------------- receipts


async def test_a_busy_backend_holds_up_neither_the_log_nor_the_end(begun, kit):
    begun.store.busy = {"k1"}
    items = (published(kit, "k1"), published(kit, "k2"), kit.event(text="after it"))
    answer = await begun.room.in_time(begun.agent.report(begun.key, *items))
    assert answer.seq == 4
    assert await states(begun) == {"k1": "arriving", "k2": "stored"}
    assert (await begun.room.types(begun.run_id))[-3:] == ["artifact", "artifact", "log"]
    await begun.agent.finish(begun.key)
    await begun.room.becomes(begun.run_id, "succeeded")
    assert ("settled", 1) not in begun.store.calls
    begun.store.busy.clear()
    await become(begun, kit, k1="stored", k2="stored")
    await nothing_owed(begun, kit)
    assert begun.store.calls == [("accept", "k2"), ("accept", "k1"), ("settled", 1)]
    row, reading = await begun.room.service.artifact_reading(begun.run_id, "k1")
    assert (row["path"], row["size_bytes"], row["meta"]) == ("crate://models/k1.pt", 12, {"epoch": 1})
    assert reading == LocalFile(path="models/k1.pt")


async def test_a_backend_that_is_busy_for_a_moment_leaves_no_trace(begun, kit):
    begun.store.busy = {"all"}
    taking = asyncio.create_task(begun.agent.report(begun.key, published(kit, "k1")))
    await kit.until(lambda: begun.store.most_under_way and begun.room.time._sleepers)
    begun.store.busy.clear()
    await begun.room.in_time(taking)
    assert await states(begun) == {"k1": "stored"}
    assert await owed(begun) == []


async def test_a_call_that_hangs_is_waited_for_only_as_long_as_others_answer(begun, kit):
    begun.store.gates["k1"] = asyncio.Event()
    await begun.room.in_time(begun.agent.report(begun.key, published(kit, "k1"), published(kit, "k2")))
    assert await states(begun) == {"k1": "arriving", "k2": "stored"}
    begun.store.gates["k1"].set()
    await become(begun, kit, k1="stored", k2="stored")
    assert [name for _, name in begun.store.calls].count("k1") <= 2


async def test_what_reads_arriving_says_so_and_comes_later(begun, kit):
    begun.store.busy = {"k1"}
    await begun.room.in_time(begun.agent.report(begun.key, published(kit, "k1")))
    with pytest.raises(CodefyError, match=r"k1\.pt is with the storage backend crate.*try again") as later:
        await begun.room.service.artifact_reading(begun.run_id, "k1")
    assert later.value.code == "artifact.arriving"


@pytest.mark.parametrize("over", [False, True])
async def test_a_file_that_is_refused_later_is_left_on_its_worker(begun, kit, over, caplog):
    begun.store.busy = {"k1"}
    await begun.room.in_time(begun.agent.report(begun.key, published(kit, "k1")))
    if over:
        await begun.agent.finish(begun.key)
        await begun.room.becomes(begun.run_id, "succeeded")
    begun.store.refused["k1"] = "other content"
    begun.store.busy.clear()
    await become(begun, kit, k1="on_worker")
    assert "k1.pt stays on its worker: other content" in caplog.text
    # a log that is closed stays as it is
    assert await warned(begun) == ([] if over else ["k1.pt stays on the worker: other content"])


async def test_a_backend_with_a_bug_costs_its_file_alone(begun, kit):
    begun.store.broken = {"k1"}
    await begun.agent.report(begun.key, published(kit, "k1"), published(kit, "k2"))
    assert await states(begun) == {"k1": "on_worker", "k2": "stored"}
    assert "crate failed with it" in (await warned(begun))[0]


@pytest.mark.point(53)
async def test_the_server_goes_on_asking_after_a_restart(begun, kit):
    begun.store.busy = {"k1"}
    await begun.room.in_time(begun.agent.report(begun.key, said("one"), published(kit, "k1")))
    await begun.agent.finish(begun.key)
    await begun.room.restart()
    assert await states(begun) == {"k1": "arriving"}
    begun.store.busy.clear()
    await become(begun, kit, k1="stored")
    await nothing_owed(begun, kit)
    assert begun.store.calls == [("told", "one"), ("accept", "k1"), ("settled", 1)]


@pytest.mark.point(44)
async def test_what_comes_before_its_backend_is_on_after_a_start_is_kept_for_it(begun, kit):
    await begun.room.restart()
    store = begun.room.stores.pop("crate")
    await begun.agent.connect()
    await begun.agent.report(begun.key, said("one"), published(kit, "k1"), kit.event(text="goes on"))
    assert await states(begun) == {"k1": "arriving"}
    await begun.room.pass_time(301)
    assert await states(begun) == {"k1": "arriving"}
    begun.room.stores["crate"] = store
    begun.room.service.stores_changed()
    await kit.until(lambda: store.calls == [("told", "one"), ("accept", "k1")])
    await become(begun, kit, k1="stored")
    await begun.agent.finish(begun.key)


async def test_messages_and_receipts_keep_their_order(begun, kit):
    begun.store.busy = {"two"}
    items = (said("one"), published(kit, "k1"), said("two"), published(kit, "k2"))
    await begun.room.in_time(begun.agent.report(begun.key, *items))
    await begun.agent.report(begun.key, said("three"), published(kit, "k3"))
    assert await states(begun) == {"k1": "stored", "k2": "arriving", "k3": "arriving"}
    begun.store.busy.clear()
    await become(begun, kit, k1="stored", k2="stored", k3="stored")
    names = [name for _, name in begun.store.calls]
    assert names == ["one", "k1", "two", "k2", "three", "k3"]
    await begun.agent.finish(begun.key)


async def test_many_receipts_are_looked_at_at_once_and_listed_in_their_order(begun, kit):
    names = [f"k{number:03}" for number in range(40)]
    await begun.agent.report(begun.key, *(published(kit, name) for name in names))
    assert begun.store.most_under_way == 16
    async with begun.room.database.read() as connection:
        rows = await connection.execute(select(artifacts.c.artifact_id).order_by(artifacts.c.cursor))
        assert list(rows.scalars()) == names
    await begun.agent.finish(begun.key)


async def test_a_backend_that_is_away_is_not_asked_for_every_file(begun, kit, monkeypatch):
    begun.store.busy = {"all"}
    asked = []
    accept = begun.store.accept

    async def counted(given, output, receipt):
        asked.append(output.key)
        return await accept(given, output, receipt)

    monkeypatch.setattr(begun.store, "accept", counted)
    names = [f"k{number:03}" for number in range(60)]
    await begun.room.in_time(begun.agent.report(begun.key, *(published(kit, name) for name in names)))
    assert set((await states(begun)).values()) == {"arriving"}
    assert len(set(asked)) < 48
    begun.store.busy.clear()
    await become(begun, kit, **dict.fromkeys(names, "stored"))


async def test_the_same_file_twice_in_a_batch_is_asked_for_once(begun, kit):
    await begun.agent.report(begun.key, published(kit, "k1"), published(kit, "k1"))
    assert begun.store.calls == [("accept", "k1")]
    assert await states(begun) == {"k1": "stored"}


async def test_listeners_to_rows_hear_of_a_file_that_was_confirmed_later(begun, kit):
    begun.store.busy = {"k1"}
    await begun.room.in_time(begun.agent.report(begun.key, published(kit, "k1")))
    with begun.room.service._feeds.watching() as watcher:
        begun.store.busy.clear()
        await become(begun, kit, k1="stored")
        assert watcher.take() == [begun.run_id]


# ---------------------------------------------------------------- removal


@pytest.mark.parametrize("back", [False, True])
async def test_a_run_that_goes_asks_about_its_files_a_last_time(begun, kit, back):
    begun.store.busy = {"k1"}
    await begun.room.in_time(begun.agent.report(begun.key, published(kit, "k1")))
    await begun.agent.finish(begun.key)
    await begun.room.becomes(begun.run_id, "succeeded")
    if back:
        begun.store.busy.clear()
    answer = await begun.room.service.delete(begun.run_id)
    (order,) = begun.store.orders
    assert [one.key for one in order.stored] == (["k1"] if back else [])
    assert answer.get("warning", "") == (
        "" if back else "k1.pt may stay with the storage backend crate, which doesn't answer"
    )
    assert await owed(begun) == []


@pytest.mark.parametrize("back", [False, True])
async def test_a_single_file_that_goes_is_asked_for_a_last_time(begun, kit, back):
    begun.store.busy = {"k1"}
    await begun.room.in_time(begun.agent.report(begun.key, published(kit, "k1")))
    await begun.agent.finish(begun.key)
    await begun.room.becomes(begun.run_id, "succeeded")
    if back:
        begun.store.busy.clear()
    answer = await begun.room.service.delete_artifact(begun.run_id, "k1")
    assert [one.key for order in begun.store.orders for one in order.stored] == (["k1"] if back else [])
    assert ("warning" in answer) is not back
    begun.store.busy.clear()
    await nothing_owed(begun, kit)
    assert await states(begun) == {}


# ---------------------------------------------------------------- the end


@pytest.mark.point(54)
async def test_an_end_that_the_last_server_did_not_tell_is_told_by_the_next(begun, kit):
    begun.store.gates[1] = asyncio.Event()
    await begun.agent.finish(begun.key)
    await kit.until(lambda: begun.store.under_way)
    begun.store.gates[1] = asyncio.Event()
    await begun.room.restart()
    assert await owed(begun) == [("settled", 1)]
    begun.store.gates[1].set()
    await nothing_owed(begun, kit)
    assert begun.store.calls == [("settled", 1)]


async def test_an_end_comes_after_all_receipts_however_many_there_are(begun, kit, monkeypatch):
    monkeypatch.setattr(outbox, "PAGE", 2)
    begun.store.busy = {"all"}
    names = [f"k{number}" for number in range(5)]
    await begun.room.in_time(begun.agent.report(begun.key, *(published(kit, name) for name in names)))
    await begun.agent.finish(begun.key)
    begun.store.busy = {"k0"}
    await become(begun, kit, k0="arriving", k1="stored", k2="stored", k3="stored", k4="stored")
    await begun.room.pass_time(100)
    assert ("settled", 1) not in begun.store.calls
    begun.store.busy.clear()
    await nothing_owed(begun, kit)
    assert begun.store.calls[-2:] == [("accept", "k0"), ("settled", 1)]


async def test_an_end_waits_for_a_backend_that_is_off(begun, kit):
    store = begun.room.stores.pop("crate")
    await begun.agent.finish(begun.key)
    await begun.room.becomes(begun.run_id, "succeeded")
    await begun.room.restart()
    begun.room.stores["crate"] = store
    begun.room.service.stores_changed()
    await nothing_owed(begun, kit)
    assert store.calls == [("settled", 1)]


async def test_what_a_backend_finds_while_it_settles_an_attempt_is_listed_once(begun, kit):
    attempt = await begun.room.service.attempt_of(begun.run_id)
    left = kit.event(
        "artifact", artifact_id="k1", kind="output", name="k1", path="/far/k1", state="on_worker"
    )
    await begun.agent.report(begun.key, left, published(kit, "k2"))

    def found(key, sha256="b" * 64):
        return StoredObject(
            key=key, kind="output", name=key, relative_path=f"output/{key}", size_bytes=1, sha256=sha256
        )

    async def settled(given):
        for _ in range(2):
            for key in ("k1", "k2", "k3"):
                await begun.room.service.record(given.attempt, found(key), "crate")
        begun.store.calls.append(("settled", given.attempt.number))

    begun.store.settled = settled
    await begun.agent.finish(begun.key)
    await nothing_owed(begun, kit)
    rows = {row["id"]: row for row in await begun.room.service.artifacts(begun.run_id)}
    assert {key: row["state"] for key, row in rows.items()} == {
        "k1": "stored",
        "k2": "stored",
        "k3": "stored",
    }
    assert list(rows) == ["k1", "k2", "k3"]
    assert (rows["k1"]["path"], rows["k2"]["sha256"]) == ("crate://output/k1", "a" * 64)
    with pytest.raises(CodefyError) as over:
        await begun.room.service.record(attempt, found("k4"), "crate")
    assert over.value.code == "run.attempt_over"
    assert (await begun.room.types(begun.run_id))[-1] == "execution_complete"


# ---------------------------------------------------------------- waiting


@given(st.integers(0, 10_000), st.none() | st.floats(0, 1e9))
def test_waits_double_to_a_minute_and_heed_the_backend(tries, asked):
    wait = wait_s(tries, asked)
    assert FIRST_S <= wait <= ASKED_MOST_S
    assert wait_s(tries + 1, asked) >= wait
    assert asked is None or wait >= min(asked, ASKED_MOST_S)
    assert wait_s(tries, None) <= MOST_S


def test_the_first_waits_are_short():
    assert [wait_s(tries, None) for tries in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
