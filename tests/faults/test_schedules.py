"""Short schedules over real processes: what ``cdui faults`` does at length, and every seed that ever failed."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cdui_faults.databases import DatabaseKind
from cdui_faults.play import play
from cdui_faults.report import Outcome
from cdui_faults.schedule import AGENTS, SERVER, SHORT, Fault, Kind, Schedule, short_schedule
from cdui_faults.storages import StorageKind

SEEDS = json.loads(Path(__file__).with_name("seeds.json").read_text(encoding="utf-8"))
"""Some for every day, and those that found a fault of the system, which was then mended."""
UNSENT = Schedule(
    seed=9000,
    length_s=7.5,
    faults=(
        Fault(at_s=2.0, kind=Kind.LOCKED_DATABASE, target=SERVER, lasts_s=6),
        *(Fault(at_s=5.0, kind=Kind.POWER_LOSS, target=name, lasts_s=0.1) for name in AGENTS),
    ),
)
"""Power is lost while files of runs that have ended wait to be sent."""


@pytest.mark.service
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", list(DatabaseKind))
def test_nothing_is_lost_doubled_or_left_behind(database: DatabaseKind, tmp_path: Path) -> None:
    seeds = [one["seed"] for one in SEEDS if one["database"] == database.value and "storage" not in one]
    _hold([short_schedule(seed) for seed in seeds], database, StorageKind.NONE, tmp_path)


@pytest.mark.service
@pytest.mark.timeout(600)
def test_files_of_runs_are_what_they_wrote_or_said_to_be_left(tmp_path: Path) -> None:
    plans = [short_schedule(one["seed"]) for one in SEEDS if one.get("storage") == "transfer"]
    outcomes = _hold([*plans, UNSENT], DatabaseKind.SQLITE, StorageKind.TRANSFER, tmp_path)
    assert sum(outcome.findings.delivered["transfer"] for outcome in outcomes) > 0


def _hold(
    plans: Sequence[Schedule], database: DatabaseKind, storage: StorageKind, tmp_path: Path
) -> Sequence[Outcome]:
    outcomes = list(play(plans, SHORT, database, tmp_path / "site", storage))
    assert [violation for outcome in outcomes for violation in outcome.findings.violations] == []
    assert len(outcomes) == len(plans)
    assert sum(outcome.faults.total() for outcome in outcomes) > 0
    assert sum(outcome.statuses["succeeded"] for outcome in outcomes) > 0
    return outcomes
