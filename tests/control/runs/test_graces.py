"""Graces that race with a return, that have nothing to wait for, and that are longer than an afternoon."""

import asyncio

import pytest
from sqlalchemy import text

from codefyui_core.wire.messages import VerdictKind


async def running(room, agent):
    run_id = await room.submit(target=agent.name)
    return run_id, await agent.accept(run_id)


@pytest.mark.point(28)
@pytest.mark.parametrize("hello_first", [True, False])
async def test_a_return_while_the_grace_ends_resumes_the_run_or_comes_late_and_never_both(room, hello_first):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    await room.pass_time(299)
    ends = room.service._desk._end_grace
    if hello_first:
        verdicts, _ = await asyncio.gather(agent.connect(), ends(run_id, 1))
        expected, status = VerdictKind.RESUME, "succeeded"
    else:
        room.service._desk.graces.stop(run_id, 1)  # its time is up
        _, verdicts = await asyncio.gather(ends(run_id, 1), agent.connect())
        expected, status = VerdictKind.LATE, "interrupted"
    assert verdicts[run_id].kind is expected
    await agent.finish(key)
    row = await room.row(run_id)
    assert (row["status"], row["late_result"] is None) == (status, hello_first)
    kinds = [one["type"] for one in await room.log(run_id)]
    assert sum(kind.startswith("execution_") for kind in kinds) == 1


@pytest.mark.spec("restart/no-resume-point-interrupted")
async def test_a_run_without_a_resume_point_ends_at_the_next_start(room):
    agent = await room.worker()
    run_id, _ = await running(room, agent)
    async with room.database.begin() as connection:
        await connection.execute(text("UPDATE attempts SET lease_hash = NULL"))
    await room.restart()
    row = await room.row(run_id)
    assert row["status"] == "interrupted"
    assert "nothing to resume from" in row["error"]


async def test_a_worker_that_is_cut_off_for_two_hours_within_a_longer_grace_goes_on(closed_room):
    room = await closed_room.open(worker_resume_grace_s=3 * 3600)
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    await room.pass_time(2 * 3600)
    assert await room.status(run_id) == "disconnected"
    assert (await agent.connect())[run_id].kind is VerdictKind.RESUME
    await agent.finish(key)
    assert await room.status(run_id) == "succeeded"
