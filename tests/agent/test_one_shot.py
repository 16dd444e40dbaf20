"""One-shot agents: one run, its outcome recorded, a status that says how it went."""

import asyncio
import logging
from dataclasses import replace

import pytest

from codefyui_core.agent.__main__ import status_of
from codefyui_core.agent.one_run import OneRun, Patience
from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import CodefyError, LinkProblem, StartProblem, UsageProblem
from codefyui_core.settings import ControlSettings
from codefyui_core.testing.clock import ManualClock
from codefyui_core.wire.messages import AttemptKey, StopReason, VerdictKind

DIAL_S = 0.2
"""The longest pause before a dial here."""


async def one_shot(line, **plan):
    return await line.agent(one_shot=True, **plan)


async def begin(line, run_id="r1"):
    number = len(line.starter.processes)
    stored = await line.control.assign(run_id)
    process = await line.starter.process(number)
    await process.went
    return stored, process


def wrote_end(line):
    """The agent has the end of the run on its disk."""
    return any(b'"end"' in path.read_bytes() for path in line.user_data.rglob("*.log"))


class Time:
    """Of the agent alone, by hand."""

    def __init__(self, line, caplog):
        self.manual = ManualClock()
        self.clock = AttentiveClock(self.manual)
        self._line = line
        self._caplog = caplog

    async def advance(self, seconds):
        """Both planes are awake, and what they send each other arrives."""
        for _ in range(int(seconds)):
            await self.manual.advance(1)
            await self._line.control.manual.advance(1)
            await asyncio.sleep(0.002)

    async def alone(self, seconds):
        """There is no control plane, and the agent knows."""
        await self._line.until(self._is_cut_off, "the agent's notice")
        for _ in range(int(seconds)):
            await self.manual.advance(1)

    def _is_cut_off(self):
        return self._last_said().startswith("disconnected")

    def _is_let_in(self):
        return self._line.control.service.live() and self._last_said().startswith("connected to")

    def _last_said(self):
        """Of its line: the agent writes it once it counts."""
        said = (one.getMessage() for one in self._caplog.records if one.name == "codefyui.agent")
        return [one for one in said if one.startswith(("connected to", "disconnected"))][-1]

    async def back(self):
        """Until the agent knows that it was let in again. Time passes only while it waits to dial, however long the
        machine takes for the rest.
        """
        returned = asyncio.create_task(self._line.until(self._is_let_in, "its return"))
        while not returned.done():
            if self.manual.wakes_within(DIAL_S):
                await self.manual.advance(DIAL_S)
            await asyncio.wait({returned}, timeout=0.01)
        await returned

    async def with_grace(self, seconds):
        await self._line.control.crash()
        self._line.control.settings = ControlSettings(worker_resume_grace_s=seconds)
        await self._line.control.start()


@pytest.fixture
def time(line, caplog):
    caplog.set_level(logging.INFO, logger="codefyui.agent")
    return Time(line, caplog)


# ---------------------------------------------------------------- how it ends


@pytest.mark.spec("oneshot/exit-0-success-recorded", "oneshot/takes-one-run-and-exits")
async def test_it_ends_with_0_once_the_success_is_recorded_and_has_said_bye(line):
    agent = await one_shot(line)
    stored, process = await begin(line)
    process.end("succeeded")
    assert await agent.ended() == 0
    assert stored.final == "succeeded"
    await line.until(lambda: line.desk.downs)
    assert line.desk.downs == ["the agent left (done)"]
    assert line.spools() == []
    assert not list(line.user_data.glob("agent/*.pid"))


@pytest.mark.parametrize("outcome", ["failed", "stopped", None])
@pytest.mark.spec("oneshot/exit-1-run-not-successful")
async def test_it_ends_with_1_for_every_other_end(line, outcome):
    agent = await one_shot(line)
    stored, process = await begin(line)
    process.end(outcome, exit_code=3)
    assert await agent.ended() == 1
    assert stored.final is not None


