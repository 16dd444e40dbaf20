"""Short schedules over real processes: what ``cdui faults`` does at length."""

from pathlib import Path

import pytest

from cdui_faults.play import play


@pytest.mark.service
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_doubled_or_left_behind(seed: int, tmp_path: Path) -> None:
    outcome = play(seed, 12, tmp_path / "site")
    assert outcome.findings.violations == []
    assert outcome.faults.total() > 0
    assert outcome.statuses["succeeded"] > 0
