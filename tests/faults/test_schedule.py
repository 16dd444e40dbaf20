"""The schedule of a seed: always the same, and made of every kind."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cdui_faults.schedule import (
    LONG,
    OF_STORE,
    PLACES,
    SHORT,
    STORE,
    Kind,
    Schedule,
    long_schedule,
    short_schedule,
    with_store,
)


def sound(plan: Schedule) -> bool:
    times = [fault.at_s for fault in plan.faults]
    return (
        times == sorted(times)
        and all(0 < fault.at_s < plan.length_s and fault.lasts_s >= 0 for fault in plan.faults)
        and {fault.target for fault in plan.faults} <= set(PLACES)
    )


@given(st.integers(), st.floats(1, 300))
def test_a_seed_means_one_long_schedule(seed: int, length_s: float) -> None:
    plan = long_schedule(seed, length_s)
    assert plan == long_schedule(seed, length_s)
    assert sound(plan)


@given(st.integers())
def test_a_seed_means_one_short_schedule_of_3_to_6_faults_in_4_to_8_s(seed: int) -> None:
    plan = short_schedule(seed)
    assert plan == short_schedule(seed)
    assert sound(plan)
    assert 3 <= len(plan.faults) <= 6
    assert 4 <= plan.length_s <= 8


@given(st.integers(), st.floats(1, 100), st.floats(1, 100))
def test_a_longer_schedule_begins_like_a_shorter_one(seed: int, length_s: float, more_s: float) -> None:
    short = long_schedule(seed, length_s).faults
    assert long_schedule(seed, length_s + more_s).faults[: len(short)] == short


def test_every_kind_comes() -> None:
    kinds = set(Kind) - OF_STORE
    assert set(Counter(fault.kind for fault in long_schedule(1, 3000).faults)) == kinds
    assert {fault.kind for seed in range(200) for fault in short_schedule(seed).faults} == kinds


@given(st.integers())
def test_faults_of_a_bucket_come_on_top_of_the_others(seed: int) -> None:
    for plan, pace in ((short_schedule(seed), SHORT), (long_schedule(seed, 100), LONG)):
        more = with_store(plan, pace)
        assert more == with_store(plan, pace)
        assert [fault for fault in more.faults if fault.kind not in OF_STORE] == list(plan.faults)
        times = [fault.at_s for fault in more.faults]
        assert times == sorted(times)
        assert {fault.target for fault in more.faults if fault.kind in OF_STORE} == {STORE}


def test_both_faults_of_a_bucket_come() -> None:
    kinds = {fault.kind for seed in range(20) for fault in with_store(short_schedule(seed), SHORT).faults}
    assert kinds >= OF_STORE
