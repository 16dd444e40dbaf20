import pytest
from sqlalchemy import insert

from codefyui_core.control.db.tables import attempts, runs


@pytest.fixture
async def credential(room):
    return (await room.enroll())["credential"]


@pytest.mark.spec("overview/worker-is-an-agent-process")
async def test_the_row_of_a_connected_worker(room, credential):
    await room.online(
        credential,
        catalog_hash="own",
        platform="Linux",
        fingerprint="f" * 64,
        plugins={"codefyui-core": "1.2.3"},
        connector="direct",
    )
    row = await room.row()
    devices = row.pop("devices")
    assert row.pop("id")
    assert row == {
        "name": "gpu-box",
        "status": "online",
        "status_reason": "",
        "connected": True,
        "last_seen": "2026-01-01T00:00:00.000Z",
        "version": "1.2.3",
        "connector": "direct",
        "address": "127.0.0.1",
        "plain_http": False,
        "trust": {"kind": "local"},
        "same_host": False,
        "one_shot": False,
        "one_shot_run": None,
        "drained": False,
        "accepting": True,
        "platform": "Linux",
        "mounts": {},
        "catalog": {"hash": "own", "missing": [], "extra": []},
        "fingerprint": "f" * 64,
        "plugins": {"codefyui-core": "1.2.3"},
        "running": 0,
        "queued": 0,
        "catalog_problem": "",
        "plugins_failed": [],
    }
    assert [(one["device"], one["slots"], one["used"]) for one in devices] == [
        ("cpu", 2, 0),
        ("cuda:0", 1, 0),
    ]


@pytest.mark.spec("restart/listed-offline-until-connect")
async def test_a_worker_that_is_away_keeps_what_it_last_said(room, credential):
    agent = await room.online(credential)
    await room.manual.advance(5)
    await agent.close()
    await room.until(lambda: room.desk.named("link_down"))
    await room.manual.advance(60)
    row = await room.row()
    assert (row["status"], row["connected"], row["accepting"]) == ("offline", False, False)
    assert row["last_seen"] == "2026-01-01T00:00:05.000Z"
    assert [one["device"] for one in row["devices"]] == ["cpu", "cuda:0"]


@pytest.mark.spec("catalog/checked-on-every-connect", "catalog/different-hash-is-degraded")
@pytest.mark.spec("catalog/card-lists-missing-types", "catalog/card-lists-extra-types")
async def test_another_catalog_degrades_and_says_what_differs(room, credential):
    agent = await room.online(credential, catalog_hash="own")
    assert (await room.row())["status"] == "online"
    await agent.close()
    await room.until(lambda: not room.service.live())
    agent = await room.connect(credential)
    await agent.hello(catalog_hash="theirs", incarnation="b" * 32)
    await agent.send(t="catalog", hash="theirs", types={"B": "1", "C": "2"})
    await agent.report()
    row = await room.row()
    assert (row["status"], row["connected"]) == ("degraded", True)
    assert row["catalog"] == {"hash": "theirs", "missing": ["A"], "extra": ["C"]}
    assert room.service.live()[0].lacks_types


@pytest.mark.spec("catalog/hash-covers-definitions")
async def test_the_same_types_with_other_definitions_are_degraded(room, credential):
    agent = await room.connect(credential)
    await agent.hello(catalog_hash="theirs")
    await agent.send(t="catalog", hash="theirs", types={"A": "other", "B": "1"})
    await agent.report()
    assert (await room.row())["status"] == "degraded"


@pytest.mark.spec("catalog/superset-eligible-for-any", "catalog/equal-hash-is-online")
async def test_more_types_than_ours_lack_nothing(room, credential):
    agent = await room.connect(credential)
    await agent.hello(catalog_hash="more")
    await agent.send(t="catalog", hash="more", types={"A": "1", "B": "1", "C": "1"})
    await agent.report()
    assert not room.service.live()[0].lacks_types
    room.set_catalog("more", "A", "B", "C")
    assert (await room.row())["status"] == "online"


