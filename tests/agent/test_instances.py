"""Several agents that share a credential and a user-data folder."""

import logging
import os
import re
import shutil
import time

import pytest

from codefyui_core.agent.__main__ import status_of
from codefyui_core.agent.folder import Head, Owner, make, release, take_over
from codefyui_core.agent.identity import make_identity
from codefyui_core.agent.instances import STALE_S, InstanceFolder, clean_stale, default_id
from codefyui_core.agent.lock import AlreadyRunning, FolderLock
from codefyui_core.agent.places import Places
from codefyui_core.agent.plan import AgentPlan
from codefyui_core.errors import UsageProblem
from codefyui_core.wire.messages import StopReason

NOBODY = 999_999_999
LOG = logging.getLogger("test")


async def instance(line, number, **plan):
    return await line.agent(one_shot=True, instance=str(number), **plan)


def folder(line, number):
    return line.user_data / "agent-instances" / str(number)


def files(root):
    """Paths with the time of their last change."""
    return {path: path.lstat().st_mtime_ns for path in (root, *root.rglob("*"))}


async def begin(line, name, run_id="r1"):
    number = len(line.starter.processes)
    await line.control.online(name)
    stored = await line.control.assign(run_id)
    process = await line.starter.process(number)
    await process.went
    return stored, process


# ---------------------------------------------------------------- a whole agent


@pytest.mark.spec("instance/run-folder-path", "instance/run-folder-deleted-on-exit")
@pytest.mark.spec("instance/registers-as-name-dot-id")
async def test_its_run_has_a_folder_of_its_own_which_goes_with_it(line):
    agent = await instance(line, 7)
    stored, process = await begin(line, "box.7")
    assert list(folder(line, 7).glob("spool/*/r1.1/head.json"))
    assert line.spools() == []
    process.end("succeeded")
    assert await agent.ended() == 0
    assert stored.final == "succeeded"
    assert not list((line.user_data / "agent-instances").iterdir())


