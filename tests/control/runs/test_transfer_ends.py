"""Uploads that are on their way as their attempt ends: the real routes, rows and files, in a chosen order of steps."""

import asyncio
import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from codefyui_core.control.files.receiving import Receiving
from codefyui_core.errors import Refused
from codefyui_core.plugin import Arriving, Caller
from codefyui_core.testing.hosts import ControlStoreDouble
from codefyui_core.testing.served_routes import served_routes
from codefyui_storage_transfer.control import TransferControl
from codefyui_storage_transfer.models import UPLOAD_PATH
from codefyui_storage_transfer.plugin import TransferBackend

DATA = b"weights " * 1000
SHA = hashlib.sha256(DATA).hexdigest()


class Died(BaseException):
    """The process was killed here."""


async def body():
    yield DATA


class Host(ControlStoreDouble):
    """The rows and the uploads of the room; the rest by hand."""

    def of_room(self, room):
        self.room = room
        self.arrivals = Receiving(room.database, limit_bytes=1 << 20)
        return self

    async def attempt(self, run):
        return await self.room.service.attempt_of(run)

    async def record(self, attempt, stored):
        return await self.room.service.record(attempt, stored, "transfer")

    async def stored(self, run):
        return await self.room.service.stored(run, "transfer")


class Steps:
    """Holds an upload where it gets its name, with ``held`` set, until it may go on."""

    def __init__(self, monkeypatch, arrivals, *, at):
        self.held, self.gate = asyncio.Event(), asyncio.Event()
        keep = arrivals._rows.keep

        async def stepwise(file, state, values):
            if state == at:
                self.held.set()
                await self.gate.wait()
            await keep(file, state, values)

        monkeypatch.setattr(arrivals._rows, "keep", stepwise)


@pytest.fixture
async def begun(closed_room, kit, tmp_path):
    """A run on a worker that the transfer backend serves, and the way to its upload route."""
    room = closed_room
    host = Host(root=tmp_path / "control", name="transfer")
    control = room.stores["transfer"] = TransferControl(host)
    room.backends["transfer"] = TransferBackend()
    await room.open()
    host.of_room(room)
    folder = tmp_path / "backend" / "data" / "files"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("1,2\n")
    agent = await room.worker(facts={"transfer": {}})
    run_id = await room.submit(kit.graph(kit.node("read", "ReadTable", path="a.csv")), target="box")
    key = await agent.accept(run_id)
    caller = Caller(worker=agent.view, attempt=await room.service.attempt_of(run_id))
    async with served_routes(control.routes(), caller) as http:

        async def upload(name="checkpoint/e1.pt", **more):
            kind, _, below = name.partition("/")
            params = {
                "key": "k1",
                "kind": kind,
                "name": below,
                "offset": "0",
                "size": str(len(DATA)),
                "sha256": SHA,
            }
            async with http.request(
                "POST",
                UPLOAD_PATH.format(run_id=run_id),
                headers={"X-CodefyUI-Attempt": "1.lease"},
                params=params | more,
                data=DATA,
            ) as answer:
                return await answer.json()

        yield SimpleNamespace(
            room=room, host=host, control=control, agent=agent, run_id=run_id, key=key, upload=upload
        )


def left(kit):
    return kit.event(
        "artifact", artifact_id="k1", kind="checkpoint", name="e1.pt", path="/far/e1.pt", state="on_worker"
    )


async def settled(begun, kit):
    await kit.until(lambda: not begun.room.service._outbox.holds(begun.key))
    rows = await begun.room.service.artifacts(begun.run_id)
    files = [path for path in begun.host.run_files.rglob("*") if path.is_file()]
    assert len(rows) == len(files), "what lies there is listed once, and what is listed lies there"
    return rows


@pytest.mark.parametrize("at", ["chosen", "placed"])
@pytest.mark.parametrize("told", [False, True])
async def test_an_upload_that_gets_its_name_after_the_end_is_listed_once(begun, kit, monkeypatch, told, at):
    steps = Steps(monkeypatch, begun.host.arrivals, at=at)
    uploading = asyncio.create_task(begun.upload())
    await steps.held.wait()
    await begun.agent.report(begun.key, *([left(kit)] if told else []))
    await begun.agent.finish(begun.key)
    await begun.room.becomes(begun.run_id, "succeeded")
    assert begun.room.service._outbox.holds(begun.key)
    steps.gate.set()
    assert (await uploading)["placed"]
    (row,) = await settled(begun, kit)
    assert (row["id"], row["kind"], row["name"], row["state"]) == ("k1", "checkpoint", "e1.pt", "stored")
    assert Path(row["path"]).read_bytes() == DATA
    assert row["sha256"] == SHA


async def test_an_upload_whose_check_comes_after_the_end_places_nothing(begun, kit, monkeypatch):
    here, gate = asyncio.Event(), asyncio.Event()
    append = begun.host.arrivals.append

    async def slow(file, offset, chunks):
        found = await append(file, offset, chunks)
        here.set()
        await gate.wait()
        return found

    monkeypatch.setattr(begun.host.arrivals, "append", slow)
    uploading = asyncio.create_task(begun.upload())
    await here.wait()
    await begun.agent.finish(begun.key)
    assert await settled(begun, kit) == []
    gate.set()
    with pytest.raises(Refused) as over:
        await uploading
    assert over.value.code == "run.attempt_over"
    assert await settled(begun, kit) == []


async def test_a_receipt_lists_an_upload_and_its_end_not_again(begun, kit):
    await begun.upload()
    receipt = {"sha256": SHA, "size_bytes": len(DATA)}
    payload = {"artifact_id": "k1", "kind": "checkpoint", "name": "e1.pt", "path": "/far/e1.pt"}
    await begun.agent.report(begun.key, kit.event("artifact", **payload, receipt=receipt))
    await begun.agent.finish(begun.key)
    (row,) = await settled(begun, kit)
    assert (row["state"], row["backend"]) == ("stored", "transfer")
    assert "transfer_failed" not in await begun.room.warnings(begun.run_id)


@pytest.mark.point(43)
async def test_a_file_that_had_its_name_when_the_server_died_is_listed_by_the_next(begun, kit, monkeypatch):
    arrivals = begun.host.arrivals
    keep = arrivals._rows.keep

    async def dies(file, state, values):
        if state == "placed":
            raise Died
        await keep(file, state, values)

    monkeypatch.setattr(arrivals._rows, "keep", dies)
    file = Arriving(
        run_id=begun.run_id, key="k1", folder=begun.host.run_files / begun.run_id, name="checkpoint/e1.pt"
    )
    await arrivals.append(file, 0, body())
    with pytest.raises(Died):
        await arrivals.finish(file, size_bytes=len(DATA), sha256=SHA)
    await begun.room.restart()
    begun.host.of_room(begun.room)
    begun.agent.spool.clear()
    await begun.agent.connect()
    await begun.room.becomes(begun.run_id, "interrupted")
    (row,) = await settled(begun, kit)
    assert (row["state"], row["sha256"]) == ("stored", SHA)
