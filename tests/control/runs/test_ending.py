"""What is said of the runs before a server is stopped, and that it comes true."""

import pytest


@pytest.fixture
async def busy(room, kit):
    """A run on a worker, one of the server's own, one that waits and one that waits with a secret."""
    agent = await room.worker()
    remote = await room.submit(target="box")
    await agent.accept(remote)
    own = await room.submit()
    await room.process(own)
    waiting = await room.submit(target="any", device="cuda")
    secret = await room.submit(kit.secret_graph("hush"), target="any", device="cuda")
    return {"remote": remote, "own": own, "waiting": waiting, "secret": secret}


async def test_the_numbers_and_the_words_before_a_restart_say_what_it_does(room, busy):
    row = room.service.numbers.at_stop().row()
    numbers = {
        name: row[name] for name in ("own", "on_workers", "waiting", "waiting_with_secrets", "durable")
    }
    assert numbers == {
        "own": 1,
        "on_workers": 1,
        "waiting": 2,
        "waiting_with_secrets": 1,
        "durable": True,
    }
    assert row["if_kept"] == [
        "1 run(s) on workers go on, and the next start takes them over.",
        "1 run(s) of this server end interrupted.",
        "1 run(s) in the queue stay there.",
        "1 run(s) in the queue end interrupted, as their secret values are only in memory.",
    ]
    assert row["if_stopped"] == ["1 run(s) on workers are stopped.", *row["if_kept"][1:]]
    await room.stop(keep=True)
    await room.database.aclose()
    await room.open()
    found = {name: await room.status(run_id) for name, run_id in busy.items()}
    assert found == {
        "remote": "disconnected",
        "own": "interrupted",
        "waiting": "queued",
        "secret": "interrupted",
    }


async def test_an_absent_workers_run_counts_as_one_on_a_worker(room, busy):
    await room.directory.agents["id-box" if "id-box" in room.directory.agents else "box"].drop()
    assert room.service.numbers.at_stop().on_workers == 1


async def test_without_a_durable_queue_nothing_waits_over_a_restart(closed_room):
    room = await closed_room.open(run_queue_durable=False)
    run_id = await room.submit(target="any")
    assert room.service.numbers.at_stop().lines(keep=True) == [
        "1 run(s) in the queue end interrupted, as CODEFYUI_RUN_QUEUE_DURABLE is off."
    ]
    await room.restart()
    assert await room.status(run_id) == "interrupted"


async def test_without_runs_there_is_nothing_to_say(room):
    assert (
        room.service.numbers.at_stop().lines(keep=True)
        == room.service.numbers.at_stop().lines(keep=False)
        == []
    )
