import errno
from pathlib import Path

import pytest

from codefyui_core.errors import CodefyError
from codefyui_core.wire.messages import StopReason


@pytest.mark.spec("overview/worker-is-an-agent-process", "overview/assignment-carries-graph-and-options")
async def test_a_run_from_assignment_to_its_recorded_end(line):
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    go = await process.went
    assert go.document == {"secret": "s3cr3t"}
    process.log("hello")
    process.say("environment", payload={"python": "3.12"})
    process.end("succeeded")
    await line.until(lambda: stored.final)
    assert stored.kinds == ["accepted", "event", "environment", "exited", "end"]
    assert stored.items[0].payload["devices"] == ["cpu"]
    assert stored.items[3].payload["stderr_tail"] == ["bye"]
    await line.until(lambda: line.spools() == [])


async def test_user_code_starts_only_after_the_control_plane_recorded_the_acceptance(line):
    await line.agent()
    line.desk.gate.clear()
    stored = await line.control.assign()
    process = await line.starter.process()
    await line.until(lambda: line.desk.live_attempts(""))
    await line.control.ask_stop("none")  # a round trip: everything sent before has been read
    assert not process.went.done()
    line.desk.gate.set()
    await process.went
    assert stored.kinds == ["accepted"]


@pytest.mark.spec("overview/run-crash-is-contained", "overview/run-oom-kill-is-contained")
async def test_a_process_that_dies_ends_its_run_alone(line):
    await line.agent(devices=())
    first, second = await line.control.assign("r1"), await line.control.assign("r2")
    one, two = await line.starter.process(0), await line.starter.process(1)
    await one.went
    await two.went
    runs = {process.launch.run_id: process for process in (one, two)}
    runs["r1"].end(signal=9)
    await line.until(lambda: first.final)
    assert first.items[-1].payload["signal"] == 9
    assert first.items[-1].payload["outcome"] is None
    assert second.final is None
    runs["r2"].end("succeeded")
    await line.until(lambda: second.final)
    assert line.control.service.live()


@pytest.mark.spec("trust/assignment-carries-secret-values")
async def test_secrets_and_graph_are_in_no_file_of_the_agent(line):
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    files = [path for path in line.user_data.rglob("*") if path.is_file()]
    assert any(path.name == "head.json" for path in files)
    assert not [path for path in files if b"s3cr3t" in path.read_bytes()]
    process.end("succeeded")
    await line.until(lambda: stored.final)


async def test_a_stop_reaches_the_process_with_its_grace(line):
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    await line.control.ask_stop()
    await line.until(lambda: process.stops)
    assert process.stops == [10.0]
    process.end("stopped")
    await line.until(lambda: stored.final)
    end = stored.items[-1].payload
    assert (end["outcome"], end["stop_reason"], end["stopped_in_time"]) == ("stopped", "user", True)


async def test_a_stop_before_go_ends_the_run_without_a_start(line):
    line.starter.ready_at_once = False
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await line.control.ask_stop()
    await line.until(lambda: process.stops)
    process.end(signal=15)
    process.is_ready.set()
    await line.until(lambda: stored.final)
    assert not process.went.done()
    assert stored.items[-1].payload["stop_reason"] == "user"


@pytest.mark.point(30)
async def test_an_outcome_stands_whatever_stop_came(line):
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    await line.control.ask_stop()
    await line.until(lambda: process.stops)
    process.end("succeeded")
    await line.until(lambda: stored.final)
    assert stored.items[-1].payload["outcome"] == "succeeded"


@pytest.mark.point(8)
async def test_a_process_that_is_lost_before_go_is_made_once_more(line):
    line.starter.fail = [CodefyError("no fork", code="run.process_lost")]
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    process.end("succeeded")
    await line.until(lambda: stored.final)
    assert stored.kinds == ["accepted", "exited", "end"]


async def test_a_process_that_can_not_be_made_fails_the_run_with_the_reason(line):
    line.starter.fail = [CodefyError("no fork", code="run.process_lost")] * 2
    await line.agent()
    stored = await line.control.assign()
    await line.until(lambda: stored.final)
    end = stored.items[-1].payload
    assert (end["outcome"], end["error"]) == ("failed", "no fork")


