"""Where runs are placed and why they wait: by number, by memory, on one machine, and never on a guess."""

import random

import pytest

from codefyui_core.runs.sharing import CONTEXT_BYTES, Policy

GIB = 1 << 30
TOTAL = 80 * GIB
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


class Measured:
    """Workers whose cards are measured as a test says."""

    def __init__(self, room, kit):
        self.room = room
        self.kit = kit

    def card(self, name="cuda:0", **more):
        return self.kit.device(name, memory_total_bytes=TOTAL, **more)

    async def worker(self, name="box", *cards, free=TOTAL, **more):
        agent = await self.room.worker(name, devices=cards or (self.card(),), **more)
        await self.beat(agent, free)
        return agent

    async def beat(self, agent, free):
        """What the agent's newest heartbeat says is free on each card; then the queue is looked at."""
        agent.free_memory = {info.device: free for info in agent.devices}
        agent.measured_at = self.room.clock.monotonic()
        self.room.service.offers_changed(agent.id)
        await self.room.settled()

    async def share(self, agent, device="cuda:0"):
        await self.room.service.set_policy(agent.id, device, Policy.MEMORY)

    async def ran_once(self, agent, peak_bytes, document=None):
        """A run of this graph has ended well; from then on its peak is known."""
        run_id = await self.room.submit(document, target=agent.name, device="cuda")
        key = await agent.accept(run_id)
        facts = {"peak_memory": {"cuda:0_bytes": peak_bytes, "host_bytes": 1}}
        await agent.report(key, {"kind": "environment", "payload": facts})
        await agent.finish(key)
        await self.room.becomes(run_id, "succeeded")

    async def reason(self, run_id, code):
        """Waits until the run waits for that; in words."""

        async def is_so():
            row = await self.room.row(run_id)
            return row["queue_reason"] if row["queue_reason_code"] == code else None

        return await self.kit.until(is_so)


@pytest.fixture
def cards(room, kit):
    return Measured(room, kit)


def peak_for(need_bytes):
    """The peak of an earlier run from which that need is estimated."""
    return int((need_bytes - CONTEXT_BYTES) / 1.2)


# ---------------------------------------------------------------- by number


@pytest.mark.spec("limits/count-admission-default")
async def test_a_card_takes_one_run_however_much_memory_is_free(room, cards):
    agent = await cards.worker(free=TOTAL)
    await cards.ran_once(agent, 1)
    first, second = [await room.submit(target="box", device="cuda") for _ in range(2)]
    await agent.got(first)
    assert await cards.reason(second, "queue.slot_busy") == "waits for a free slot on box/cuda"
    await cards.beat(agent, TOTAL)
    assert agent.assigns(second) == []


@pytest.mark.spec("limits/count-admission-default")
async def test_memory_that_others_took_is_nothing_to_a_card_that_counts(room, cards):
    agent = await cards.worker(free=0)
    run_id = await room.submit(target="box", device="cuda")
    await agent.got(run_id)


# ---------------------------------------------------------------- by memory


@pytest.mark.spec("limits/memory-admission-opt-in")
async def test_small_runs_share_a_card_that_is_set_so_and_no_other(room, kit, cards):
    agent = await cards.worker("box", cards.card("cuda:0"), cards.card("cuda:1"))
    await cards.ran_once(agent, peak_for(20 * GIB))
    await cards.share(agent, "cuda:0")
    shared = [await room.submit(target="box", device="cuda:0") for _ in range(4)]
    for run_id in shared:
        await agent.got(run_id)
    counted = [await room.submit(target="box", device="cuda:1") for _ in range(2)]
    await agent.got(counted[0])
    assert await cards.reason(counted[1], "queue.slot_busy")
    assert agent.assigns(counted[1]) == []
    fifth = await room.submit(target="box", device="cuda:0")
    assert await cards.reason(fifth, "queue.memory") == (
        "waits for memory on box/cuda:0: it may need 20.0 GiB, 80.0 GiB are free, 80.0 GiB of them promised to "
        "runs that began there"
    )


@pytest.mark.spec("limits/memory-admission-opt-in")
async def test_other_peoples_processes_are_waited_for(room, cards):
    agent = await cards.worker()
    await cards.ran_once(agent, peak_for(20 * GIB))
    await cards.share(agent)
    await cards.beat(agent, 10 * GIB)
    run_id = await room.submit(target="box", device="cuda")
    text = await cards.reason(run_id, "queue.memory")
    assert text == "waits for memory on box/cuda:0: it may need 20.0 GiB, 10.0 GiB are free"
    await cards.beat(agent, 30 * GIB)
    await agent.got(run_id)


