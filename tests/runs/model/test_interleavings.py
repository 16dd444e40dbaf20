"""Random interleavings over several runs and workers: every frame duplicated, late, lost or out of order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from codefyui_core.runs.machine import State
from codefyui_core.runs.status import FINAL, RunStatus

from .fleet import EVENTS, Fleet

WORKERS = 2
RUNS = 4
workers = st.integers(0, WORKERS - 1)
numbers = st.integers(0, 7)


class Interleavings(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.fleet = Fleet(WORKERS)
        self.ends = {}

    @property
    def count(self):
        return len(self.fleet.table.records)

    # ------------------------------------------------------------ what goes as it should

    @initialize(chosen=st.lists(workers, min_size=1, max_size=RUNS))
    def submit(self, chosen):
        for worker in chosen:
            self.fleet.submit(worker)

    @rule(worker=workers, moves=st.integers(1, 15), refuse=st.sampled_from([None, None, None, True, False]))
    def all_goes_well_for_a_while(self, worker, moves, refuse):
        """But for assignments that it refuses, for now or for good."""
        for _ in range(moves):
            self.fleet.go_on(worker, refuse=refuse)

    @rule(worker=workers)
    def place(self, worker):
        self.fleet.place(worker)

    @rule(worker=workers, lost=st.integers(0, 5))
    def connect(self, worker, lost):
        self.fleet.connect(worker, welcome_lost=lost == 0)

    @rule(worker=workers, choice=numbers)
    def step(self, worker, choice):
        self.fleet.step(worker, choice)

    @rule(worker=workers)
    def send(self, worker):
        self.fleet.send(worker)

    @rule(worker=workers, first=st.booleans(), index=numbers, keep=st.integers(0, 3))
    def server_reads(self, worker, first, index, keep):
        frames = self.fleet.machines[worker].up_frames
        if frames:
            self.fleet.server_reads(worker, 0 if first else index % len(frames), keep=keep == 0)

    @rule(worker=workers, first=st.booleans(), index=numbers, keep=st.integers(0, 3))
    def agent_reads(self, worker, first, index, keep):
        frames = self.fleet.machines[worker].down_frames
        if frames:
            self.fleet.agent_reads(worker, 0 if first else index % len(frames), keep=keep == 0)

    @rule(worker=workers)
    def start(self, worker):
        self.fleet.start(worker)

    # ------------------------------------------------------------ what goes wrong, and what people ask for

    @rule(worker=workers, index=numbers, up=st.booleans())
    def lose_a_frame(self, worker, index, up):
        machine = self.fleet.machines[worker]
        frames = machine.up_frames if up else machine.down_frames
        if frames:
            frames.pop(index % len(frames))

    @rule(worker=workers, noticed=st.booleans())
    def cut(self, worker, noticed):
        self.fleet.leave(worker)
        if noticed:
            self.fleet.link_down(worker)

    @rule(worker=workers, keeps=st.booleans())
    def kill(self, worker, keeps):
        self.fleet.kill(worker, keeps=keeps)

    @rule()
    def crash(self):
        self.fleet.crash()

    @rule(run=numbers)
    def stop(self, run):
        self.fleet.stop(run % self.count)

    @rule(run=numbers)
    def grace_is_over(self, run):
        self.fleet.grace_over(run % self.count)

    # ------------------------------------------------------------ what holds

    @invariant()
    def user_code_starts_once_at_most(self):
        assert all(count <= 1 for count in self.fleet.starts.values())

    @invariant()
    def an_end_never_changes(self):
        for record in self.fleet.table.records.values():
            if record.status in FINAL:
                assert self.ends.setdefault(record.id, record.status) is record.status

    @invariant()
    def the_log_is_what_was_emitted_in_order(self):
        """That each event is the next one of its run is looked at as it is saved (``ledger.told``)."""
        for run, record in enumerate(self.fleet.table.records.values()):
            assert record.last_cursor <= self.fleet.emitted.get(run, 0)
            if record.status is RunStatus.SUCCEEDED:
                assert record.last_cursor == EVENTS

    @invariant()
    def no_device_executes_more_than_its_capacity(self):
        for machine in self.fleet.machines:
            assert sum(held.executes for held in machine.held.values()) <= 1

    @invariant()
    def slots_in_use_are_those_of_live_attempts(self):
        fleet = self.fleet
        for machine in fleet.machines:
            assert fleet.in_use(machine.name) <= 1
            if machine.online and fleet.speaks.get(machine.name) == (machine.session, machine.process):
                for run, held in machine.held.items():
                    if held.executes and held.stop_reason is None:
                        assert fleet.in_use(machine.name) == 1, f"run {run} executes and doesn't count"

    def teardown(self):
        """When nothing more goes wrong, each run comes to its one end and nothing is left of it."""
        for worker in range(WORKERS):
            self.fleet.leave(
                worker
            )  # a frame that was lost alone is missed by the beats, which close the line
            for _ in range(400):
                if not self.fleet.go_on(worker):
                    break
        for record in self.fleet.table.records.values():
            assert record.state is State.SETTLED, f"{record.id} is {record.state.value}"
            assert self.ends.setdefault(record.id, record.status) is record.status
        assert not any(machine.held for machine in self.fleet.machines)


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