async def test_it_takes_no_second_run_and_says_so(line):
    agent = await one_shot(line)
    _, process = await begin(line)
    await line.control.assign("r2")
    await line.until(lambda: line.desk.refusals)
    (refusal,) = line.desk.refusals
    assert (refusal.run_id, refusal.code, refusal.retry) == ("r2", "busy", True)
    line.control.cut()
    await line.until(lambda: [link for link in line.control.service.live() if not link.accepting])
    process.end("succeeded")
    assert await agent.ended() == 0


@pytest.mark.spec("oneshot/exits-only-after-ack")
@pytest.mark.point(15)
async def test_it_waits_for_an_acknowledgement_that_is_30_s_late(line, time):
    agent = await one_shot(line, clock=time.clock)
    stored, process = await begin(line)
    await line.until(lambda: stored.position)
    line.desk.gate.clear()
    process.end("succeeded")
    await line.until(lambda: process.read)
    await time.advance(30)
    assert not agent.task.done()
    assert stored.final is None
    line.desk.gate.set()
    assert await agent.ended() == 0
    assert stored.final == "succeeded"


@pytest.mark.spec("oneshot/gives-up-after-grace-exit-1", "oneshot/exit-1-undelivered")
@pytest.mark.spec("oneshot/undelivered-result-spooled-for-later-agent")
@pytest.mark.point(25)
async def test_it_gives_up_after_the_grace_without_contact_and_a_later_agent_delivers(line, time):
    await time.with_grace(30)
    agent = await one_shot(line, clock=time.clock)
    stored, process = await begin(line)
    await line.until(lambda: stored.position)
    await line.control.crash()
    await time.alone(40)
    assert not agent.task.done(), "the grace counts from the run's end"
    process.end("succeeded")
    await line.until(lambda: wrote_end(line))
    await time.alone(25)
    assert not agent.task.done()
    await time.alone(10)
    assert await agent.ended() == 1
    (spool,) = line.user_data.glob("agent-spool/*/r1.1")
    assert (spool / "released").exists()
    await line.control.start()
    await line.agent()
    await line.until(lambda: stored.final)
    assert stored.final == "succeeded"
    await line.until(lambda: line.spools() == [])


async def test_contact_before_the_grace_is_over_starts_it_again(line, time):
    await time.with_grace(30)
    agent = await one_shot(line, clock=time.clock)
    stored, process = await begin(line)
    await line.until(lambda: stored.position)
    line.desk.gate.clear()
    process.end("succeeded")
    await line.until(lambda: wrote_end(line))
    for _ in range(2):
        await line.control.crash()
        await time.alone(20)
        await line.control.start()
        await time.back()
    assert not agent.task.done()
    line.desk.gate.set()
    assert await agent.ended() == 0


@pytest.mark.spec("oneshot/drop-keeps-run-and-reconnects")
async def test_a_dropped_line_keeps_the_run(line):
    agent = await one_shot(line)
    stored, process = await begin(line)
    process.log("before")
    line.control.cut()
    process.log("during")
    process.end("succeeded")
    assert await agent.ended() == 0
    assert stored.kinds == ["accepted", "event", "event", "exited", "end"]


@pytest.mark.parametrize(("final", "status"), [("succeeded", 0), ("interrupted", 1)])
@pytest.mark.point(26)
async def test_an_acknowledgement_that_was_lost_is_made_good_by_the_next_hello(line, final, status):
    agent = await one_shot(line)
    stored, process = await begin(line)
    await line.until(lambda: stored.position)
    await line.control.crash()
    process.end("succeeded")
    stored.final = final  # the commit was the last that this server did
    await line.control.start()
    assert await agent.ended() == status


async def test_a_run_of_another_database_is_not_waited_for_longer_than_the_grace(line, time):
    await time.with_grace(30)
    agent = await one_shot(line, clock=time.clock)
    stored, process = await begin(line)
    await line.until(lambda: stored.position)
    stored.kind = VerdictKind.KEEP
    line.control.cut()
    await line.control.offline()
    await time.back()
    process.end("succeeded")
    await line.until(lambda: process.read)
    await time.advance(40)
    assert await agent.ended() == 1


