import asyncio

import pytest

VERSION_TEXT = "version mismatch: worker 3.1.0, control plane 1.2.3"


@pytest.fixture
async def credential(room):
    return (await room.enroll())["credential"]


async def http_refusal(room, authorization):
    headers = {"Authorization": authorization} if authorization else {}
    async with room.http.get(f"{room.url}/ws/worker", headers=headers) as response:
        return response.status, response.headers.get("X-CodefyUI-Refusal"), await response.json()


@pytest.mark.spec("trust/agent-known-by-credential")
@pytest.mark.parametrize("authorization", ["", "Bearer ", "Bearer cdw_x", "Bearer " + "cdw_" + "x" * 43])
async def test_without_a_known_credential_nobody_comes_in(room, authorization):
    status, header, body = await http_refusal(room, authorization)
    assert (status, header, body["code"]) == (401, "unknown_credential", "auth.worker_unknown")


@pytest.mark.spec("overview/session-token-never-given-to-worker")
async def test_a_session_token_is_no_credential(room):
    status, header, _ = await http_refusal(room, "Bearer " + "s" * 43)
    assert (status, header) == (401, "unknown_credential")


@pytest.mark.spec("version/mismatch-refused-with-both", "version/checked-on-every-connect")
async def test_another_version_is_refused_on_each_connection(room, credential):
    agent = await room.online(credential)
    await agent.close()
    await room.until(lambda: not room.service.live())
    again = await room.connect(credential)
    frame = await again.hello(version="3.1.0")
    assert (frame["code"], frame["reason"], frame["retry"]) == ("version_mismatch", VERSION_TEXT, "never")


@pytest.mark.spec("version/checked-before-rest-of-message")
async def test_the_version_is_looked_at_before_anything_else(room, credential):
    agent = await room.connect(credential)
    await agent.send(t="hello", protocol=99, version="3.1.0", name=["of", "another", "shape"])
    assert (await agent.receive("refused"))["reason"] == VERSION_TEXT
    await agent.closed()


@pytest.mark.spec("version/listed-under-refused-connections", "version/last-refusal-per-name")
async def test_the_last_refusal_of_a_name_is_listed(room, credential):
    for version in ("3.1.0", "3.1.1"):
        agent = await room.connect(credential)
        await agent.hello(version=version)
        await room.manual.advance(1)
    (refused,) = await room.refused()
    assert (refused["name"], refused["code"], refused["count"]) == ("gpu-box", "version_mismatch", 2)
    assert refused["reason"] == "version mismatch: worker 3.1.1, control plane 1.2.3"
    assert refused["address"] == "127.0.0.1"
    assert refused["at"] == "2026-01-01T00:00:01.000Z"


@pytest.mark.spec("version/refusal-cleared-on-connect")
async def test_a_refusal_is_cleared_when_the_name_connects(room, credential):
    await (await room.connect(credential)).hello(version="3.1.0")
    assert await room.refused()
    await room.online(credential)
    assert await room.refused() == []


@pytest.mark.spec("version/refusals-lost-on-restart", "restart/server-remembers-worker")
async def test_refusals_end_with_the_server_and_workers_stay(make_room):
    async with make_room() as room:
        credential = (await room.enroll())["credential"]
        await (await room.connect(credential)).hello(version="3.1.0")
        assert await room.refused()
    async with make_room() as room:
        assert await room.refused() == []
        assert (await room.row())["status"] == "offline"
        await room.online(credential)
        assert (await room.row())["status"] == "online"


async def test_a_credential_belongs_to_one_name(room, credential):
    agent = await room.connect(credential)
    frame = await agent.hello(name="else")
    assert (frame["code"], frame["retry"]) == ("other_name", "never")
    assert "gpu-box" in frame["reason"]


@pytest.mark.spec("version/name-taker-listed-with-address", "version/name-taker-not-on-card")
@pytest.mark.point(39)
async def test_another_process_does_not_get_the_name_of_a_holder_that_answers(room, credential):
    holder = await room.online(credential)
    taker = await room.connect(credential)
    asking = asyncio.create_task(taker.hello(incarnation="b" * 32, machine_id="z" * 32))
    beat = await holder.receive("beat")
    await holder.send(t="beat", n=beat["n"])
    frame = await asking
    assert (beat["n"], frame["code"], frame["retry"]) == (1, "name_held", "later")
    (refused,) = await room.refused()
    assert (refused["name"], refused["address"]) == ("gpu-box", "127.0.0.1")
    assert (await room.row())["status"] == "online"
    assert room.desk.named("link_down") == []


@pytest.mark.point(38)
async def test_a_silent_holder_loses_its_name_after_three_seconds(room, credential):
    await room.online(credential)
    taker = await room.connect(credential)
    asking = asyncio.create_task(taker.hello(incarnation="b" * 32))
    await room.until(lambda: room.service.live()[0]._probes)
    await room.manual.advance(4)
    assert (await asking)["t"] == "welcome"
    names = [call[0] for call in room.desk.calls if call[0] in {"hello", "link_down"}]
    assert names == ["hello", "link_down", "hello"]
    assert room.service.live()[0].incarnation == "b" * 32


