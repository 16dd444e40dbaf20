"""The schedule of a seed: always the same, and made of every kind."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cdui_faults.schedule import AGENTS, SERVER, Kind, schedule


@given(st.integers(), st.floats(1, 300))
def test_a_seed_means_one_schedule(seed: int, length_s: float) -> None:
    faults = schedule(seed, length_s)
    assert faults == schedule(seed, length_s)
    assert [fault.at_s for fault in faults] == sorted(fault.at_s for fault in faults)
    assert all(0 < fault.at_s < length_s and fault.lasts_s >= 0 for fault in faults)
    assert {fault.target for fault in faults} <= {*AGENTS, SERVER}


@given(st.integers(), st.floats(1, 100), st.floats(1, 100))
def test_a_longer_schedule_begins_like_a_shorter_one(seed: int, length_s: float, more_s: float) -> None:
    short = schedule(seed, length_s)
    assert schedule(seed, length_s + more_s)[: len(short)] == short


def test_every_kind_comes() -> None:
    assert set(Counter(fault.kind for fault in schedule(1, 3000))) == set(Kind)
