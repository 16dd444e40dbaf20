"""One-shot agents: the run that one was started for, and how long runs wait for one."""

import pytest

from codefyui_core.control.runs.desk import Claim

POOL = {"pool": "one-shot"}


def claim(agent, run_id):
    devices = tuple(info.device for info in agent.devices)
    return Claim(run_id=run_id, place=agent.id, name=agent.name, devices=devices)


def problem(room, agent, run_id):
    return room.service.claim_problem(claim(agent, run_id))


@pytest.mark.spec("oneshot/run-id-must-be-waiting")
async def test_only_a_run_that_waits_for_the_agent_can_be_claimed(room, kit):
    agent, other = room.agent("a", one_shot=True), room.agent("b", one_shot=True)
    pool = await room.submit(target=POOL)
    named = await room.submit(target="A")
    big = await room.submit(target={**POOL, "device": "cuda"})
    anywhere = await room.submit(target="any")
    assert problem(room, agent, pool) is None
    assert problem(room, agent, named) is None
    assert "waits for worker A, not for b" in problem(room, other, named)
    assert "needs cuda" in problem(room, agent, big)
    assert "one-shot pool" in problem(room, agent, anywhere)
    assert "no run nothing waits" in problem(room, agent, "nothing")
    await room.service.cancel(pool)
    assert "no run" in problem(room, agent, pool)


@pytest.mark.spec("oneshot/exit-2-bad-run-id", "instance/exclusive-name-and-run")
async def test_a_run_that_another_agent_has_can_not_be_claimed_but_its_own_agent_may_return(room):
    run_id = await room.submit(target=POOL)
    agent = await room.worker("a", one_shot=True)
    await agent.accept(run_id)
    other = room.agent("b", one_shot=True)
    assert "given to worker a already" in problem(room, other, run_id)
    assert problem(room, agent, run_id) is None
    await agent.drop()
    await room.restart()
    assert "given to worker a already" in problem(room, other, run_id)
    assert problem(room, agent, run_id) is None


async def test_a_claimed_run_is_given_to_nobody_else_and_holds_nobody_up(room):
    runs = [await room.submit(target=POOL) for _ in range(3)]
    claimant = room.agent("a", one_shot=True, claimed_run=runs[0])
    room.directory.links[claimant.id] = claimant  # connected; its report hasn't come
    other = await room.worker("b", one_shot=True)
    await other.got(runs[1])
    await room.settled()
    assert [await room.status(one) for one in runs] == ["queued", "running", "queued"]
    await claimant.connect()
    await claimant.got(runs[0])
    assert claimant.let_go == 0


async def test_an_agent_is_let_go_when_its_run_is_cancelled_before_it_was_sent(room):
    run_id = await room.submit(target=POOL)
    claimant = room.agent("a", one_shot=True, claimed_run=run_id)
    bystander = room.agent("b", one_shot=True)
    for agent in (claimant, bystander):
        room.directory.links[agent.id] = agent
    await room.service.cancel(run_id)
    assert (claimant.let_go, bystander.let_go) == (1, 0)


async def test_an_agent_that_came_too_late_for_its_run_is_let_go_with_its_first_report(room):
    run_id = await room.submit(target=POOL)
    await room.service.cancel(run_id)
    agent = room.agent("a", one_shot=True, claimed_run=run_id)
    await agent.connect()
    assert agent.let_go == 1


async def test_an_agent_that_lacks_a_node_type_does_not_keep_its_run_from_others(room):
    run_id = await room.submit(target=POOL)
    agent = room.agent("a", one_shot=True, claimed_run=run_id, node_types=frozenset({"Start"}))
    await agent.connect()
    assert agent.let_go == 1
    assert await room.status(run_id) == "queued"


async def test_the_end_of_its_own_run_lets_no_agent_go_also_after_a_restart(room):
    run_id = await room.submit(target=POOL)
    agent = room.agent("a", one_shot=True, claimed_run=run_id)
    await agent.connect()
    key = await agent.accept(run_id)
    await agent.drop()
    await room.restart()
    agent.accepting = False  # as an agent says that has its run
    await agent.connect()
    answer = await agent.finish(key)
    assert (answer.recorded, agent.let_go) == ("succeeded", 0)


async def test_a_new_process_started_for_the_run_of_a_dead_one_is_let_go_when_that_ends(room):
    run_id = await room.submit(target=POOL)
    agent = room.agent("a", one_shot=True, claimed_run=run_id)
    await agent.connect()
    key = await agent.accept(run_id)
    await agent.drop()
    agent.incarnation = "2" * 32
    agent.spool[key].phase = "lost"
    await agent.connect()
    await agent.report(key, agent.end(None, stop_reason="agent_restarted"))
    await room.becomes(run_id, "interrupted")
    assert agent.let_go == 1


@pytest.mark.point(4)
async def test_the_process_that_an_unbegun_attempt_was_sent_to_needs_no_lease(room):
    run_id = await room.submit(target=POOL)
    agent = await room.worker("a", one_shot=True)
    await agent.got(run_id)
    agent.spool.clear()  # the assignment was lost with the line
    await agent.drop()
    await room.restart()
    service = room.service
    assert await service.in_flight(agent.id) == 1
    assert await service.check_leases(agent.id, agent.incarnation, ())
    assert not await service.check_leases(agent.id, "2" * 32, ())


