"""One-shot agents and instances at the door: names that are reserved, runs that are claimed."""

import pytest

from codefyui_core.control.links.claims import Claims


@pytest.fixture
async def credential(room):
    return (await room.enroll())["credential"]


def one_shot(incarnation="a", **changes):
    return {"one_shot": True, "incarnation": incarnation * 32} | changes


async def gone(room, agent, name="gpu-box"):
    await agent.close()
    await room.until(lambda: all(link.view.name != name for link in room.service.live()))


@pytest.mark.spec("oneshot/exit-2-name-held")
async def test_another_agent_of_a_connected_one_shot_worker_is_refused_for_good(room, credential):
    first = await room.online(credential, **one_shot())
    second = await room.connect(credential)
    frame = await second.hello(**one_shot("b")) if await answers(first) else None
    assert (frame["code"], frame["retry"]) == ("name_held", "never")
    assert "--instance" in frame["reason"]
    assert [link.incarnation for link in room.service.live()] == ["a" * 32]


async def answers(agent):
    """From now on, a numbered beat is answered as an agent does."""
    import asyncio

    async def reading():
        while (frame := await agent.receive())["t"] != "closed":
            if frame["t"] == "beat" and frame.get("n"):
                await agent.send(t="beat", n=frame["n"])

    agent.reading = asyncio.create_task(reading())
    return True


@pytest.mark.spec("oneshot/refused-while-run-in-flight")
async def test_the_name_stays_reserved_while_the_run_is_in_flight(room, credential):
    agent = await room.online(credential, **one_shot())
    await gone(room, agent)
    room.desk.flying = 1
    for changes, retry in ((one_shot("b"), "never"), ({"incarnation": "b" * 32}, "later")):
        frame = await (await room.connect(credential)).hello(**changes)
        assert (frame["code"], frame["retry"]) == ("name_held", retry)
    room.desk.leases_fit = True
    assert (await (await room.connect(credential)).hello(**one_shot("b")))["t"] == "welcome"


@pytest.mark.spec("oneshot/one-shot-record-persisted")
async def test_that_the_last_agent_was_one_shot_survives_a_restart(make_room):
    async with make_room() as room:
        credential = (await room.enroll())["credential"]
        await room.online(credential, **one_shot())
    async with make_room() as room:
        row = await room.row()
        assert (row["status"], row["one_shot"]) == ("offline", True)
        assert (await room.service.by_name("gpu-box")).view.one_shot
        await room.online(credential)
        assert not (await room.row())["one_shot"]


async def test_the_entry_names_the_run_of_the_last_job_until_the_next_one_comes(room, credential):
    agent = await room.online(credential, **one_shot())
    (link,) = room.service.live()
    await room.service._workers.update(link.view.id, last_one_shot_run="r1")  # as placing it does
    await gone(room, agent)
    attempt = {"run_id": "r1", "attempt": 1, "lease": "x", "db_id": "d", "phase": "ended"}
    agent = await room.online(credential, **one_shot(attempts=[attempt], accepting=False))
    assert (await room.row())["one_shot_run"] == "r1"
    await gone(room, agent)
    agent = await room.online(credential, **one_shot("b"))
    assert (await room.row())["one_shot_run"] is None


# ---------------------------------------------------------------- --run-id


@pytest.mark.spec("oneshot/run-id-must-be-waiting", "oneshot/exit-2-bad-run-id")
async def test_an_agent_whose_run_does_not_wait_for_it_is_refused_with_the_reason(room, credential):
    room.desk.claim_answer = "run r1 waits for worker other"
    frame = await (await room.connect(credential)).hello(**one_shot(run_id="r1"))
    assert (frame["code"], frame["retry"]) == ("run_not_waiting", "never")
    assert frame["reason"] == "run r1 waits for worker other"
    (claim,) = [call[0] for call in room.desk.named("claim_problem")]
    assert (claim.name, claim.devices) == ("gpu-box", ("cpu", "cuda:0"))


async def test_a_claim_is_held_by_its_connection_and_free_when_it_ends(room, credential):
    other = (await room.enroll("other", nonce="2" * 32))["credential"]
    first = await room.online(credential, **one_shot(run_id="r1"))
    frame = await (await room.connect(other)).hello(name="other", **one_shot("b", run_id="r1"))
    assert frame["code"] == "run_not_waiting"
    again = await room.online(credential, **one_shot(run_id="r1", dial=2))
    assert (await first.closed())["reason"] == "replaced"
    frame = await (await room.connect(other)).hello(name="other", **one_shot("b", run_id="r1"))
    assert frame["code"] == "run_not_waiting"
    await gone(room, again)

    async def let_in():
        agent = await room.connect(other)
        return (await agent.hello(name="other", **one_shot("b", run_id="r1")))["t"] == "welcome"

    await room.until(let_in)


async def test_an_agent_that_lists_its_run_needs_no_claim(room, credential):
    room.desk.claim_answer = "it executes already"
    attempt = {"run_id": "r1", "attempt": 1, "lease": "x", "db_id": "d", "phase": "running"}
    agent = await room.connect(credential)
    frame = await agent.hello(**one_shot(run_id="r1", attempts=[attempt]))
    assert frame["t"] == "welcome"


