import asyncio

import pytest

from codefyui_core.clocks import AfterPause, AttentiveClock, SystemClock
from codefyui_core.testing.clock import ManualClock


@pytest.fixture
def manual():
    return ManualClock()


@pytest.fixture
async def running(manual):
    state = {"able": True}
    clock = AttentiveClock(manual, able=lambda: state["able"])
    task = asyncio.create_task(clock.run())
    await manual.settle()
    yield clock, state
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_time_counts_while_the_process_is_awake_and_able(manual, running):
    clock, state = running
    await manual.advance(10)
    state["able"] = False
    await manual.advance(100)
    state["able"] = True
    await manual.advance(5)
    assert clock.monotonic() == pytest.approx(15)


async def test_a_timer_fires_once_when_its_seconds_have_passed(manual, running):
    clock, _ = running
    fired = []
    clock.timer(3, lambda: fired.append(clock.monotonic()))
    await manual.advance(2)
    assert fired == []
    await manual.advance(20)
    assert fired == [3.0]


async def test_timers_fire_in_the_order_of_their_deadlines(manual, running):
    clock, _ = running
    fired = []
    for delay in (2.5, 2.1, 2.9):
        clock.timer(delay, lambda delay=delay: fired.append(delay))
    await manual.advance(5)
    assert fired == [2.1, 2.5, 2.9]


async def test_a_timer_cancelled_by_another_of_the_same_tick_does_not_fire(manual, running):
    clock, _ = running
    fired = []
    second = clock.timer(2.5, lambda: fired.append("second"))
    clock.timer(2.1, second.cancel)
    await manual.advance(5)
    assert fired == []


async def test_sleep_of_the_machine_restarts_graces_and_continues_waits(manual, running):
    clock, _ = running
    fired = []
    clock.timer(10, lambda: fired.append("grace"), after_pause=AfterPause.RESTART)
    clock.timer(10, lambda: fired.append("wait"))
    await manual.advance(8)
    manual.jump(3600)
    await manual.advance(3)
    assert fired == ["wait"]
    await manual.advance(8)
    assert fired == ["wait", "grace"]


async def test_listeners_hear_of_a_pause_before_any_timer_fires(manual, running):
    clock, _ = running
    heard = []
    clock.on_pause(lambda: heard.append("pause"))
    clock.timer(3, lambda: heard.append("timer"))
    await manual.advance(2)
    manual.jump(60)
    await manual.advance(0.5)
    assert heard == ["pause"]
    await manual.advance(2)
    assert heard == ["pause", "timer"]


async def test_a_clock_step_is_no_pause(manual, running):
    clock, _ = running
    heard = []
    clock.on_pause(lambda: heard.append("pause"))
    manual.set_wall(3600)
    await manual.advance(3)
    assert heard == []
    assert clock.monotonic() == pytest.approx(3)


async def test_a_restarted_timer_counts_from_now(manual, running):
    clock, _ = running
    fired = []
    timer = clock.timer(5, lambda: fired.append(clock.monotonic()))
    await manual.advance(4)
    timer.restart()
    await manual.advance(4)
    assert fired == []
    await manual.advance(2)
    assert fired == [9.0]


async def test_sleeping_by_the_attentive_clock_waits_for_attentive_seconds(manual, running):
    clock, state = running
    task = asyncio.create_task(clock.sleep(5))
    await manual.settle()
    state["able"] = False
    await manual.advance(60)
    assert not task.done()
    state["able"] = True
    await manual.advance(6)
    assert task.done()


def test_the_system_clock_does_not_go_back():
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.now().tzinfo is not None


async def test_the_manual_clock_says_whether_somebody_would_wake(manual):
    sleeper = asyncio.create_task(manual.sleep(2))
    await manual.settle()
    assert (manual.wakes_within(1), manual.wakes_within(2)) == (False, True)
    sleeper.cancel()
    await manual.settle()
    assert not manual.wakes_within(2)
