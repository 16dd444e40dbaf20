"""Runs on real processes: their start, what they say, their endings, and what is left of them."""

import asyncio
import os
import signal
import sys

import pytest

from codefyui_core.errors import CodefyError
from codefyui_core.runner import linux
from codefyui_core.runner.api import Launch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="keepers are Linux's")

HOW = [
    pytest.param({"zygote": True}, id="zygote"),
    pytest.param({"zygote": False}, id="fresh"),
    pytest.param({"keepers": False}, id="plain"),
]


def payloads(lines, type_="said"):
    return [line["payload"] for line in lines if line.get("type") == type_]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.spec("overview/one-subprocess-per-run")
async def test_a_run_has_a_process_a_session_a_folder_and_an_environment_of_its_own(bench, how):
    async with bench.supervisor(**how) as starter:
        lines, ending = await bench.run(
            starter, "report", env={"CUDA_VISIBLE_DEVICES": "1"}, cores=2, document={"secret": "s3cret"}
        )
    (said,) = payloads(lines)
    assert said["pid"] != os.getpid()
    assert said["session"] == said["pid"]
    assert said["folder"] == str(bench.folder)
    assert said["device"] == "1"
    assert said["threads"] == {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    assert said["secret"] == "s3cret"
    assert lines[-1] == {
        "kind": "outcome",
        "type": None,
        "payload": {"outcome": "succeeded", "error": None, "cause": None},
        "ts": lines[-1]["ts"],
    }
    assert (ending.exit_code, ending.signal, ending.out_of_memory) == (0, None, False)
    assert ending.stopped_in_time


async def test_a_run_from_the_zygote_has_its_modules_and_one_thread_before_it_begins(bench):
    async with bench.supervisor(preload=("run_behaviors", "decimal")) as starter:
        await bench.warm(starter)
        lines, ending = await bench.run(starter, "report")
    (said,) = payloads(lines)
    assert "decimal" in said["modules"]
    assert said["python_threads"] == 2  # the main one, and the one that listens for stop
    assert said["threads"] == {"OMP_NUM_THREADS": None, "OPENBLAS_NUM_THREADS": None}
    assert ending.peak_memory_bytes > 1 << 20


@pytest.mark.parametrize("how", HOW)
@pytest.mark.spec("overview/run-crash-is-contained")
async def test_every_kind_of_end_is_told_apart(bench, how):
    async with bench.supervisor(**how) as starter:
        for do, code, number in (
            ("exit7", 7, None),
            ("abort", None, signal.SIGABRT),
            ("killed", None, signal.SIGKILL),
        ):
            lines, ending = await bench.run(starter, do)
            assert (ending.exit_code, ending.signal) == (code, number)
            assert not ending.out_of_memory
            assert not [line for line in lines if line["kind"] == "outcome"]
        lines, ending = await bench.run(starter, "fails")
        assert ending.exit_code == 1
        assert ending.stderr_tail[-1] == "RuntimeError: as asked"
        lines, ending = await bench.run(starter, "report")
        assert ending.exit_code == 0


@pytest.mark.parametrize("how", HOW)
@pytest.mark.spec("overview/run-oom-kill-is-contained")
async def test_a_killed_run_leaves_its_sibling_alone(bench, how):
    async with bench.supervisor(**how) as starter:
        sibling = await bench.begin(starter, "until_stopped")
        victim = await bench.begin(starter, "until_stopped")
        os.kill(victim.pid, signal.SIGKILL)
        _, ending = await bench.finish(victim)
        assert ending.signal == signal.SIGKILL
        await sibling.stop(grace_s=60)
        lines, ending = await bench.finish(sibling)
        assert lines[-1]["payload"]["outcome"] == "stopped"
        assert ending.stopped_in_time


@pytest.mark.parametrize("how", HOW)
async def test_a_run_that_does_not_stop_is_killed_after_the_shortest_grace(bench, how):
    async with bench.supervisor(**how) as starter:
        process = await bench.begin(starter, "deaf")
        assert (await bench.first(process))["pid"] == process.pid
        await process.stop(grace_s=600)
        await process.stop(grace_s=0.05)
        await process.stop(grace_s=600)
        _, ending = await bench.finish(process)
    assert ending.signal == signal.SIGKILL
    assert not ending.stopped_in_time
    assert not ending.out_of_memory


@pytest.mark.parametrize("how", HOW)
async def test_a_run_that_is_stopped_before_go_runs_nothing(bench, how):
    async with bench.supervisor(**how) as starter:
        process = await starter.launch(Launch(run_id="r", attempt=1, work_dir=bench.folder))
        await process.ready()
        await process.stop(grace_s=60)
        lines, ending = await bench.finish(process)
    assert [line["payload"]["outcome"] for line in lines] == ["stopped"]
    assert ending.exit_code == 0


@pytest.mark.parametrize("how", HOW)
async def test_printed_text_arrives_as_log_events(bench, how):
    async with bench.supervisor(**how) as starter:
        lines, ending = await bench.run(starter, "prints")
    streams = {"stdout": [], "stderr": []}
    for payload in payloads(lines, "log"):
        assert payload["node_id"] is None
        streams[payload["stream"]] += payload["lines"]
    out = streams["stderr" if "keepers" in how else "stdout"]
    for text in ("one", "zwei ✓", "broken � text", "no line end"):
        assert text in out
    assert any(text.startswith("y" * 65536) and "100000 bytes" in text for text in out)
    assert "100%" in streams["stderr"]
    assert "to stderr" in streams["stderr"]
    assert ending.stderr_tail[-1] == ("no line end" if "keepers" in how else "to stderr")
    assert lines[-1]["kind"] == "outcome"


@pytest.mark.parametrize("how", HOW)
async def test_the_outcome_is_last_even_when_more_is_printed_after_it(bench, how):
    async with bench.supervisor(**how) as starter:
        lines, _ = await bench.run(starter, "late_words")
    assert payloads(lines, "log")[-1]["lines"] == ["printed at exit"]
    assert lines[-1]["kind"] == "outcome"


async def test_nothing_is_dropped_and_the_run_waits_while_nobody_reads(bench):
    progress = bench.folder / "progress"
    async with bench.supervisor() as starter:
        process = await bench.begin(starter, "flood", events=4000, progress=str(progress))
        seen = -1

        def stands_still() -> bool:
            nonlocal seen
            now = int(progress.read_text() or -1) if progress.exists() else -1
            same, seen = now == seen and now > 0, now
            return same

        for _ in range(3):
            await bench.until(stands_still)
            await asyncio.sleep(0.2)
        held_at = int(progress.read_text())
        assert held_at * 1060 < 1 << 20
        lines, ending = await bench.finish(process)
    assert [payload["number"] for payload in payloads(lines)] == list(range(4000))
    assert ending.exit_code == 0


async def test_a_line_over_the_limit_is_replaced_by_its_size_and_hash(bench):
    async with bench.supervisor() as starter:
        lines, _ = await bench.run(starter, "huge_line")
    (large,) = payloads(lines, "event_too_large")
    assert large["bytes"] > 600_000
    assert len(large["sha256"]) == 64


async def test_a_process_that_ends_before_ready_is_reported_as_lost(bench):
    async with bench.supervisor() as starter:
        process = await starter.launch(Launch(run_id="r", attempt=1, work_dir=bench.folder))
        await process.kill()
        await process.ended()
        with pytest.raises(CodefyError) as caught:
            await process.ready()
    assert caught.value.code == "run.process_lost"


async def test_a_missing_folder_is_refused_before_anything_starts(bench):
    async with bench.supervisor() as starter:
        with pytest.raises(CodefyError, match="nowhere") as caught:
            await starter.launch(Launch(run_id="r", attempt=1, work_dir=bench.folder / "nowhere"))
    assert caught.value.code == "run.process_lost"


async def test_closing_ends_every_run_and_refuses_new_ones(bench, alive):
    async with bench.supervisor() as starter:
        process = await bench.begin(starter, "deaf")
        await bench.first(process)
    ending = await process.ended()
    assert ending.signal == signal.SIGKILL
    assert not alive(process.pid)
    with pytest.raises(CodefyError) as caught:
        await starter.launch(Launch(run_id="r", attempt=1, work_dir=bench.folder))
    assert caught.value.code == "server.stopping"


async def test_a_supervisor_goes_on_while_user_code_holds_the_interpreter(bench):
    """What the agent's beats rest on: no thread of the run process is needed for anything."""
    until = bench.folder / "until"
    async with bench.supervisor() as starter:
        process = await bench.begin(starter, "holds_interpreter", until=str(until))
        await bench.first(process)
        assert (await bench.run(starter, "report"))[1].exit_code == 0
        until.touch()
        _, ending = await bench.finish(process)
    assert ending.exit_code == 0


@pytest.mark.parametrize("how", HOW[:2])
async def test_a_run_yields_to_its_supervisor(bench, how):
    async with bench.supervisor(**how) as starter:
        lines, _ = await bench.run(starter, "priority")
    assert payloads(lines)[0]["nice"] == os.getpriority(os.PRIO_PROCESS, 0) + linux.NICER
