import asyncio
import re

import pytest
from sqlalchemy import text

from codefyui_core.errors import CodefyError


async def refused(awaitable):
    with pytest.raises(CodefyError) as caught:
        await awaitable
    return caught.value


@pytest.mark.spec("enroll/token-format", "enroll/token-validity-default-24h", "enroll/token-uses-default-one")
async def test_a_token_looks_as_documented_and_is_good_for_a_day_and_one_use(room):
    made = await room.service.make_token(control_url="http://cp:8000")
    assert re.match(r"^[a-z0-9]{6}\.[a-z0-9]{16}$", made["token"])
    assert made["uses"] == made["uses_left"] == 1
    assert made["created_at"] == "2026-01-01T00:00:00.000Z"
    assert made["expires_at"] == "2026-01-02T00:00:00.000Z"


@pytest.mark.spec("enroll/generate-token-shows-command", "enroll/address-can-be-typed")
async def test_the_command_is_ready_to_paste(room):
    made = await room.service.make_token(address="http://192.168.1.5:8000", control_url="http://other")
    assert made["command"] == f"cdui agent start --control http://192.168.1.5:8000 --token {made['token']}"


@pytest.mark.spec("enroll/token-stored-as-hash")
async def test_neither_token_nor_credential_is_in_the_database(room, tmp_path):
    token = await room.token()
    credential = (await room.enroll(token=token))["credential"]
    async with room.db.read() as connection:
        stored = []
        for table in ("enrollment_tokens", "workers", "enrollments"):
            stored += (await connection.execute(text(f"select * from {table}"))).all()
    assert token.partition(".")[2] not in str(stored)
    assert credential not in str(stored)


@pytest.mark.spec("reach/enroll-route", "enroll/exchange-for-own-credential")
async def test_each_agent_gets_a_credential_of_its_own(room):
    token = await room.token(uses=2)
    one = await room.enroll("one", token, "1" * 32)
    two = await room.enroll("two", token, "2" * 32)
    assert re.match(r"^cdw_[A-Za-z0-9_-]{43}$", one["credential"])
    assert one["credential"] != two["credential"]
    assert one["db_id"] == room.db.db_id
    assert (await room.service.authenticate(one["credential"])).name == "one"
    assert (await room.service.authenticate(two["credential"])).name == "two"


@pytest.mark.spec("enroll/token-uses-selectable", "enroll/refused-used-up-says-so")
async def test_a_token_enrolls_as_many_as_it_has_uses(room):
    token = await room.token(uses=3)
    for number in range(3):
        await room.enroll(f"box-{number}", token, f"{number}" * 32)
    error = await refused(room.enroll("box-3", token, "3" * 32))
    assert error.code == "enrollment.used_up"
    assert "used up" in error.message


@pytest.mark.spec("enroll/token-validity-selectable", "enroll/refused-expired-says-so")
async def test_a_token_is_refused_after_its_time(room):
    token = await room.token(valid_s=60, uses=2)
    await room.enroll("early", token)
    await room.manual.advance(60)
    error = await refused(room.enroll("late", token, "2" * 32))
    assert error.code == "enrollment.expired"
    assert "expired" in error.message


@pytest.mark.spec("enroll/refused-revoked-says-so")
@pytest.mark.parametrize("how", ["revoke_token", "hide_token"])
async def test_a_revoked_and_a_hidden_token_are_refused_as_revoked(room, how):
    token = await room.token()
    await getattr(room.service, how)(token[:6])
    error = await refused(room.enroll(token=token))
    assert error.code == "enrollment.revoked"
    assert "revoked" in error.message
    listed = [row["id"] for row in await room.service.tokens()]
    assert listed == ([token[:6]] if how == "revoke_token" else [])


async def test_the_list_of_tokens_holds_no_secret(room):
    token = await room.token()
    (row,) = await room.service.tokens()
    assert row["id"] == token[:6]
    assert token.partition(".")[2] not in str(row)
    assert row["state"] == "valid"


