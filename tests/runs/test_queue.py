"""Lines of waiting runs, and who goes next."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from codefyui_core.runs.queue import Candidate, Capacity, Lines, Room, Waiting, look, matching


def waiting(seq, line="a/cpu", needs=None, ask=None):
    return Waiting(run_id=f"r{seq}", seq=seq, line=line, needs=needs, ask=ask)


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


def places(run):
    return NEEDS[run.needs]


def capacity(slot):
    return 2 if slot[1] == "cpu" else 1


def plainly(runs, used):
    """What a look has to find, told as simply as can be: every run, oldest first."""
    taken, placed, stuck = Counter(used), [], set()
    for run in runs:
        group, fitting = (run.line, run.needs), places(run)
        if group in stuck:
            continue
        free = [one for one in fitting if all(taken[slot] < capacity(slot) for slot in one.slots)]
        if free:
            chosen = min(
                free, key=lambda one: (one.rank, sum(taken[slot] for slot in one.slots), one.devices)
            )
            taken.update(chosen.slots)
            placed.append((run.run_id, chosen))
        else:
            stuck.add(group)
            taken.update({slot for one in fitting if len(one.slots) > 1 for slot in one.slots})
    return placed


ASKS = {need: (NEEDS[need] if need != "none" else NEEDS["card"]) for need in NEEDS}
"""What the devices alone allow: the run that fits nowhere asks for a card as others do."""


class LooksMachine(RuleBasedStateMachine):
    """Looks at lines that change between them, against the plain way."""

    def __init__(self):
        super().__init__()
        self.lines = Lines()
        self.waiting = {}
        self.executing = {}
        self.seq = 0

    @rule(line=st.sampled_from("xy"), need=st.sampled_from(sorted(NEEDS)))
    def submit(self, line, need):
        self.seq += 1
        run = waiting(self.seq, line, need, ask="card" if need == "none" else need)
        self.waiting[run.run_id] = run
        self.lines.add(run)

    @rule(data=st.data())
    def cancel(self, data):
        if self.waiting:
            run_id = data.draw(st.sampled_from(sorted(self.waiting)))
            del self.waiting[run_id]
            self.lines.discard(run_id)

    @rule(data=st.data(), comes_back=st.booleans())
    def end(self, data, comes_back):
        if self.executing:
            run, _ = self.executing.pop(data.draw(st.sampled_from(sorted(self.executing))))
            if comes_back:
                self.waiting[run.run_id] = run
                self.lines.add(run)

    @rule(data=st.data())
    def something_changed(self, data):
        run_id = data.draw(st.sampled_from([*sorted(self.waiting), None]))
        if run_id is None:
            self.lines.forget_places()
        else:
            self.lines.refresh(run_id)

    @rule(reach=st.booleans(), budget=st.sampled_from([1, 3, None]))
    def look(self, reach, budget):
        used = Counter(slot for _, chosen in self.executing.values() for slot in chosen.slots)
        expected = plainly(sorted(self.waiting.values(), key=lambda run: run.seq), used)
        placed, blocked = [], {}
        reached = (lambda run: ASKS[run.ask]) if reach else None
        room = Room(used, capacity)
        while True:
            found = look(self.lines, places, room, reach=reached, budget=budget)
            placed += [(run.run_id, chosen) for run, chosen in found.placed]
            blocked |= found.blocked
            if not found.more:
                break
        if budget is None:
            assert placed == expected
        for run_id, chosen in placed:
            self.executing[run_id] = (self.waiting.pop(run_id), chosen)
        assert all(fits == bool(NEEDS[need]) for (_, need), fits in blocked.items())

    @invariant()
    def nothing_is_overfull_and_nobody_is_lost(self):
        used = Counter(slot for _, chosen in self.executing.values() for slot in chosen.slots)
        assert all(number <= capacity(slot) for slot, number in used.items())
        assert len(self.lines) == len(self.waiting)
        shelves = self.lines._shelves.values()
        heads = [run_id for shelf in shelves for _, run_id in shelf.fresh]
        heads += [run_id for shelf in shelves for known in shelf.known.values() for _, run_id in known]
        assert sorted(heads) == sorted(runs[0][1] for runs in self.lines.groups().values())


TestLooks = LooksMachine.TestCase
TestLooks.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_run_that_needs_two_cards_is_not_passed_over_for_ever():
    lines = Lines()
    lines.add(waiting(1, "v", "both"))
    lines.add(waiting(2, "v", "card"))
    found = look(
        lines,
        lambda run: [c for c in NEEDS[run.needs] if c.place == "v"],
        Room({("v", "cuda:0"): 1}, lambda _: 1),
    )
    assert found.placed == ()


def test_a_run_that_fits_nowhere_holds_nobody_up():
    lines = Lines()
    lines.add(waiting(1, "any/cuda", "none"))
    lines.add(waiting(2, "any/cuda", "card"))
    found = look(lines, places, Room({}, lambda _: 1))
    assert [run.run_id for run, _ in found.placed] == ["r2"]
    assert found.blocked == {("any/cuda", "none"): False}


def test_the_oldest_of_all_lines_gets_the_slot():
    lines = Lines()
    lines.add(waiting(5, "w/cpu", "cpu"))
    lines.add(waiting(4, "any/cpu", "cpu"))
    found = look(lines, places, Room({("w", "cpu"): 1}, lambda _: 2))
    assert [run.run_id for run, _ in found.placed] == ["r4"]


def best(candidates, used, number):
    return Room(used, lambda _: number).best(waiting(1), candidates)


def test_rank_goes_before_use_and_use_before_names():
    a, b, c = candidate("a"), candidate("b"), candidate("c", rank=1)
    assert best([c, b, a], {("a", "cpu"): 1}, 3) == b
    assert best([c], {}, 3) == c
    assert best([a], {("a", "cpu"): 3}, 3) is None


def asked_of(lines, room, **more):
    """For which runs a look asks where they fit."""
    asked = []

    def ask(run):
        asked.append(run.run_id)
        return places(run)

    return look(lines, ask, room, **more), asked


def test_a_look_asks_nobody_while_there_is_no_room():
    lines = Lines()
    for seq in range(1, 50):
        lines.add(waiting(seq, "any/cpu", "cpu" if seq % 2 else "none", ask="cpu"))
    full = Room({("w", "cpu"): 2}, capacity)
    assert asked_of(lines, full, reach=lambda run: NEEDS["cpu"])[1] == []


def test_a_free_slot_goes_to_the_oldest_and_costs_one_question():
    lines = Lines()
    for seq in range(1, 50):
        lines.add(Waiting(run_id=f"r{seq}", seq=seq, line="any/cpu", needs=("files", seq), ask="cpu"))
    room = Room({("w", "cpu"): 1}, capacity)
    asked = []

    def ask(run):
        asked.append(run.run_id)
        return NEEDS["cpu"]

    found = look(lines, ask, room, reach=lambda run: NEEDS["cpu"])
    assert [run.run_id for run, _ in found.placed] == asked == ["r1"]


def test_runs_that_fit_nowhere_are_asked_once_until_something_changes():
    lines = Lines()
    for seq in range(1, 21):
        lines.add(waiting(seq, "any/cuda", "none", ask=("cuda", seq)))
    lines.add(waiting(30, "any/cuda", "card", ask="card"))
    used = {("w", "cuda:0"): 1, ("v", "cuda:0"): 1, ("v", "cuda:1"): 1}
    first = asked_of(lines, Room(used, capacity))[1]
    assert len(first) > 0
    assert asked_of(lines, Room(used, capacity))[1] == []
    lines.forget_places()
    assert asked_of(lines, Room(used, capacity))[1] == first


def test_a_line_whose_worker_is_away_is_not_looked_at_until_places_change():
    lines = Lines()
    lines.add(waiting(1, "away/cpu", "none"))
    lines.add(waiting(2, "w/cpu", "cpu"))
    reach = {"none": (), "cpu": NEEDS["cpu"]}
    look(lines, places, Room({}, capacity), reach=lambda run: reach[run.needs])
    assert lines.shelves() == ()
    lines.add(waiting(3, "away/cpu", "none"))
    assert lines.shelves() == ()
    lines.forget_places()
    found = look(lines, lambda run: NEEDS["cpu"], Room({}, capacity), reach=lambda run: NEEDS["cpu"])
    assert [run.run_id for run, _ in found.placed] == ["r1", "r3"]


def test_a_run_that_is_kept_apart_holds_its_place_and_nobody_up():
    lines = Lines()
    for seq in (1, 2, 3):
        lines.add(waiting(seq, "any/cpu", "cpu"))
    lines.keep_apart({"r1", "absent"})
    assert [lines.position(run) for run in ("r1", "r2", "r3")] == [1, 2, 3]
    found = look(lines, places, Room({("w", "cpu"): 1}, capacity))
    assert [run.run_id for run, _ in found.placed] == ["r2"]
    lines.keep_apart(set())
    found = look(lines, places, Room({("w", "cpu"): 1}, capacity))
    assert [run.run_id for run, _ in found.placed] == ["r1"]
    lines.keep_apart({"r3"})
    lines.discard("r3")
    lines.keep_apart(set())
    assert len(lines) == 0
    assert not list(lines.shelves())


def test_a_look_with_little_time_goes_on_where_it_stopped():
    lines = Lines()
    for seq in range(1, 8):
        lines.add(Waiting(run_id=f"r{seq}", seq=seq, line="any/cuda", needs=("none", seq), ask="cuda"))
    lines.add(waiting(9, "any/cuda", "card", ask="cuda"))
    fits = {"r9": NEEDS["card"]}
    looks = 1
    while (found := look(lines, lambda run: fits.get(run.run_id, ()), Room({}, capacity), budget=2)).more:
        assert found.placed == ()
        looks += 1
    assert [run.run_id for run, _ in found.placed] == ["r9"]
    assert looks == 4


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
