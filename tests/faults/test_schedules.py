"""Short schedules over real processes: what ``cdui faults`` does at length, and every seed that ever failed."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cdui_faults.databases import DatabaseKind
from cdui_faults.play import play
from cdui_faults.report import Outcome
from cdui_faults.schedule import SHORT, short_schedule
from cdui_faults.storages import StorageKind

SEEDS = json.loads(Path(__file__).with_name("seeds.json").read_text(encoding="utf-8"))
"""Some for every day, and those that found a fault of the system, which was then mended."""


@pytest.mark.service
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", list(DatabaseKind))
def test_nothing_is_lost_doubled_or_left_behind(database: DatabaseKind, tmp_path: Path) -> None:
    seeds = [one["seed"] for one in SEEDS if one["database"] == database.value and "storage" not in one]
    _hold(seeds, database, StorageKind.NONE, tmp_path)


@pytest.mark.service
@pytest.mark.timeout(600)
def test_files_of_runs_are_what_they_wrote_or_said_to_be_left(tmp_path: Path) -> None:
    seeds = [one["seed"] for one in SEEDS if one.get("storage") == "transfer"]
    outcomes = _hold(seeds, DatabaseKind.SQLITE, StorageKind.TRANSFER, tmp_path)
    assert sum(outcome.findings.delivered["transfer"] for outcome in outcomes) > 0


def _hold(
    seeds: Sequence[int], database: DatabaseKind, storage: StorageKind, tmp_path: Path
) -> Sequence[Outcome]:
    plans = [short_schedule(seed) for seed in seeds]
    outcomes = list(play(plans, SHORT, database, tmp_path / "site", storage))
    assert [violation for outcome in outcomes for violation in outcome.findings.violations] == []
    assert len(outcomes) == len(plans)
    assert sum(outcome.faults.total() for outcome in outcomes) > 0
    assert sum(outcome.statuses["succeeded"] for outcome in outcomes) > 0
    return outcomes