@pytest.mark.spec("agent/devices-flag-limits-gpus")
async def test_only_the_devices_asked_for_are_offered_and_others_refused(line):
    await line.agent(devices=("cuda:0",))
    link = await line.control.online()
    assert [device.device for device in link.devices] == ["cpu", "cuda:0"]
    await line.control.assign(devices=("cuda:1",))
    await line.until(lambda: line.desk.refusals)
    assert (line.desk.refusals[0].code, line.desk.refusals[0].retry) == ("device_unknown", False)
    assert line.spools() == []


async def test_a_run_sees_its_own_card_alone(line):
    await line.agent()
    await line.control.assign(devices=("cuda:0",))
    process = await line.starter.process()
    assert process.launch.env["CUDA_VISIBLE_DEVICES"] == "GPU-0"
    assert process.launch.env["CODEFYUI_AGENT_TOKEN"] == ""
    assert (await process.went).device == "cuda:0"


async def test_a_run_that_declares_no_files_works_in_the_folders_of_this_installation(line):
    await line.agent()
    await line.control.assign()
    go = await (await line.starter.process()).went
    assert go.folders.base.endswith("backend")
    assert go.folders.data == str(Path(go.folders.base) / "data")
    assert not (line.user_data / "agent-runs" / "r1").exists()


async def test_files_in_the_shared_folder_are_told_of_once_they_are_whole(line, tmp_path):
    await line.agent()
    (tmp_path / "data" / "models").mkdir(parents=True)
    model = tmp_path / "data" / "models" / "m.pt"
    model.write_bytes(b"weights")
    from codefyui_core.builtin.local.models import FolderPlaces

    places = FolderPlaces(root=str(tmp_path / "data"))
    ticket = {"inputs": [], "places": places.model_dump(mode="json")}
    stored = await line.control.assign(backend="local", ticket=ticket)
    process = await line.starter.process()
    go = await process.went
    assert go.folders.data == str(tmp_path / "data")
    payload = {"artifact_id": "a1", "kind": "export", "name": "m.pt", "path": str(model)}
    process.say(type_="artifact", payload=payload)
    process.end("succeeded")
    await line.until(lambda: stored.final)
    told = next(item.payload for item in stored.items if item.type == "artifact")
    assert (told["state"], told["relative_path"], told["backend"]) == ("stored", "models/m.pt", "local")
    assert told["receipt"]["size_bytes"] == 7


async def test_an_unknown_backend_is_refused(line):
    await line.agent()
    await line.control.assign(backend="carrier", ticket={})
    await line.until(lambda: line.desk.refusals)
    assert line.desk.refusals[0].code == "backend_unknown"


async def test_an_event_that_is_too_large_is_replaced_in_its_place(line):
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    process.log("x" * 600_000)
    process.log("small")
    process.end("succeeded")
    await line.until(lambda: stored.final)
    types = [item.type for item in stored.items if item.kind == "event"]
    assert types == ["event_too_large", "log"]
    assert stored.items[1].payload["bytes"] > 600_000


async def test_the_same_assignment_twice_starts_once(line):
    await line.agent()
    stored = await line.control.assign()
    await line.control.assign()
    line.desk.attempts["r1", 1] = stored
    process = await line.starter.process()
    await process.went
    process.end("succeeded")
    await line.until(lambda: stored.final)
    assert len(line.starter.processes) == 1


async def test_an_attempt_that_ran_here_is_not_run_again(line):
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    process.end("succeeded")
    await line.until(lambda: stored.final and line.spools() == [])
    await line.control.assign()
    await line.until(lambda: line.desk.refusals)
    assert len(line.starter.processes) == 1


async def test_a_run_that_is_done_is_let_go_although_that_can_not_be_written(line, monkeypatch):
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    monkeypatch.setattr("codefyui_core.agent.done.write_private", _no_room)
    process.end("succeeded")
    await line.until(lambda: stored.final and line.spools() == [])
    await line.control.assign()
    await line.until(lambda: line.desk.refusals)
    assert len(line.starter.processes) == 1


def _no_room(path, data):
    raise OSError(errno.ENOSPC, "no space left", str(path))


@pytest.mark.spec("service/sigterm-asks-runs-to-stop", "service/sigterm-run-ends-cancelled")
async def test_stopping_the_agent_stops_its_runs_and_delivers_their_ends(line):
    agent = await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    agent.stop_asked.set()
    await line.until(lambda: process.stops)
    process.end("stopped")
    assert await agent.ended() == 0
    end = stored.items[-1].payload
    assert (end["stop_reason"], end["stopped_in_time"]) == (StopReason.AGENT_STOP, True)
    assert line.desk.downs == ["the agent left (stopping)"]