@pytest.mark.spec("catalog/helper-failure-still-connects", "catalog/helper-failure-card-warning")
@pytest.mark.spec("catalog/helper-failure-skipped-by-any", "catalog/helper-failure-named-unchecked")
async def test_a_worker_without_a_catalog_is_connected_unchecked_and_skipped_by_any(room, credential):
    await room.online(credential, catalog_problem="the helper ended with status 1")
    row = await room.row()
    assert (row["status"], row["catalog"]) == ("online", None)
    assert row["catalog_problem"] == "the helper ended with status 1"
    link = room.service.live()[0]
    assert (link.node_types, link.lacks_types) == (None, True)


@pytest.mark.spec("fingerprint/missing-shows-not-reported")
async def test_a_fingerprint_of_an_earlier_connection_is_forgotten(room, credential):
    agent = await room.online(credential, fingerprint="f" * 64)
    assert (await room.row())["fingerprint"] == "f" * 64
    await room.online(credential)
    await agent.closed()
    (link,) = room.service.live()
    assert ((await room.row())["fingerprint"], link.fingerprint) == (None, None)
    await room.service.stop()
    await room.until(lambda: not room.service.live())
    assert (await room.row())["fingerprint"] is None


async def test_a_worker_of_the_servers_machine_is_told_by_its_machine_id(room, credential):
    await room.online(credential, machine_id="m" * 32)
    assert (await room.row())["same_host"]
    assert room.service.live()[0].view.same_machine


async def test_slots_in_use_and_waiting_runs_are_counted(room, credential):
    agent = await room.online(credential)
    worker_id = agent.welcome["worker"]["id"]
    run = {
        "name": "",
        "document": {},
        "has_secrets": False,
        "options": {},
        "target": {"worker": "gpu-box"},
        "device": "cuda",
        "queue_key": "gpu-box/cuda:0",
        "worker_name": "gpu-box",
        "created_at": 0,
    }
    attempt = {"worker_id": worker_id, "devices": ["cuda:0"], "server_epoch": 1, "created_at": 0, "number": 1}
    async with room.db.begin() as connection:
        for number, status in enumerate(("running", "running", "queued")):
            row = run | {"id": f"r{number}", "queue_seq": number, "status": status}
            await connection.execute(insert(runs).values(**row))
        for number, released in enumerate((False, True)):
            row = attempt | {"run_id": f"r{number}", "state": "active", "slots_released": released}
            await connection.execute(insert(attempts).values(**row))
    row = await room.row()
    assert (row["running"], row["queued"], row["devices"][1]["used"]) == (2, 1, 1)


async def test_slots_follow_the_caps(make_room):
    async with make_room(run_queue_max_concurrent="gpu-box/cuda:0=3,cpu=5") as room:
        await room.online((await room.enroll())["credential"])
        assert [one["slots"] for one in (await room.row())["devices"]] == [2, 3]


async def test_free_memory_comes_with_beats(room, credential):
    agent = await room.online(credential)
    await agent.send(t="beat", free_memory={"cuda:0": 7})
    await room.until(lambda: room.service.live()[0].free_memory)
    assert (await room.row())["devices"][1]["memory_free_bytes"] == 7


async def test_changes_come_after_the_full_set(room, credential):
    changes = room.service.changes()
    assert (await anext(changes))["status"] == "offline"
    agent = await room.connect(credential)
    await agent.hello()
    assert (await anext(changes))["connected"]
    await room.service.remove("gpu-box")
    async for row in changes:
        if row.get("removed"):
            break
    await changes.aclose()


async def test_a_known_worker_is_found_by_name_in_any_case(room, credential):
    await room.online(credential, catalog_hash="own")
    found = await room.service.by_name("GPU-Box")
    assert (found.view.name, found.view.connected, found.node_types) == ("gpu-box", True, {"A", "B"})
    assert await room.service.by_name("nobody") is None
