"""Which files of many are told of."""

from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.agent.carrying.progress import FEW, LARGE_BYTES, TELL_EVERY_S, Pace


def told(files, count=None):
    """The numbers of the files that are told of, each through at a time of its own with its size."""
    pace = Pace()
    count = len(files) if count is None else count
    return [n for n, (now, size) in enumerate(files, 1) if pace.tells(now, n, count, size)]


def test_each_of_few_is_told_of():
    assert told([(0.0, 1)] * FEW) == list(range(1, FEW + 1))


def test_of_many_small_ones_the_first_and_the_last_are_and_one_a_second():
    assert told([(number / 50, 1) for number in range(200)]) == [1, 51, 101, 151, 200]


def test_each_large_one_is():
    assert told([(0.0, LARGE_BYTES if number % 40 == 20 else 1) for number in range(100)]) == [1, 21, 61, 100]


@given(st.lists(st.tuples(st.floats(0, 0.8), st.sampled_from([1, LARGE_BYTES])), min_size=1, max_size=200))
def test_nobody_waits_longer_than_the_next_file_after_a_second(steps):
    now, files = 0.0, []
    for step, size in steps:
        now += step
        files.append((now, size))
    numbers = told(files, count=1000)
    assert numbers[0] == 1
    for number in range(2, len(files) + 1):
        before = max(one for one in numbers if one < number)
        if files[number - 1][0] - files[before - 1][0] >= TELL_EVERY_S:
            assert number in numbers
