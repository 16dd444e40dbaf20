"""Runs whose agent has another version: which ones it may finish, and which go back to the queue."""

import pytest

from codefyui_core.wire.messages import Refuse


async def running(room, agent):
    run_id = await room.submit(target=agent.name)
    return run_id, await agent.accept(run_id)


async def test_an_attempt_is_awaited_until_its_end_is_recorded(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    listed = agent.listed()
    assert await room.service.awaits(agent.id, listed)
    await agent.finish(key)
    assert await room.status(run_id) == "succeeded"
    assert not await room.service.awaits(agent.id, listed)


async def test_an_attempt_that_the_server_gave_up_is_awaited_for_its_late_result(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    await room.pass_time(301)
    await room.becomes(run_id, "interrupted")
    listed = agent.listed()
    assert await room.service.awaits(agent.id, listed)
    await agent.connect()
    await agent.finish(key)
    assert (await room.row(run_id))["late_result"]["status"] == "succeeded"
    assert not await room.service.awaits(agent.id, listed)


async def test_it_is_awaited_over_a_restart_and_only_from_who_shows_its_lease(room):
    agent = await room.worker()
    await running(room, agent)
    other = await room.worker("other")
    await room.restart()
    (listed,) = agent.listed()
    assert await room.service.awaits(agent.id, [listed])
    assert not await room.service.awaits(agent.id, [listed.model_copy(update={"lease": "guess"})])
    assert not await room.service.awaits(other.id, [listed])
    assert not await room.service.awaits(agent.id, ())


@pytest.mark.point(4)
async def test_a_run_that_was_never_begun_there_waits_again_and_goes_to_the_updated_agent(room):
    agent = await room.worker()
    agent.refuses = True  # the line swallows what it is sent
    run_id = await room.submit(target="box")
    await room.becomes(run_id, "running")
    await agent.drop()
    agent.accepting = False  # what a connection that only finishes its runs says
    await agent.connect(())
    refusal = Refuse(run_id=run_id, attempt=1, code="draining", detail="version mismatch", retry=True)
    await room.service.refused(agent.id, refusal)
    row = await room.row(run_id)
    assert (row["status"], "version mismatch" in row["queue_reason"]) == ("queued", True)
    await agent.drop()
    agent.refuses, agent.accepting = None, True
    await agent.connect(())
    await room.pass_time(11)
    key = await agent.got(run_id)
    await agent.report(key, agent.accepted())
    await agent.finish(key)
    row = await room.row(run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 2)
