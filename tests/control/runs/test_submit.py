"""What is refused at submit, where the person is, and what waits for whom."""

import json

import pytest

from codefyui_core.errors import CodefyError
from codefyui_core.graph import GraphInvalid


@pytest.fixture
def database_url(tmp_path):
    """One kind is enough here: what is judged is judged before the database sees it."""
    return f"sqlite+aiosqlite:///{tmp_path / 'db' / 'codefyui.db'}"


REFUSED = [
    ({"speed": 9}, "run.option_unknown"),
    ({"seed": -1}, "run.option_invalid"),
    ({"seed": "7"}, "run.option_invalid"),
    ({"device": "tpu"}, "run.option_invalid"),
    ({"lane": "fast"}, "run.option_invalid"),
    ({"target": {"moon": True}}, "run.option_invalid"),
    ({"target": {"worker": 7}}, "run.option_invalid"),
    ({"target": {"pool": "many"}}, "run.option_invalid"),
    ({"target": "nobody"}, "target.unknown"),
    ({"target": "any", "lane": "interactive"}, "run.option_invalid"),
    ({"target": {"pool": "one-shot"}, "record_outputs": True}, "target.not_served"),
]


@pytest.mark.parametrize(("options", "code"), REFUSED)
async def test_wrong_options_are_refused_with_their_code(room, options, code):
    with pytest.raises(CodefyError) as refused:
        await room.submit(**options)
    assert refused.value.code == code
    assert (await room.service.list())["total"] == 0


async def test_a_graph_that_cannot_run_is_refused_with_all_its_issues(room, kit):
    with pytest.raises(GraphInvalid) as refused:
        await room.submit(kit.graph(kit.node("a", "LSTM"), kit.node("b", "GRU")))
    assert len(refused.value.issues) >= 2
    with pytest.raises(GraphInvalid):
        await room.service.submit(b'{"nodes": [NaN]}', {}, "", None)
    with pytest.raises(GraphInvalid):
        await room.submit({"nodes": [kit.node("make", "Make")], "edges": []})


async def test_a_graph_may_come_as_its_bytes(room, kit):
    answer = await room.service.submit(json.dumps(kit.graph()).encode(), {}, "a name", None)
    assert (await room.row(answer["run_id"]))["name"] == "a name"


async def test_without_definitions_nothing_is_accepted_yet(room):
    room.catalog = None
    with pytest.raises(CodefyError) as refused:
        await room.submit()
    assert refused.value.code == "catalog.loading"


@pytest.mark.parametrize(
    ("target", "stored", "key"),
    [
        (None, {"server": True}, "server/cpu"),
        ("server", {"server": True}, "server/cpu"),
        ("any", {"any": True}, "any/cpu"),
        ("box", {"worker": "box"}, "box/cpu"),
        ({"worker": "BOX"}, {"worker": "BOX"}, "box/cpu"),
        ({"pool": "one-shot"}, {"pool": "one-shot", "device": "cpu"}, "one-shot/cpu"),
        ({"pool": "one-shot", "device": "cuda"}, {"pool": "one-shot", "device": "cuda"}, "one-shot/cuda"),
    ],
)
@pytest.mark.spec("target/api-runs-options-target")
async def test_a_target_is_stored_as_an_object(room, target, stored, key):
    room.agent()
    run_id = await room.submit(target=target)
    row = await room.row(run_id)
    assert (row["target"], row["queue_key"]) == (stored, key)
    assert "target" not in row["options"]


async def test_ids_sort_by_the_time_of_submission(room):
    ids = []
    for _ in range(4):
        ids.append(await room.submit(target="any"))
        await room.time.advance(0.01)
    assert ids == sorted(ids)
    assert all(len(one) == 32 and int(one, 16) >= 0 and one[12] == "7" for one in ids)
    assert [row["id"] for row in (await room.service.list())["runs"]] == ids[::-1]


async def test_the_same_submit_makes_one_run(room):
    first = await room.submit(submit_id="abc", target="any")
    assert await room.submit(submit_id="abc", target="any") == first
    assert await room.submit(submit_id="abd", target="any") != first
    with pytest.raises(CodefyError):
        await room.submit(submit_id="x" * 65)


@pytest.mark.spec("restart/runs-wait-for-offline-worker")
async def test_a_run_waits_for_a_worker_that_is_offline(room):
    agent = room.agent()
    run_id = await room.submit(target="box")
    row = await room.row(run_id)
    assert (row["status"], row["worker"]) == ("queued", "box")
    assert (row["queue_reason"], row["queue_reason_code"]) == (
        "worker box is offline",
        "queue.worker_offline",
    )
    await agent.connect()
    await agent.got(run_id)