async def test_what_a_run_has_taken_is_promised_no_more(room, cards):
    agent = await cards.worker()
    await cards.ran_once(agent, peak_for(30 * GIB))
    await cards.share(agent)
    runs = [await room.submit(target="box", device="cuda") for _ in range(3)]
    for run_id in runs[:2]:
        await agent.got(run_id)
    await cards.reason(runs[2], "queue.memory")
    await cards.beat(agent, 20 * GIB)
    assert "20.0 GiB are free" in await cards.reason(runs[2], "queue.memory")
    key = await agent.accept(runs[0])
    await agent.report(key, agent.exited())
    await cards.beat(agent, 50 * GIB)
    await agent.got(runs[2])


async def test_a_graph_that_never_ran_counts_as_half_a_card(room, cards):
    agent = await cards.worker()
    await cards.share(agent)
    runs = [await room.submit(target="box", device="cuda") for _ in range(3)]
    for run_id in runs[:2]:
        await agent.got(run_id)
    assert "may need 40.0 GiB" in await cards.reason(runs[2], "queue.memory")


async def test_what_a_graph_took_is_known_after_a_restart(room, cards):
    agent = await cards.worker()
    await cards.ran_once(agent, peak_for(20 * GIB))
    await cards.share(agent)
    await room.restart()
    await agent.connect()
    await cards.beat(agent, 70 * GIB)
    runs = [await room.submit(target="box", device="cuda") for _ in range(4)]
    for run_id in runs[:3]:
        await agent.got(run_id)
    assert "may need 20.0 GiB" in await cards.reason(runs[3], "queue.memory")


async def test_another_graph_is_another_need(room, kit, cards):
    agent = await cards.worker()
    await cards.ran_once(agent, peak_for(2 * GIB))
    await cards.share(agent)
    moved = kit.graph()
    moved["nodes"][1]["position"] = {"x": 99, "y": 99}
    same = await room.submit(moved | {"name": "another name"}, target="box", device="cuda")
    await agent.got(same)
    await cards.beat(agent, 38 * GIB)
    other = await room.submit(kit.graph(kit.node("other", "Other")), target="box", device="cuda")
    assert "may need 40.0 GiB" in await cards.reason(other, "queue.memory")


async def test_nobody_is_placed_by_an_old_measurement(room, cards):
    agent = await cards.worker()
    await cards.ran_once(agent, peak_for(10 * GIB))
    await cards.share(agent)
    await room.pass_time(26)
    run_id = await room.submit(target="box", device="cuda")
    text = await cards.reason(run_id, "queue.memory_unknown")
    assert text == "waits until the free memory of box/cuda:0 is measured"
    assert agent.assigns(run_id) == []
    await cards.beat(agent, TOTAL)
    await agent.got(run_id)


async def test_a_new_measurement_is_noticed_without_any_other_news(room, cards):
    agent = await cards.worker(free=0)
    await cards.share(agent)
    run_id = await room.submit(target="box", device="cuda")
    await cards.reason(run_id, "queue.memory")
    agent.free_memory, agent.measured_at = {"cuda:0": TOTAL}, room.clock.monotonic()
    await room.pass_time(6)
    await agent.got(run_id)


async def test_a_policy_outlives_the_server_and_can_be_taken_back(room, cards):
    agent = await cards.worker()
    await cards.share(agent)
    await room.restart()
    await agent.connect()
    await cards.beat(agent, 0)
    assert room.service.policy_of(agent.id, "cuda:0") == "memory"
    run_id = await room.submit(target="box", device="cuda")
    await cards.reason(run_id, "queue.memory")
    await room.service.set_policy(agent.id, "cuda:0", Policy.COUNT)
    await agent.got(run_id)


async def test_the_servers_own_card_is_measured_by_itself(closed_room, kit, monkeypatch):
    free = {"cuda:0": 5 * GIB}
    monkeypatch.setattr("codefyui_core.control.runs.service.free_memory", lambda devices: dict(free))
    room = await closed_room.open()
    room.catalog.devices = (kit.device("cpu"), kit.device("cuda:0", memory_total_bytes=TOTAL))
    await room.service.set_own_policy("cuda:0", Policy.MEMORY)
    run_id = await room.submit(device="cuda")
    assert "5.0 GiB are free" in await Measured(room, kit).reason(run_id, "queue.memory")
    free["cuda:0"] = 50 * GIB
    await room.pass_time(6)
    (await room.process(run_id)).finish()
    await room.becomes(run_id, "succeeded")


