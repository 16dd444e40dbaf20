"""Rows, pages and live feeds."""

import asyncio

import pytest

from codefyui_core.control.runs.feeds import LAG
from codefyui_core.errors import CodefyError


async def running(room):
    run_id = await room.submit()
    return run_id, await room.process(run_id)


async def collect(source):
    return [one async for one in source]


async def test_a_watcher_sees_stored_events_then_live_ones_and_ends(room, kit):
    run_id, process = await running(room)
    for n in range(10):
        process.say(n=n)
    await kit.until(lambda: has(room, run_id, 10))
    watching = [asyncio.create_task(collect(room.service.watch(run_id, start))) for start in (0, 4, 10)]
    for n in range(10, 20):
        process.say(n=n)
    process.finish()
    for start, task in zip((0, 4, 10), watching, strict=True):
        seen = await task
        assert [one["cursor"] for one in seen] == list(range(start + 1, 22))
        assert seen[-1]["type"] == "execution_complete"


async def has(room, run_id, count):
    return (await room.row(run_id))["last_cursor"] >= count


async def test_a_watcher_of_an_ended_run_gets_the_rest_and_ends(room):
    run_id, process = await running(room)
    process.say(n=1)
    process.finish()
    await room.becomes(run_id, "succeeded")
    assert [one["cursor"] for one in await collect(room.service.watch(run_id, 1))] == [2]
    assert await collect(room.service.watch(run_id, 2)) == []
    with pytest.raises(CodefyError) as missing:
        await collect(room.service.watch("0" * 32, 0))
    assert missing.value.code == "run.not_found"


async def test_a_watcher_that_lags_reads_pages_and_misses_nothing(room, kit):
    run_id, process = await running(room)
    process.say(n=0)
    await kit.until(lambda: has(room, run_id, 1))
    source = room.service.watch(run_id, 0)
    seen = [await anext(source)]
    process.say(n=1)
    seen.append(await anext(source))
    count = LAG + 700
    for n in range(count):
        process.say(n=n)
    process.finish()
    await room.becomes(run_id, "succeeded")
    seen += await collect(source)
    assert [one["cursor"] for one in seen] == list(range(1, count + 4))


async def test_deleting_a_run_ends_its_watchers(room):
    run_id, process = await running(room)
    process.finish()
    await room.becomes(run_id, "succeeded")
    with room.service._feeds.following(run_id) as follower:
        assert await room.service.delete(run_id) == {"run_id": run_id, "deleted": True}
        assert follower.gone
    with pytest.raises(CodefyError):
        await room.row(run_id)
    with pytest.raises(CodefyError):
        await room.service.artifacts(run_id)
    with pytest.raises(CodefyError):
        await room.service.metrics(run_id)


async def test_an_active_run_is_not_deleted(room):
    run_id, process = await running(room)
    with pytest.raises(CodefyError) as refused:
        await room.service.delete(run_id)
    assert refused.value.code == "run.active"
    process.finish()


async def test_a_long_poll_answers_as_soon_as_there_is_something(room, kit):
    run_id, process = await running(room)
    polling = asyncio.create_task(room.service.events(run_id, 0, 500, 30))
    await kit.until(lambda: room.service._feeds._followers)
    assert not polling.done()
    process.say(n=1)
    page = await polling
    assert [one["cursor"] for one in page["events"]] == [1]
    assert (page["cursor"], page["active"]) == (1, True)
    process.finish()


async def test_a_long_poll_gives_up_at_its_time_and_not_at_all_for_an_ended_run(room, kit):
    run_id, process = await running(room)
    polling = asyncio.create_task(room.service.events(run_id, 0, 500, 5))
    await kit.until(lambda: room.time._sleepers)
    await room.time.advance(6)
    assert (await polling)["events"] == []
    process.finish()
    await room.becomes(run_id, "succeeded")
    page = await room.service.events(run_id, 1, 500, 60)
    assert (page["events"], page["active"], page["cursor"]) == ([], False, 1)


async def test_pages_are_bounded_by_count_and_by_bytes(closed_room):
    room = await closed_room.open(run_events_response_cap_bytes=10_000)
    run_id, process = await running(room)
    for n in range(30):
        process.say(text="x" * 1000, n=n)
    process.say(text="y" * 50_000)
    process.finish()
    await room.becomes(run_id, "succeeded")
    assert len((await room.service.events(run_id, 0, 3))["events"]) == 3
    assert len((await room.service.events(run_id, 0, 500))["events"]) == 9
    cursor, seen = 0, []
    while page := (await room.service.events(run_id, cursor, 500))["events"]:
        cursor = page[-1]["cursor"]
        seen += [one["cursor"] for one in page]
    assert seen == list(range(1, 33))


async def test_the_stream_of_rows_begins_with_all_and_goes_on_with_changes(room, kit):
    first, process = await running(room)
    source = room.service.changes("runs")
    assert (await anext(source))["id"] == first
    waiting = asyncio.create_task(anext(source))
    process.finish()
    row = await waiting
    assert row["id"] == first
    rows = [row]
    while rows[-1]["status"] != "succeeded":
        following = asyncio.create_task(anext(source))
        while not following.done():
            await asyncio.sleep(0.002)
            await room.time.advance(0.05)
        rows.append(await following)
    await room.service.delete(first)
    following = asyncio.create_task(anext(source))
    while not following.done():
        await asyncio.sleep(0.002)
        await room.time.advance(0.05)
    assert await following == {"id": first, "deleted": True}
    await source.aclose()


async def test_a_row_is_sent_once_for_many_changes_in_a_tenth_of_a_second(room):
    run_id, process = await running(room)
    source = room.service.changes()
    await anext(source)
    waiting = asyncio.create_task(anext(source))
    for n in range(50):
        process.say(n=n)
        await asyncio.sleep(0.002)
    await waiting
    following = asyncio.create_task(anext(source))
    await asyncio.sleep(0.01)
    assert not following.done()
    await room.time.advance(0.2)
    assert (await following)["id"] == run_id
    process.finish()
    await source.aclose()


async def test_lists_are_filtered(room):
    room.agent("box")
    named = await room.submit(target="box")
    anywhere = await room.submit(target="any")
    own, process = await running(room)
    process.finish()
    await room.becomes(own, "succeeded")

    async def ids(*arguments):
        page = await room.service.list(*arguments)
        return {row["id"] for row in page["runs"]}

    assert await ids(("queued",)) == {named, anywhere}
    assert await ids(("queued", "succeeded")) == {named, anywhere, own}
    assert await ids((), 50, 0, "any") == {anywhere}
    assert await ids((), 50, 0, None, "BOX") == {named}
    assert await ids((), 50, 0, None, None, named[:14]) >= {named}
    assert await ids((), 50, 0, None, None, "TES") == {named, anywhere, own}
    assert await ids((), 50, 0, None, None, "100%") == set()
    page = await room.service.list((), 1, 1)
    assert (len(page["runs"]), page["total"], page["limit"], page["offset"]) == (1, 3, 1, 1)
    assert "execution_facts" not in page["runs"][0]


async def test_counts_and_slots_say_what_is_in_use(room):
    _, process = await running(room)
    await room.submit(target="any")
    assert room.service.numbers.counts() == {"queued": 1, "running": 1, "disconnected": 0}
    assert room.service.numbers.waiting() == {"any/cpu": 1}
    assert room.service.numbers.slots() == {("server", "cpu"): (1, 2)}
    process.finish()


async def test_times_are_shown_as_people_read_them(room):
    run_id = await room.submit(target="any")
    assert (await room.row(run_id))["created_at"] == "2026-01-01T00:00:00.000Z"
