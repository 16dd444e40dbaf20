"""Cards that are shared by memory: what a run may need, what is promised, who is admitted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from codefyui_core.runs.queue import Candidate, Lines, Room, Waiting, look
from codefyui_core.runs.sharing import CONTEXT_BYTES, Ledger, Measured, Shares, need_bytes, shortage

GIB = 1 << 30


@pytest.mark.parametrize(
    ("peak", "total", "need"),
    [
        (10 * GIB, 80 * GIB, 12 * GIB + CONTEXT_BYTES),
        (0, 80 * GIB, CONTEXT_BYTES),
        (None, 80 * GIB, 40 * GIB),
        (79 * GIB, 80 * GIB, 72 * GIB),
        (10 * GIB, None, 12 * GIB + CONTEXT_BYTES),
        (None, None, None),
    ],
)
def test_a_run_needs_what_the_last_of_its_graph_took_and_some_or_half_a_card(peak, total, need):
    assert need_bytes(peak, total) == need


def test_a_run_is_admitted_when_what_it_needs_is_free_and_promised_to_nobody():
    card = Measured(label="box/cuda:0", free_bytes=10 * GIB, promised_bytes=4 * GIB)
    assert shortage(card, 6 * GIB) is None
    assert shortage(card, 6 * GIB, taken_bytes=1).code == "queue.memory"
    lack = shortage(card, 7 * GIB)
    assert lack.text == (
        "waits for memory on box/cuda:0: it may need 7.0 GiB, 10.0 GiB are free, 4.0 GiB of them promised to "
        "runs that began there"
    )


def test_nobody_is_admitted_by_a_guess():
    unknown = Measured(label="box/cuda:0", free_bytes=None)
    assert shortage(unknown, 1).code == "queue.memory_unknown"
    assert shortage(Measured(label="box/cuda:0", free_bytes=GIB), None).code == "queue.memory_unknown"
    assert shortage(Measured(label="box/cuda:0", free_bytes=GIB, blocked=True), 1).code == "queue.slot_busy"


def test_what_was_promised_stays_promised_until_it_is_taken():
    ledger = Ledger()
    ledger.follow({"a": 30}, 80)
    assert ledger.promised(80) == 30
    ledger.follow({"a": 30}, 60)
    assert ledger.promised(60) == 10
    ledger.follow({"a": 30}, 50)
    assert ledger.promised(50) == 0
    ledger.follow({"a": 30, "b": 20}, 50)
    assert ledger.promised(50) == 20


def test_what_others_give_back_is_free():
    ledger = Ledger()
    ledger.follow({"a": 30}, 40)
    assert ledger.promised(40) == 30
    ledger.follow({"a": 30}, 70)
    assert ledger.promised(70) == 30


def test_what_was_promised_to_a_run_that_is_gone_is_free():
    ledger = Ledger()
    ledger.follow({"a": 30, "b": 20}, 80)
    ledger.follow({"b": 20}, 80)
    assert ledger.promised(80) == 20
    ledger.follow({}, 80)
    assert ledger.promised(80) == 0


def test_an_estimate_that_is_learned_later_counts_from_then_on():
    ledger = Ledger()
    ledger.follow({"a": 80}, 80)
    ledger.follow({"a": 10}, 80)
    assert ledger.promised(80) == 10


def test_a_measurement_that_is_missing_changes_nothing():
    ledger = Ledger()
    ledger.follow({"a": 30}, None)
    assert ledger.promised(80) == 0
    ledger.follow({"a": 30}, 80)
    ledger.follow({"a": 30}, None)
    assert ledger.promised(80) == 30


class CardMachine(RuleBasedStateMachine):
    """One card whose runs never take more than they may need, and nobody else on it: it never overflows."""

    TOTAL = 100

    def __init__(self):
        super().__init__()
        self.ledger = Ledger()
        self.runs = {}
        self.taken = {}
        self.free = self.TOTAL
        self.number = 0

    def follow(self):
        self.ledger.follow(self.runs, self.free)

    @rule(need=st.integers(1, 60))
    def ask(self, need):
        self.follow()
        card = Measured(label="card", free_bytes=self.free, promised_bytes=self.ledger.promised(self.free))
        if shortage(card, need) is None:
            self.number += 1
            self.runs[self.number], self.taken[self.number] = need, 0
            self.follow()

    @rule(data=st.data())
    def grow(self, data):
        if self.runs:
            run = data.draw(st.sampled_from(sorted(self.runs)))
            self.taken[run] = data.draw(st.integers(self.taken[run], self.runs[run]))

    @rule(data=st.data())
    def end(self, data):
        if self.runs:
            run = data.draw(st.sampled_from(sorted(self.runs)))
            del self.runs[run], self.taken[run]

    @rule()
    def measure(self):
        self.free = self.TOTAL - sum(self.taken.values())
        self.follow()

    @invariant()
    def all_that_was_admitted_has_room(self):
        assert sum(self.runs.values()) <= self.TOTAL


TestCard = CardMachine.TestCase
TestCard.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)

SLOT = ("w", "cuda:0")
CARD = Candidate(place="w", devices=("cuda:0",), slots=(SLOT,))


def looked(needs, free, **more):
    """Runs, oldest first, that a look places on one shared card."""
    lines = Lines()
    for seq, name in enumerate(needs, 1):
        lines.add(Waiting(run_id=name, seq=seq, line="w/cuda:0", needs=name))
    card = Measured(label="w/cuda:0", free_bytes=free, **more)
    room = Room({SLOT: 7}, lambda _: 1, Shares({SLOT: card}, lambda _, run: needs[run]))
    return [run.run_id for run, _ in look(lines, lambda _: (CARD,), room).placed]


def test_runs_share_a_card_whatever_their_number():
    assert looked({"a": 3, "b": 3, "c": 3}, 10) == ["a", "b", "c"]
    assert looked({"a": 3, "b": 3, "c": 5}, 10) == ["a", "b"]


def test_a_small_run_does_not_pass_an_older_one_that_waits_for_memory():
    assert looked({"large": 11, "small": 1}, 10) == []


def test_a_card_that_was_not_measured_takes_nobody():
    assert looked({"a": 0}, None) == []
    assert looked({"a": 1}, 5, blocked=True) == []


@given(st.lists(st.integers(1, 20), max_size=12), st.integers(0, 60))
def test_one_look_promises_no_more_than_there_is(needs, free):
    placed = looked({f"r{number}": need for number, need in enumerate(needs)}, free)
    assert sum(needs[: len(placed)]) <= free
    assert placed == [f"r{number}" for number in range(len(placed))]
