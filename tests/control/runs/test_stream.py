"""Taking a stream in: each item once and in order, however it is cut, repeated or sent back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.control.runs.stream import BadItems, Gap, take
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.machine import IllegalTransition, State
from codefyui_core.runs.record import AttemptRecord, RunRecord
from codefyui_core.runs.status import AttemptState, StopReason
from codefyui_core.wire.messages import Item


def item(kind, type_=None, **payload):
    return Item.model_validate({"kind": kind, "type": type_, "payload": payload, "ts": 9})


ACCEPTED = item("accepted", incarnation="1" * 32)
EXITED = item("exited", exit_code=0)
END = item("end", outcome="succeeded")


def log(n):
    return item("event", "log", n=n)


def record(state=AttemptState.ASSIGNED, position=0, **run):
    attempt = AttemptRecord(number=1, worker_id="w", lease_hash="h", state=state, position=position)
    values = {"id": "r", "queue_seq": 1, "name": "", "status": RunStatus.RUNNING, "queue_key": "w/cpu"}
    return RunRecord(**values | run, attempt=1, attempt_now=attempt)


def numbers(changes):
    return [
        json.loads(event.text).get("n")
        for change in changes
        for event in change.events
        if event.type == "log"
    ]


CUTS = st.lists(st.tuples(st.integers(1, 28), st.integers(1, 8)), max_size=30)


@given(CUTS, st.integers(0, 25))
def test_a_stream_is_taken_in_once_however_it_is_cut_and_repeated(cuts, count):
    stream = [ACCEPTED, *(log(n) for n in range(count)), EXITED, END]
    run, changes = record(), []
    for first, size in [*cuts, (1, len(stream))]:
        answer = take(run, first, stream[first - 1 : first - 1 + size], at_ms=1)
        if isinstance(answer, Gap):
            assert answer.position == run.now.position < first - 1
            continue
        changes.append(answer)
        run = answer.after
    assert numbers(changes) == list(range(count))
    assert run.now.position == len(stream)
    assert [event.cursor for change in changes for event in change.events] == list(range(1, count + 2))
    again = take(run, 1, stream, at_ms=2)
    assert again.empty


def test_events_keep_their_own_time_and_number():
    run = take(record(), 1, [ACCEPTED], at_ms=1).after
    (event,) = take(run, 2, [log(1)], at_ms=100).events
    assert (event.ts, event.seq, event.attempt, event.cursor) == (9, 2, 1, 1)


def test_nothing_may_come_before_the_first_item():
    with pytest.raises(IllegalTransition):
        take(record(), 1, [log(1)], at_ms=1)


def test_an_end_without_the_rest_of_the_stream_still_ends_the_run():
    """A worker whose disk kept nothing hands in its end after the committed position."""
    end = item("end", outcome=None, stop_reason="agent_restarted")
    change = take(record(AttemptState.ACTIVE, position=5), 6, [end], at_ms=1)
    assert change.after.status is RunStatus.INTERRUPTED
    change = take(record(), 1, [end], at_ms=1)
    assert change.after.state is State.SETTLED


@pytest.mark.parametrize("to", [4, 5, 9])
def test_a_gap_counts_what_was_lost_and_nothing_that_was_there(to):
    run = record(AttemptState.ACTIVE, position=3)
    skip = item("skip", **{"from": 2, "to": to, "reason": "not_kept"})
    change = take(run, 2, [skip, log(1)], at_ms=1)
    assert json.loads(change.events[0].text)["count"] == to - 3
    assert change.after.now.position == to + 1


@pytest.mark.parametrize(("start", "to"), [(3, 9), (2, 1), (2, 2**70)])
def test_a_gap_that_is_none_is_refused(start, to):
    skip = item("skip", **{"from": start, "to": to, "reason": "corrupt"})
    with pytest.raises(BadItems):
        take(record(AttemptState.ACTIVE, position=1), 2, [skip], at_ms=1)


def test_items_of_a_run_that_is_over_move_the_position_alone():
    run = record(AttemptState.FINAL, position=2, status=RunStatus.INTERRUPTED)
    assert run.state is State.LATE
    change = take(run, 3, [log(1), EXITED, END], at_ms=1)
    assert change.events == ()
    assert change.after.state is State.SETTLED
    assert change.after.now.position == 5
    assert change.after.late_result["status"] == "succeeded"
    assert change.after.status is RunStatus.INTERRUPTED


@pytest.mark.parametrize(
    ("asked", "end", "status"),
    [
        (None, {"outcome": "succeeded"}, "succeeded"),
        ("user", {"outcome": "succeeded"}, "succeeded"),
        ("user", {"outcome": "failed", "error": "e"}, "failed"),
        ("user", {"outcome": "stopped", "stop_reason": "user"}, "cancelled"),
        ("user", {"outcome": None, "stop_reason": "agent_stop", "stopped_in_time": False}, "cancelled"),
        (None, {"outcome": "stopped", "stop_reason": "agent_stop"}, "cancelled"),
        (None, {"outcome": None, "stop_reason": "agent_stop", "stopped_in_time": False}, "interrupted"),
        ("server_stop", {"outcome": "stopped", "stop_reason": "server_stop"}, "interrupted"),
        ("user", {"outcome": "stopped"}, "cancelled"),
        (None, {"outcome": None, "exit_code": 1}, "failed"),
        ("user", {"outcome": None, "exit_code": 1}, "failed"),
        (None, {"outcome": "stopped", "stop_reason": "one_shot_stop"}, "interrupted"),
        (None, {"outcome": None, "stop_reason": "lost_tunnel"}, "interrupted"),
    ],
)
def test_the_end_reads_by_the_outcome_then_by_who_stopped_it(asked, end, status):
    run = record(AttemptState.ACTIVE, stop_reason=None if asked is None else StopReason(asked))
    assert take(run, 1, [item("end", **end)], at_ms=1).after.status == status


def test_an_unknown_cause_is_left_out():
    run = record(AttemptState.ACTIVE)
    after = take(run, 1, [item("end", outcome="failed", error="e", cause="gremlins")], at_ms=1).after
    assert (after.error, after.cause) == ("e", "user_code")
