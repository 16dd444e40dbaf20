"""What transitions make of records."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.conclude import Conclusion
from codefyui_core.runs.events import CLOSING
from codefyui_core.runs.machine import TRANSITIONS, Event, State
from codefyui_core.runs.record import AttemptRecord, RunRecord
from codefyui_core.runs.status import FINAL, Cause, StopReason
from codefyui_core.runs.steps import Details, apply, place

QUEUED = RunRecord(
    id="r", queue_seq=1, name="", status=RunStatus.QUEUED, queue_key="box/cpu", worker_name="box"
)
ENDED = Details(
    conclusion=Conclusion(status=RunStatus.INTERRUPTED, error="e", cause=Cause.LEASE_LOST),
    reason=StopReason.USER,
    why="w",
)


def placed(record=QUEUED):
    attempt = AttemptRecord(number=record.attempt + 1, worker_id="w", lease_hash="h", devices=("cpu",))
    return place(record, attempt, "box", at_ms=1).after


def do(record, *events, details=ENDED):
    for event in events:
        record = apply(record, event, at_ms=5, details=details).after
    return record


@given(
    st.lists(st.sampled_from([one for one in Event if one is not Event.PLACE]), max_size=30),
    st.integers(0, 3),
)
def test_any_story_keeps_the_record_in_order(events, places):
    """Legal events in any order: gapless cursors, one closing event, last, that agrees with the status."""
    record, log = QUEUED, []
    for event in events:
        if record.state is State.QUEUED and places:
            places -= 1
            record = placed(record)
        if (record.state, event) not in TRANSITIONS:
            continue
        change = apply(record, event, at_ms=5, details=ENDED)
        assert change.after.state is TRANSITIONS[(record.state, event)].next
        assert record.status not in FINAL or change.after.status is record.status
        log += change.events
        record = change.after
    assert [event.cursor for event in log] == list(range(1, record.last_cursor + 1))
    closing = [index for index, event in enumerate(log) if event.type in CLOSING]
    assert closing == ([len(log) - 1] if record.status in FINAL else [])
    assert (record.finished_at is not None) == (record.status in FINAL)


def test_a_user_who_stops_beats_everybody_else():
    record = do(placed(), Event.STOP, details=Details(reason=StopReason.SERVER_STOP))
    assert record.stop_reason is StopReason.SERVER_STOP
    record = do(record, Event.STOP, details=Details(reason=StopReason.USER))
    assert record.stop_reason is StopReason.USER
    record = do(record, Event.STOP, details=Details(reason=StopReason.SERVER_STOP))
    assert record.stop_reason is StopReason.USER


def test_a_refused_run_waits_again_and_a_named_worker_stays_named():
    record = do(placed(), Event.REFUSED_FOR_NOW)
    assert record.state is State.QUEUED
    assert (record.worker_id, record.worker_name, record.devices) == (None, "box", None)
    other = do(placed(replace(QUEUED, queue_key="any/cpu", worker_name=None)), Event.REFUSED_FOR_NOW)
    assert other.worker_name is None
    assert placed(record).now.number == 2


def test_since_when_a_worker_is_away_stays_through_a_restart():
    gone = apply(placed(), Event.LINK_DOWN, at_ms=100, details=Details(why="cut")).after
    taken = apply(gone, Event.TAKE_OVER, at_ms=900, details=Details(why="restarted")).after
    assert (taken.now.away_since, taken.now.away_why) == (100, "restarted")
    back = apply(taken, Event.LISTED, at_ms=950).after
    assert (back.now.away_since, back.now.was) == (None, None)


def test_a_late_result_is_written_once():
    late = do(placed(), Event.ACCEPTED, Event.REKEYED)
    assert late.state is State.LATE
    details = Details(conclusion=Conclusion(status=RunStatus.SUCCEEDED))
    settled = apply(late, Event.END, at_ms=7, details=details)
    assert settled.after.status is RunStatus.INTERRUPTED
    assert settled.events == ()
    assert settled.after.late_result == {"status": "succeeded", "error": None, "worker_id": "w", "at": 7}
