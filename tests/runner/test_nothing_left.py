"""No process of a run outlives it, whoever is killed; and nobody else's process is touched."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from codefyui_core.errors import CodefyError
from codefyui_core.runner import cgroups, linux

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="keepers are Linux's")

STRAYS = ["stray", "executed_stray"]
HOW = [pytest.param({"zygote": True}, id="zygote"), pytest.param({"zygote": False}, id="fresh")]


@pytest.fixture
def sentinel(alive):
    """A process of this one that no supervisor started, and a daemon that was orphaned to it."""
    code = "import subprocess,sys,time; p=subprocess.Popen([sys.executable,'-c','import time; time.sleep(600)'],start_new_session=True); print(p.pid,flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    daemon = int(process.stdout.readline())
    yield (process.pid, daemon)
    assert alive(process.pid)
    assert alive(daemon)
    os.kill(daemon, signal.SIGKILL)
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("do", STRAYS)
async def test_strays_end_with_their_run_and_its_pipe_is_not_waited_for(
    bench, alive, sentinel, ends_with_test, how, do
):
    async with bench.supervisor(**how) as starter:
        other = await bench.begin(starter, do, stay=True)
        kept = await bench.first(other)
        ends_with_test += [kept["stray"]]
        lines, ending = await bench.run(starter, do)
        gone = lines[0]["payload"]
        ends_with_test.append(gone["stray"])
        assert ending.exit_code == 0
        assert lines[-1]["payload"]["outcome"] == "succeeded"
        assert not alive(gone["stray"])
        assert alive(kept["stray"])
        assert alive(other.pid)
    assert not alive(kept["stray"])


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("do", STRAYS)
async def test_a_killed_keeper_leaves_nothing_behind(bench, alive, sentinel, ends_with_test, how, do):
    async with bench.supervisor(**how) as starter:
        sibling = await bench.begin(starter, do, stay=True)
        kept = await bench.first(sibling)
        process = await bench.begin(starter, do, stay=True)
        said = await bench.first(process)
        ends_with_test += [said["stray"], kept["stray"]]
        os.kill(said["keeper"], signal.SIGKILL)
        _, ending = await bench.finish(process)
        assert ending.signal == signal.SIGKILL
        assert not ending.out_of_memory
        assert not alive(said["pid"])
        assert not alive(said["stray"])
        assert alive(kept["stray"])
        assert alive(sibling.pid)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("do", STRAYS)
async def test_a_killed_supervisor_leaves_nothing_behind(bench, alive, sentinel, ends_with_test, how, do):
    owner = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).parent / "behaviors" / "owner.py"),
        json.dumps({"folder": str(bench.folder), "do": do, **how}),
        stdout=asyncio.subprocess.PIPE,
    )
    said = json.loads(await owner.stdout.readline())
    ends_with_test += [said["stray"], said["keeper"], said["pid"], *said["zygotes"]]
    assert all(alive(said[name]) for name in ("stray", "keeper", "pid"))
    assert len(said["zygotes"]) == (1 if how["zygote"] else 0)
    owner.kill()
    await owner.wait()
    everything = [said["stray"], said["keeper"], said["pid"], *said["zygotes"]]
    await bench.until(lambda: not any(alive(pid) for pid in everything))


ENDINGS = {
    "success": {"then": "succeed"},
    "failure": {"then": "fail"},
    "crash": {"then": "crash"},
    "stop": {},
    "killed": {},
    "killed keeper": {},
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_children_of_every_kind_end_with_their_run_however_it_ends(
    bench, alive, sentinel, ends_with_test, ending
):
    """In sessions of their own, deaf to SIGTERM, daemons, other programs without our environment."""
    async with bench.supervisor(zygote=False) as starter:
        options = ENDINGS[ending] | {"scrubbed": ending != "killed keeper"}
        process = await bench.begin(starter, "family", **options)
        said = await bench.first(process)
        ends_with_test += said["family"]
        match ending:
            case "stop":
                await process.stop(grace_s=60)
            case "killed":
                os.kill(said["pid"], signal.SIGKILL)
            case "killed keeper":
                os.kill(said["keeper"], signal.SIGKILL)
        await bench.finish(process)
        assert not [pid for pid in said["family"] if alive(pid)]


async def test_what_a_supervisor_and_a_keeper_killed_together_leave_is_ended_by_the_next_supervisor(
    bench, alive, sentinel, ends_with_test
):
    """Nobody was there to end it. A living supervisor's runs bear a mark, too, and go on."""
    async with bench.supervisor(zygote=False) as neighbour:
        kept = await bench.first(await bench.begin(neighbour, "stray", stay=True))
        owner = await asyncio.create_subprocess_exec(
            sys.executable,
            str(Path(__file__).parent / "behaviors" / "owner.py"),
            json.dumps({"folder": str(bench.folder), "do": "stray", "zygote": False}),
            stdout=asyncio.subprocess.PIPE,
        )
        said = json.loads(await owner.stdout.readline())
        ends_with_test += [said["stray"], said["keeper"], said["pid"], kept["stray"]]
        os.kill(said["keeper"], signal.SIGSTOP)
        owner.kill()
        os.kill(said["keeper"], signal.SIGKILL)
        await owner.wait()
        assert alive(said["stray"])
        async with bench.supervisor(zygote=False):
            await bench.until(lambda: not alive(said["stray"]))
            assert alive(kept["stray"])
            assert alive(kept["pid"])