@pytest.mark.spec("instance/undelivered-result-not-sent-later")
async def test_what_it_could_not_deliver_goes_with_it(line, monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.one_shot.DELIVER_WITHIN_S", 0.1)
    agent = await instance(line, 7)
    stored, process = await begin(line, "box.7")
    await line.until(lambda: stored.position)
    await line.control.crash()
    agent.stop_asked.set()
    await line.until(lambda: process.stops)
    process.end("stopped")
    assert await agent.ended() == 1
    assert not folder(line, 7).exists()
    await line.control.start()
    await line.agent()
    await line.control.online("box")
    assert [listed for listed in line.desk.hellos if listed] == []


@pytest.mark.spec("instance/shares-credential-and-folder", "instance/regular-agent-beside")
@pytest.mark.spec("oneshot/no-pidfile")
async def test_instances_and_the_workers_own_agent_run_side_by_side(line):
    regular = await line.agent()
    await line.control.online("box")
    agents = [await instance(line, number) for number in range(3)]
    for number in range(3):
        await line.control.online(f"box.{number}")
    assert [await agent.stop() for agent in agents] == [3, 3, 3]
    assert not regular.task.done()
    assert [one.view.name for one in line.control.service.live()] == ["box"]


@pytest.mark.spec("instance/duplicate-id-exit-2")
@pytest.mark.point(52)
async def test_a_second_agent_with_a_live_id_ends_with_2_before_it_touches_the_folder(line):
    await instance(line, 7)
    await begin(line, "box.7")
    before = files(folder(line, 7))
    second = await instance(line, 7)
    with pytest.raises(AlreadyRunning, match="--instance") as refused:
        await second.ended()
    assert status_of(refused.value, one_shot=True) == 2
    assert files(folder(line, 7)) == before
    assert line.control.service.live()


async def test_a_requeued_instance_ends_its_predecessors_run_and_takes_the_next(line):
    first = await instance(line, 7)
    stored, process = await begin(line, "box.7")
    await line.until(lambda: stored.position)
    left = shutil.copytree(folder(line, 7), line.user_data / "left")
    await first.kill()
    process.end(signal=9)
    left.rename(folder(line, 7))  # a process that is killed deletes nothing
    (owner,) = folder(line, 7).glob("spool/*/r1.1/owner")
    elsewhere = Owner.model_validate_json(owner.read_bytes()).model_copy(update={"host": "other"})
    owner.write_text(elsewhere.model_dump_json())  # the lock proves that it is dead there, too
    again = await instance(line, 7)
    await line.until(lambda: stored.final)
    assert stored.items[-1].payload["stop_reason"] == StopReason.AGENT_RESTARTED
    _, second = await begin(line, "box.7", "r2")
    second.end("succeeded")
    assert await again.ended() == 0


@pytest.fixture
def lockless(monkeypatch):
    """A file system without locks."""
    monkeypatch.setattr("codefyui_core.agent.lock._lock", lambda _descriptor: False)


@pytest.mark.spec("instance/no-file-locks-warning")
async def test_without_locks_an_instance_warns_and_goes_on(line, lockless, caplog):
    agent = await instance(line, 7)
    await line.control.online("box.7")
    assert "no locks" in caplog.text
    assert await agent.stop() == 3


def test_without_locks_an_id_whose_agent_may_live_is_refused(tmp_path, lockless, caplog):
    places = Places(user_data=tmp_path, key="k", instance="7")
    mine = Owner.this_process("a")
    InstanceFolder.take(places, mine.model_copy(update={"host": "other"}), LOG)
    before = files(places.own)
    with pytest.raises(AlreadyRunning):
        InstanceFolder.take(places, mine, LOG)
    assert files(places.own) == before


# ---------------------------------------------------------------- what killed ones left


@pytest.mark.parametrize(("hours", "gone"), [(25, True), (23, False)])
@pytest.mark.spec("instance/stale-folder-cleanup-24h")
def test_a_killed_instances_folder_goes_after_a_day_without_a_change(tmp_path, hours, gone):
    assert STALE_S == 24 * 3600
    left = Places(user_data=tmp_path, key="k", instance="left")
    (left.own / "spool").mkdir(parents=True)
    (left.own / "spool" / "1.log").write_text("x")
    now = time.time()
    for path in (left.own, *left.own.rglob("*")):
        os.utime(path, (now - hours * 3600, now - hours * 3600))
    clean(tmp_path, now)
    assert left.own.exists() is not gone
    assert left.lock.exists() is False


@pytest.mark.spec("instance/stale-folder-cleanup-24h")
def test_a_folder_whose_id_an_agent_holds_stays_however_old_it_is(tmp_path):
    live = Places(user_data=tmp_path, key="k", instance="live")
    live.own.mkdir(parents=True)
    lock = FolderLock.take(live.lock)
    clean(tmp_path, time.time() + 30 * STALE_S)
    assert live.own.exists()
    lock.release()
    clean(tmp_path, time.time() + 30 * STALE_S)
    assert not live.own.exists()


def test_a_folder_in_which_anything_changed_lately_stays(tmp_path):
    left = Places(user_data=tmp_path, key="k", instance="left")
    deep = left.own / "runs" / "r" / "data"
    deep.mkdir(parents=True)
    old = time.time() - 2 * STALE_S
    (deep / "fresh").write_text("x")
    for path in (left.own, left.own / "runs"):
        os.utime(path, (old, old))
    clean(tmp_path, time.time())
    assert left.own.exists()


def clean(user_data, now):
    starting = Places(user_data=user_data, key="k", instance="new")
    clean_stale(starting, now=now, log=LOG)


def test_a_lock_file_that_its_holder_removed_is_no_lock(tmp_path):
    first = FolderLock.take(tmp_path / "x.lock")
    with pytest.raises(AlreadyRunning, match="busy"):
        FolderLock.take(tmp_path / "x.lock", taken="busy")
    first.release(remove=True)
    second = FolderLock.take(tmp_path / "x.lock")
    with pytest.raises(AlreadyRunning):
        FolderLock.take(tmp_path / "x.lock")
    second.release(remove=True)
    assert not (tmp_path / "x.lock").exists()


# ---------------------------------------------------------------- spools that were released


def test_a_released_spool_is_claimed_by_one_agent_wherever_the_first_ran(tmp_path):
    root = tmp_path / "spools"
    root.mkdir()
    owner = Owner.this_process("1" * 32).model_copy(update={"host": "other", "pid": NOBODY})
    head = Head(db_id="d", worker_id="w", run_id="r1", attempt=1, lease="l")
    path = make(root, head, owner)
    me = Owner.this_process("2" * 32)
    assert take_over(root, me) == ([], [path])
    release(path)
    (left,), strange = take_over(root, me)
    assert (left.head, strange, path.exists()) == (head, [], False)
    assert take_over(root, Owner.this_process("3" * 32).model_copy(update={"pid": 1}))[1] == []
    assert not (left.path / "released").exists()


# ---------------------------------------------------------------- ids


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"SLURM_ARRAY_JOB_ID": "41", "SLURM_ARRAY_TASK_ID": "2", "SLURM_JOB_ID": "43"}, "41-2"),
        ({"SLURM_JOB_ID": "43"}, "43"),
        ({"SLURM_JOB_ID": "43", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3"}, "43-0-3"),
        (
            {
                "SLURM_ARRAY_JOB_ID": "41",
                "SLURM_ARRAY_TASK_ID": "0",
                "SLURM_STEP_ID": "1",
                "SLURM_PROCID": "0",
            },
            "41-0-1-0",
        ),
        ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "3"}, r"[0-9a-f]{16}"),
        ({}, r"[0-9a-f]{16}"),
    ],
)
@pytest.mark.spec("instance/default-id-array-task", "instance/default-id-plain-job")
@pytest.mark.spec("instance/default-id-random", "instance/step-suffix")
def test_the_id_is_the_jobs_own_or_random(environ, expected):
    found = default_id(environ)
    assert re.fullmatch(expected, found)
    assert AgentPlan(one_shot=True, instance=found).checked()
    if "JOB_ID" not in str(environ):
        assert default_id(environ) != found


