import asyncio
import json
import logging
import os

import pytest
from aiohttp import web

from codefyui_core.agent import enroll
from codefyui_core.agent.command import forget, statuses
from codefyui_core.agent.link import PLAIN_WARNING
from codefyui_core.builtin.direct.address import Address
from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import CodefyError
from codefyui_core.settings import Install
from codefyui_core.testing.clock import ManualClock


def credential_file(line):
    return line.user_data / "agent" / f"127.0.0.1-{line.control.port}.token"


async def failure(agent):
    with pytest.raises(CodefyError) as caught:
        await agent.ended()
    return caught.value


@pytest.fixture(autouse=True)
def said(caplog):
    caplog.set_level(logging.INFO)
    return caplog


@pytest.mark.spec("reach/enroll-before-socket", "reach/single-url-suffices", "agent/name-flag")
async def test_a_start_with_a_token_enrolls_and_then_connects(line):
    await line.agent(name="gpu-a")
    assert (await line.control.online()).view.name == "gpu-a"
    assert [path for _, path, _ in line.control.requests] == ["/api/workers/enroll", "/ws/worker"]


@pytest.mark.spec("credential/file-path", "credential/file-mode-owner-only", "credential/user-data-location")
@pytest.mark.spec("secret/credential-file-owner-only")
async def test_the_credential_is_stored_for_its_owner_alone(line):
    token = await line.control.token()
    await line.agent(token=token)
    await line.control.online()
    path = credential_file(line)
    stored = json.loads(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_uid == os.getuid()
    assert (stored["format"], stored["name"], stored["url"]) == (1, "box", line.control.url)
    assert stored["credential"].startswith("cdw_")
    assert stored["nonce"] == ""
    assert token not in path.read_text()


@pytest.mark.spec("restart/stored-credential-used", "restart/stored-credential-beats-token")
async def test_later_starts_use_the_stored_credential_and_leave_the_token_unused(line):
    agent = await line.agent()
    await line.control.online()
    assert await agent.stop() == 0
    token = await line.control.token()
    await line.agent(token=token, name=None)
    await line.control.online()
    assert [path for _, path, _ in line.control.requests].count("/api/workers/enroll") == 1
    used = {row["id"]: row["uses_left"] for row in await line.control.service.tokens()}
    assert used[token[:6]] == 1


@pytest.mark.spec("restart/forget-deletes-credential", "restart/start-after-forget-enrolls-again")
async def test_forget_deletes_the_credential_so_that_the_next_start_needs_a_token(line):
    agent = await line.agent()
    await line.control.online()
    with pytest.raises(CodefyError, match="Stop it first"):
        await asyncio.to_thread(forget, line.user_data, line.control.url)
    await agent.stop()
    assert forget(line.user_data, line.control.url)
    assert not forget(line.user_data, line.control.url)
    error = await failure(await line.agent(token=False))
    assert "--token" in error.message
    await line.control.service.remove("box")
    await line.agent()
    await line.control.online()


@pytest.mark.spec("enroll/refused-used-up-says-so", "reach/enroll-before-socket")
async def test_a_refused_token_is_explained_in_the_servers_words_and_nothing_is_dialled(line):
    token = await line.control.token()
    await line.control.service.enroll(token, "other", "n" * 32, "m", "linux", "10.0.0.9")
    error = await failure(await line.agent(token=token))
    assert error.code == "enrollment.used_up"
    assert "used up" in error.message
    assert "/ws/worker" not in [path for _, path, _ in line.control.requests]


@pytest.mark.spec("setting/agent-token-variable")
async def test_the_token_may_come_from_the_environment_and_a_flag_beats_it(line):
    environ = {
        "CODEFYUI_USER_DATA_DIR": str(line.user_data),
        "CODEFYUI_AGENT_TOKEN": await line.control.token(),
    }
    line.install = Install.find(environ=environ)
    error = await failure(await line.agent(token="cde_" + "0" * 43))
    assert error.code == "enrollment.unknown"
    await line.agent(token=False)
    assert (await line.control.online()).view.name == "box"


@pytest.mark.point(49)
@pytest.mark.parametrize("hours", [1, -1])
async def test_a_jump_of_the_wall_clock_changes_no_silence_and_no_connection(line, hours):
    manual = ManualClock()
    clock = AttentiveClock(manual)
    ticking = asyncio.create_task(clock.run())
    await line.agent(clock=clock)
    await line.control.online()
    for stepped in (manual, line.control.manual):
        stepped.set_wall(hours * 3600)
    for _ in range(15):
        await manual.advance(1)
        await line.control.manual.advance(1)
    ticking.cancel()
    await line.control.online()
    assert line.desk.downs == []
    assert len(line.desk.hellos) == 1


@pytest.mark.point(42)
async def test_an_enrollment_whose_reply_was_lost_is_repeated_with_the_same_nonce(line, monkeypatch):
    monkeypatch.setattr(enroll, "WAIT_S", 0.0)
    bodies = []
    answered = line.control._enroll

    async def lossy(request):
        bodies.append(await request.json())
        await line.control.service.enroll(**bodies[-1], address=request.remote)
        request.transport.abort()
        return web.Response()

    async def route(request):
        return await (lossy if len(bodies) == 0 else _noted)(request)

    async def _noted(request):
        bodies.append(await request.json())
        return await answered(request)

    token = await line.control.token()
    line.control.answer = lambda request: web.Response(status=500)
    await line.control.runner.cleanup()
    monkeypatch.setattr(line.control, "_enroll", route)
    await line.control.db.aclose()
    line.control.answer = None
    await line.control.start()
    await line.agent(token=token)
    await line.control.online()
    assert len(bodies) == 2
    assert bodies[0]["nonce"] == bodies[1]["nonce"]


@pytest.mark.spec("version/agent-stops-not-retries", "version/mismatch-exit-is-error")
@pytest.mark.spec("service/version-refusal-triggers-restart")
async def test_an_agent_of_another_version_stops_and_says_both(line, said):
    agent = await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    await line.control.crash()
    stored.final = "interrupted"  # nothing that it has is awaited any more
    line.control.version = "9.9.9"
    await line.control.start()
    await line.until(lambda: process.stops)
    process.end("stopped")
    assert await agent.ended() == 2
    assert "version mismatch: worker 1.2.3, control plane 9.9.9" in said.text
    assert stored.kinds == ["accepted"]
    assert line.spools() == ["r1.1"]


async def test_a_removed_worker_stops_its_runs_keeps_its_spool_and_ends_with_2(line, said):
    agent = await line.agent()
    await line.control.assign()
    process = await line.starter.process()
    await process.went
    await line.control.service.remove("box")
    await line.until(lambda: process.stops)
    process.end("stopped")
    assert await agent.ended() == 2
    assert "revoked" in said.text
    assert line.spools() == ["r1.1"]


@pytest.mark.point(35)
async def test_a_credential_revoked_while_away_ends_the_agent_at_its_next_dial(line, said):
    agent = await line.agent()
    await line.control.online()
    await agent.stop()
    await line.control.service.remove("box")
    assert await (await line.agent()).ended() == 2
    assert "revoked" in said.text
    assert "cdui agent forget" in said.text


async def attempts(line, count):
    def dialled():
        return [path for _, path, _ in line.control.requests].count("/ws/worker") >= count

    await line.until(dialled, f"{count} dials")


@pytest.mark.spec("credential/other-refusal-retried", "credential/advice-other-control-plane")
async def test_an_unknown_credential_is_retried_with_advice(line, said):
    agent = await line.agent()
    await line.control.online()
    await agent.stop()
    path = credential_file(line)
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"credential": "cdw_" + "x" * 43}))
    before = len(line.control.requests)
    again = await line.agent()
    await line.until(lambda: len(line.control.requests) > before + 1)
    assert not again.task.done()
    assert "another control plane or another database" in said.text
    assert "cdui agent forget" in said.text


