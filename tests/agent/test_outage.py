"""What happens to runs when the line, the control plane or the agent goes."""

import shutil

import pytest

from codefyui_core.agent.spool import Spool
from codefyui_core.wire.messages import StopReason, VerdictKind


async def begin(line, run_id="r1"):
    number = len(line.starter.processes)
    stored = await line.control.assign(run_id)
    process = await line.starter.process(number)
    await process.went
    return stored, process


def texts(stored):
    return [item.payload["lines"][0] for item in stored.items if item.type == "log"]


@pytest.mark.spec("drop/runs-continue-on-worker", "drop/reconnect-replays-unrecorded-in-order")
@pytest.mark.spec("drop/no-gap-no-duplicate")
@pytest.mark.point(11)
async def test_a_cut_line_loses_and_doubles_nothing(line):
    await line.agent()
    stored, process = await begin(line)
    for round_ in range(3):
        process.log(f"before {round_}")
        await line.until(lambda round_=round_: f"before {round_}" in texts(stored))
        line.control.cut()
        process.log(f"during {round_}")
        await line.until(lambda round_=round_: f"during {round_}" in texts(stored))
    process.end("succeeded")
    await line.until(lambda: stored.final)
    assert texts(stored) == [f"{when} {n}" for n in range(3) for when in ("before", "during")]
    assert stored.kinds.count("accepted") == stored.kinds.count("end") == 1


@pytest.mark.spec("drop/run-ending-during-outage-is-delivered", "restart/resumes-when-worker-still-has-run")
@pytest.mark.spec("restart/unclean-stop-leaves-runs-executing")
async def test_what_a_run_says_while_the_control_plane_is_down_is_delivered_afterwards(line):
    await line.agent()
    stored, process = await begin(line)
    await line.control.crash()
    for number in range(50):
        process.log(str(number))
    process.end("succeeded")
    await line.until(lambda: process.read == 51)
    await line.control.start()
    await line.until(lambda: stored.final)
    assert texts(stored) == [str(number) for number in range(50)]
    assert stored.final == "succeeded"


@pytest.mark.point(29)
async def test_a_stop_asked_while_away_comes_with_the_verdict(line):
    await line.agent()
    stored, process = await begin(line)
    stored.stop = StopReason.USER
    line.control.cut()
    await line.until(lambda: process.stops)
    process.end("stopped")
    await line.until(lambda: stored.final)
    assert stored.items[-1].payload["stop_reason"] == "user"


@pytest.mark.point(15)
async def test_acknowledgements_that_do_not_come_hold_nothing_but_the_window(line):
    await line.agent()
    stored, process = await begin(line)
    line.desk.gate.clear()
    for number in range(3000):
        process.log(f"{number} " + "x" * 1000)
    await line.until(lambda: process.read == 3000)
    assert line.control.service.live()
    line.desk.gate.set()
    process.end("succeeded")
    await line.until(lambda: stored.final)
    assert [text.split()[0] for text in texts(stored)] == [str(number) for number in range(3000)]


async def test_a_late_run_is_stopped_and_only_its_end_is_sent(line):
    await line.agent()
    stored, process = await begin(line)
    stored.kind = VerdictKind.LATE
    await line.control.crash()
    for number in range(10):
        process.log(str(number))
    await line.until(lambda: process.read == 10)
    await line.control.start()
    await line.until(lambda: process.stops)
    process.end("stopped")
    await line.until(lambda: stored.final)
    assert stored.kinds == ["accepted", "skip", "end"]
    assert stored.items[1].payload["reason"] == "late"
    assert stored.items[-1].payload["stop_reason"] == "late"
    await line.until(lambda: line.spools() == [])


async def test_a_settled_run_is_stopped_and_forgotten(line):
    await line.agent()
    stored, process = await begin(line)
    stored.final = "interrupted"
    line.control.cut()
    await line.until(lambda: process.stops)
    process.end("stopped")
    await line.until(lambda: line.spools() == [])
    assert stored.kinds == ["accepted"]


@pytest.mark.point(20)
async def test_the_spool_of_an_unknown_run_is_set_aside(line):
    await line.agent()
    _, process = await begin(line)
    del line.desk.attempts["r1", 1]
    line.control.cut()
    await line.until(lambda: process.stops)
    process.end("stopped")
    key = f"127.0.0.1-{line.control.port}"
    await line.until((line.user_data / "agent-spool" / f"{key}.aside" / "r1.1").is_dir)


async def test_a_run_of_a_foreign_database_is_kept_and_not_sent(line):
    await line.agent()
    stored, process = await begin(line)
    stored.kind = VerdictKind.KEEP
    line.control.cut()
    await line.until(lambda: len(line.desk.hellos) == 2)
    await line.control.online()
    process.log("private")
    await line.until(lambda: process.read)
    assert stored.kinds == ["accepted"]
    assert process.stops == []