async def test_a_full_disk_ends_it_with_1_instead_of_refusing_one_run_after_the_other(line, monkeypatch):
    agent = await one_shot(line)
    await line.control.online()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("codefyui_core.agent.folder.make", full)
    await line.control.assign()
    assert await agent.ended() == 1
    assert [one.code for one in line.desk.refusals] == ["disk_full"]


# ---------------------------------------------------------------- stopped


@pytest.mark.spec("oneshot/exit-3-stopped-before-run", "oneshot/no-own-time-limit")
async def test_stopped_before_a_run_came_it_ends_with_3(line, time):
    agent = await one_shot(line, clock=time.clock)
    await line.control.online()
    await time.advance(400)
    assert not agent.task.done()
    assert await agent.stop() == 3
    await line.until(lambda: line.desk.downs)
    assert line.desk.downs == ["the agent left (stopping)"]


async def test_stopped_while_it_starts_it_ends_with_3_and_a_regular_agent_with_0(line):
    await line.control.runner.cleanup()  # enrolling tries for a while
    for kind, status in ((True, 3), (False, 0)):
        agent = await line.agent(token="abcdef.0123456789abcdef", one_shot=kind)
        await asyncio.sleep(0)
        assert await agent.stop() == status


@pytest.mark.spec("slurm/sigterm-interrupts-run-exit-1")
async def test_stopped_during_its_run_it_delivers_the_end_and_ends_with_1(line):
    agent = await one_shot(line)
    stored, process = await begin(line)
    agent.stop_asked.set()
    await line.until(lambda: process.stops)
    process.end("stopped")
    assert await agent.ended() == 1
    assert stored.items[-1].payload["stop_reason"] == StopReason.ONE_SHOT_STOP
    assert line.desk.downs == ["the agent left (done)"]


async def test_a_success_that_was_recorded_while_it_stopped_stays_one(line):
    agent = await one_shot(line)
    _, process = await begin(line)
    agent.stop_asked.set()
    await line.until(lambda: process.stops)
    process.end("succeeded")
    assert await agent.ended() == 0


