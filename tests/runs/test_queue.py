"""Lines of waiting runs, and who goes next."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from codefyui_core.runs.queue import Candidate, Capacity, Lines, Waiting, choose, look, matching


def waiting(seq, line="a/cpu", needs=None):
    return Waiting(run_id=f"r{seq}", seq=seq, line=line, needs=needs)


def candidate(place="w", *devices, rank=0):
    devices = devices or ("cpu",)
    return Candidate(place=place, devices=devices, slots=tuple((place, one) for one in devices), rank=rank)


class LinesMachine(RuleBasedStateMachine):
    """Lines against a plain list."""

    def __init__(self):
        super().__init__()
        self.lines = Lines()
        self.model = {}
        self.seq = 0

    @rule(line=st.sampled_from("xyz"), needs=st.sampled_from("pq"))
    def add(self, line, needs):
        self.seq += 1
        run = waiting(self.seq, line, needs)
        self.model[run.run_id] = run
        self.lines.add(run)

    @rule(data=st.data())
    def take_and_perhaps_bring_back(self, data):
        if self.model:
            run_id = data.draw(st.sampled_from(sorted(self.model)))
            run = self.model.pop(run_id)
            self.lines.discard(run_id)
            self.lines.discard(run_id)
            if data.draw(st.booleans()):
                self.model[run_id] = run
                self.lines.add(run)
                self.lines.add(run)

    @invariant()
    def positions_are_the_order_of_submission(self):
        assert len(self.lines) == len(self.model)
        for line in "xyz":
            order = sorted((run.seq, run.run_id) for run in self.model.values() if run.line == line)
            assert self.lines.in_order(line) == [run_id for _, run_id in order]
            for place, (_, run_id) in enumerate(order, 1):
                assert self.lines.position(run_id) == place
        assert self.lines.in_order() == [r.run_id for r in sorted(self.model.values(), key=lambda r: r.seq)]


TestLines = LinesMachine.TestCase
TestLines.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)

DEVICES = [("w", "cpu"), ("w", "cuda:0"), ("v", "cuda:0"), ("v", "cuda:1")]
NEEDS = {
    "cpu": [candidate("w", "cpu")],
    "card": [candidate("w", "cuda:0"), candidate("v", "cuda:0"), candidate("v", "cuda:1")],
    "both": [candidate("v", "cuda:0", "cuda:1")],
    "none": [],
}


@given(
    st.lists(st.sampled_from(sorted(NEEDS)), max_size=15),
    st.dictionaries(st.sampled_from(DEVICES), st.integers(0, 2)),
)
def test_looking_never_overfills_and_never_passes_over(needs, used):
    lines = Lines()
    for seq, need in enumerate(needs, 1):
        lines.add(waiting(seq, "any", need))
    found = look(lines, lambda run: NEEDS[run.needs], used, lambda slot: 1 if slot[1] != "cpu" else 2)
    total = Counter(used)
    for _, chosen in found.placed:
        total.update(chosen.slots)
    added = {slot for _, chosen in found.placed for slot in chosen.slots}
    assert all(total[slot] <= (2 if slot[1] == "cpu" else 1) for slot in added)
    for need, fitting in NEEDS.items():
        asked = [seq for seq, one in enumerate(needs, 1) if one == need]
        placed = [run.seq for run, _ in found.placed if run.needs == need]
        assert placed == asked[: len(placed)]
        assert (("any", need) in found.blocked) == (placed != asked)
        assert found.blocked.get(("any", need), bool(fitting)) == bool(fitting)


def test_a_run_that_needs_two_cards_is_not_passed_over_for_ever():
    lines = Lines()
    lines.add(waiting(1, "v", "both"))
    lines.add(waiting(2, "v", "card"))
    found = look(
        lines, lambda run: [c for c in NEEDS[run.needs] if c.place == "v"], {("v", "cuda:0"): 1}, lambda _: 1
    )
    assert found.placed == ()


def test_a_run_that_fits_nowhere_holds_nobody_up():
    lines = Lines()
    lines.add(waiting(1, "any/cuda", "none"))
    lines.add(waiting(2, "any/cuda", "card"))
    found = look(lines, lambda run: NEEDS[run.needs], {}, lambda _: 1)
    assert [run.run_id for run, _ in found.placed] == ["r2"]
    assert found.blocked == {("any/cuda", "none"): False}


def test_the_oldest_of_all_lines_gets_the_slot():
    lines = Lines()
    lines.add(waiting(5, "w/cpu", "cpu"))
    lines.add(waiting(4, "any/cpu", "cpu"))
    found = look(lines, lambda run: NEEDS["cpu"], {("w", "cpu"): 1}, lambda _: 2)
    assert [run.run_id for run, _ in found.placed] == ["r4"]


def test_rank_goes_before_use_and_use_before_names():
    a, b, c = candidate("a"), candidate("b"), candidate("c", rank=1)
    assert choose([c, b, a], {("a", "cpu"): 1}, lambda _: 3) == b
    assert choose([c], {}, lambda _: 3) == c
    assert choose([a], {("a", "cpu"): 3}, lambda _: 3) is None


OVERRIDES = {"cuda:0": 2, "GPU-Box/cuda:0": 3, "gpu-box.7/cuda:0": 4, "cpu": 0}


@pytest.mark.parametrize(
    ("owner", "device", "count"),
    [
        ("server", "cuda:0", 2),
        ("server", "cuda:1", 1),
        ("server", "cpu", 1),
        ("gpu-box", "cuda:0", 3),
        ("GPU-BOX", "cuda:0", 3),
        ("gpu-box.7", "cuda:0", 4),
        ("gpu-box.8", "cuda:0", 3),
        ("other", "cuda:0", 1),
        ("other", "cpu", 2),
        ("other", "mps:0", 1),
    ],
)
def test_caps_are_looked_up_from_the_nearest_name(owner, device, count):
    capacity = Capacity.reading(accelerator=1, cpu=2, overrides=OVERRIDES)
    assert capacity.of(owner, device) == count


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("cpu", ("cpu",)),
        ("cuda", ("cuda:0", "cuda:1")),
        ("cuda:1", ("cuda:1",)),
        ("cuda:2", ()),
        ("auto", ("cuda:0", "cuda:1")),
        ("mps", ()),
    ],
)
def test_what_is_asked_for_names_a_device_or_a_kind(asked, found):
    assert matching(asked, ["cpu", "cuda:0", "cuda:1"]) == found


def test_auto_without_any_card_is_the_cpu():
    assert matching("auto", ["cpu"]) == ("cpu",)
    assert matching("auto", []) == ()
