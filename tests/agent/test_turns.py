"""Whose batch goes over the line next."""

import pytest

from codefyui_core.agent.turns import BEFORE_BACKLOG, Turns
from codefyui_core.wire.limits import BATCH_WAIT_S

OLD, LIVE, OTHER = ("old", 1), ("live", 1), ("other", 1)


@pytest.fixture
def turns():
    turns = Turns()
    for key in (OLD, LIVE, OTHER):
        turns.add(key)
    return turns


def order(turns, *waiting, now, live=(LIVE, OTHER)):
    return turns.order(waiting, lambda key: key in live, now)


def test_a_first_batch_goes_at_once(turns):
    assert turns.wait_s([LIVE], 100.0) <= 0
    assert order(turns, LIVE, now=100.0) == [LIVE]


def test_nobody_waits_for_nothing(turns):
    assert turns.wait_s([], 100.0) == 0


def test_a_batch_gathers_for_a_while_after_the_one_before(turns):
    turns.sent(LIVE, 100.0, live=True, full=False)
    assert turns.wait_s([LIVE], 100.0) == pytest.approx(BATCH_WAIT_S)
    assert order(turns, LIVE, now=100.0) == []
    assert order(turns, LIVE, now=100.0 + BATCH_WAIT_S) == [LIVE]


def test_a_sleep_that_ended_a_hair_early_does_not_cost_the_turn(turns):
    turns.sent(LIVE, 100.0, live=True, full=False)
    assert order(turns, LIVE, now=100.0 + BATCH_WAIT_S - 1e-9) == [LIVE]


def test_what_a_full_batch_left_behind_goes_at_once(turns):
    turns.sent(OLD, 100.0, live=False, full=True)
    assert turns.behind(OLD)
    assert turns.wait_s([OLD], 100.0) <= 0
    assert order(turns, OLD, now=100.0) == [OLD]


def test_the_wait_is_that_of_the_first_to_be_due(turns):
    turns.sent(LIVE, 100.0, live=True, full=False)
    turns.sent(OTHER, 100.02, live=True, full=False)
    assert turns.wait_s([OTHER, LIVE], 100.03) == pytest.approx(BATCH_WAIT_S - 0.03)


def test_live_runs_go_before_a_backlog(turns):
    turns.sent(LIVE, 100.0, live=True, full=False)
    assert order(turns, OLD, LIVE, now=101.0) == [LIVE, OLD]


def test_backlogs_take_turns(turns):
    sent = []
    for step in range(6):
        key = order(turns, OLD, LIVE, OTHER, now=100.0 + step, live=())[0]
        turns.sent(key, 100.0 + step, live=False, full=True)
        sent.append(key)
    assert sent == [OLD, LIVE, OTHER] * 2


def test_many_live_runs_do_not_keep_a_backlog_waiting_for_ever(turns):
    sent = []
    for step in range(2 * (BEFORE_BACKLOG + 1)):
        key = order(turns, OLD, LIVE, OTHER, now=100.0 + step)[0]
        turns.sent(key, 100.0 + step, live=key != OLD, full=key == OLD)
        sent.append(key)
    assert sent.count(OLD) == 2
    assert sent[BEFORE_BACKLOG] == OLD


def test_an_attempt_that_is_gone_is_forgotten(turns):
    turns.forget(OLD)
    turns.forget(OLD)
    assert order(turns, LIVE, now=100.0) == [LIVE]