async def test_stopped_without_a_line_it_leaves_the_end_to_a_later_agent(line, monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.one_shot.DELIVER_WITHIN_S", 0.2)
    agent = await one_shot(line)
    stored, process = await begin(line)
    await line.until(lambda: stored.position)
    await line.control.crash()
    agent.stop_asked.set()
    await line.until(lambda: process.stops)
    process.end("stopped")
    assert await agent.ended() == 1
    assert list(line.user_data.glob("agent-spool/*/r1.1/released"))


# ---------------------------------------------------------------- refused


@pytest.mark.spec("oneshot/exit-2-version-mismatch")
async def test_refused_for_its_version_it_ends_with_2(line):
    line.control.version = "9.9.9"
    await line.control.crash()
    await line.control.start()
    assert await (await one_shot(line)).ended() == 2


@pytest.mark.spec("oneshot/run-id-must-be-waiting", "oneshot/exit-2-bad-run-id")
async def test_refused_because_its_run_does_not_wait_it_ends_with_2(line, caplog):
    line.desk.claim_problems["r9"] = "no run r9 waits here"
    assert await (await one_shot(line, run_id="r9")).ended() == 2
    assert "no run r9 waits here" in caplog.text


async def test_let_go_because_its_run_is_gone_it_ends_with_2(line):
    agent = await one_shot(line, run_id="r1")
    (await line.control.online()).run_gone()
    assert await agent.ended() == 2


@pytest.mark.spec("oneshot/exit-2-name-held")
async def test_a_second_agent_of_the_folder_or_of_the_name_ends_with_2(line, tmp_path):
    await one_shot(line)
    await line.control.online()
    second = await one_shot(line)
    with pytest.raises(CodefyError) as refused:
        await second.ended()
    assert status_of(refused.value, one_shot=True) == 2
    copied = with_copied_credential(line, tmp_path / "copied")
    assert await (await one_shot(copied, token=False)).ended() == 2
    assert line.control.service.live()


def with_copied_credential(line, folder):
    """The line of another user-data folder with the same credential."""
    (credential,) = line.user_data.glob("agent/*.token")
    (folder / "agent").mkdir(parents=True)
    (folder / "agent" / credential.name).write_bytes(credential.read_bytes())
    return replace(line, install=type(line.install).find(environ={"CODEFYUI_USER_DATA_DIR": str(folder)}))


@pytest.mark.spec("oneshot/next-agent-same-name")
@pytest.mark.point(40)
async def test_the_name_is_free_the_moment_that_its_agent_has_ended(line, tmp_path):
    first = await one_shot(line)
    _, process = await begin(line)
    other = with_copied_credential(line, tmp_path / "other")
    assert await (await one_shot(other, token=False)).ended() == 2
    process.end("succeeded")
    assert await first.ended() == 0
    for number in range(2, 5):
        agent = await one_shot(other if number % 2 else line, token=False)
        _, process = await begin(line, f"r{number}")
        process.end("succeeded")
        assert await agent.ended() == 0


@pytest.mark.spec("oneshot/exit-1-refused-after-taking")
async def test_refused_after_it_took_its_run_it_stops_that_and_ends_with_1(line):
    agent = await one_shot(line)
    _, process = await begin(line)
    await line.control.service.remove("box")
    await line.until(lambda: process.stops)
    process.end("stopped")
    assert await agent.ended() == 1


@pytest.mark.spec("oneshot/exit-4-could-not-start")
async def test_what_keeps_it_from_starting_is_4(line):
    token = await line.control.token()
    await line.control.service.revoke_token(token[:6])
    with pytest.raises(CodefyError) as refused:
        await (await one_shot(line, token=token)).ended()
    assert status_of(refused.value, one_shot=True) == 4
    assert status_of(refused.value) == 1
    assert status_of(StartProblem("no mount"), one_shot=True) == 4
    assert status_of(UsageProblem("a flag"), one_shot=True) == 2
    assert status_of(LinkProblem("another name", exit_code=2), one_shot=True) == 2


async def test_a_control_plane_that_can_not_be_reached_to_enroll_is_4(line, monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.enroll.WAIT_S", 0.0)
    token = await line.control.token()
    await line.control.crash()
    with pytest.raises(StartProblem) as failed:
        await (await one_shot(line, token=token)).ended()
    assert status_of(failed.value, one_shot=True) == 4


# ---------------------------------------------------------------- who comes after one that was killed


@pytest.mark.point(23)
async def test_the_next_agent_of_the_folder_ends_the_run_of_a_killed_one_and_takes_its_own(line):
    first = await one_shot(line)
    stored, process = await begin(line)
    await line.until(lambda: stored.position)
    await first.kill()
    process.end(signal=9)
    agent = await one_shot(line)
    await line.until(lambda: stored.final)
    assert stored.items[-1].payload["stop_reason"] == StopReason.AGENT_RESTARTED
    _, second = await begin(line, "r2")
    second.end("succeeded")
    assert await agent.ended() == 0


# ---------------------------------------------------------------- small parts


def test_only_its_own_run_ends_it():
    one = OneRun()
    assert one.status == 3
    one.take(AttemptKey(run_id="a", attempt=1))
    one.ended(AttemptKey(run_id="b", attempt=1), "succeeded")
    assert (one.status, one.over.is_set()) == (1, False)
    one.ended(AttemptKey(run_id="a", attempt=1), "succeeded")
    assert (one.status, one.over.is_set()) == (0, True)


async def test_a_pause_of_the_machine_starts_the_grace_again():
    manual = ManualClock()
    clock = AttentiveClock(manual)
    patience = Patience(clock, alone=lambda: True, contacts=lambda: 0, grace_s=lambda: 10.0)

    async def awake(seconds):
        for _ in range(seconds):
            await manual.advance(1)
            clock.tick()

    await awake(9)
    manual.jump(3600)
    clock.tick()
    await awake(9)
    assert not patience.over.is_set()
    await awake(3)
    assert patience.over.is_set()
    patience.close()
