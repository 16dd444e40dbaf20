"""Short schedules over real processes: what ``cdui faults`` does at length, and every seed that ever failed."""

import json
from pathlib import Path

import pytest

from cdui_faults.databases import DatabaseKind
from cdui_faults.play import play
from cdui_faults.schedule import SHORT, short_schedule

SEEDS = json.loads(Path(__file__).with_name("seeds.json").read_text(encoding="utf-8"))
"""Some for every day, and those that found a fault of the system, which was then mended."""


@pytest.mark.service
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", list(DatabaseKind))
def test_nothing_is_lost_doubled_or_left_behind(database: DatabaseKind, tmp_path: Path) -> None:
    plans = [short_schedule(one["seed"]) for one in SEEDS if one["database"] == database.value]
    outcomes = list(play(plans, SHORT, database, tmp_path / "site"))
    assert [violation for outcome in outcomes for violation in outcome.findings.violations] == []
    assert len(outcomes) == len(plans)
    assert sum(outcome.faults.total() for outcome in outcomes) > 0
    assert sum(outcome.statuses["succeeded"] for outcome in outcomes) > 0