@pytest.mark.point(37)
async def test_the_same_process_comes_back_at_once_and_its_old_socket_is_dropped(room, credential):
    old = await room.online(credential)
    new = await room.connect(credential)
    welcome = await new.hello()
    assert welcome["session"] > old.welcome["session"]
    assert (await old.closed())["reason"] == "replaced"
    await new.report()
    assert room.desk.named("link_down") == []
    assert (await room.row())["connected"]


async def test_a_hello_that_a_line_held_back_does_not_replace_the_newer_connection(room, credential):
    stalled = await room.connect(credential)
    live = await room.online(credential, dial=2)
    heard = len(room.desk.named("hello"))
    refused = await stalled.hello(dial=1)
    assert (refused["t"], refused["code"], refused["retry"]) == ("refused", "busy", "later")
    assert len(room.desk.named("hello")) == heard
    assert room.service.live()[0].number == live.welcome["session"]
    later = await room.connect(credential)
    assert (await later.hello(dial=3))["t"] == "welcome"


@pytest.mark.point(10)
async def test_frames_of_the_older_session_are_dropped_unread(room, credential):
    old = await room.online(credential)
    gate = room.desk.hello_gate = asyncio.Event()
    new = await room.connect(credential)
    asking = asyncio.create_task(new.hello())
    await room.until(lambda: len(room.desk.named("hello")) == 2)
    item = {"kind": "event", "type": "log", "payload": {}}
    await old.send(t="items", run_id="r1", attempt=1, lease="l", first=1, items=[item])
    session = room.service.live()[0]
    await room.until(lambda: session._waiting)
    gate.set()
    assert (await asking)["t"] == "welcome"
    await old.closed()
    assert room.desk.named("items") == []


async def test_beats_come_before_a_welcome_that_takes_long(room, credential):
    gate = room.desk.hello_gate = asyncio.Event()
    agent = await room.connect(credential)
    asking = asyncio.create_task(agent.hello())
    await room.until(lambda: room.desk.named("hello"))
    await room.manual.advance(60)
    gate.set()
    assert (await asking)["t"] == "welcome"


@pytest.mark.point(39)
async def test_a_copied_credential_waits_while_the_first_has_runs(room, credential):
    first = await room.online(credential)
    await first.close()
    await room.until(lambda: not room.service.live())
    room.desk.flying = 1
    other = await room.connect(credential)
    assert (await other.hello(incarnation="b" * 32, machine_id="z" * 32))["code"] == "name_held"
    same = await room.connect(credential)
    assert (await same.hello(incarnation="c" * 32))["t"] == "welcome"


async def test_who_shows_the_leases_is_let_in_from_anywhere(room, credential):
    first = await room.online(credential)
    await first.close()
    await room.until(lambda: not room.service.live())
    room.desk.flying, room.desk.leases_fit = 1, True
    other = await room.connect(credential)
    assert (await other.hello(incarnation="b" * 32, machine_id="z" * 32))["t"] == "welcome"


async def test_a_database_that_fails_makes_the_server_busy_not_the_agent_wrong(room, credential):
    room.desk.fail = OSError("disk I/O error")
    agent = await room.connect(credential)
    frame = await agent.hello()
    assert (frame["code"], frame["retry"]) == ("busy", "later")
    assert frame["after_s"] > 0
    room.desk.fail = None
    assert await room.refused() == []
    await room.online(credential)


async def test_a_stopping_server_is_busy(room, credential):
    room.service.refuse_newcomers()
    agent = await room.connect(credential)
    assert (await agent.hello())["code"] == "busy"


@pytest.mark.parametrize(
    "frame", ["nonsense", '{"t":"beat"}', '{"t":"hello","protocol":1,"version":"1.2.3"}x']
)
async def test_a_first_frame_that_is_no_hello_is_refused(room, credential, frame):
    agent = await room.connect(credential)
    await agent.socket.send_str(frame)
    refused = await agent.receive("refused")
    assert (refused["code"], refused["retry"]) == ("bad_message", "later")
    await agent.closed()


@pytest.mark.spec("remove/disconnects-live-agent", "remove/running-agent-told-revoked")
async def test_removing_a_worker_revokes_it_and_ends_its_runs_at_once(room, credential):
    agent = await room.online(credential)
    worker_id = agent.welcome["worker"]["id"]
    await room.service.remove("GPU-BOX")
    assert (await agent.closed())["reason"] == "revoked"
    assert room.desk.named("worker_removed") == [(worker_id, "gpu-box")]
    assert await room.row() is None
    await room.enroll(nonce="2" * 32)  # the name is free


@pytest.mark.spec("remove/revokes-credential")
async def test_a_revoked_credential_is_answered_so_also_after_a_restart(make_room):
    async with make_room() as room:
        credential = (await room.enroll())["credential"]
        await room.service.remove("gpu-box")
        assert (await http_refusal(room, f"Bearer {credential}"))[1] == "revoked"
    async with make_room() as room:
        status, header, body = await http_refusal(room, f"Bearer {credential}")
        assert (status, header, body["code"]) == (401, "revoked", "auth.worker_revoked")
        assert "gpu-box" in body["detail"]


