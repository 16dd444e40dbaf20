"""A control plane that died or stopped, and the next one on the same database."""

import asyncio

import pytest
from sqlalchemy import text

from codefyui_core.wire.messages import VerdictKind


async def running(room, agent, **options):
    run_id = await room.submit(target=agent.name, **options)
    return run_id, await agent.accept(run_id)


@pytest.mark.spec(
    "restart/takes-over-worker-runs",
    "restart/taken-over-run-reads-disconnected",
    "restart/warning-names-server-restart",
    "restart/slots-held-again",
    "restart/same-event-log-continues",
    "restart/resumes-when-worker-still-has-run",
    "restart/resumes-from-last-confirmed-point",
    "restart/no-event-missing",
)
async def test_a_new_server_takes_over_what_executes_on_workers(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.report(key, kit.event(n=1))
    agent.note(key, kit.event(n=2))
    await room.restart()
    row = await room.row(run_id)
    assert row["status"] == "disconnected"
    assert "the server restarted" in (await room.log(run_id))[-1]["payload"]["detail"]
    assert room.board_used() == {(agent.id, "cpu"): 1}
    verdict = (await agent.connect())[run_id]
    assert (verdict.kind, verdict.position) == (VerdictKind.RESUME, 2)
    agent.note(key, kit.event(n=3), agent.exited(), agent.end())
    await agent.deliver(key, 3)
    log = await room.log(run_id)
    assert [one["payload"]["n"] for one in log if one["type"] == "log"] == [1, 2, 3]
    assert await room.status(run_id) == "succeeded"


@pytest.mark.point(13)
async def test_a_commit_before_a_lost_ack_is_not_taken_in_twice(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.report(key, kit.event(n=1), kit.event(n=2))
    await room.restart()
    await agent.connect()
    await agent.deliver(key, 1)
    log = await room.log(run_id)
    assert [one["payload"]["n"] for one in log if one["type"] == "log"] == [1, 2]


@pytest.mark.spec("restart/grace-counts-from-restart", "restart/grace-expiry-reason-text")
async def test_the_grace_counts_from_the_restart_and_the_reason_says_so(room):
    agent = await room.worker()
    run_id, _ = await running(room, agent)
    await agent.drop()
    await room.pass_time(250)
    await room.restart()
    await room.pass_time(299)
    assert await room.status(run_id) == "disconnected"
    await room.pass_time(2)
    row = await room.becomes(run_id, "interrupted")
    assert "did not reconnect with the run within 300 s after this server restarted" in row["error"]


@pytest.mark.spec("restart/grace-zero-takes-over-none")
async def test_without_a_grace_nothing_is_taken_over(room):
    agent = await room.worker()
    run_id, _ = await running(room, agent)
    await room.restart(worker_resume_grace_s=0)
    assert await room.status(run_id) == "interrupted"
    assert (await agent.connect())[run_id].kind is VerdictKind.LATE


@pytest.mark.spec("restart/worker-back-without-run-ends-at-once")
async def test_a_worker_that_restarted_too_ends_its_run_at_once(room):
    agent = await room.worker()
    run_id, _ = await running(room, agent)
    await room.restart()
    agent.spool.clear()
    await agent.connect()
    assert await room.status(run_id) == "interrupted"


@pytest.mark.point(3)
async def test_an_assignment_that_was_never_sent_is_sent_by_the_next_server(room):
    agent = await room.worker()
    agent.refuses = True  # it doesn't keep what it is sent: as if the line had swallowed it
    run_id = await room.submit(target="box")
    await room.becomes(run_id, "running")
    await room.restart()
    agent.refuses = None
    await agent.connect()
    key = await agent.got(run_id)
    assert key[1] == 1
    await agent.report(key, agent.accepted())
    await agent.finish(key)
    row = await room.row(run_id)
    assert (row["status"], row["attempt"]) == ("succeeded", 1)


@pytest.mark.point(5)
async def test_an_assignment_that_arrived_before_the_crash_begins_once(room):
    agent = await room.worker()
    run_id = await room.submit(target="box")
    key = await agent.got(run_id)
    await room.restart()
    assert (await agent.connect())[run_id].position == 0
    assert len(agent.assigns(run_id)) == 1
    await agent.report(key, agent.accepted())
    await agent.finish(key)
    assert await room.status(run_id) == "succeeded"


@pytest.mark.point(3)
async def test_an_unsent_assignment_with_secrets_is_interrupted_and_says_why(room, kit):
    agent = await room.worker()
    agent.refuses = True
    run_id = await room.submit(kit.secret_graph("hush"), target="box")
    await room.becomes(run_id, "running")
    await room.restart()
    await agent.connect()
    row = await room.row(run_id)
    assert row["status"] == "interrupted"
    assert "secret" in row["error"]


@pytest.mark.spec("restart/local-runs-interrupted")
async def test_own_runs_end_with_the_server(room):
    run_id = await room.submit()
    await room.process(run_id)
    await room.restart()
    row = await room.row(run_id)
    assert (row["status"], row["cause"]) == ("interrupted", "shutdown")
    assert row["error"] == "the server stopped while it ran"
    assert room.board_used() == {}


async def test_the_queue_survives_in_order(room):
    runs = [await room.submit() for _ in range(5)]
    for run_id in runs[:2]:
        await room.process(run_id)
    await room.restart()
    for run_id in runs[2:4]:
        await room.process(run_id)
    assert (await room.row(runs[4]))["queue_position"] == 1
    new = await room.submit()
    assert (await room.row(new))["queue_position"] == 2


async def test_a_waiting_run_with_secrets_ends_with_the_server(room, kit):
    room.catalog.devices = ()
    await room.submit(target="any")
    run_id = await room.submit(kit.secret_graph("hush"), target="any")
    await room.restart()
    row = await room.row(run_id)
    assert (row["status"], row["cause"]) == ("interrupted", "shutdown")
    assert "secret" in row["error"]


@pytest.mark.spec("restart/queued-runs-interrupted")
async def test_the_queue_can_be_told_not_to_survive(closed_room):
    room = await closed_room.open(run_queue_durable=False)
    run_id = await room.submit(target="any")
    await room.restart()
    assert await room.status(run_id) == "interrupted"


@pytest.mark.spec("restart/stop-remembered")
@pytest.mark.point(29)
async def test_a_stop_that_was_never_sent_is_in_the_next_servers_verdict(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    await room.service.cancel(run_id)
    await room.restart()
    assert (await agent.connect())[run_id].stop == "user"
    await agent.finish(key, "stopped", stop_reason="user")
    assert await room.status(run_id) == "cancelled"


@pytest.mark.point(27)
async def test_a_slot_that_was_freed_is_not_held_again(room, kit):
    agent = await room.worker(devices=(kit.device("cuda:0"),))
    first, key = await running(room, agent, device="cuda")
    await agent.report(key, agent.exited())
    second, second_key = await running(room, agent, device="cuda")
    await room.restart()
    assert room.board_used() == {(agent.id, "cuda:0"): 1}
    await agent.connect()
    await agent.report(key, agent.end())
    await agent.finish(second_key)
    assert [await room.status(run_id) for run_id in (first, second)] == ["succeeded"] * 2


@pytest.mark.point(25)
async def test_a_late_result_still_arrives_after_a_restart(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    await room.pass_time(301)
    await room.becomes(run_id, "interrupted")
    await room.restart()
    assert (await agent.connect())[run_id].kind is VerdictKind.LATE
    await agent.report(key, agent.exited(), agent.end("failed", error="boom"))
    assert (await room.row(run_id))["late_result"]["error"] == "boom"


@pytest.mark.point(33)
async def test_a_second_crash_in_the_middle_of_the_take_over_does_no_harm(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await room.restart()
    await room.restart()
    assert await room.warnings(run_id) == ["worker_disconnected"] * 2
    await agent.connect()
    await agent.finish(key)
    assert await room.status(run_id) == "succeeded"


@pytest.mark.point(26)
async def test_an_end_that_was_committed_is_told_to_an_agent_that_missed_its_ack(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    held = agent.spool[key]
    await agent.finish(key)
    agent.spool[key] = held
    held.phase = "ended"
    await room.restart()
    verdict = (await agent.connect())[run_id]
    assert (verdict.kind, verdict.recorded) == (VerdictKind.DISCARD, "succeeded")


@pytest.mark.point(1)
async def test_a_repeated_submit_finds_its_run_after_a_crash(room):
    first = await room.submit(target="any", submit_id="s1")
    await room.restart()
    assert await room.submit(target="any", submit_id="s1") == first
    assert (await room.service.list())["total"] == 1


# ---------------------------------------------------------------- stopping


@pytest.mark.spec(
    "restart/graceful-shutdown-stops-worker-runs", "restart/nothing-to-take-over-after-graceful"
)
async def test_a_graceful_stop_stops_the_runs_of_workers(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)

    async def obey():
        await kit.until(lambda: agent.stops(run_id))
        await agent.finish(key, "stopped", stop_reason="server_stop")

    obeying = asyncio.create_task(obey())
    await room.stop()
    await obeying
    await room.database.aclose()
    await room.open()
    row = await room.row(run_id)
    assert (row["status"], row["cause"]) == ("interrupted", "shutdown")
    assert room.board_used() == {}


@pytest.mark.spec(
    "restart/shutdown-grace-overrun-interrupted",
    "restart/stop-sent-at-next-connect",
    "restart/graceful-shutdown-ends-waiting-takeover",
    "limits/graceful-stop-ends-worker-runs",
)
async def test_what_does_not_stop_in_time_is_interrupted_and_told_at_its_next_connection(room):
    agent = await room.worker()
    away = await room.worker("far")
    deaf, _ = await running(room, agent)
    gone, _ = await running(room, away)
    await away.drop()
    own = await room.submit()
    room.starter.stubborn = True
    stubborn = await room.submit()
    await room.process(own)
    await room.process(stubborn)
    await room.stop()
    assert room.starter.processes[stubborn].killed
    await room.database.aclose()
    agents = room.directory.agents
    await room.open()
    room.directory.agents = agents
    for run_id in (deaf, gone, own, stubborn):
        row = await room.row(run_id)
        assert (row["status"], row["cause"]) == ("interrupted", "shutdown"), row
    assert (await agent.connect())[deaf].kind is VerdictKind.LATE
    assert (await away.connect())[gone].kind is VerdictKind.LATE


async def test_nothing_is_accepted_while_it_stops(room, kit):
    await room.stop()
    with pytest.raises(kit.error) as refused:
        await room.submit()
    assert refused.value.code == "server.stopping"


@pytest.mark.point(32)
async def test_a_server_that_was_killed_while_it_stopped_gives_its_runs_up(room):
    agent = await room.worker()
    run_id, _ = await running(room, agent)
    await room.database.mark_shutdown("stop")
    await room.restart()
    assert await room.status(run_id) == "interrupted"
    assert (await agent.connect())[run_id].kind is VerdictKind.LATE


@pytest.mark.point(34)
async def test_a_planned_restart_ends_own_runs_alone(room):
    agent = await room.worker()
    remote, key = await running(room, agent)
    own = await room.submit()
    waiting = await room.submit(target="any", device="cuda")
    await room.process(own)
    await room.stop(keep=True)
    assert agent.stops(remote) == []
    await room.database.aclose()
    agents = room.directory.agents
    await room.open()
    room.directory.agents = agents
    assert await room.status(own) == "interrupted"
    assert await room.status(waiting) == "queued"
    await agent.connect()
    await agent.finish(key)
    assert await room.status(remote) == "succeeded"


@pytest.mark.point(34)
async def test_a_line_that_drops_during_a_planned_restart_costs_no_run(room):
    agent = await room.worker()
    remote, key = await running(room, agent)
    room.starter.stubborn = True
    own = await room.process(await room.submit())
    stopping = asyncio.create_task(room.service.stop(keep=True, grace_s=5.0))
    async with asyncio.timeout(5):
        while not own.stops:
            await asyncio.sleep(0.003)
    await agent.drop()
    assert await room.status(remote) == "disconnected"
    await room.in_time(stopping)
    await room.database.mark_shutdown("keep")
    await room.database.aclose()
    agents = room.directory.agents
    await room.open()
    room.directory.agents = agents
    await agent.connect()
    await agent.finish(key)
    assert await room.status(remote) == "succeeded"


async def test_another_server_on_the_database_stops_this_one_from_writing(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    async with room.database.begin() as connection:
        await connection.execute(text("UPDATE control SET server_epoch = server_epoch + 1"))
    agent.note(key, kit.event(n=1))
    assert await agent.deliver(key, 2) is None
    with pytest.raises(kit.error) as refused:
        await room.service.cancel(run_id)
    assert refused.value.code == "server.replaced"


@pytest.mark.point(9)
async def test_a_refusal_that_was_lost_is_given_again(room):
    agent = await room.worker()
    agent.refuses = True
    run_id = await room.submit(target=agent.name)
    first = await agent.assigned(run_id)
    await agent.drop()
    agent.received.clear()
    await agent.connect()
    again = await agent.assigned(run_id)
    assert (again.attempt, again.lease) == (first.attempt, first.lease)
    await agent.refuse(again, "device_unknown", retry=False)
    assert (await room.row(run_id))["status"] == "failed"
    assert "execution_start" not in [one["type"] for one in await room.log(run_id)]


@pytest.mark.point(12)
async def test_a_batch_that_was_received_and_not_stored_is_sent_again(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    room.service.writer._task.cancel()
    sending = asyncio.create_task(agent.report(key, kit.event(n=1), kit.event(n=2)))
    await kit.until(lambda: room.service.writer._jobs)
    await room.restart()
    sending.cancel()
    assert (await agent.connect())[run_id].position == 1
    await agent.deliver(key, 2)
    log = await room.log(run_id)
    assert [one["payload"]["n"] for one in log if one["type"] == "log"] == [1, 2]