# ---------------------------------------------------------------- instances


@pytest.mark.spec("instance/takes-pool-or-own-named-run")
async def test_an_instance_takes_the_run_that_names_it_and_never_one_for_the_worker_itself(room):
    room.agent("slurm")
    agent = room.agent("slurm.7", one_shot=True)
    own = await room.submit(target="slurm")
    named = await room.submit(target="slurm.7")
    await agent.connect()
    await agent.got(named)
    await room.settled()
    assert await room.status(own) == "queued"


@pytest.mark.spec("instance/remove-credential-interrupts-runs", "instance/remove-credential-fails-queued")
async def test_removing_a_worker_ends_the_runs_of_its_instances_and_fails_those_that_wait_for_one(room):
    room.agent("slurm")
    agent = await room.worker("slurm.1", one_shot=True)
    room.agent("slurm.9", one_shot=True)
    room.agent("other")
    executing = await room.submit(target="slurm.1")
    await agent.accept(executing)
    waiting = [await room.submit(target=name) for name in ("slurm.1", "slurm.9", "slurm")]
    unrelated = await room.submit(target="other")
    await room.remove("slurm")
    assert await room.status(executing) == "interrupted"
    assert [await room.status(one) for one in waiting] == ["failed"] * 3
    assert await room.status(unrelated) == "queued"


# ---------------------------------------------------------------- waits


@pytest.mark.spec("setting/one-shot-queue-timeout")
async def test_runs_wait_for_a_day_by_default(room):
    run_id = await room.submit(target=POOL)
    await room.pass_time(3)
    waits = room.service._waits
    await waits.look()
    waits.waited[run_id] = 86400.0 - 1
    await waits.look()
    assert await room.status(run_id) == "queued"
    waits.waited[run_id] = 86400.0
    await waits.look()
    assert (await room.becomes(run_id, "failed"))["error"].endswith("within 86400 s")


@pytest.mark.spec("oneshot/pool-times-out-failed")
async def test_a_run_waits_its_whole_time_whenever_it_was_submitted(closed_room):
    room = await closed_room.open(worker_one_shot_queue_timeout_s=5)
    await room.pass_time(3.9)
    run_id = await room.submit(target=POOL)
    await room.pass_time(4.5)
    assert await room.status(run_id) == "queued"
    await room.pass_time(3)
    assert (await room.becomes(run_id, "failed"))["cause"] == "timeout"


@pytest.mark.spec("oneshot/named-run-timed-after-restart", "instance/named-run-always-timed")
@pytest.mark.spec("instance/one-shot-record-not-set")
async def test_after_a_restart_only_runs_for_one_shot_workers_and_instances_are_timed(closed_room):
    room = await closed_room.open(worker_one_shot_queue_timeout_s=5)
    room.agent("once", one_shot=True)
    room.agent("regular")
    room.agent("regular.9", one_shot=True)
    runs = {name: await room.submit(target=name) for name in room.directory.agents}
    await room.restart()
    await room.pass_time(8)
    for name in ("once", "regular.9"):
        assert (await room.becomes(runs[name], "failed"))["cause"] == "timeout"
    assert await room.status(runs["regular"]) == "queued"


async def test_what_a_run_waited_is_saved_each_minute_and_outlives_a_restart(closed_room):
    room = await closed_room.open(worker_one_shot_queue_timeout_s=100)
    run_id = await room.submit(target=POOL)
    await room.pass_time(80)
    await room.settled()
    await room.restart()
    assert 50 <= room.service._waits.waited[run_id] <= 80
    await room.pass_time(60)
    assert (await room.becomes(run_id, "failed"))["cause"] == "timeout"


async def test_time_in_which_the_server_could_not_do_its_work_is_not_waiting(closed_room):
    room = await closed_room.open(worker_one_shot_queue_timeout_s=30)
    run_id = await room.submit(target=POOL)
    await room.pass_time(10)
    room.time.jump(3600)
    room.clock.tick()
    await room.pass_time(10)
    assert await room.status(run_id) == "queued"


@pytest.mark.parametrize(
    ("target", "options", "code"),
    [
        ({**POOL, "device": "tpu"}, {}, "run.option_invalid"),
        (POOL, {"record_outputs": True}, "target.not_served"),
    ],
)
@pytest.mark.spec("oneshot/no-recorded-outputs-pool")
async def test_what_no_one_shot_worker_can_do_is_refused_at_submit(room, kit, target, options, code):
    with pytest.raises(kit.error) as refused:
        await room.submit(target=target, **options)
    assert refused.value.code == code


@pytest.mark.spec("oneshot/pool-target-device-kind")
async def test_the_pool_has_a_line_a_kind_of_device_not_a_line_a_card(room):
    run_id = await room.submit(target=POOL, device="cuda:1")
    row = await room.row(run_id)
    assert (row["queue_key"], row["target"]) == ("one-shot/cuda", {**POOL, "device": "cuda"})
    assert "one-shot worker" in row["queue_reason"]
    assert "cuda" in row["queue_reason"]
