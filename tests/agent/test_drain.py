"""Stopping after the runs: nothing more is taken, nothing is cut off, and the exit status is 0."""

import os
import signal
import subprocess
import sys

import pytest

from codefyui_core.agent.command import drain_background
from codefyui_core.agent.lock import PidFile
from codefyui_core.agent.places import Places
from codefyui_core.this_machine import boot_id, started_at


async def begin(line, run_id="r1"):
    number = len(line.starter.processes)
    stored = await line.control.assign(run_id)
    process = await line.starter.process(number)
    await process.went
    return stored, process


async def test_an_agent_that_drains_finishes_its_runs_and_ends_with_0(line):
    agent = await line.agent()
    first, one = await begin(line)
    second, two = await begin(line, "r2")
    agent.drain_asked.set()
    link = await line.control.online()
    await line.until(lambda: not link.accepting)
    one.log("still here")
    one.end("succeeded")
    await line.until(lambda: first.final)
    assert not agent.task.done()
    two.end("failed")
    assert await agent.ended() == 0
    assert (first.final, second.final) == ("succeeded", "failed")
    assert one.stops == two.stops == []
    assert line.spools() == []
    assert line.desk.downs == ["the agent left (drained)"]


async def test_it_takes_nothing_more_and_what_crosses_goes_back_to_the_queue(line):
    agent = await line.agent()
    _, process = await begin(line)
    agent.drain_asked.set()
    link = await line.control.online()
    await line.until(lambda: not link.accepting)
    await line.control.assign("r2")
    (refusal,) = await line.until(lambda: line.desk.refusals)
    assert (refusal.run_id, refusal.code, refusal.retry) == ("r2", "draining", True)
    del line.desk.attempts["r2", 1]
    process.end("succeeded")
    assert await agent.ended() == 0
    assert len(line.starter.processes) == 1


async def test_without_runs_it_leaves_at_once(line):
    agent = await line.agent()
    await line.control.online()
    agent.drain_asked.set()
    assert await agent.ended() == 0


async def test_it_waits_for_a_control_plane_that_is_away_to_deliver(line):
    agent = await line.agent()
    stored, process = await begin(line)
    await line.control.crash()
    agent.drain_asked.set()
    process.log("meanwhile")
    process.end("succeeded")
    await line.until(lambda: process.read == 2)
    await line.control.start()
    assert await agent.ended() == 0
    assert stored.final == "succeeded"
    assert not line.desk.hellos[-1][0].stopping


async def test_a_stop_that_follows_stops_the_runs(line):
    agent = await line.agent()
    stored, process = await begin(line)
    agent.drain_asked.set()
    link = await line.control.online()
    await line.until(lambda: not link.accepting)
    agent.stop_asked.set()
    await line.until(lambda: process.stops)
    process.end("stopped")
    assert await agent.ended() == 0
    assert stored.items[-1].payload["stop_reason"] == "agent_stop"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_the_command_asks_the_background_agent_by_its_pid_file(tmp_path):
    words = (
        "import signal; signal.signal(10, lambda *_: print('asked')); print('up', flush=True); signal.pause()"
    )
    child = subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    assert signal.SIGUSR1 == 10 or os.name != "posix"
    places = Places(user_data=tmp_path, key="local")
    places.prepare()
    known = {"started": started_at(child.pid), "boot_id": boot_id(), "name": "box", "url": ""}
    PidFile(pid=child.pid, **known).write(places.pid)
    assert drain_background(tmp_path, "local")
    assert child.communicate(timeout=20)[0] == "asked\n"
    assert not drain_background(tmp_path, "local")
    assert not drain_background(tmp_path, "elsewhere-80")