@pytest.mark.parametrize("token", ["abcdef.0123456789abcdef", "session-token", ""])
async def test_an_unknown_token_is_refused(room, token):
    request = room.service.enroll(token, "a", "n" * 32, "m", "linux", "10.0.0.9")
    error = await refused(request)
    assert error.code == "enrollment.unknown"


@pytest.mark.spec("rekey/ordinary-token-409")
async def test_an_ordinary_token_does_not_enroll_a_name_that_is_taken(room):
    await room.enroll("GPU-box")
    error = await refused(room.enroll("gpu-BOX", nonce="2" * 32))
    assert error.code == "enrollment.name_taken"
    token = await room.token()
    await refused(room.enroll("gpu-box", token, "3" * 32))
    await room.enroll("other", token, "3" * 32)  # the refusal spent no use


@pytest.mark.parametrize("name", ["server", "any", "a.b", "", "-x", "x" * 64])
async def test_names_that_no_worker_may_have_are_refused(room, name):
    error = await refused(room.enroll(name))
    assert error.code == "request.invalid"


@pytest.mark.point(42)
async def test_a_lost_reply_costs_no_further_use(room):
    token = await room.token()
    first = await room.enroll(token=token)
    again = await room.enroll(token=token)
    assert again["worker_id"] == first["worker_id"]
    assert again["credential"] != first["credential"]
    await room.service.authenticate(again["credential"])
    assert (await refused(room.service.authenticate(first["credential"]))).code == "auth.worker_unknown"
    other = await refused(room.enroll("else", token, "2" * 32))
    assert other.code == "enrollment.used_up"


async def test_of_many_at_once_a_one_use_token_enrolls_one(room):
    token = await room.token()
    asked = [room.enroll(f"box-{n}", token, f"{n:032d}") for n in range(8)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    codes = sorted(getattr(answer, "code", "ok") for answer in answers)
    assert codes == ["enrollment.used_up"] * 7 + ["ok"]


@pytest.mark.spec("rekey/token-bound-to-worker")
async def test_a_token_for_one_worker_re_keys_it_and_enrolls_no_other(room):
    old = (await room.enroll())["credential"]
    token = await room.token(worker="GPU-BOX")
    assert (await refused(room.enroll("else", token))).code == "enrollment.bound"
    new = await room.enroll("gpu-box", token, "2" * 32)
    assert room.desk.named("worker_rekeyed") == [(new["worker_id"],)]
    assert (await room.service.authenticate(new["credential"])).id == new["worker_id"]
    assert (await refused(room.service.authenticate(old))).code == "auth.worker_revoked"


@pytest.mark.spec("rekey/command-includes-name")
async def test_the_command_of_a_re_key_carries_the_name(room):
    await room.enroll()
    made = await room.service.make_token(worker="gpu-box", control_url="http://cp:8000")
    assert made["command"].endswith(" --name gpu-box")
    assert (await refused(room.service.make_token(worker="nobody"))).code == "worker.not_found"


async def test_who_keeps_being_refused_has_to_wait_and_nobody_else(room):
    for _ in range(10):
        await refused(room.enroll(token="abcdef.0123456789abcdef"))
    error = await refused(room.enroll())
    assert error.code == "rate.limited"
    await room.enroll("other", address="10.0.0.10")
    await room.manual.advance(61)
    await room.enroll()


async def test_enrollments_through_a_tunnel_are_counted_for_it_alone(room):
    for _ in range(10):
        await refused(room.enroll(token="abcdef.0123456789abcdef", address="127.0.0.1", link_id="l1"))
    assert (await refused(room.enroll(address="127.0.0.1", link_id="l1"))).code == "rate.limited"
    await room.enroll(address="127.0.0.1", link_id="l2")
    await room.enroll("other", address="127.0.0.1", nonce="2" * 32)


@pytest.mark.parametrize("asked", [{"valid_s": 0}, {"uses": 0}, {"uses": 10**9}, {"valid_s": 1e12}])
async def test_tokens_have_bounds(room, asked):
    assert (await refused(room.service.make_token(**asked))).code == "request.invalid"
