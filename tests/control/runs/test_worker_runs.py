"""Runs on a worker whose line holds, drops and comes back."""

import pytest

from codefyui_core.errors import CodefyError
from codefyui_core.wire.messages import HelloAttempt, Rewind, VerdictKind


async def running(room, agent, **options):
    run_id = await room.submit(target=agent.name, **options)
    return run_id, await agent.accept(run_id)


async def test_a_run_goes_to_its_worker_and_ends_there(room, kit):
    agent = await room.worker()
    run_id = await room.submit(target="box", seed=3)
    key = await agent.got(run_id)
    (assign,) = agent.assigns(run_id)
    assert assign.graph["nodes"][0]["id"] == "start"
    assert assign.options["seed"] == 3
    assert assign.devices == ("cpu",)
    assert assign.db_id == room.database.db_id
    await agent.report(key, agent.accepted())
    row = await room.row(run_id)
    assert (row["status"], row["worker"], row["worker_id"]) == ("running", "box", agent.id)
    assert row["worker_status"] == {"state": "online", "since": None, "name": "box"}
    assert row["execution_facts"] == {"digest": agent.fingerprint, "fingerprint_source": "worker"}
    await agent.report(key, kit.event(text="hello"))
    answer = await agent.finish(key)
    assert answer.recorded == "succeeded"
    assert await room.types(run_id) == ["log", "execution_complete"]
    assert room.service.live_attempts(agent.id) == []


