import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from codefyui_core.agent.machine import Effect, Illegal, Machine, State
from codefyui_core.runs.status import StopReason

EXECUTING = {State.RECEIVED, State.PREPARING, State.RUNNING}


class Life(RuleBasedStateMachine):
    """Any order of what the line says, beside any life of the process."""

    def __init__(self):
        super().__init__()
        self.machine = Machine()
        self.effects = []
        self.best_ack = 0
        self.dropped_for_good = False

    def see(self, effects):
        self.effects += effects

    @precondition(lambda self: self.machine.state is State.RECEIVED)
    @rule()
    def accepted(self):
        self.see(self.machine.accepted())

    @precondition(lambda self: self.machine.state is State.PREPARING and not self.machine.has_process)
    @rule()
    def launched(self):
        self.see(self.machine.launched())

    @precondition(lambda self: self.machine.state is State.PREPARING and self.machine.has_process)
    @rule()
    def prepared(self):
        self.see(self.machine.prepared())

    @rule(seq=st.integers(0, 3))
    def acked(self, seq):
        if self.machine.state is not State.RECEIVED:
            self.best_ack = max(self.best_ack, seq)
            self.see(self.machine.acked(seq))

    @rule(reason=st.sampled_from(StopReason), grace=st.floats(0, 20), repeated=st.booleans())
    def stop(self, reason, grace, repeated):
        before, was = self.machine.state, self.machine.stop_reason
        effects = self.machine.stop(reason, grace, repeated=repeated)
        if before not in EXECUTING:
            assert self.machine.stop_reason is was
        if Effect.DROP_FILES in effects:
            assert before is State.PUBLISHING
            assert not (repeated and was is not None)
        self.see(effects)

    @rule()
    def discard(self):
        if self.machine.state is State.PUBLISHING:
            self.dropped_for_good = True
        self.see(self.machine.discard())

    @precondition(
        lambda self: self.machine.has_process and self.machine.state in {State.PREPARING, State.RUNNING}
    )
    @rule()
    def process_gone(self):
        self.see(self.machine.process_gone())

    @precondition(lambda self: self.machine.state is State.PREPARING and not self.machine.has_process)
    @rule()
    def never_started(self):
        self.see(self.machine.never_started())

    @precondition(lambda self: self.machine.state is State.PUBLISHING)
    @rule()
    def ended(self):
        self.see(self.machine.published())
        self.see(self.machine.ended(3))

    @invariant()
    def user_code_starts_once_at_most_and_only_behind_the_gate(self):
        assert self.effects.count(Effect.GO) <= 1
        if Effect.GO in self.effects:
            assert self.best_ack >= 1
            assert self.machine.ready

    @invariant()
    def it_is_removed_once_and_only_when_recorded_or_unwanted(self):
        assert self.effects.count(Effect.REMOVE) == (self.machine.state is State.GONE)
        if self.machine.state is State.GONE:
            assert self.machine.discarded or self.best_ack >= 3

    @invariant()
    def the_files_of_what_nobody_wants_are_dropped_once_its_process_is_gone(self):
        if self.dropped_for_good and self.machine.state is State.PUBLISHING:
            assert Effect.DROP_FILES in self.effects

    @invariant()
    def the_end_is_written_once(self):
        assert self.effects.count(Effect.WRITE_END) <= 1
        assert (Effect.WRITE_END in self.effects) == (self.machine.state in {State.ENDED, State.GONE})

    @invariant()
    def a_process_that_is_to_stop_has_been_asked(self):
        if self.machine.stopping and self.machine.has_process:
            assert Effect.STOP_PROCESS in self.effects


Life.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestLife = Life.TestCase


def test_a_users_stop_beats_the_others_and_the_shortest_grace_wins():
    machine = Machine()
    machine.stop(StopReason.SERVER_STOP, 10)
    machine.stop(StopReason.LATE, 20)
    assert (machine.stop_reason, machine.grace_s) == (StopReason.SERVER_STOP, 10)
    machine.stop(StopReason.USER, 5)
    assert (machine.stop_reason, machine.grace_s) == (StopReason.USER, 5)


def test_a_stop_for_what_has_ended_is_ignored():
    machine = Machine(state=State.ENDED, end_seq=4)
    assert machine.stop(StopReason.USER) == []
    assert machine.stop_reason is None


@pytest.mark.parametrize(
    ("reason", "drops"),
    [
        (StopReason.USER, True),
        (StopReason.LATE, True),
        (StopReason.REVOKED, True),
        (StopReason.AGENT_STOP, False),
        (StopReason.ONE_SHOT_STOP, False),
        (StopReason.SERVER_STOP, False),
        (StopReason.LOST_TUNNEL, False),
    ],
)
def test_files_are_dropped_when_nobody_wants_them_and_else_left_to_the_next_agent(reason, drops):
    machine = Machine(state=State.PUBLISHING)
    assert machine.stop(reason) == ([Effect.DROP_FILES] if drops else [])
    assert machine.stop_reason is None


def test_the_stop_that_ended_the_process_is_none_of_its_files_when_it_is_said_again():
    machine = Machine(state=State.PUBLISHING, stop_reason=StopReason.USER)
    assert machine.stop(StopReason.USER, repeated=True) == []
    assert machine.stop(StopReason.USER) == [Effect.DROP_FILES]


def test_a_stop_that_was_asked_for_while_the_line_was_down_reaches_the_files():
    machine = Machine(state=State.PUBLISHING)
    assert machine.stop(StopReason.USER, repeated=True) == [Effect.DROP_FILES]


def test_a_stop_before_the_process_ends_the_preparation():
    machine = Machine()
    machine.accepted()
    assert machine.stop(StopReason.USER) == [Effect.ABANDON]


def test_an_event_that_can_not_come_tells_the_story():
    machine = Machine()
    machine.accepted()
    with pytest.raises(Illegal, match="accepted in preparing; before: accepted, accepted"):
        machine.accepted()
