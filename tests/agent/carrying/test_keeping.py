"""What stays on a worker: folders of runs by the agent's own retention, the cache for good."""

import logging
import os
import shutil
from types import SimpleNamespace

import pytest

from codefyui_core.agent import command
from codefyui_core.agent.places import Places
from codefyui_core.agent.retention import prune_runs
from codefyui_core.settings import Install

LOG = logging.getLogger("test")


@pytest.fixture
def places(tmp_path):
    made = Places(user_data=tmp_path, key="local")
    made.prepare()
    return made


def ended(places, *names):
    """Folders of runs, the oldest first."""
    for number, name in enumerate(names):
        (places.runs / name / "data").mkdir(parents=True)
        os.utime(places.runs / name, (1000 + number,) * 2)


def kept(places):
    return sorted(path.name for path in places.runs.iterdir())


def test_the_newest_folders_stay(places):
    ended(places, "a", "b", "c", "d")
    prune_runs(places, 2, LOG)
    assert kept(places) == ["c", "d"]


@pytest.mark.parametrize(("keep", "left"), [(0, []), (-1, ["a", "b"]), (5, ["a", "b"])])
def test_none_or_all_may_be_kept(places, keep, left):
    ended(places, "a", "b")
    prune_runs(places, keep, LOG)
    assert kept(places) == left


@pytest.mark.parametrize("spool", ["local/a.1", "local/a.2~1234abcd", "host-8000/a.1", "local.aside/a.1"])
def test_what_is_executed_or_not_delivered_by_any_agent_of_the_folder_stays(places, spool):
    ended(places, "a", "b")
    (places.user_data / "agent-spool" / spool).mkdir(parents=True)
    prune_runs(places, 0, LOG)
    assert kept(places) == ["a"]


@pytest.mark.spec(
    "transfer/worker-run-folder-follows-agent-retention", "transfer/agent-cache-never-auto-cleaned"
)
async def test_a_worker_keeps_as_many_folders_as_its_own_setting_says_and_its_cache(carried):
    line = carried.line
    variables = {"CODEFYUI_USER_DATA_DIR": str(line.user_data), "CODEFYUI_RUN_RETENTION_KEEP_LAST": "2"}
    line.install = Install.find(environ=variables)
    item = carried.upload("a.csv")
    agent = await line.agent()
    for run in ("r1", "r2", "r3"):
        stored, process = await carried.begin(run, item)
        process.end("succeeded")
        await carried.ended(stored)
        await line.until(lambda: line.spools() == [])
    runs = line.user_data / "agent-runs"
    await line.until(lambda: sorted(path.name for path in runs.iterdir()) == ["r2", "r3"])
    await agent.stop()
    line.install = Install.find(environ=variables | {"CODEFYUI_RUN_RETENTION_KEEP_LAST": "0"})
    await line.agent()
    await line.control.online()
    assert list(runs.iterdir()) == []
    assert carried.cached() == [item.sha256]


@pytest.mark.spec("transfer/agent-cache-safe-to-delete")
async def test_a_cache_that_was_deleted_while_the_agent_runs_costs_a_fetch(carried):
    item = carried.upload("a.csv")
    await carried.line.agent()
    for run in ("r1", "r2"):
        stored, process = await carried.begin(run, item)
        process.end("succeeded")
        await carried.ended(stored)
        details = [one["detail"] for one in carried.warnings(stored, "transfer_progress")]
        assert details == ["fetching inputs 1/1: a.csv (4 B, fetched)"]
        shutil.rmtree(carried.cache)


async def test_an_instance_keeps_the_folders_of_runs_with_what_else_is_its_own(carried):
    await carried.line.agent(one_shot=True, instance="i1")
    stored, process = await carried.begin("r1", carried.upload("a.csv"))
    own = carried.line.user_data / "agent-instances/i1/runs/r1/data"
    assert (own / "files/a.csv").is_file()
    (own / "output/a.png").write_text("pixels")
    process.end("succeeded")
    await carried.ended(stored)
    assert [one["state"] for one in carried.artifacts(stored)] == ["stored"]
    assert await carried.line.agents[0].ended() == 0
    assert not (carried.line.user_data / "agent-instances/i1").exists()
    assert len(carried.cached()) == 1


def test_the_stop_command_gives_an_agent_that_delivers_files_its_time(monkeypatch, tmp_path):
    def waited(publishes):
        """How long it waits for one that never ends, and delivers files for so long."""
        now = [0.0]
        monkeypatch.setattr(command.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(command.time, "sleep", lambda _: now.__setitem__(0, now[0] + 1))
        monkeypatch.setattr(command, "_reap", lambda _: None)
        monkeypatch.setattr(command, "is_publishing", lambda _: now[0] < publishes)
        monkeypatch.setattr(command.os, "kill", lambda *_: ended.append(now[0]))
        monkeypatch.setattr(command.PidFile, "read", lambda _: SimpleNamespace(pid=1, lives=True))
        ended = []
        command.stop_background(tmp_path, "local")
        return ended[1]

    assert waited(publishes=0) == 31
    assert waited(publishes=40) == 70
    assert waited(publishes=10_000) == 120


def test_an_attempt_whose_processes_are_gone_and_that_has_files_is_publishing(places):
    attempt = places.spools / "a.1"
    attempt.mkdir()
    assert not command.is_publishing(places.spools)
    (attempt / "files.log").touch()
    assert not command.is_publishing(places.spools)
    (attempt / "outcome.json").touch()
    assert command.is_publishing(places.spools)