async def test_a_drained_worker_gets_nothing_and_the_run_says_so(room):
    agent = await room.worker(drained=True)
    run_id = await room.submit(target="box")
    assert (await room.row(run_id))["queue_reason_code"] == "queue.worker_drained"
    agent.drained = False
    room.service.offers_changed(agent.id)
    await agent.got(run_id)


async def test_a_device_that_a_named_worker_lacks_is_refused(room, kit):
    await room.worker(devices=(kit.device("cpu"), kit.device("cuda:0")))
    for options in (
        {"device": "mps"},
        {"device": "cuda:1"},
        {"target": {"worker": "box", "devices": ["cuda:7"]}},
    ):
        with pytest.raises(CodefyError) as refused:
            await room.submit(**{"target": "box"} | options)
        assert refused.value.code == "target.device_unknown"
        assert "cpu, cuda:0" in refused.value.message


async def test_a_kind_becomes_the_card_that_is_used_least(room, kit):
    agent = await room.worker(devices=tuple(kit.device(name) for name in ("cpu", "cuda:0", "cuda:1")))
    given = []
    for _ in range(2):
        run_id = await room.submit(target="box", device="cuda")
        await agent.got(run_id)
        given += agent.assigns(run_id)[0].devices
    assert sorted(given) == ["cuda:0", "cuda:1"]
    waiting = await room.submit(target="box", device="cuda")
    row = await room.row(waiting)
    assert (row["queue_key"], row["queue_position"]) == ("box/cuda", 1)
    auto = await room.submit(target="box", device="auto")
    assert await room.status(auto) == "queued"


async def test_a_run_on_several_cards_waits_for_all_of_them(room, kit):
    agent = await room.worker(devices=(kit.device("cuda:0"), kit.device("cuda:1")))
    one = await room.submit(target="box", device="cuda:0")
    key = await agent.accept(one)
    both = await room.submit(target={"worker": "box", "devices": ["cuda:0", "cuda:1"]})
    later = await room.submit(target="box", device="cuda:1")
    assert await room.status(both) == "queued"
    assert await room.status(later) == "queued"
    await agent.finish(key)
    await agent.got(both)
    assert agent.assigns(both)[0].devices == ("cuda:0", "cuda:1")
    assert await room.status(later) == "queued"


async def test_caps_are_a_workers_own(closed_room, kit):
    room = await closed_room.open(run_queue_max_concurrent={"box/cuda:0": 2})
    agent = await room.worker(devices=(kit.device("cuda:0"),))
    runs = [await room.submit(target="box", device="cuda") for _ in range(3)]
    for run_id in runs[:2]:
        await agent.got(run_id)
    await room.settled()
    assert await room.status(runs[2]) == "queued"
    assert room.service.numbers.slots()[("box", "cuda:0")] == (2, 2)


# ---------------------------------------------------------------- node types


@pytest.mark.spec("catalog/named-run-needs-all-types", "catalog/refusal-names-missing-types")
async def test_a_worker_that_lacks_types_is_refused_with_all_of_them(room, kit):
    await room.worker(node_types=frozenset({"Start"}))
    with pytest.raises(CodefyError) as refused:
        await room.submit(kit.graph(kit.node("a", "Make"), kit.node("b", "Other")), target="box")
    assert refused.value.code == "target.types_missing"
    assert "Make, Other" in refused.value.message


@pytest.mark.spec("catalog/queued-run-rechecked-before-send")
async def test_types_are_checked_again_before_a_run_is_sent(room, kit):
    agent = room.agent()
    run_id = await room.submit(target="box")
    agent.node_types = frozenset({"Start"})
    await agent.connect()
    row = await room.becomes(run_id, "failed")
    assert "Make" in row["error"]
    assert row["cause"] == "refused"
    assert agent.assigns(run_id) == []


@pytest.mark.spec(
    "catalog/lacking-type-excluded-from-any",
    "catalog/helper-failure-skipped-by-any",
    "catalog/helper-failure-named-unchecked",
    "oneshot/any-never-selects-it",
)
async def test_any_skips_who_lacks_types_or_told_none_or_takes_one_run(room):
    await room.worker("degraded", lacks_types=True)
    silent = await room.worker("silent", node_types=None)
    await room.worker("once", one_shot=True)
    run_id = await room.submit(target="any")
    await room.settled()
    row = await room.row(run_id)
    assert (row["status"], row["queue_reason_code"]) == ("queued", "queue.no_worker")
    named = await room.submit(target="silent")
    await silent.got(named)
    good = await room.worker("good")
    await good.got(run_id)


async def test_the_server_is_never_any(room):
    run_id = await room.submit(target="any")
    await room.settled()
    assert await room.status(run_id) == "queued"
    assert room.starter.processes == {}


# ---------------------------------------------------------------- one-shot


