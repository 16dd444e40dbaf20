"""Blocking steps of many small files share threads; what becomes of one is nothing to the others."""

import asyncio
import threading

import pytest

from codefyui_core.agent.carrying.gathered import SMALL_BYTES, Gathered, at_once, each


class Slow:
    """Each turn waits until it is let go."""

    def __init__(self):
        self.turns = []
        self.begun = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def __call__(self, items):
        self.turns.append(list(items))
        self.begun.release()
        assert self.go.acquire(timeout=10)
        return [ValueError(item) if item < 0 else item * 10 for item in items]

    async def turn(self):
        """Until one has begun."""
        assert await asyncio.to_thread(self.begun.acquire, timeout=10)


@pytest.fixture
def slow():
    return Slow()


async def test_what_waits_while_a_turn_is_under_way_goes_into_the_next(slow):
    gathered = Gathered(slow)
    first = asyncio.create_task(gathered.one(1))
    await slow.turn()
    others = [asyncio.create_task(gathered.one(number)) for number in (2, 3, 4)]
    slow.go.release(2)
    assert await asyncio.gather(first, *others) == [10, 20, 30, 40]
    assert slow.turns == [[1], [2, 3, 4]]


async def test_one_that_fails_fails_no_other(slow):
    gathered = Gathered(slow)
    slow.go.release()
    answers = await asyncio.gather(*map(gathered.one, (1, -2, 3)), return_exceptions=True)
    assert [answers[0], answers[2]] == [10, 30]
    assert isinstance(answers[1], ValueError)
    assert slow.turns == [[1, -2, 3]]


async def test_what_a_turn_raises_all_in_it_get_and_the_next_turn_works():
    fails = [OSError("no space")]

    def work(items):
        if fails:
            raise fails.pop()
        return items

    gathered = Gathered(work)
    answers = await asyncio.gather(*map(gathered.one, (1, 2)), return_exceptions=True)
    assert [str(one) for one in answers] == ["no space"] * 2
    assert await gathered.one(3) == 3


async def test_what_somebody_asked_for_who_left_is_done_and_holds_up_nobody(slow):
    gathered = Gathered(slow)
    first, second, third = [asyncio.create_task(gathered.one(number)) for number in (1, 2, 3)]
    await slow.turn()
    leaving = asyncio.create_task(gathered.one(4))
    await asyncio.sleep(0)
    for one in (second, leaving):
        one.cancel()
    slow.go.release(2)
    assert (await first, await third) == (10, 30)
    await gathered.aclose()
    assert slow.turns == [[1, 2, 3], [4]]


async def test_a_large_one_has_a_turn_of_its_own_beside_the_others(slow):
    gathered = Gathered(slow)
    large = asyncio.create_task(gathered.sized(1, SMALL_BYTES + 1))
    await slow.turn()
    small = asyncio.create_task(gathered.sized(2, SMALL_BYTES))
    await slow.turn()
    assert slow.turns == [[1], [2]]
    slow.go.release(2)
    assert (await large, await small) == (10, 20)
    slow.go.release()
    with pytest.raises(ValueError, match="-3"):
        await gathered.sized(-3, SMALL_BYTES + 1)


@pytest.mark.parametrize("how", [each, at_once])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_answers_come_in_order_with_errors_in_their_places(how, count):
    def work(number):
        if number % 7 == 3:
            raise OSError(number)
        return number

    answers = how(work, range(count))
    assert [one.args[0] if isinstance(one, OSError) else one for one in answers] == list(range(count))
    assert [isinstance(one, OSError) for one in answers] == [number % 7 == 3 for number in range(count)]


def test_several_are_worked_on_at_once():
    both = threading.Barrier(2, timeout=10)
    at_once(lambda _: both.wait(), [1, 2])
    assert not both.broken
