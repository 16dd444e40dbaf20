"""Short schedules over real processes: what ``cdui faults`` does at length, and every seed that ever failed."""

import json
from pathlib import Path

import pytest

from cdui_faults.databases import DatabaseKind
from cdui_faults.play import play
from cdui_faults.schedule import SHORT, short_schedule

SEEDS = json.loads(Path(__file__).with_name("seeds.json").read_text(encoding="utf-8"))


def seeds_for(database: DatabaseKind) -> list[int]:
    """``short`` are some for every day; ``failed_once`` found a fault of the system that was then mended."""
    failed = [one["seed"] for one in SEEDS["failed_once"] if one["database"] == database.value]
    return [*SEEDS["short"], *failed]


@pytest.mark.service
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", list(DatabaseKind))
def test_nothing_is_lost_doubled_or_left_behind(database: DatabaseKind, tmp_path: Path) -> None:
    plans = [short_schedule(seed) for seed in seeds_for(database)]
    outcomes = list(play(plans, SHORT, database, tmp_path / "site"))
    assert [violation for outcome in outcomes for violation in outcome.findings.violations] == []
    assert len(outcomes) == len(plans)
    assert sum(outcome.faults.total() for outcome in outcomes) > 0
    assert sum(outcome.statuses["succeeded"] for outcome in outcomes) > 0
