"""Agents that start together with one token in one user-data folder."""

import asyncio
import logging

import pytest

from codefyui_core.agent.credentials import load
from codefyui_core.agent.lock import FolderLock
from codefyui_core.agent.places import Places, key_of
from codefyui_core.errors import CodefyError


async def uses_left(line, token):
    rows = await line.control.service.tokens()
    return next(row["uses_left"] for row in rows if token.startswith(row["id"]))


def enrollments(line):
    return [path for _, path, _ in line.control.requests].count("/api/workers/enroll")


async def together(line, count, token):
    agents = [await line.agent(token=token, one_shot=True, instance=str(number)) for number in range(count)]
    for number in range(count):
        await line.control.online(f"box.{number}")
    return agents


@pytest.mark.spec("instance/enroll-lock-single-use")
@pytest.mark.point(41)
async def test_of_agents_that_start_together_one_enrolls_and_the_others_use_its_credential(line):
    token = await line.control.token()
    agents = await together(line, 24, token)
    assert (enrollments(line), await uses_left(line, token)) == (1, 0)
    assert len({agent.names[0] for agent in agents}) == 1
    assert len(list((line.user_data / "agent-instances").glob("*/owner"))) == 24
    for agent in agents:
        agent.stop_asked.set()
    assert {await agent.ended() for agent in agents} == {3}


@pytest.mark.spec("instance/no-file-locks-warning")
@pytest.mark.point(41)
async def test_without_locks_the_losers_wait_for_the_winners_file(line, monkeypatch, caplog):
    monkeypatch.setattr("codefyui_core.agent.lock._lock", lambda _descriptor: False)
    token = await line.control.token()
    await together(line, 6, token)
    assert await uses_left(line, token) == 0
    assert "no locks" in caplog.text
    places = Places(user_data=line.user_data, key=key_of(line.control.url))
    assert load(places.credential, logging.getLogger("test")).enrolled
    assert len(line.control.service.live()) == 6


async def test_without_locks_a_token_that_nobody_won_with_is_refused_after_the_wait(line, monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.lock._lock", lambda _descriptor: False)
    monkeypatch.setattr("codefyui_core.agent.membership.WINNER_S", 0.3)
    token = await line.control.token()
    await line.control.service.enroll(token, "other", "n" * 32, "m", "linux", "10.0.0.9")
    agent = await line.agent(token=token, one_shot=True)
    with pytest.raises(CodefyError) as refused:
        await agent.ended()
    assert refused.value.code == "enrollment.used_up"


async def test_who_waits_for_its_turn_enrolls_when_the_first_one_died(line):
    lock = FolderLock.take(Places(user_data=line.user_data, key=key_of(line.control.url)).enrolling)
    agent = await line.agent(one_shot=True)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(agent.task), 0.3)
    assert enrollments(line) == 0
    lock.release()
    await line.control.online("box")
    assert enrollments(line) == 1