@pytest.mark.spec("remove/attempt-listed-as-refused", "remove/refusal-listed-hourly-per-credential")
async def test_a_revoked_credential_is_listed_once_an_hour(room, credential):
    other = (await room.enroll("other", nonce="2" * 32))["credential"]
    await room.service.remove("gpu-box")
    await room.service.remove("other")
    for _ in range(5):
        await http_refusal(room, f"Bearer {credential}")
        await http_refusal(room, f"Bearer {other}")
    first = await room.refused()
    assert [(row["name"], row["count"]) for row in first] == [("other", 1), ("gpu-box", 1)]
    assert {(row["code"], row["address"]) for row in first} == {("revoked", "127.0.0.1")}
    room.manual.jump(3601)
    await http_refusal(room, f"Bearer {credential}")
    newest, older = await room.refused()
    assert (newest["name"], newest["count"], newest["at"] > older["at"]) == ("gpu-box", 2, True)
    assert older == first[0]


async def test_a_removal_that_fails_cuts_the_line_and_leaves_the_worker_as_it_was(room, credential):
    agent = await room.online(credential)
    token = await room.token(worker="gpu-box")
    room.desk.lost = OSError("database is away")
    with pytest.raises(OSError, match="away"):
        await room.service.remove("gpu-box")
    assert await agent.closed() is None, "it isn't told what nobody knows"
    room.desk.lost = None
    await room.until(lambda: room.desk.named("link_down"))
    again = await room.online(credential)
    assert (await room.row())["status"] == "online"
    await room.enroll(token=token, nonce="2" * 32)
    assert (await again.closed())["reason"] == "revoked"


async def test_a_removal_is_carried_through_when_who_asked_for_it_is_cancelled(room, credential):
    agent = await room.online(credential)
    actor = room.service._actors.of((await room.service.authenticate(credential)).id)
    async with actor.lock:
        asking = asyncio.create_task(room.service.remove("gpu-box"))
        await room.until(lambda: actor.lock._waiters)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert (await agent.closed())["reason"] == "revoked"
    assert await room.row() is None


async def test_of_two_removals_at_once_one_is_told_that_there_is_nobody(room, credential):
    agent = await room.online(credential)
    asked = [room.service.remove("gpu-box") for _ in range(2)]
    first, second = await asyncio.gather(*asked, return_exceptions=True)
    assert first["removed"]
    assert second.code == "worker.not_found"
    assert len(room.desk.named("worker_removed")) == 1
    assert (await agent.closed())["reason"] == "revoked"


@pytest.mark.point(35)
async def test_a_removal_that_was_committed_unheard_is_told_at_the_next_dial(room, credential):
    agent = await room.online(credential)
    room.desk.unheard = OSError("the server was killed here")
    with pytest.raises(OSError, match="killed"):
        await room.service.remove("gpu-box")
    assert await agent.closed() is None
    assert (await http_refusal(room, f"Bearer {credential}"))[1] == "revoked"
    assert await room.row() is None


async def test_an_instance_that_came_in_meanwhile_is_told_too(room, credential):
    room.desk.end_gate.clear()
    removal = asyncio.create_task(room.service.remove("gpu-box"))
    await room.until(lambda: room.desk.named("worker_removed"))
    agent = await room.connect(credential)
    assert (await agent.hello(instance="7", one_shot=True))["t"] == "welcome"
    room.desk.end_gate.set()
    await removal
    assert (await agent.closed())["reason"] == "revoked"
    assert room.service.live() == ()


async def test_a_hello_that_waited_while_its_worker_was_removed_is_refused(room, credential):
    waits = await room.connect(credential)
    actor = room.service._actors.of((await room.service.authenticate(credential)).id)
    async with actor.lock:
        removal = asyncio.create_task(room.service.remove("gpu-box"))
        await room.until(lambda: len(actor.lock._waiters or ()) == 1)
        greeting = asyncio.create_task(waits.hello())
        await room.until(lambda: len(actor.lock._waiters or ()) == 2)
    refused = await greeting
    assert (refused["code"], refused["retry"]) == ("revoked", "never")
    await removal
    assert room.service.live() == ()


async def test_tokens_bound_to_a_removed_worker_enroll_nobody(room, credential):
    token = await room.token(worker="gpu-box")
    await room.service.remove("gpu-box")
    with pytest.raises(Exception, match="revoked"):
        await room.enroll(token=token, nonce="2" * 32)


async def test_removing_nobody_says_so(room):
    with pytest.raises(Exception, match="no worker named nobody"):
        await room.service.remove("nobody")


@pytest.mark.parametrize("changes", [{"instance": "7"}, {"instance": "a.b", "one_shot": True}])
async def test_an_instance_is_a_one_shot_agent_whose_id_has_no_dot(room, credential, changes):
    agent = await room.connect(credential)
    frame = await agent.hello(**changes)
    assert (frame["code"], frame["retry"]) == ("bad_message", "never")
    assert "one-shot" in frame["reason"]
