"""Control groups of runs and counters of out-of-memory kills: which are used, and what they are believed."""

import os
import signal

import pytest

from codefyui_core.runner import linux, memory_kills
from codefyui_core.runner.cgroups import (
    RunGroup,
    group_name,
    left_groups,
    may_use,
    old_memory_group,
    own_group,
)
from codefyui_core.runner.keeper import lost_to_memory
from codefyui_core.runner.memory_kills import Counter, Kills

MOUNTS = (
    "30 20 0:26 / {0}/v1 rw - cgroup cgroup rw,memory\n"
    "31 20 0:27 / {0}/v2 rw - cgroup2 cgroup2 rw\n"
    "32 20 0:28 / {0}/other rw - cgroup cgroup rw,cpu\n"
)


@pytest.mark.parametrize(
    ("exit_code", "ended_by", "kills", "expected"),
    [
        (None, signal.SIGKILL, 1, True),
        (None, signal.SIGKILL, 0, False),
        (None, signal.SIGABRT, 1, False),
        (1, None, 1, True),
        (1, None, 0, False),
        (0, None, 1, False),
    ],
)
def test_only_a_kill_that_the_kernel_counted_is_one_for_memory(exit_code, ended_by, kills, expected):
    assert lost_to_memory(exit_code, ended_by, kills) is expected


def test_a_group_counts_kills_and_knows_the_peak_where_memory_is_counted(tmp_path):
    assert RunGroup.make("run", None) is None
    assert RunGroup.make("run", tmp_path / "absent") is None
    group = RunGroup.make("run", tmp_path)
    assert group.path == tmp_path / "run"
    assert group.memory_events is None
    assert group.peak_bytes() is None
    (group.path / "memory.events").write_text("low 0\noom 2\noom_kill 1\noom_group_kill 0\n")
    (group.path / "memory.peak").write_text("1048576\n")
    assert memory_kills.counter(group.memory_events) == Counter(file=group.memory_events, shared=False)
    assert Counter(file=group.memory_events, shared=False).read() == 1
    assert group.peak_bytes() == 1 << 20
    group.enter()
    group.end()
    assert (group.path / "cgroup.procs").read_text() == "0"
    assert (group.path / "cgroup.kill").read_text() == "1"


def test_the_groups_of_this_process_are_found_where_they_are_mounted(tmp_path):
    (tmp_path / "v2/user/agent").mkdir(parents=True)
    (tmp_path / "v1/x").mkdir(parents=True)
    membership, mounts = tmp_path / "cgroup", tmp_path / "mountinfo"
    membership.write_text("5:cpu,cpuacct:/y\n4:memory:/x\n0::/user/agent\n")
    mounts.write_text(MOUNTS.format(tmp_path))
    assert own_group(membership, mounts) == tmp_path / "v2/user/agent"
    assert old_memory_group(membership, mounts) == tmp_path / "v1/x"
    membership.write_text("5:cpu,cpuacct:/y\n")
    assert own_group(membership, mounts) is None
    assert old_memory_group(membership, mounts) is None
    assert own_group(tmp_path / "absent", mounts) is None
    assert old_memory_group(tmp_path / "absent", mounts) is None


def test_a_group_that_systemd_manages_is_used_only_when_it_was_delegated(tmp_path):
    group, systemd = tmp_path / "group", tmp_path / "systemd"
    group.mkdir()
    assert not may_use(group, systemd)
    (group / "cgroup.procs").touch()
    assert may_use(group, systemd)
    systemd.mkdir()
    assert not may_use(group, systemd)
    os.setxattr(group, "user.delegate", b"1")
    assert may_use(group, systemd)


def test_the_groups_of_a_dead_supervisor_are_found_and_those_of_a_living_one_are_not(tmp_path):
    mine = linux.identity_of(os.getpid())
    number, _, start = mine.partition(".")
    (tmp_path / group_name(mine, "r1", 1)).mkdir()
    reused = tmp_path / group_name(f"{number}.{int(start) - 1}", "r2", 1)
    reused.mkdir()
    (tmp_path / "others").mkdir()
    assert [group.path for group in left_groups(tmp_path)] == [reused]


def test_a_shared_counter_is_believed_only_for_the_last_seconds(tmp_path, monkeypatch):
    """Somebody else's process was killed for memory long before this run was, by hand."""
    file = tmp_path / "vmstat"
    file.write_text("pgfault 7\noom_kill 3\n")
    now = 100.0
    monkeypatch.setattr(memory_kills.time, "monotonic", lambda: now)
    shared = Kills.follow(Counter(file=file, shared=True))
    own = Kills.follow(Counter(file=file, shared=False))
    file.write_text("pgfault 7\noom_kill 4\n")
    assert (shared.count(), own.count()) == (1, 1)
    for _ in range(3):
        now += memory_kills.WINDOW_S
        shared.look()
        own.look()
    assert (shared.count(), own.count()) == (0, 1)
    file.write_text("pgfault 7\noom_kill 5\n")
    assert shared.count() == 1


def test_a_process_is_known_by_its_number_and_its_start():
    mine = linux.identity_of(os.getpid())
    number, _, start = mine.partition(".")
    assert linux.is_identity(mine)
    assert not linux.is_identity(f"{number}.{int(start) + 1}")
    assert not linux.is_identity("")
    assert not linux.is_identity("not.a number")