def test_a_claim_goes_with_the_connection_that_took_it_last():
    claims, old, new = Claims(), object(), object()
    assert claims.take("r1", "a", old)
    assert not claims.take("r1", "b", object())
    assert claims.take("r1", "a", new)
    claims.release(old)
    assert not claims.take("r1", "b", object())
    claims.release(new)
    assert claims.take("r1", "b", object())


async def test_an_agent_whose_run_is_gone_is_told_so(room, credential):
    agent = await room.online(credential, **one_shot(run_id="r1"))
    (link,) = room.service.live()
    assert link.claimed_run == "r1"
    link.run_gone()
    assert (await agent.closed())["reason"] == "run_gone"


# ---------------------------------------------------------------- instances


def instance(number, **changes):
    return one_shot(str(number), instance=str(number), **changes)


async def names(room):
    return sorted(row["name"] for row in (await room.service.list())["workers"])


@pytest.mark.spec("instance/registers-as-name-dot-id", "instance/regular-agent-beside")
@pytest.mark.spec("instance/shares-credential-and-folder", "instance/credential-entry-untouched")
async def test_instances_and_the_workers_own_agent_are_online_side_by_side(room, credential):
    await room.online(credential)
    before = await room.row()
    first = await room.online(credential, **instance(1, devices=[{"device": "cuda:0"}]))
    await room.online(credential, **instance(2))
    assert await names(room) == ["gpu-box", "gpu-box.1", "gpu-box.2"]
    assert first.welcome["worker"] == {
        "id": f"{before['id']}.1",
        "name": "gpu-box.1",
        "instance": "1",
    }
    row = await room.row("gpu-box.1")
    assert (row["status"], row["one_shot"]) == ("online", True)
    assert [one["device"] for one in row["devices"]] == ["cuda:0"]
    await gone(room, first, "gpu-box.1")
    assert await names(room) == ["gpu-box", "gpu-box.2"]
    after = await room.row()
    assert {**after, "last_seen": None} == {**before, "last_seen": None}


@pytest.mark.spec("instance/exclusive-name-and-run")
@pytest.mark.point(52)
async def test_a_second_agent_of_a_live_instance_is_refused_for_good(room, credential):
    first = await room.online(credential, **instance(7))
    await answers(first)
    frame = await (await room.connect(credential)).hello(**one_shot("b", instance="7"))
    assert (frame["code"], frame["retry"]) == ("name_held", "never")
    assert "gpu-box.7" in frame["reason"]


async def test_an_instance_whose_run_is_in_flight_is_let_in_again_by_its_lease(room, credential):
    room.desk.flying = 1
    frame = await (await room.connect(credential)).hello(**one_shot("b", instance="7"))
    assert frame["code"] == "name_held"
    room.desk.leases_fit = True
    assert (await (await room.connect(credential)).hello(**one_shot("b", instance="7")))["t"] == "welcome"


@pytest.mark.spec("instance/credential-drain-applies")
async def test_draining_the_worker_drains_its_instances(room, credential):
    await room.online(credential, **instance(1))
    await room.service.drain("gpu-box", drained=True)
    await room.online(credential, **instance(2))
    assert [link.view.drained for link in room.service.live()] == [True, True]
    await room.service.drain("gpu-box", drained=False)
    assert [link.view.drained for link in room.service.live()] == [False, False]


@pytest.mark.spec("instance/remove-credential-disconnects-all")
async def test_removing_the_worker_revokes_its_instances(room, credential):
    agents = [await room.online(credential), await room.online(credential, **instance(1))]
    await room.service.remove("gpu-box")
    assert [(await agent.closed())["reason"] for agent in agents] == ["revoked", "revoked"]
    assert room.service.live() == ()


@pytest.mark.spec("instance/one-shot-record-not-set", "instance/named-run-always-timed")
async def test_a_name_with_an_instance_is_known_as_one_shot_also_while_it_is_away(room, credential):
    known = await room.service.by_name("GPU-box.9")
    assert (known.view.name, known.view.one_shot, known.view.connected) == ("gpu-box.9", True, False)
    assert known.devices == ()
    await room.online(credential, **instance(9))
    assert (await room.service.by_name("gpu-box.9")).view.connected
    own = await room.service.by_name("gpu-box")
    assert (own.view.one_shot, own.view.connected) == (False, False)
    assert await room.service.by_name("nobody.9") is None


@pytest.mark.spec("instance/credential-cap-applies", "instance/cap-override-per-instance")
async def test_an_instance_has_the_workers_slots_unless_it_has_its_own(make_room):
    caps = {"gpu-box/cuda:0": 3, "gpu-box.7/cuda:0": 5}
    async with make_room(run_queue_max_concurrent=caps) as room:
        credential = (await room.enroll())["credential"]
        for number in (7, 8):
            await room.online(credential, **instance(number))
        slots = {
            name: {one["device"]: one["slots"] for one in (await room.row(name))["devices"]}["cuda:0"]
            for name in ("gpu-box.7", "gpu-box.8")
        }
        assert slots == {"gpu-box.7": 5, "gpu-box.8": 3}