@pytest.mark.parametrize(
    ("device", "code"),
    [("cpu", "request.invalid"), ("mps:0", "request.invalid"), ("cuda:9", "device.not_found")],
)
async def test_only_a_card_that_tells_its_memory_is_shared(room, kit, device, code):
    room.catalog.devices = (kit.device("cpu", memory_total_bytes=TOTAL), kit.device("mps:0"))
    with pytest.raises(kit.error) as refused:
        await room.service.set_own_policy(device, Policy.MEMORY)
    assert refused.value.code == code


# ---------------------------------------------------------------- one machine


@pytest.mark.spec("limits/one-run-one-machine")
async def test_a_run_for_two_cards_is_never_split_over_two_workers(room, kit, cards):
    agents = [await cards.worker(name) for name in ("a", "b")]
    both = {"worker": "a", "devices": ["cuda:0", "cuda:1"]}
    with pytest.raises(kit.error) as refused:
        await room.submit(target=both)
    assert refused.value.code == "target.device_unknown"
    await agents[0].drop()
    agents[0].devices = ()
    waiting = await room.submit(target=both)
    agents[0].devices = (cards.card(),)
    await agents[0].connect()
    assert await cards.reason(waiting, "queue.worker_unfit")
    assert [one.assigns(waiting) for one in agents] == [[], []]
    await agents[0].drop()
    agents[0].devices = (cards.card("cuda:0"), cards.card("cuda:1"))
    await agents[0].connect()
    assert (await agents[0].assigned(waiting)).devices == ("cuda:0", "cuda:1")


@pytest.mark.spec("limits/one-run-one-machine")
async def test_devices_without_a_worker_are_no_target(room, kit):
    for target in ({"any": True, "devices": ["cuda:0"]}, {"devices": ["cuda:0"]}):
        with pytest.raises(kit.error) as refused:
            await room.submit(target=target)
        assert refused.value.code == "run.option_invalid"


async def test_a_card_that_two_places_offer_has_one_policy_and_one_count(room, kit, cards):
    room.catalog.devices = (kit.device("cpu"), cards.card(uuid="GPU-a"))
    twin = await cards.worker("twin", cards.card("cuda:0", uuid="GPU-a"), same_machine=True)
    await cards.share(twin)
    assert room.service.policy_of("", "cuda:0") == "memory"
    assert room.service.policy_of(twin.id, "cuda:0") == "memory"
    stranger = await cards.worker("stranger", cards.card("cuda:0", uuid="GPU-a"))
    assert room.service.policy_of(stranger.id, "cuda:0") == "count"
    await room.service.set_own_policy("cuda:0", Policy.COUNT)
    own = await room.submit(device="cuda")
    await room.process(own)
    remote = await room.submit(target="twin", device="cuda")
    assert await cards.reason(remote, "queue.slot_busy")
    on_other = await room.submit(target="stranger", device="cuda")
    await stranger.got(on_other)
    assert room.board_used() == {("", "cuda:0"): 1, (stranger.id, "cuda:0"): 1}


# ---------------------------------------------------------------- why it waits


async def test_the_reason_changes_with_what_the_run_waits_for(room, cards):
    agent = room.agent(devices=(cards.card(),))
    first, second = [await room.submit(target="box", device="cuda") for _ in range(2)]
    assert await cards.reason(first, "queue.worker_offline") == "worker box is offline"
    agent.drained = True
    await agent.connect()
    assert await cards.reason(first, "queue.worker_drained") == "worker box is drained"
    assert await cards.reason(second, "queue.worker_drained") == "worker box is drained"
    agent.drained = False
    room.service.offers_changed(agent.id)
    key = await agent.accept(first)
    assert await cards.reason(second, "queue.slot_busy") == "waits for a free slot on box/cuda"
    third = await room.submit(target="box", device="cuda")
    assert await cards.reason(third, "queue.behind") == "waits behind 1 run for box/cuda"
    await agent.finish(key)
    await agent.got(second)
    assert await cards.reason(third, "queue.slot_busy")
    agent.accepting = False
    room.service.offers_changed(agent.id)
    assert await cards.reason(third, "queue.worker_not_accepting")
    await agent.drop()
    assert await cards.reason(third, "queue.worker_offline")


# ---------------------------------------------------------------- slots


async def test_the_card_of_a_late_run_is_free_when_its_process_is_gone(closed_room, kit):
    room = await closed_room.open(worker_resume_grace_s=10)
    agent = await room.worker(devices=(kit.device("cuda:0"),))
    late = await room.submit(target="box", device="cuda")
    key = await agent.accept(late)
    await agent.drop()
    await room.pass_time(12)
    await room.becomes(late, "interrupted")
    assert room.board_used() == {}
    await agent.connect()
    assert room.board_used() == {(agent.id, "cuda:0"): 1}
    waiting = await room.submit(target="box", device="cuda")
    assert (await room.row(waiting))["queue_reason_code"] == "queue.slot_busy"
    await agent.report(key, agent.exited())
    await agent.got(waiting)