@pytest.mark.spec("drop/events-spooled-on-disk-until-confirmed")
async def test_an_agent_that_was_killed_delivers_what_its_runs_had_said_and_their_end(line):
    agent = await line.agent()
    stored, process = await begin(line)
    await line.control.crash()
    for number in range(20):
        process.log(str(number))
    await line.until(lambda: process.read == 20)
    await agent.kill()
    await line.control.start()
    await line.agent()
    await line.until(lambda: stored.final)
    assert texts(stored) == [str(number) for number in range(20)]
    end = stored.items[-1].payload
    assert (end["outcome"], end["stop_reason"]) == (None, "agent_restarted")
    await line.until(lambda: line.spools() == [])


@pytest.mark.point(18)
async def test_after_a_power_loss_the_end_gets_a_number_that_nobody_used(line):
    agent = await line.agent()
    stored, process = await begin(line)
    for number in range(20):
        process.log(str(number))
    await line.until(lambda: len(texts(stored)) == 20)
    await agent.kill()
    for path in line.user_data.glob("agent-spool/*/r1.1/*.log"):
        raw = path.read_bytes()
        path.write_bytes(raw[: raw.index(b"\xc0\xde", 2)])  # what was synced: the acceptance alone
    await line.agent()
    await line.until(lambda: stored.final)
    assert stored.position == 22
    assert stored.items[-1].payload["stop_reason"] == "agent_restarted"


@pytest.mark.point(19)
async def test_a_flipped_bit_is_told_as_a_counted_gap(line):
    agent = await line.agent()
    stored, process = await begin(line)
    await line.control.crash()
    for number in range(20):
        process.log(f"line {number:03d}")
    await line.until(lambda: process.read == 20)
    await agent.kill()
    (path,) = line.user_data.glob("agent-spool/*/r1.1/*.log")
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"line 007")] ^= 1
    path.write_bytes(raw)
    await line.control.start()
    await line.agent()
    await line.until(lambda: stored.final)
    skip = next(item for item in stored.items if item.kind == "skip")
    assert skip.payload == {"from": 9, "to": 9, "reason": "corrupt"}
    assert texts(stored) == [f"line {n:03d}" for n in range(20) if n != 7]


@pytest.mark.point(25)
async def test_an_end_that_was_written_is_delivered_as_it_was(line):
    agent = await line.agent()
    stored, process = await begin(line)
    await line.control.crash()
    process.end("failed", error="loss is nan")
    spool = line.user_data / "agent-spool"
    await line.until(lambda: any(b'"end"' in path.read_bytes() for path in spool.rglob("*.log")))
    await agent.kill()
    await line.control.start()
    await line.agent()
    await line.until(lambda: stored.final)
    assert (stored.final, stored.items[-1].payload["error"]) == ("failed", "loss is nan")
    assert stored.kinds == ["accepted", "exited", "end"]


@pytest.mark.point(24)
async def test_an_agent_killed_between_exited_and_end_still_knows_the_outcome(line):
    agent = await line.agent()
    stored, process = await begin(line)
    await line.control.crash()
    process.end("succeeded")
    spool = line.user_data / "agent-spool"
    await line.until(lambda: any(b'"end"' in path.read_bytes() for path in spool.rglob("*.log")))
    await agent.kill()
    (path,) = spool.rglob("*.log")
    raw = path.read_bytes()
    path.write_bytes(raw[: raw.rindex(b"\xc0\xde")])
    await line.control.start()
    await line.agent()
    await line.until(lambda: stored.final)
    assert stored.final == "succeeded"
    assert line.desk.hellos[-1][0].phase == "publishing"


@pytest.mark.point(26)
async def test_the_ack_of_an_end_that_was_lost_is_no_second_end(line):
    await line.agent()
    stored, process = await begin(line)
    await line.control.crash()
    process.end("succeeded")
    stored.final = "succeeded"
    await line.control.start()
    await line.until(lambda: line.spools() == [])
    assert stored.kinds == ["accepted"]


async def test_a_rewind_sends_again_from_there(line):
    await line.agent()
    stored, process = await begin(line)
    for number in range(5):
        process.log(str(number))
    await line.until(lambda: len(texts(stored)) == 5)
    stored.position -= 3
    del stored.items[-3:]
    process.log("5")
    process.end("succeeded")
    await line.until(lambda: stored.final)
    assert texts(stored) == ["0", "1", "2", "3", "4", "5"]
    assert stored.kinds.count("end") == 1