async def test_runs_in_groups_leave_no_group_behind(bench, alive, ends_with_test):
    try:
        parent = cgroups.prepare()
    except cgroups.NoGroups as why:
        pytest.skip(f"no cgroup v2 here that we may divide: {why}")

    def groups():
        return {path.name for path in parent.glob(f"cdui-run-{linux.identity_of(os.getpid())}-*")}

    async with bench.supervisor(zygote=False) as starter:
        process = await bench.begin(starter, "family", scrubbed=True)
        said = await bench.first(process)
        ends_with_test += said["family"]
        (name,) = groups()
        inside = (parent / name / "cgroup.procs").read_text().split()
        assert set(inside) == {str(pid) for pid in (said["pid"], *said["family"])}
        os.kill(said["keeper"], signal.SIGKILL)
        await bench.finish(process)
        assert not [pid for pid in said["family"] if alive(pid)]
        await bench.run(starter, "report")
    assert groups() == set()


@pytest.mark.point(8)
async def test_a_killed_zygote_costs_no_run_and_is_replaced(bench, alive):
    async with bench.supervisor() as starter:
        await bench.warm(starter)
        process = await bench.begin(starter, "until_stopped")
        await bench.first(process)
        (zygote,) = starter.zygotes()
        os.kill(zygote, signal.SIGKILL)
        lines, ending = await bench.run(
            starter, "report"
        )  # waits for the next one, or is a fresh interpreter
        assert ending.exit_code == 0
        await bench.until(lambda: starter.is_warm and starter.zygotes() != {zygote})
        _, ending = await bench.run(starter, "report")
        assert ending.exit_code == 0
        assert alive(process.pid)
        await process.stop(grace_s=60)
        lines, ending = await bench.finish(process)
        assert lines[-1]["payload"]["outcome"] == "stopped"


async def test_a_stopped_zygote_does_not_hold_up_a_launch_for_ever(bench, monkeypatch):
    monkeypatch.setattr("codefyui_core.runner.supervisor.FORK_S", 0.2)
    async with bench.supervisor() as starter:
        await bench.warm(starter)
        (zygote,) = starter.zygotes()
        os.kill(zygote, signal.SIGSTOP)
        _, ending = await bench.run(starter, "report")
        assert ending.exit_code == 0


async def test_a_run_killed_for_its_grace_takes_its_strays_with_it(bench, alive, ends_with_test):
    async with bench.supervisor() as starter:
        process = await bench.begin(starter, "stray", stay=True)
        said = await bench.first(process)
        ends_with_test.append(said["stray"])
        await process.stop(grace_s=0.05)
        _, ending = await bench.finish(process)
    assert not ending.stopped_in_time
    assert not alive(said["stray"])


async def test_a_run_that_cannot_shut_down_after_its_outcome_is_ended(bench, monkeypatch):
    monkeypatch.setattr("codefyui_core.runner.handle.LINGER_S", 0.1)
    async with bench.supervisor() as starter:
        lines, ending = await bench.run(starter, "stuck_at_exit")
    assert lines[-1]["payload"]["outcome"] == "succeeded"
    assert ending.signal == signal.SIGKILL
    assert ending.stopped_in_time


async def test_a_keeper_that_dies_before_it_said_its_name_leaves_no_zombie(bench, monkeypatch):
    """As if it had been killed in that moment: the request that it needs never comes."""
    monkeypatch.setattr("codefyui_core.runner.requests.KeeperRequest.to_line", lambda self: b"{}\n")
    others = set(linux.children(os.getpid()))
    async with bench.supervisor() as starter:
        await bench.warm(starter)
        with pytest.raises(CodefyError) as caught:
            await bench.run(starter, "report")
        assert caught.value.code == "run.process_lost"
        await bench.until(lambda: set(linux.children(os.getpid())) <= starter.zygotes() | others)