class Story:
    """Things happen in any order; after each, slots in use are the attempts that live."""

    def __init__(self, room, kit, seed):
        self.room = room
        self.kit = kit
        self.chance = random.Random(seed)
        devices = (kit.device("cpu"), kit.device("cuda:0"))
        self.agents = [room.agent(name, devices=devices) for name in ("a", "b")]
        self.runs = []
        self.gone = set()
        self.told = []

    def happenings(self):
        yield from [self.submit] * 3
        yield from (self.accept, self.exit, self.end, self.cancel, self.drop, self.connect, self.refuse)
        yield self.restart

    async def step(self):
        happening = self.chance.choice(list(self.happenings()))
        self.told.append(happening.__name__)
        await happening()
        await self.quiet()

    async def quiet(self):
        """Until nothing is being placed or sent, and what is counted is what lives."""
        board = self.room.service.board
        await self.kit.until(lambda: not board.holds)
        await self.room.settled()
        try:
            await self.kit.until(lambda: not self.wrong())
        except TimeoutError:
            pytest.fail(f"slots in use, and attempts that live: {self.wrong()}; after {self.told}")

    def wrong(self):
        """Slots of connected workers whose two counts differ. What was sent over a line that broke is held by
        nobody until the worker is back.
        """
        used, living = self.room.board_used(), self.living()
        slots = {slot for agent in self.agents if agent.connected for slot in self.slots(agent)}
        return {
            slot: found
            for slot in slots
            if (found := (used.get(slot, 0), living.get(slot, 0)))[0] != found[1]
        }

    @staticmethod
    def slots(agent):
        return [(agent.id, info.device) for info in agent.devices]

    def held(self, connected=True):
        pairs = [(one, key) for one in self.agents if one.connected or not connected for key in one.spool]
        return sorted(pairs, key=lambda pair: pair[1])

    async def submit(self):
        target = self.chance.choice(["a", "b", "any", {"worker": "a", "devices": ["cpu", "cuda:0"]}])
        device = self.chance.choice(["cpu", "cuda"])
        self.runs.append(await self.room.submit(target=target, device=device))

    async def accept(self):
        for agent, key in self.held():
            if not agent.spool[key].items:
                await agent.report(key, agent.accepted())
                agent.spool[key].phase = "running"
                return

    async def exit(self):
        for agent, key in self.held():
            if agent.spool[key].phase == "running" and self.chance.random() < 0.5:
                agent.spool[key].phase = "publishing"
                self.gone.add(key)
                await agent.report(key, agent.exited())
                return

    async def end(self):
        for agent, key in self.held():
            if agent.spool[key].phase == "publishing":
                await agent.report(key, agent.end())
                return

    async def cancel(self):
        if self.runs:
            run_id = self.chance.choice(self.runs)
            await self.room.service.cancel(run_id)
            for agent, key in self.held():
                if key[0] == run_id and agent.spool[key].phase == "running":
                    agent.spool[key].phase = "publishing"
                    self.gone.add(key)
                    await agent.report(key, agent.exited(), agent.end("stopped", stop_reason="user"))

    async def drop(self):
        agent = self.chance.choice(self.agents)
        if agent.connected:
            await agent.drop()

    async def connect(self):
        agent = self.chance.choice(self.agents)
        if not agent.connected:
            await self.settle(agent, await agent.connect())

    async def settle(self, agent, verdicts):
        """What a real agent does with what the welcome says."""
        for key in list(agent.spool):
            verdict = verdicts.get(key[0])
            if verdict is not None and verdict.kind == "discard":
                del agent.spool[key]

    async def refuse(self):
        for agent, key in self.held():
            if not agent.spool[key].items:
                del agent.spool[key]
                await agent.refuse(agent.assigns(key[0])[-1])
                return

    async def restart(self):
        await self.room.restart()
        for agent in self.agents:
            await self.settle(agent, await agent.connect())

    def living(self):
        """(place, device) -> attempts whose processes may be there, by what the agents hold."""
        living = {}
        for agent, key in self.held(connected=False):
            if key not in self.gone:
                for device in agent.spool[key].devices:
                    living[agent.id, device] = living.get((agent.id, device), 0) + 1
        return living


@pytest.mark.parametrize("seed", range(6))
async def test_slots_in_use_are_the_attempts_that_live(room, kit, seed):
    story = Story(room, kit, seed)
    for agent in story.agents:
        await agent.connect()
    for _ in range(60):
        await story.step()
        used = room.board_used()
        assert all(number <= (2 if device == "cpu" else 1) for (_, device), number in used.items())
