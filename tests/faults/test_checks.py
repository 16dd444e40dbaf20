"""The checks themselves: each kind of damage to the stored rows is noticed."""

import dataclasses
from pathlib import Path

import pytest

from cdui_faults import checks
from cdui_faults.endings import Setting
from cdui_faults.findings import Findings
from cdui_faults.injector import Injected
from cdui_faults.schedule import OF_STORE, STORE, Fault, Kind
from cdui_faults.stored import Attempt, StoredRun
from cdui_faults.watcher import Asked, digest

ASKED = Asked(
    label="r0000", target="box-a", n=3, pause_ms=0, ending="return", deaf=False, run_id="a", cursor=2
)
ATTEMPT = Attempt(number=1, state="ended", settled=True, slots_released=True, created_ms=1000)
RUN = StoredRun(
    run_id="a",
    name="r0000",
    status="succeeded",
    cause=None,
    error=None,
    finished_ms=9000,
    last_cursor=2,
    cursors=(1, 2),
    types=("metric", "execution_complete"),
    payloads=({"points": []}, {}),
    stamps=(1500, 9000),
    counts=(0.0, 1.0, 2.0),
    attempts=(ATTEMPT,),
)


class Watched:
    """What a watcher would have seen of the one run."""

    def __init__(self, folder: Path) -> None:
        self.asked = {"r0000": ASKED}
        self.seen = {"a": {1: digest("metric", {"points": []})}}
        self._journal = folder / "r0000"

    def journal(self, asked: Asked) -> checks.Journal:
        return checks.Journal.read(self._journal)


def violations(tmp_path: Path, run: StoredRun, *injected: Injected, journal: str = "") -> Findings:
    (tmp_path / "r0000").write_text(journal or "start 7\n0\n1\n2\ndone\n", encoding="ascii")
    found = Findings()
    checks.runs([run], Watched(tmp_path), injected, Setting(grace_s=4, began_ms=500), found)
    return found


def test_a_sound_run_has_no_violation(tmp_path: Path) -> None:
    found = violations(tmp_path, RUN)
    assert found.violations == []
    assert (found.emitted, found.stored, found.lost, found.doubled) == (3, 3, 0, 0)


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        ({"counts": (0.0, 1.0)}, "succeeded with 2 of 3"),
        ({"counts": (0.0, 2.0, 1.0)}, "in order"),
        ({"counts": (0.0, 1.0, 1.0, 2.0)}, "in order"),
        ({"cursors": (1, 3)}, "gaps"),
        (
            {"last_cursor": 1, "cursors": (1,), "types": ("execution_complete",), "payloads": ({},)},
            "was shown",
        ),
        ({"types": ("execution_complete", "metric")}, "closing events"),
        ({"types": ("execution_complete", "execution_complete")}, "closing events"),
        ({"payloads": ({"points": [1]}, {})}, "others now"),
        ({"status": "running"}, "after the end"),
        ({"status": "interrupted", "types": ("metric", "execution_stopped")}, "wanted succeeded"),
        ({"attempts": (dataclasses.replace(ATTEMPT, slots_released=False),)}, "holds its slots"),
    ],
)
def test_damage_is_noticed(tmp_path: Path, damage: dict[str, object], word: str) -> None:
    found = violations(tmp_path, dataclasses.replace(RUN, **damage))
    assert any(word in violation for violation in found.violations), found.violations


def test_a_second_start_is_noticed(tmp_path: Path) -> None:
    found = violations(tmp_path, RUN, journal="start 7\n0\n1\n2\nstart 8\ndone\n")
    assert any("started 2 times" in violation for violation in found.violations)


def test_lost_and_doubled_counts_are_counted(tmp_path: Path) -> None:
    assert violations(tmp_path, dataclasses.replace(RUN, counts=(0.0, 1.0))).lost == 1
    assert violations(tmp_path, dataclasses.replace(RUN, counts=(0.0, 1.0, 1.0, 2.0))).doubled == 1


def test_an_ending_is_explained_by_a_fault_that_hit_the_run_and_by_no_other(tmp_path: Path) -> None:
    ended = dataclasses.replace(RUN, status="interrupted", types=("metric", "execution_stopped"))

    def kill(target: str, at_ms: int) -> Injected:
        fault = Fault(at_s=1, kind=Kind.KILL_AGENT, target=target, lasts_s=0)
        return Injected(fault=fault, wall_ms=at_ms, mended_wall_ms=at_ms + 1)

    assert violations(tmp_path, ended, kill("box-a", 5000)).violations == []
    assert violations(tmp_path, ended, kill("box-b", 5000)).violations
    assert violations(tmp_path, ended, kill("box-a", 90_000)).violations


def fault(kind: Kind, target: str = "box-a") -> Injected:
    return Injected(
        fault=Fault(at_s=1, kind=kind, target=target, lasts_s=0), wall_ms=5000, mended_wall_ms=6000
    )


def test_a_stepped_clock_in_the_stamps_changes_no_explanation(tmp_path: Path) -> None:
    hour = 3_600_000
    ended = dataclasses.replace(
        RUN,
        status="interrupted",
        types=("metric", "execution_stopped"),
        finished_ms=9000 - hour,
        attempts=(dataclasses.replace(ATTEMPT, created_ms=1000 + hour),),
    )
    assert violations(tmp_path, ended, fault(Kind.KILL_AGENT)).violations == []
    assert violations(tmp_path, ended, fault(Kind.CLOCK)).violations


@pytest.mark.parametrize(
    ("cause", "explained"), [("disk_full", True), ("refused", True), ("user_code", False)]
)
def test_a_full_disk_explains_a_failure_for_want_of_room_and_no_other(
    tmp_path: Path, cause: str, explained: bool
) -> None:
    failed = dataclasses.replace(RUN, status="failed", cause=cause, types=("metric", "execution_error"))
    assert (violations(tmp_path, failed, fault(Kind.FULL_AGENT)).violations == []) is explained
    assert violations(tmp_path, failed, fault(Kind.FULL_AGENT, "box-b")).violations


@pytest.mark.parametrize("kind", [Kind.CORRUPT, Kind.LATENCY, Kind.LOCKED_DATABASE, Kind.KILL_DATABASE])
def test_lines_and_databases_cost_no_run(tmp_path: Path, kind: Kind) -> None:
    ended = dataclasses.replace(RUN, status="interrupted", types=("metric", "execution_stopped"))
    assert violations(tmp_path, ended, fault(kind)).violations


@pytest.mark.parametrize(
    ("kind", "explained"), [(Kind.KILL_STORE, True), (Kind.PAUSE_STORE, True), (Kind.CUT, False)]
)
def test_a_bucket_that_was_away_explains_a_failure_of_storage_before_the_run_was_sent(
    tmp_path: Path, kind: Kind, explained: bool
) -> None:
    failed = dataclasses.replace(
        RUN,
        status="failed",
        cause="storage",
        types=("metric", "execution_error"),
        attempts=(),
        created_ms=1000,
    )
    away = fault(kind, STORE if kind in OF_STORE else "box-a")
    assert (violations(tmp_path, failed, away).violations == []) is explained
    assert violations(tmp_path, dataclasses.replace(failed, cause="user_code"), away).violations