async def test_nothing_is_resent_within_a_connection(line):
    await line.agent()
    stored, process = await begin(line)
    line.desk.gate.clear()
    for number in range(10):
        process.log(str(number))
    await line.until(lambda: process.read == 10)
    line.desk.gate.set()
    process.end("succeeded")
    await line.until(lambda: stored.final)
    sent = [first + index for first, count in line.desk.batches for index in range(count)]
    assert sent == list(range(1, stored.position + 1))


@pytest.mark.point(10)
async def test_hello_lists_an_attempt_from_the_moment_that_its_assign_was_read(line):
    line.starter.ready_at_once = False
    await line.agent()
    stored = await line.control.assign()
    await line.starter.process()
    line.control.cut()
    await line.until(lambda: len(line.desk.hellos) == 2)
    (listed,) = line.desk.hellos[1]
    assert (listed.run_id, listed.lease, listed.phase) == ("r1", stored.lease, "preparing")


@pytest.mark.point(34)
async def test_a_planned_restart_is_waited_for_and_runs_go_on(line):
    await line.agent()
    stored, process = await begin(line)
    await line.control.stop("restart")
    process.log("meanwhile")
    await line.control.start()
    await line.until(lambda: texts(stored) == ["meanwhile"])
    assert process.stops == []


@pytest.mark.parametrize("lost", ["the records", "the whole disk"])
@pytest.mark.point(6)
async def test_an_acceptance_that_the_disk_lost_leaves_an_attempt_that_may_be_sent_again(line, lost):
    agent = await line.agent()
    line.desk.gate.clear()
    stored = await line.control.assign()
    process = await line.starter.process()
    await agent.kill()
    for spool in line.user_data.glob("agent-spool/*/r1.1"):
        if lost == "the whole disk":
            shutil.rmtree(spool)
        for path in spool.glob("*.log"):
            path.write_bytes(b"")
    line.desk.gate.set()
    assert stored.position == 0
    await line.agent()
    await line.until(lambda: len(line.desk.hellos) == 2)
    assert line.desk.hellos[1] == ()
    assert not process.went.done()
    again = await line.control.assign()
    second = await line.starter.process(1)
    await line.until(second.went.done)
    second.end("succeeded")
    await line.until(lambda: again.final)
    assert again.kinds == ["accepted", "exited", "end"]


@pytest.mark.point(17)
async def test_a_spool_that_was_not_trimmed_in_time_is_trimmed_by_the_welcome(line):
    agent = await line.agent()
    stored, process = await begin(line)
    for number in range(20):
        process.log(str(number))
    await line.until(lambda: len(texts(stored)) == 20)
    folder = next(line.user_data.glob("agent-spool/*/r1.1"))
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    process.end("succeeded")
    await line.until(lambda: line.spools() == [])
    await agent.kill()
    folder.mkdir()
    for name, data in kept.items():
        (folder / name).write_bytes(data)
    batches = len(line.desk.batches)
    await line.agent()
    await line.until(lambda: line.spools() == [])
    assert line.desk.batches[batches:] == []


@pytest.mark.point(20)
async def test_what_a_restored_database_lacks_and_the_spool_gave_up_is_a_counted_gap(line, monkeypatch):
    monkeypatch.setitem(Spool.__init__.__kwdefaults__, "segment_bytes", 500)
    await line.agent()
    stored, process = await begin(line)
    for number in range(20):
        process.log(f"{number:03d}")
    await line.until(lambda: len(texts(stored)) == 20)
    folder = next(line.user_data.glob("agent-spool/*/r1.1"))
    await line.until(lambda: min(int(path.stem) for path in folder.glob("*.log")) > 3)
    stored.position, stored.items = 2, stored.items[:2]
    line.control.cut()
    process.end("succeeded")
    await line.until(lambda: stored.final)
    skip = next(item for item in stored.items if item.kind == "skip")
    kept_from = skip.payload["to"] + 1
    assert skip.payload == {"from": 3, "to": kept_from - 1, "reason": "not_kept"}
    assert texts(stored) == [f"{n:03d}" for n in (0, *range(kept_from - 2, 20))]
    assert stored.final == "succeeded"


@pytest.mark.point(7)
async def test_an_attempt_that_was_accepted_and_never_began_is_ended_by_the_next_agent(line):
    line.starter.ready_at_once = False
    agent = await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await line.until(lambda: stored.position == 1)
    await agent.kill()
    line.starter.ready_at_once = True
    await line.agent()
    await line.until(lambda: stored.final)
    assert not process.went.done()
    assert len(line.starter.processes) == 1
    assert stored.kinds == ["accepted", "end"]
    assert (stored.final, stored.items[-1].payload["stop_reason"]) == ("interrupted", "agent_restarted")