@pytest.mark.spec("credential/advice-stale-session-token")
async def test_a_session_token_in_the_place_of_a_credential_is_recognized(line, said):
    agent = await line.agent()
    await line.control.online()
    await agent.stop()
    path = credential_file(line)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"credential": "s" * 43}))
    again = await line.agent()
    await line.until(lambda: "session token" in said.text)
    assert not again.task.done()


@pytest.mark.spec("credential/advice-proxy")
async def test_a_refusal_without_our_header_points_at_a_proxy(line, said):
    agent = await line.agent()
    await line.control.online()
    await agent.stop()
    line.control.answer = lambda request: web.Response(status=403, text="denied")
    again = await line.agent()
    await line.until(lambda: "proxy" in said.text)
    assert not again.task.done()
    line.control.answer = None
    await line.control.online()


async def test_a_damaged_credential_file_is_told_of_and_replaced_by_an_enrollment(line, said):
    path = credential_file(line)
    path.parent.mkdir()
    path.write_text("{not json")
    await line.agent(token=await line.control.token())
    await line.control.online()
    assert "damaged" in said.text


async def test_a_damaged_part_of_the_file_does_not_cost_the_credential(line, said):
    agent = await line.agent()
    await line.control.online()
    await agent.stop()
    path = credential_file(line)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"keep": {"connector": 17}}))
    await line.agent()
    await line.control.online()
    assert "damaged" in said.text


