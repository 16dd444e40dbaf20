"""Re-key: a token for one worker gives it a new credential; the old one is refused as revoked from then on."""

import asyncio

import pytest

from codefyui_core.control.links.tokens import NewToken
from codefyui_core.errors import CodefyError


@pytest.fixture
async def credential(room):
    return (await room.enroll())["credential"]


async def http_refusal(room, credential):
    headers = {"Authorization": f"Bearer {credential}"}
    async with room.http.get(f"{room.url}/ws/worker", headers=headers) as response:
        return response.status, response.headers.get("X-CodefyUI-Refusal")


@pytest.mark.spec("rekey/use-invalidates-old-credential")
async def test_making_the_token_changes_nothing_and_using_it_revokes_the_old_credential(room, credential):
    first = await room.online(credential)
    token = await room.token(worker="gpu-box")
    again = await room.online(credential)
    assert (await first.closed())["reason"] == "replaced"
    new = (await room.enroll(token=token, nonce="2" * 32))["credential"]
    assert (await again.closed())["reason"] == "revoked"
    assert await http_refusal(room, credential) == (401, "revoked")
    await room.online(new)


@pytest.mark.spec("rekey/keeps-worker-identity")
async def test_the_worker_stays_one_with_its_id_its_name_and_its_drain(room, credential):
    before = await room.row()
    await room.service.drain("gpu-box", drained=True)
    token = await room.token(worker="gpu-box")
    answer = await room.enroll("GPU-BOX", token, "2" * 32)
    assert (answer["worker_id"], answer["name"]) == (before["id"], "gpu-box")
    (row,) = (await room.service.list())["workers"]
    assert (row["id"], row["name"], row["drained"]) == (before["id"], "gpu-box", True)


@pytest.mark.spec("rekey/old-credential-refused-as-revoked")
async def test_the_old_credential_is_listed_once_an_hour_and_told_why(room, credential):
    token = await room.token(worker="gpu-box")
    new = (await room.enroll(token=token, nonce="2" * 32))["credential"]
    for _ in range(3):
        assert await http_refusal(room, credential) == (401, "revoked")
    (refused,) = await room.refused()
    assert (refused["code"], refused["count"]) == ("revoked", 1)
    assert "re-keyed" in refused["reason"]
    room.manual.jump(3601)
    await http_refusal(room, credential)
    assert (await room.refused())[0]["count"] == 2
    await room.online(new)
    assert await room.refused() == []


async def test_a_re_key_that_fails_spends_nothing_and_changes_nothing(room, credential):
    agent = await room.online(credential)
    room.desk.lost = OSError("database is away")
    token = await room.token(worker="gpu-box")
    with pytest.raises(OSError, match="away"):
        await room.enroll(token=token, nonce="2" * 32)
    assert await agent.closed() is None, "it isn't told what nobody knows"
    room.desk.lost = None
    again = await room.online(credential)
    new = (await room.enroll(token=token, nonce="2" * 32))["credential"]  # the agent repeats its request
    assert (await again.closed())["reason"] == "revoked"
    await room.online(new)


async def test_a_re_key_is_carried_through_when_its_connection_breaks(room, credential):
    agent = await room.online(credential)
    token = await room.token(worker="gpu-box")
    actor = room.service._actors.of((await room.service.authenticate(credential)).id)
    async with actor.lock:
        asking = asyncio.create_task(room.enroll(token=token, nonce="2" * 32))
        await room.until(lambda: actor.lock._waiters)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert (await agent.closed())["reason"] == "revoked"
    new = (await room.enroll(token=token, nonce="2" * 32))["credential"]  # the reply was lost
    await room.online(new)


async def test_a_refused_enrollment_does_not_disturb_the_worker_of_that_name(room, credential):
    agent = await room.online(credential)
    token = await room.token(worker="gpu-box")
    await room.service.revoke_token(token.partition(".")[0])
    with pytest.raises(CodefyError, match="revoked"):
        await room.enroll(token=token, nonce="2" * 32)
    (link,) = room.service.live()
    assert link.number == agent.welcome["session"]
    assert room.desk.named("worker_rekeyed") == []


async def test_a_name_that_was_taken_while_its_token_was_looked_at_is_looked_at_again(room, monkeypatch):
    """The token is for a worker that isn't there yet; another request with it enrolls it meanwhile."""
    token = (await room.service.tokens_table.make(NewToken(worker="gpu-box", uses=2)))[0]
    whose, asked = room.service._enrollment.whose, []

    async def late(request):
        answer = await whose(request)
        asked.append(answer)
        if len(asked) == 1:
            first = await room.enroll(token=token, nonce="2" * 32)
            asked.append(first["worker_id"])
        return answer

    monkeypatch.setattr(room.service._enrollment, "whose", late)
    second = await room.enroll(token=token, nonce="3" * 32)
    assert asked[0] is None
    assert second["worker_id"] == asked[-1]
    assert room.desk.named("worker_rekeyed") == [(second["worker_id"],)]


async def test_a_hello_with_the_old_credential_that_waited_meanwhile_is_refused(room, credential):
    waits = await room.connect(credential)
    token = await room.token(worker="gpu-box")
    actor = room.service._actors.of((await room.service.authenticate(credential)).id)
    async with actor.lock:
        new = asyncio.create_task(room.enroll(token=token, nonce="2" * 32))
        await room.until(lambda: len(actor.lock._waiters or ()) == 1)
        greeting = asyncio.create_task(waits.hello())
        await room.until(lambda: len(actor.lock._waiters or ()) == 2)
    refused = await greeting
    assert (refused["code"], refused["retry"]) == ("revoked", "never")
    await room.online((await new)["credential"])


@pytest.mark.spec("rekey/409-leaves-existing-intact")
async def test_a_name_that_is_refused_leaves_its_worker_as_it_was(room, credential):
    agent = await room.online(credential)
    with pytest.raises(CodefyError, match="enrolled already"):
        await room.enroll(nonce="2" * 32, address="10.0.0.10")
    assert room.service.live()[0].incarnation == "a" * 32
    assert room.desk.named("worker_rekeyed") == []
    await room.online(credential)
    assert (await agent.closed())["reason"] == "replaced"