@pytest.mark.parametrize(
    ("plan", "flag"),
    [
        ({"run_id": "x"}, "--run-id"),
        ({"instance": "a"}, "--instance"),
        ({"one_shot": True, "instance": "a.b"}, "--instance"),
        ({"one_shot": True, "instance": "../x"}, "--instance"),
        ({"one_shot": True, "run_id": " "}, "--run-id"),
    ],
)
@pytest.mark.spec("oneshot/exit-2-wrong-flag", "instance/one-shot-only")
def test_flags_that_do_not_go_together_are_a_usage_problem(plan, flag):
    with pytest.raises(UsageProblem, match=flag) as refused:
        AgentPlan(**plan).checked()
    assert status_of(refused.value, one_shot=True) == 2


def test_agents_that_make_a_home_id_together_all_have_the_first_one(tmp_path, monkeypatch):
    path = tmp_path / "agent" / "home-id"
    first = make_identity(path)
    real = type(path).read_text
    reads = iter([FileNotFoundError()])

    def late(self, *arguments, **named):
        if self == path and (error := next(reads, None)) is not None:
            raise error
        return real(self, *arguments, **named)

    monkeypatch.setattr(type(path), "read_text", late)
    assert make_identity(path).home_id == first.home_id
    assert [one.name for one in path.parent.iterdir()] == ["home-id"]
    path.write_text("damaged")
    assert re.fullmatch(r"[0-9a-f]{32}", make_identity(path).home_id)
