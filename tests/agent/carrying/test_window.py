import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.agent.carrying.window import Waits, Window

times = st.lists(
    st.tuples(st.floats(0, 400), st.sampled_from(["failed", "succeeded", "paused"])), max_size=30
)


@given(grace=st.floats(0, 600), events=times)
def test_a_window_is_used_up_a_whole_grace_after_the_first_failure_since_a_success(grace, events):
    window, now, first = Window(grace), 0.0, None
    for passed, event in events:
        now += passed
        getattr(window, event)(*((now,) if event == "failed" else ()))
        first = None if event != "failed" else now if first is None else first
        assert window.used_up(now) == (first is not None and now - first >= grace)
        assert window.used_up(now + grace + 1e-6) == (first is not None)


@pytest.mark.spec("transfer/retry-waits-grow")
@given(grace=st.floats(0, 600), asked=st.lists(st.one_of(st.none(), st.floats(0, 1000)), max_size=20))
def test_waits_never_shrink_and_obey_the_other_side_up_to_the_grace(grace, asked):
    waits, before = Waits(grace), 0.0
    for after in asked:
        now = waits.next_s(after)
        assert now >= before
        assert now >= min(after or 0.0, grace)
        before = now


@pytest.mark.spec("transfer/retry-waits-grow")
def test_waits_double_from_a_second_to_half_a_minute_or_a_quarter_of_the_grace():
    waits = Waits(300)
    assert [waits.next_s() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    waits = Waits(20)
    assert [waits.next_s() for _ in range(5)] == [1, 2, 4, 5, 5]
