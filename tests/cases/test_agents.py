"""Agents and servers that go and come: what was said arrives once, what began never begins again."""

import hashlib

import pytest

from codefyui_core.builtin.local.models import FolderPlaces
from codefyui_core.wire.messages import Assign, VerdictKind


@pytest.mark.spec("drop/run-ending-during-outage-is-delivered")
async def test_a_run_that_ends_while_the_server_is_away_delivers_its_files_before_its_end(line, tmp_path):
    """Each with the hash of what lies there."""
    await line.agent()
    models = tmp_path / "data" / "models"
    models.mkdir(parents=True)
    ticket = {"inputs": [], "places": FolderPlaces(root=str(tmp_path / "data")).model_dump(mode="json")}
    stored = await line.control.assign(backend="local", ticket=ticket)
    process = await line.starter.process()
    await process.went
    await line.control.crash()
    for number in range(5):
        path = models / f"m{number}.pt"
        path.write_bytes(b"weights %d" % number)
        payload = {"artifact_id": f"a{number}", "kind": "export", "name": path.name, "path": str(path)}
        process.say(type_="artifact", payload=payload)
    process.end("succeeded")
    await line.until(lambda: process.read == 6)
    await line.control.start()
    await line.until(lambda: stored.final)
    told = [item.payload for item in stored.items if item.type == "artifact"]
    assert [(one["artifact_id"], one["state"]) for one in told] == [(f"a{n}", "stored") for n in range(5)]
    for number, one in enumerate(told):
        assert one["receipt"]["sha256"] == hashlib.sha256(b"weights %d" % number).hexdigest()
    assert stored.kinds[-2:] == ["exited", "end"]
    assert stored.final == "succeeded"


@pytest.mark.point(4)
async def test_a_start_whose_answer_is_lost_again_and_again_starts_one_process(line):
    """The line is cut while ``accepted`` is stored; the server sends the assignment again on each connection."""
    await line.agent()
    line.starter.ready_at_once = False
    line.desk.gate.clear()
    stored = await line.control.assign()
    process = await line.starter.process()
    for round_ in range(3):
        line.control.cut()
        line.desk.gate.set()
        await line.until(lambda round_=round_: len(line.desk.hellos) == round_ + 2)
        (await line.control.online()).send(
            Assign(
                run_id="r1",
                attempt=1,
                lease=stored.lease,
                db_id=line.control.db.db_id,
                graph={},
                options={},
                devices=("cpu",),
            )
        )
    process.is_ready.set()
    await line.until(process.went.done)
    process.end("succeeded")
    await line.until(lambda: stored.final)
    assert len(line.starter.processes) == 1
    assert stored.kinds == ["accepted", "exited", "end"]


@pytest.mark.spec("restart/worker-back-without-run-ends-at-once")
async def test_a_run_that_died_while_agent_and_server_were_both_away_ends_at_once_and_frees_its_slot(room):
    agent = await room.worker()
    run_id = await room.submit(target=agent.name)
    await agent.accept(run_id)
    next_id = await room.submit(target=agent.name)
    await room.restart()
    agent.spool.clear()
    agent.incarnation = "2" * 32
    assert room.board_used()
    await agent.connect()
    row = await room.row(run_id)
    assert row["status"] == "interrupted"
    assert "came back without the run" in row["error"]
    assert row["active"] is False
    key = await agent.accept(next_id)
    await agent.finish(key)
    assert (await room.row(next_id))["status"] == "succeeded"
    assert room.board_used() == {}


@pytest.mark.spec("restart/worker-back-without-run-ends-at-once")
@pytest.mark.parametrize("restarted", [False, True], ids=["the agent alone", "the server, too"])
async def test_an_agent_that_comes_back_as_another_process_ends_the_runs_of_the_one_before(room, restarted):
    """By the name of its worker, whatever its process calls itself: nothing waits for the one that is dead."""
    agent = await room.worker()
    run_id = await room.submit(target=agent.name)
    await agent.accept(run_id)
    if restarted:
        await room.restart()
    else:
        await agent.drop()
        assert await room.status(run_id) == "disconnected"
    agent.spool.clear()
    agent.incarnation = "f" * 32
    verdicts = await agent.connect()
    assert verdicts == {}
    assert await room.status(run_id) == "interrupted"
    assert room.board_used() == {}
    assert VerdictKind.RESUME not in [verdict.kind for verdict in verdicts.values()]
