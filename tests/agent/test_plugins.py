"""What plugins get on the agent: requests over its own way, facts, tasks, and the choice of a connector."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from codefyui_core.agent import facts
from codefyui_core.agent.dialer import choose
from codefyui_core.agent.facts import FactsOf, all_facts
from codefyui_core.agent.http import AgentHttp, Way
from codefyui_core.agent.tasks import OwnedTasks
from codefyui_core.errors import Busy, Refused, UsageProblem
from codefyui_core.plugin.connector import Claim, Target
from codefyui_core.plugin.storage import Facts

LOG = logging.getLogger("test")
TARGET = Target(url="x://a", options={}, kept={}, credential_file=Path("x"))


@pytest.fixture
async def server():
    seen = []

    async def answer(request):
        seen.append((request.path, dict(request.headers)))
        status = int(request.match_info["status"])
        body = {"detail": "no", "code": "run.attempt_over"} if request.query.get("ours") else None
        headers = {"Retry-After": "7"} if status == 503 else {}
        return (
            web.json_response(body, status=status, headers=headers)
            if body
            else web.Response(status=status, headers=headers, text="ok")
        )

    app = web.Application()
    app.router.add_get("/api/{status}", answer)
    async with TestServer(app) as running, aiohttp.ClientSession() as http:
        url = str(running.make_url("")).rstrip("/")
        way = Way(http=http, base_url=url, headers={"Authorization": "B c"}, diagnose=lambda *_: None)
        yield way, seen


async def test_requests_carry_the_credential_and_the_attempts_fence(server):
    way, seen = server
    async with AgentHttp(lambda: way, fence="2.lease").request("GET", "/api/200") as response:
        assert await response.text() == "ok"
    assert seen[0][1]["Authorization"] == "B c"
    assert seen[0][1]["X-CodefyUI-Attempt"] == "2.lease"


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504, 507])
async def test_what_may_pass_is_busy(server, status):
    way, _ = server
    with pytest.raises(Busy) as caught:
        async with AgentHttp(lambda: way).request("GET", f"/api/{status}"):
            pass
    assert caught.value.retry_after_s == (7 if status == 503 else None)


async def test_a_refusal_has_the_servers_own_code_or_says_that_a_proxy_answered(server):
    way, _ = server
    for query, code in ({"ours": "1"}, "run.attempt_over"), ({}, "proxy.413"):
        with pytest.raises(Refused) as caught:
            async with AgentHttp(lambda: way).request("GET", "/api/413", params=query):
                pass
        assert caught.value.code == code


async def test_without_a_connection_requests_are_busy():
    with pytest.raises(Busy):
        async with AgentHttp(lambda: None).request("GET", "/api/200"):
            pass


@pytest.mark.parametrize("moment", ["before", "while it begins"])
async def test_a_connection_that_ends_around_a_request_makes_it_busy(server, moment):
    """Whoever closes the session closes it under requests that are about to use it."""
    ended = aiohttp.TraceConfig()
    ended.on_request_start.append(lambda session, *_: session.close())
    way = replace(server[0], http=aiohttp.ClientSession(trace_configs=[ended]))
    if moment == "before":
        await way.http.close()
    with pytest.raises(Busy, match="ended meanwhile"):
        async with AgentHttp(lambda: way).request("GET", "/api/200"):
            pass


class Half:
    """A storage backend's agent half whose answer comes when the test says so."""

    def __init__(self):
        self.asked = 0
        self.gate = asyncio.Event()

    async def facts(self):
        self.asked += 1
        await self.gate.wait()
        return Facts()


async def test_facts_that_hang_count_as_none_and_are_not_asked_for_twice(monkeypatch):
    monkeypatch.setattr(facts, "WAIT_S", 0.01)
    half = Half()
    one = {"mount": FactsOf(SimpleNamespace(name="mount"), half, LOG)}
    assert await all_facts(one) == {"mount": None}
    assert await all_facts(one) == {"mount": None}
    assert half.asked == 1
    half.gate.set()
    monkeypatch.setattr(facts, "WAIT_S", 10)
    assert await all_facts(one) == {"mount": {}}


async def test_a_backend_that_fails_to_answer_is_not_offered():
    class Broken:
        async def facts(self):
            raise OSError("stale handle")

    assert await FactsOf(SimpleNamespace(name="mount"), Broken(), LOG).now() is None


async def test_tasks_are_ended_with_their_owner_and_a_failure_ends_nothing_else(caplog):
    tasks, running = OwnedTasks(LOG), asyncio.Event()

    async def forever():
        running.set()
        await asyncio.Event().wait()

    async def fails():
        raise ValueError("bug")

    task = tasks.start(forever(), name="forever")
    await tasks.start(fails(), name="fails")
    await asyncio.wait_for(running.wait(), 10)
    await tasks.aclose()
    assert task.cancelled()
    assert "the task fails failed" in caplog.text


def connector(claim):
    return SimpleNamespace(claims=lambda target: claim)


def test_the_best_claim_dials():
    halves = {"direct": connector(Claim.FALLBACK), "ssh": connector(Claim.FITS)}
    assert choose(halves, "x://a", {}, TARGET).name == "ssh"


@pytest.mark.parametrize(
    ("claims", "options", "says"),
    [
        ({"direct": Claim.NO}, {}, "No connector"),
        ({"a": Claim.FITS, "b": Claim.FITS}, {}, "a and b"),
        ({"direct": Claim.FITS, "tls": Claim.NO}, {"tls": {"ca_fingerprint": "x"}}, "--ca-fingerprint"),
    ],
)
def test_what_no_single_connector_takes_is_a_usage_problem(claims, options, says):
    halves = {name: connector(claim) for name, claim in claims.items()}
    with pytest.raises(UsageProblem, match=says):
        choose(halves, "x://a", options, TARGET)