@pytest.mark.spec("fingerprint/digest-recorded-at-run-start", "fingerprint/run-subprocess-replaces-it")
async def test_what_the_run_process_found_replaces_what_its_agent_reported(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    facts = (await room.row(run_id))["execution_facts"]
    assert (facts["digest"], facts["fingerprint_source"]) == (agent.fingerprint, "worker")
    found = {"fingerprint": {"python": "3"}, "digest": "d" * 8, "resolved": {"numerics": {"threads": 1}}}
    await agent.report(key, {"kind": "environment", "payload": found})
    await agent.finish(key)
    assert (await room.row(run_id))["execution_facts"] == found | {"fingerprint_source": "worker-run"}


@pytest.mark.spec("fingerprint/missing-shows-not-reported")
async def test_a_worker_without_a_fingerprint_gives_its_runs_none(room):
    agent = await room.worker()
    await running(room, agent)
    await agent.drop()
    agent.fingerprint = None
    await agent.connect()
    run_id, _ = await running(room, agent)
    facts = (await room.row(run_id))["execution_facts"]
    assert facts == {"digest": None, "fingerprint_source": "worker"}


async def test_the_ack_of_the_first_item_comes_only_after_it_is_stored(room):
    agent = await room.worker()
    run_id = await room.submit(target="box")
    key = await agent.got(run_id)
    assert (await room.row(run_id))["started_at"] is None
    answer = await agent.report(key, agent.accepted())
    assert answer.seq == 1
    assert (await room.row(run_id))["started_at"] is not None


@pytest.mark.spec(
    "drop/run-status-disconnected",
    "drop/warning-worker-disconnected",
    "drop/slots-held-while-disconnected",
    "drop/worker-status-in-run-api",
)
async def test_a_run_whose_worker_went_away_waits_for_it_and_keeps_its_slot(room):
    agent = await room.worker()
    run_id, _ = await running(room, agent)
    other, _ = await running(room, agent)
    waiting = await room.submit(target="box")
    await agent.drop()
    row = await room.row(run_id)
    assert row["status"] == "disconnected"
    assert row["worker_status"]["state"] == "away"
    assert row["worker_status"]["since"] is not None
    assert await room.warnings(run_id) == ["worker_disconnected"]
    assert await room.status(other) == "disconnected"
    assert await room.status(waiting) == "queued"
    assert room.board_used() == {(agent.id, "cpu"): 2}


@pytest.mark.spec(
    "drop/reconnect-replays-unrecorded-in-order",
    "drop/reconnect-status-running",
    "drop/warning-worker-reconnected",
    "drop/no-gap-no-duplicate",
)
async def test_a_worker_that_comes_back_sends_what_is_missing_and_nothing_twice(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.report(key, kit.event(n=1))
    agent.note(key, *(kit.event(n=n) for n in (2, 3)))
    await agent.drop()
    agent.note(key, kit.event(n=4))
    verdicts = await agent.connect()
    assert verdicts[run_id].kind is VerdictKind.RESUME
    assert verdicts[run_id].position == 2
    assert await room.status(run_id) == "running"
    await agent.deliver(key, verdicts[run_id].position + 1)
    log = await room.log(run_id)
    assert [one["payload"].get("n") for one in log if one["type"] == "log"] == [1, 2, 3, 4]
    assert [one["type"] for one in log] == ["log", "run_warning", "run_warning", "log", "log", "log"]
    await agent.finish(key)
    assert await room.status(run_id) == "succeeded"


@pytest.mark.spec("drop/run-ending-during-outage-is-delivered")
async def test_an_end_during_the_outage_is_delivered(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    agent.note(key, agent.exited(), agent.end())
    agent.spool[key].phase = "ended"
    verdicts = await agent.connect()
    assert room.board_used() == {}
    answer = await agent.deliver(key, verdicts[run_id].position + 1)
    assert answer.recorded == "succeeded"
    assert await room.status(run_id) == "succeeded"


@pytest.mark.spec("drop/grace-expiry-ends-interrupted", "drop/grace-expiry-frees-slots")
async def test_a_worker_that_stays_away_loses_its_runs(room):
    agent = await room.worker()
    run_id, _ = await running(room, agent)
    await agent.drop()
    await room.pass_time(299)
    assert await room.status(run_id) == "disconnected"
    await room.pass_time(2)
    row = await room.becomes(run_id, "interrupted")
    assert "did not reconnect with the run within 300 s" in row["error"]
    assert "restarted" not in row["error"]
    assert row["cause"] == "lease_lost"
    assert room.board_used() == {}


async def test_coming_back_stops_the_grace(room):
    agent = await room.worker()
    run_id, _ = await running(room, agent)
    await agent.drop()
    await room.pass_time(200)
    await agent.connect()
    await room.pass_time(400)
    assert await room.status(run_id) == "running"
    await agent.drop()
    await room.pass_time(299)
    assert await room.status(run_id) == "disconnected"


@pytest.mark.point(47)
async def test_a_server_that_slept_starts_the_grace_after_it_wakes(room):
    agent = await room.worker()
    run_id, _ = await running(room, agent)
    await agent.drop()
    await room.pass_time(200)
    room.time.jump(3600)
    room.clock.tick()
    await room.pass_time(299)
    assert await room.status(run_id) == "disconnected"
    await room.pass_time(2)
    await room.becomes(run_id, "interrupted")


@pytest.mark.spec("drop/grace-zero-ends-at-once")
async def test_without_a_grace_a_drop_ends_the_run(closed_room):
    room = await closed_room.open(worker_resume_grace_s=0)
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    row = await room.row(run_id)
    assert (row["status"], row["cause"]) == ("interrupted", "lease_lost")
    assert (await agent.connect())[run_id].kind is VerdictKind.LATE
    assert key in agent.spool


@pytest.mark.spec(
    "drop/late-worker-told-to-stop-at-once",
    "drop/late-result-shape",
    "drop/late-result-in-run-api",
    "drop/late-result-in-execution-facts",
    "drop/late-result-keeps-status-and-log",
    "drop/late-run-releases-card",
)
async def test_a_late_result_is_kept_beside_the_status(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    await room.pass_time(301)
    await room.becomes(run_id, "interrupted")
    log = await room.log(run_id)
    agent.note(key, kit.event(n=1))
    verdicts = await agent.connect()
    assert verdicts[run_id].kind is VerdictKind.LATE
    assert room.board_used() == {(agent.id, "cpu"): 1}
    skip = {"kind": "skip", "payload": {"from": 2, "to": 2, "reason": "late"}}
    agent.spool[key].items[1] = skip
    agent.note(key, agent.exited(), agent.end("succeeded", stop_reason="late"))
    answer = await agent.deliver(key, verdicts[run_id].position + 1)
    assert answer.recorded == "interrupted"
    row = await room.row(run_id)
    assert row["status"] == "interrupted"
    assert set(row["late_result"]) == {"status", "error", "worker_id", "at"}
    assert row["late_result"]["status"] == "succeeded"
    assert row["late_result"]["worker_id"] == agent.id
    assert row["execution_facts"]["late_result"]["status"] == "succeeded"
    assert await room.log(run_id) == log
    assert room.board_used() == {}


async def test_nothing_is_placed_on_a_card_that_a_late_run_still_holds(closed_room, kit):
    room = await closed_room.open()
    card = kit.device("cuda:0")
    agent = await room.worker(devices=(card,))
    run_id, key = await running(room, agent, device="cuda:0")
    await agent.drop()
    await room.pass_time(301)
    await room.becomes(run_id, "interrupted")
    agent.spool[key].devices = ("cuda:0",)
    agent.spool[key].phase = "running"
    await agent.connect()
    waiting = await room.submit(target="box", device="cuda:0")
    await room.settled()
    assert await room.status(waiting) == "queued"
    await agent.report(key, agent.exited())
    await agent.got(waiting)


async def test_a_settled_run_is_discarded_and_its_recorded_status_is_told(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    held = agent.spool[key]
    await agent.finish(key)
    agent.spool[key] = held
    held.phase = "ended"
    await agent.drop()
    verdict = (await agent.connect())[run_id]
    assert (verdict.kind, verdict.recorded) == (VerdictKind.DISCARD, "succeeded")


@pytest.mark.point(51)
async def test_a_run_that_is_unknown_here_is_discarded_and_blocks_its_devices_for_a_while(room, kit):
    agent = await room.worker(devices=(kit.device("cuda:0"),))
    run_id, key = await running(room, agent, device="cuda")
    await agent.finish(key)
    await room.service.delete(run_id)
    await agent.drop()
    ghost = HelloAttempt(
        run_id=run_id,
        attempt=1,
        lease="x",
        db_id=room.database.db_id,
        phase="running",
        devices=("cuda:0",),
    )
    verdict = (await agent.connect((ghost,)))[run_id]
    assert (verdict.kind, verdict.recorded) == (VerdictKind.DISCARD, None)
    waiting = await room.submit(target="box", device="cuda")
    await room.settled()
    assert await room.status(waiting) == "queued"
    await room.pass_time(16)
    await agent.got(waiting)


async def test_an_attempt_of_another_database_is_kept_and_not_asked_for(room):
    agent = await room.worker()
    await agent.drop()
    foreign = HelloAttempt(run_id="a" * 32, attempt=1, lease="x", db_id="other", phase="running")
    verdicts = await agent.connect((foreign,))
    assert verdicts["a" * 32].kind is VerdictKind.KEEP


@pytest.mark.point(4)
async def test_an_assignment_that_was_lost_is_sent_again_the_same(room):
    agent = await room.worker()
    run_id = await room.submit(target="box")
    key = await agent.got(run_id)
    lease = agent.spool.pop(key).lease
    await agent.drop()
    assert await room.status(run_id) == "disconnected"
    await agent.connect()
    assert await agent.got(run_id) == key
    assert agent.spool[key].lease == lease
    await agent.report(key, agent.accepted())
    await agent.finish(key)
    assert await room.status(run_id) == "succeeded"


async def test_a_worker_that_comes_back_without_an_executing_run_ends_it_at_once(room):
    agent = await room.worker()
    run_id, _ = await running(room, agent)
    await agent.drop()
    agent.spool.clear()
    agent.incarnation = "2" * 32
    await agent.connect()
    row = await room.row(run_id)
    assert row["status"] == "interrupted"
    assert "came back without the run" in row["error"]
    assert room.board_used() == {}


async def test_a_lost_attempt_stays_away_until_its_spool_is_in_and_no_grace_runs(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    agent.note(key, kit.event(n=1))
    await agent.drop()
    agent.spool[key].phase = "lost"
    verdict = (await agent.connect())[run_id]
    assert verdict.kind is VerdictKind.RESUME
    assert await room.warnings(run_id) == ["worker_disconnected"]
    assert room.board_used() == {}
    await room.pass_time(400)
    assert await room.status(run_id) == "disconnected"
    agent.note(key, agent.end(None, stop_reason="agent_restarted"))
    await agent.deliver(key, verdict.position + 1)
    row = await room.row(run_id)
    assert (row["status"], row["cause"]) == ("interrupted", "lease_lost")
    assert await room.types(run_id) == ["run_warning", "log", "execution_stopped"]


async def test_a_lost_attempt_whose_worker_drops_again_is_waited_for_anew(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    agent.spool[key].phase = "lost"
    await agent.connect()
    await agent.drop("again")
    await room.pass_time(299)
    assert await room.status(run_id) == "disconnected"
    await room.pass_time(2)
    await room.becomes(run_id, "interrupted")


@pytest.mark.point(18)
async def test_an_end_right_after_a_lost_disk_is_taken_at_the_next_position(room, kit):
    """The worker lost power: its disk kept less than was acknowledged, so it goes on after the position."""
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.report(key, kit.event(n=1), kit.event(n=2))
    await agent.drop()
    agent.spool[key].phase = "lost"
    verdict = (await agent.connect())[run_id]
    assert verdict.position == 3
    agent.spool[key].items[3:] = [agent.end(None, stop_reason="agent_restarted")]
    answer = await agent.deliver(key, 4)
    assert answer.recorded == "interrupted"


async def test_a_batch_beyond_the_next_position_is_sent_back(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    agent.note(key, *(kit.event(n=n) for n in range(5)))
    answer = await agent.deliver(key, 4)
    assert answer == Rewind(run_id=run_id, attempt=1, position=1)
    assert await room.log(run_id) == []


async def test_an_overlap_is_skipped(room, kit):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    agent.note(key, *(kit.event(n=n) for n in range(6)))
    await agent.deliver(key, 2, 3)
    await agent.deliver(key, 1, 5)
    await agent.deliver(key, 3)
    assert [one["payload"]["n"] for one in await room.log(run_id)] == list(range(6))


async def test_a_lease_that_does_not_fit_is_refused(room, kit):
    agent = await room.worker()
    _, key = await running(room, agent)
    agent.spool[key].lease = "0" * 32
    agent.note(key, kit.event(n=1))
    with pytest.raises(CodefyError) as refused:
        await agent.deliver(key, 2)
    assert refused.value.code == "run.attempt_unknown"


@pytest.mark.point(19)
async def test_lost_records_are_told_with_their_count(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.report(key, {"kind": "skip", "payload": {"from": 2, "to": 11, "reason": "corrupt"}})
    (warning,) = await room.log(run_id)
    assert warning["payload"]["kind"] == "events_lost"
    assert warning["payload"]["count"] == 10
    agent.spool[key].items += [{}] * 9
    await agent.finish(key)
    assert await room.status(run_id) == "succeeded"


async def test_the_slot_is_free_as_soon_as_the_process_is_gone(room, kit):
    agent = await room.worker(devices=(kit.device("cuda:0"),))
    first, key = await running(room, agent, device="cuda")
    second = await room.submit(target="box", device="cuda")
    await agent.report(key, agent.exited())
    await agent.got(second)
    assert await room.status(first) == "running"
    await agent.report(key, agent.end())
    assert await room.status(first) == "succeeded"


# ---------------------------------------------------------------- refusals


async def test_a_refusal_that_may_be_tried_again_keeps_the_place_in_the_line(room):
    agent = await room.worker()
    agent.refuses = True
    first = await room.submit(target="box")
    assign = await agent.assigned(first)
    later = await room.submit(target="box", device="cpu")
    await agent.refuse(assign)
    row = await room.row(first)
    assert (row["status"], row["queue_position"]) == ("queued", 1)
    assert row["queue_reason_code"] == "queue.refused_busy"
    assert row["worker"] == "box"
    agent.refuses = None
    await room.pass_time(11)
    assert (await agent.got(first))[1] == 2
    assert later


async def test_the_third_refusal_is_the_last(room):
    agent = await room.worker()
    agent.refuses = True
    run_id = await room.submit(target="box")
    for count in (1, 2, 3):
        await agent.refuse(await agent.assigned(run_id, count))
        await room.pass_time(11)
    row = await room.becomes(run_id, "failed")
    assert row["cause"] == "refused"
    assert "refused the run" in row["error"]


async def test_a_final_refusal_fails_the_run(room):
    agent = await room.worker()
    agent.refuses = True
    run_id = await room.submit(target="box")
    await agent.refuse(await agent.assigned(run_id), "device_unknown", retry=False)
    row = await room.row(run_id)
    assert (row["status"], row["cause"]) == ("failed", "refused")


async def test_a_run_that_is_refused_after_it_was_cancelled_reads_cancelled(room):
    agent = await room.worker()
    agent.refuses = True
    run_id = await room.submit(target="box")
    assign = await agent.assigned(run_id)
    await room.service.cancel(run_id)
    await agent.refuse(assign)
    assert await room.status(run_id) == "cancelled"


# ---------------------------------------------------------------- stops


async def test_a_stop_is_sent_and_the_run_ends_cancelled(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await room.service.cancel(run_id)
    assert agent.stops(run_id) == ["user"]
    assert (await room.row(run_id))["stop_requested"] is True
    await agent.finish(key, "stopped", stop_reason="user")
    assert await room.status(run_id) == "cancelled"


async def test_a_stop_while_away_is_in_the_next_verdict(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    await room.service.cancel(run_id)
    row = await room.row(run_id)
    assert (row["status"], row["stop_requested"]) == ("disconnected", True)
    verdict = (await agent.connect())[run_id]
    assert verdict.stop == "user"
    await agent.finish(key, "stopped", stop_reason="user")
    assert await room.status(run_id) == "cancelled"


@pytest.mark.point(31)
async def test_a_stop_while_away_of_a_run_that_had_not_begun_cancels_it_without_a_start(room):
    agent = await room.worker()
    run_id = await room.submit(target="box")
    await agent.got(run_id)
    await agent.drop()
    agent.spool.clear()
    await room.service.cancel(run_id)
    await agent.connect()
    row = await room.row(run_id)
    assert (row["status"], row["started_at"]) == ("cancelled", None)
    assert agent.assigns(run_id)[1:] == []


@pytest.mark.point(30)
async def test_a_stop_that_crossed_with_the_end_changes_nothing(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await room.service.cancel(run_id)
    await agent.finish(key, "succeeded")
    assert await room.status(run_id) == "succeeded"


async def test_a_stopped_agent_ends_its_runs_cancelled_and_a_killed_one_interrupted(room):
    agent = await room.worker()
    first, key = await running(room, agent)
    await agent.finish(key, "stopped", stop_reason="agent_stop")
    assert await room.status(first) == "cancelled"
    second, key = await running(room, agent)
    await agent.finish(key, None, stop_reason="agent_stop", stopped_in_time=False)
    assert await room.status(second) == "interrupted"


# ---------------------------------------------------------------- removal and re-keying


@pytest.mark.spec(
    "remove/running-runs-interrupted", "remove/disconnected-runs-interrupted", "remove/queued-runs-fail"
)
async def test_removing_a_worker_ends_all_that_it_has(room):
    agent = await room.worker()
    runs = [(await running(room, agent))[0] for _ in range(2)]
    queued = await room.submit(target="box")
    elsewhere = await room.submit(target="any")
    await agent.drop()
    await room.remove("box")
    assert [await room.status(run_id) for run_id in runs] == ["interrupted"] * 2
    row = await room.row(queued)
    assert (row["status"], row["cause"]) == ("failed", "refused")
    assert await room.status(elsewhere) == "queued"
    assert room.board_used() == {}
    assert (await agent.connect())[runs[0]].kind is VerdictKind.DISCARD


@pytest.mark.point(36)
async def test_a_rekeyed_worker_may_still_hand_in_how_its_run_ended(room):
    agent = await room.worker()
    run_id, key = await running(room, agent)
    await agent.drop()
    await room.rekey(agent)
    row = await room.row(run_id)
    assert (row["status"], row["cause"]) == ("interrupted", "credentials")
    assert (await agent.connect())[run_id].kind is VerdictKind.LATE
    await agent.report(key, agent.exited(), agent.end("succeeded"))
    assert (await room.row(run_id))["late_result"]["status"] == "succeeded"


async def test_who_shows_every_lease_is_the_holder_or_its_heir(room):
    agent = await room.worker()
    await running(room, agent)
    await running(room, agent)
    listed = agent.listed()
    service = room.service
    assert await service.in_flight(agent.id) == 2
    assert await service.check_leases(agent.id, agent.incarnation, listed)
    assert not await service.check_leases(agent.id, agent.incarnation, listed[:1])
    wrong = listed[1].model_copy(update={"lease": "0" * 32})
    assert not await service.check_leases(agent.id, agent.incarnation, (listed[0], wrong))
    assert set(service.live_attempts(agent.id)) == {(one.run_id, 1) for one in listed}


@pytest.mark.point(49)
@pytest.mark.parametrize("hours", [1, -1])
async def test_a_jump_of_the_wall_clock_ends_no_grace_and_reorders_no_event(room, kit, hours):
    agent = await room.worker()
    run_id = await room.submit(target="box")
    key = await agent.accept(run_id)
    await agent.report(key, kit.event(n=1))
    await agent.drop()
    room.time.set_wall(hours * 3600)
    await room.pass_time(290)
    assert await room.status(run_id) == "disconnected"
    await agent.connect()
    await agent.report(key, kit.event(n=2))
    log = await room.log(run_id)
    assert [one["payload"]["n"] for one in log if one["type"] == "log"] == [1, 2]
    await agent.drop()
    await room.pass_time(301)
    await room.becomes(run_id, "interrupted")