@pytest.mark.spec(
    "oneshot/pool-never-refused-for-lack",
    "oneshot/pool-queue-reason",
    "oneshot/pool-target-device-kind",
    "oneshot/pool-target",
)
async def test_a_pool_run_waits_for_a_one_shot_worker_with_its_device(room, kit):
    run_id = await room.submit(target={"pool": "one-shot", "device": "cuda"})
    row = await room.row(run_id)
    assert row["queue_reason"] == "waits for a one-shot worker that offers cuda"
    await room.worker("regular", devices=(kit.device("cuda:0"),))
    await room.worker("small", one_shot=True)
    await room.settled()
    assert await room.status(run_id) == "queued"
    fitting = await room.worker("fitting", one_shot=True, devices=(kit.device("cuda:0"),))
    await fitting.got(run_id)


@pytest.mark.spec("oneshot/pool-fifo-per-device-kind", "oneshot/takes-one-run-and-exits")
async def test_a_one_shot_worker_takes_the_oldest_run_and_no_second(room):
    runs = [await room.submit(target={"pool": "one-shot"}) for _ in range(3)]
    first = await room.worker("a", one_shot=True)
    key = await first.accept(runs[0])
    await first.finish(key)
    await room.settled()
    assert await room.status(runs[1]) == "queued"
    second = await room.worker("b", one_shot=True)
    await second.got(runs[1])


@pytest.mark.spec("oneshot/run-id-takes-only-that-run")
async def test_an_agent_that_came_for_one_run_takes_only_that(room):
    runs = [await room.submit(target={"pool": "one-shot"}) for _ in range(3)]
    agent = await room.worker("a", one_shot=True, claimed_run=runs[1])
    await agent.got(runs[1])
    assert [await room.status(one) for one in runs] == ["queued", "running", "queued"]


@pytest.mark.spec("oneshot/no-recorded-outputs-named")
async def test_recorded_outputs_are_refused_for_a_one_shot_worker(room):
    room.agent("once", one_shot=True)
    with pytest.raises(CodefyError) as refused:
        await room.submit(target="once", record_outputs=True)
    assert refused.value.code == "target.not_served"


@pytest.mark.spec("oneshot/pool-times-out-failed", "oneshot/named-run-times-out")
async def test_a_wait_for_a_one_shot_worker_ends(closed_room):
    room = await closed_room.open(worker_one_shot_queue_timeout_s=100)
    room.agent("once", one_shot=True)
    room.agent("regular")
    pool = await room.submit(target={"pool": "one-shot"})
    named = await room.submit(target="once")
    patient = await room.submit(target="regular")
    await room.pass_time(90)
    await room.settled()  # what was waited so far is saved
    assert await room.status(pool) == "queued"
    await room.restart()
    for name in ("once", "regular"):
        assert name in room.directory.agents
    await room.pass_time(30)
    for run_id in (pool, named):
        assert await room.status(run_id) == "queued" or (await room.row(run_id))["cause"] == "timeout"
    await room.pass_time(80)
    for run_id in (pool, named):
        row = await room.becomes(run_id, "failed")
        assert row["cause"] == "timeout"
    assert await room.status(patient) == "queued"


@pytest.mark.spec("oneshot/pool-timeout-zero-forever")
async def test_a_wait_may_last_for_ever(closed_room):
    room = await closed_room.open(worker_one_shot_queue_timeout_s=0)
    run_id = await room.submit(target={"pool": "one-shot"})
    await room.pass_time(300)
    assert await room.status(run_id) == "queued"


# ---------------------------------------------------------------- one card, two places


async def test_a_card_of_a_worker_on_the_same_machine_is_the_servers(room, kit):
    card = kit.device("cuda:0", uuid="GPU-a")
    room.catalog.devices = (kit.device("cpu"), card)
    agent = await room.worker(devices=(kit.device("cuda:0", uuid="GPU-a"),), same_machine=True)
    own = await room.submit(device="cuda")
    process = await room.process(own)
    remote = await room.submit(target="box", device="cuda")
    await room.settled()
    assert await room.status(remote) == "queued"
    process.finish()
    await agent.got(remote)
    assert room.service.numbers.slots()[("server", "cuda:0")] == (1, 1)


async def test_while_definitions_are_read_runs_wait_and_say_so(room):
    room.catalog, catalog = None, room.catalog
    await room.restart()
    room.catalog = catalog
    run_id = await room.submit()
    (await room.process(run_id)).finish()
    await room.becomes(run_id, "succeeded")


async def test_names_of_workers_compare_without_case(room):
    agent = await room.worker("GPU-Box")
    run_id = await room.submit(target="gpu-box")
    await agent.got(run_id)
    row = await room.row(run_id)
    assert (row["worker"], row["queue_key"]) == ("GPU-Box", "GPU-Box/cpu")