async def test_what_another_connector_trusts_is_not_given_up(line):
    """Its plugin is gone: the address would be dialed without the pinned key."""
    agent = await line.agent()
    await line.control.online()
    await agent.stop()
    path, asked = credential_file(line), len(line.control.requests)
    stored = json.loads(path.read_text()) | {
        "keep": {"connector": {"pinning": {"fingerprints": ["sha256:1"]}}}
    }
    path.write_text(json.dumps(stored))
    error = await failure(await line.agent())
    assert "Install the plugin of pinning" in error.message
    assert "cdui agent forget" in error.message
    assert len(line.control.requests) == asked
    assert json.loads(path.read_text()) == stored


async def test_the_name_of_another_worker_is_refused_with_2(line):
    agent = await line.agent()
    await line.control.online()
    await agent.stop()
    error = await failure(await line.agent(name="other"))
    assert error.exit_code == 2
    assert "box" in error.message


async def test_a_second_agent_for_the_same_address_and_folder_is_refused(line):
    await line.agent()
    await line.control.online()
    error = await failure(await line.agent())
    assert error.code == "agent.running"
    assert [one.running for one in statuses(line.user_data)] == [True]


@pytest.mark.spec("direct/agent-warns-once-on-plain-http", "direct/plain-http-still-connects")
@pytest.mark.spec("plainhttp/agent-warns-once", "plainhttp/agent-still-connects")
async def test_plain_http_to_another_machine_is_warned_of_once(line, monkeypatch):
    monkeypatch.setattr(Address, "is_loopback", False)
    agent = await line.agent()
    await line.control.online()
    for round_ in range(2):
        line.control.cut()
        await attempts(line, round_ + 2)
        await line.control.online()
    assert agent.warnings == [PLAIN_WARNING]


@pytest.mark.spec("plainhttp/no-warning-on-loopback")
async def test_loopback_is_not_warned_of(line):
    agent = await line.agent()
    await line.control.online()
    assert agent.warnings == []


@pytest.mark.spec("reach/socket-held-open", "overview/session-token-never-given-to-worker")
async def test_the_socket_carries_the_credential_alone_and_stays_open(line):
    await line.agent()
    await line.control.online()
    stored = json.loads(credential_file(line).read_text())
    sockets = [headers for _, path, headers in line.control.requests if path == "/ws/worker"]
    assert [one["Authorization"] for one in sockets] == [f"Bearer {stored['credential']}"]
    assert "X-CodefyUI-Token" not in sockets[0]


