"""The table of transitions, as a whole."""

import pytest

from codefyui_core.runs.machine import TRANSITIONS, Effect, Event, IllegalTransition, State, step

EXECUTING = (State.ASSIGNED, State.ACTIVE, State.AWAY_ASSIGNED, State.AWAY_ACTIVE)


def reachable(start):
    found, waiting = set(), [start]
    while waiting:
        state = waiting.pop()
        if state not in found:
            found.add(state)
            waiting += [line.next for (here, _), line in TRANSITIONS.items() if here is state]
    return found


def test_every_state_is_reached_and_a_settled_end_is_reachable_from_each():
    assert reachable(State.QUEUED) == set(State)
    assert all(State.SETTLED in reachable(state) for state in State)


def test_nothing_leaves_a_settled_end():
    assert reachable(State.SETTLED) == {State.SETTLED}


def test_a_final_status_never_becomes_another():
    assert reachable(State.LATE) == {State.LATE, State.SETTLED}


def test_exactly_the_transitions_into_an_end_close_the_log():
    for (state, _), line in TRANSITIONS.items():
        ends = state not in {State.LATE, State.SETTLED} and line.next in {State.LATE, State.SETTLED}
        assert (Effect.CLOSE in line.effects) == ends


def test_every_end_of_an_attempt_frees_its_slots_and_stops_its_grace():
    for (state, event), line in TRANSITIONS.items():
        if state in EXECUTING and line.next in {State.LATE, State.SETTLED}:
            assert {Effect.FREE_SLOTS, Effect.STOP_GRACE} <= set(line.effects), (state, event)


def test_going_away_starts_a_grace_and_coming_back_stops_it():
    away = {State.AWAY_ASSIGNED, State.AWAY_ACTIVE}
    for (state, event), line in TRANSITIONS.items():
        if state not in away and line.next in away and event is not Event.LISTED_LOST:
            assert Effect.START_GRACE in line.effects
        if state in away and line.next in {State.ASSIGNED, State.ACTIVE}:
            assert {Effect.WARN_BACK, Effect.STOP_GRACE} <= set(line.effects)


def test_user_code_starts_only_by_the_item_that_the_stream_begins_with():
    into_active = {
        event
        for (state, event), line in TRANSITIONS.items()
        if line.next in {State.ACTIVE, State.AWAY_ACTIVE} and state in {State.ASSIGNED, State.AWAY_ASSIGNED}
    }
    assert into_active == {Event.ACCEPTED}


def test_only_an_attempt_that_nothing_ran_of_is_sent_again_or_waits_again():
    for (state, _), line in TRANSITIONS.items():
        if Effect.SEND_ASSIGN in line.effects or (line.next is State.QUEUED):
            assert state in {State.ASSIGNED, State.AWAY_ASSIGNED}


@pytest.mark.parametrize("state", EXECUTING)
@pytest.mark.parametrize(
    "event",
    [Event.STOP, Event.REMOVED, Event.REKEYED, Event.SHUTDOWN_OVER, Event.LINK_LOST, Event.TAKE_OVER_LOST],
)
def test_people_and_servers_may_end_whatever_executes(state, event):
    assert (state, event) in TRANSITIONS


def test_an_event_without_a_line_raises_with_the_story():
    with pytest.raises(IllegalTransition, match=r"final, settled.*item end.*run 1; cursor 4"):
        step(State.SETTLED, Event.END, lambda: ("run 1", "cursor 4"))
