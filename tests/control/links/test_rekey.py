"""Re-key: a token for one worker gives it a new credential; the old one is refused as revoked from then on."""

import asyncio

import pytest

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


async def test_runs_of_the_old_credential_are_ended_before_the_new_one_is_handed_out(room, credential):
    agent = await room.online(credential)
    room.desk.fail = OSError("database is away")
    token = await room.token(worker="gpu-box")
    with pytest.raises(OSError, match="away"):
        await room.enroll(token=token, nonce="2" * 32)
    assert (await agent.closed())["reason"] == "revoked"
    room.desk.fail = None
    answer = await room.enroll(token=token, nonce="2" * 32)  # the agent repeats what was not answered
    assert room.desk.named("worker_rekeyed") == [(answer["worker_id"],)] * 2
    await room.online(answer["credential"])


async def test_a_hello_with_the_old_credential_that_waited_meanwhile_is_refused(room, credential):
    waits = await room.connect(credential)
    token = await room.token(worker="gpu-box")
    actor = room.service._actors.of((await room.service.authenticate(credential)).id)
    async with actor.lock:
        greeting = asyncio.create_task(waits.hello())
        new = asyncio.create_task(room.enroll(token=token, nonce="2" * 32))
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