@pytest.mark.spec("catalog/helper-failure-still-connects")
async def test_the_report_carries_trust_and_facts_before_any_run(line):
    await line.agent()
    link = await line.control.online()
    assert link.trust["kind"] == "local"
    assert link.hello.catalog_hash == "c" * 64
    assert link.hello.connector == "direct"


async def test_a_silent_control_plane_is_left_after_twenty_seconds(line):
    manual = ManualClock()
    await line.agent(clock=AttentiveClock(manual))
    session = await line.control.online()
    session.line._beat.cancel()
    await manual.advance(19)
    assert line.desk.downs == []
    await manual.advance(3)
    await line.until(lambda: line.desk.downs)
    await manual.advance(2)
    await line.until(lambda: len(line.desk.hellos) == 2)


@pytest.mark.point(48)
async def test_a_machine_that_slept_dials_at_once(line):
    manual = ManualClock()
    await line.agent(clock=AttentiveClock(manual))
    await line.control.online()
    await manual.advance(1)
    manual.jump(3600)
    await manual.advance(1)
    await line.until(lambda: line.desk.downs)
    await manual.advance(1)
    await line.until(lambda: len(line.desk.hellos) == 2)


async def test_beats_say_what_is_live_and_answer_a_probe(line):
    manual = line.control.manual
    await line.agent(clock=AttentiveClock(manual))
    session = await line.control.online()
    probe = asyncio.create_task(session.probe(60))
    assert await asyncio.wait_for(probe, 10)
    await line.control.assign()
    await (await line.starter.process()).went
    line.desk.asked = 0
    while line.desk.asked < 4:
        await manual.advance(1)
        await asyncio.sleep(0.002)
    assert line.control.service.live() == (session,)


class TestSameHost:
    """``cdui agent start`` without an address."""

    @pytest.fixture
    def here(self, line):
        (line.user_data / "server.json").write_text(json.dumps({"url": line.control.url}))
        (line.user_data / "session.token").write_text("session-secret")
        return line

    async def test_it_enrolls_by_itself_under_the_key_local(self, here):
        await here.agent(url=None, token=False)
        assert (await here.control.online()).view.name == "box"
        assert (here.user_data / "agent" / "local.token").exists()
        paths = [(path, "X-CodefyUI-Token" in headers) for _, path, headers in here.control.requests]
        assert paths == [
            ("/api/workers", True),
            ("/api/workers/tokens", True),
            ("/api/workers/enroll", False),
            ("/ws/worker", False),
        ]

    async def test_it_follows_the_server_to_another_port(self, here):
        await here.agent(url=None, token=False)
        await here.control.online()
        await here.control.crash()
        here.control.port = 0
        await here.control.start()
        (here.user_data / "server.json").write_text(json.dumps({"url": here.control.url}))
        await here.control.online()

    async def test_a_new_database_is_enrolled_at_without_asking(self, here):
        await here.agent(url=None, token=False)
        await here.control.online()
        await here.control.crash()
        for path in here.control.folder.glob("control.db*"):
            path.unlink()
        await here.control.start()
        await here.control.online()
        assert (await here.control.service.list())["workers"][0]["name"] == "box"

    async def test_without_a_server_it_says_how_to_start_one(self, line):
        error = await failure(await line.agent(url=None, token=False))
        assert "cdui start" in error.message


async def test_an_agent_whose_way_others_bring_back_stops_after_the_grace(line, monkeypatch):
    monkeypatch.setattr("codefyui_core.builtin.direct.agent.DirectAgent.stops_without_connection", True)
    manual = ManualClock()
    agent = await line.agent(clock=AttentiveClock(manual))
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    await line.control.crash()
    while not process.stops:
        await manual.advance(5)
        await asyncio.sleep(0.002)
    process.end("stopped")
    assert await agent.ended() == 1
    assert manual.monotonic() >= 300
    await line.control.start()
    await line.agent()
    await line.until(lambda: stored.final)
    assert stored.items[-1].payload["stop_reason"] == "lost_tunnel"
