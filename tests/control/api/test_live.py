"""Long polls and server-sent events: whole, in order, ended, and without traces of readers that left."""

import asyncio
import json
import logging

import pytest

from codefyui_core.control.api import sse
from codefyui_core.control.api.events import topics_of
from codefyui_core.errors import CodefyError

DEADLINE_S = 20


class Feed:
    """A reader of one stream."""

    def __init__(self, response):
        self.response = response
        self.beats = 0

    async def next(self):
        """The next event: its id, name and data. None at the end."""
        fields = {}
        async with asyncio.timeout(DEADLINE_S):
            while line := await self.response.content.readline():
                text = line.decode().rstrip("\n")
                if not text and fields:
                    return fields.get("id"), fields["event"], json.loads(fields["data"])
                if text.startswith(":"):
                    self.beats += 1
                elif text:
                    name, _, value = text.partition(": ")
                    fields[name] = value
        return None

    async def until(self, met):
        while (event := await self.next()) is not None:
            if met(event):
                return event
        raise AssertionError("the stream ended")

    async def rest(self):
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


@pytest.fixture
async def follow(app):
    """Open streams; they are closed afterwards."""
    opened = []

    async def open_(path, **headers):
        response = await app.client.get(path, headers={"Accept": "text/event-stream", **headers})
        opened.append(response)
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"] == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-store"
        return Feed(response)

    yield open_
    for response in opened:
        response.close()


def tasks_of_streams():
    return [task for task in asyncio.all_tasks() if "_fill" in repr(task.get_coro())]


# ---------------------------------------------------------------- pages


async def test_pages_of_events_follow_one_another_without_gaps(app):
    run_id, process = await app.running()
    for number in range(7):
        process.log(f"line {number}")
    process.finish()
    row = await app.row_when(run_id, active=False)
    seen, cursor = [], 0
    while True:
        page = (await app.get(f"/api/runs/{run_id}/events?cursor={cursor}&limit=3")).json
        if not page["events"]:
            break
        seen += page["events"]
        cursor = page["cursor"]
    assert [event["cursor"] for event in seen] == list(range(1, row["last_cursor"] + 1))
    assert [e["payload"]["lines"][0] for e in seen if e["type"] == "log"] == [f"line {n}" for n in range(7)]
    assert (page["status"], page["active"]) == ("succeeded", False)


async def test_a_long_poll_answers_as_soon_as_there_is_something(app):
    run_id, process = await app.running()
    cursor = (await app.row_when(run_id, last_cursor=1))["last_cursor"]
    poll = asyncio.create_task(app.get(f"/api/runs/{run_id}/events?cursor={cursor}&wait=60"))
    await asyncio.sleep(0)
    process.log("news")
    async with asyncio.timeout(DEADLINE_S):
        page = (await poll).json
    assert page["events"][0]["payload"]["lines"] == ["news"]


async def test_a_long_poll_of_a_run_that_is_over_does_not_wait(app):
    run_id = await app.finished()
    async with asyncio.timeout(DEADLINE_S):
        page = (await app.get(f"/api/runs/{run_id}/events?cursor=9999&wait=60")).json
    assert (page["events"], page["active"], page["cursor"]) == ([], False, 9999)


@pytest.mark.parametrize("query", ["cursor=-1", "wait=61", "wait=nan", "limit=2001", "cursor=x"])
async def test_a_page_that_can_not_be_is_refused(app, query):
    run_id = await app.finished()
    (await app.get(f"/api/runs/{run_id}/events?{query}")).refused(400, "request.invalid")


# ---------------------------------------------------------------- the stream of a run


async def test_a_stream_begins_with_what_is_stored_goes_on_live_and_ends_when_the_run_does(app, follow):
    run_id, process = await app.running()
    process.log("before")
    await app.row_when(run_id, status="running")
    feed = await follow(f"/api/runs/{run_id}/events")
    await feed.until(lambda event: event[1] == "log")
    process.log("after")
    live = await feed.until(lambda event: event[1] == "log")
    assert live[2]["payload"]["lines"] == ["after"]
    assert live[0] == str(live[2]["cursor"])
    process.finish()
    rest = await feed.rest()
    assert rest[-1][1:] == ("closed", {"status": "succeeded"})
    assert rest[-2][1] == "execution_complete"


async def test_a_browser_that_reconnects_gets_the_rest_and_nothing_twice(app, follow):
    run_id, process = await app.running()
    for number in range(5):
        process.log(str(number))
    process.finish()
    row = await app.row_when(run_id, active=False)
    whole = await (await follow(f"/api/runs/{run_id}/events")).rest()
    assert [event[0] for event in whole[:-1]] == [str(n) for n in range(1, row["last_cursor"] + 1)]
    later = await (await follow(f"/api/runs/{run_id}/events?cursor=0", **{"Last-Event-ID": "3"})).rest()
    assert later == whole[3:]
    from_cursor = await (await follow(f"/api/runs/{run_id}/events?cursor=3")).rest()
    assert from_cursor == whole[3:]


@pytest.mark.parametrize("given", ["x", "-1", "1" * 30, "\u0663", ""])
async def test_a_last_event_that_is_no_number_counts_as_none(app, follow, given):
    run_id = await app.finished()
    feed = await follow(f"/api/runs/{run_id}/events", **{"Last-Event-ID": given})
    assert (await feed.next())[0] == "1"


async def test_a_browser_that_has_everything_is_told_to_stop_asking(app):
    run_id = await app.finished()
    last = (await app.get(f"/api/runs/{run_id}")).json["last_cursor"]
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
    answer = await app.get(f"/api/runs/{run_id}/events", headers=headers)
    assert (answer.status, answer.body) == (204, b"")


async def test_a_stream_of_no_run_is_an_ordinary_error(app):
    answer = await app.get("/api/runs/nothing/events", headers={"Accept": "text/event-stream"})
    answer.refused(404, "run.not_found")


async def test_silence_is_filled_with_beats(app, follow, until, monkeypatch):
    monkeypatch.setattr(sse, "BEAT_S", 0.02)
    run_id, process = await app.running()
    feed = await follow(f"/api/runs/{run_id}/events")
    await feed.until(lambda event: event[1] == "execution_start")
    reading = asyncio.create_task(feed.until(lambda event: event[1] == "log"))
    await until(lambda: feed.beats >= 3)
    process.log("there")
    assert (await reading)[2]["payload"]["lines"] == ["there"]


# ---------------------------------------------------------------- rows


async def test_rows_begin_with_the_full_set_and_go_on_with_changes(app, follow):
    old = await app.finished(name="old")
    feed = await follow("/api/stream?topics=runs")
    first = await feed.next()
    assert (first[1], first[2]["id"], first[2]["status"]) == ("run", old, "succeeded")
    new, process = await app.running(name="new")
    await feed.until(lambda event: event[2]["id"] == new and event[2]["status"] == "running")
    process.finish()
    await feed.until(lambda event: event[2]["id"] == new and event[2]["status"] == "succeeded")
    await app.ask("DELETE", f"/api/runs/{old}")
    await feed.until(lambda event: event[2] == {"id": old, "deleted": True})


async def test_rows_of_workers_come_and_go(app, follow):
    made = await app.post("/api/workers/tokens", {})
    feed = await follow("/api/stream?topics=workers")
    body = {
        "token": made.json["token"],
        "name": "box",
        "nonce": "n" * 16,
        "machine_id": "m",
        "platform": "linux",
    }
    enrolled = (await app.ask("POST", "/api/workers/enroll", token=None, json=body)).json
    event = await feed.until(lambda event: event[1] == "worker")
    assert (event[2]["name"], event[2]["status"]) == ("box", "offline")
    assert (await app.ask("DELETE", "/api/workers/box")).json == {"name": "box", "removed": True}
    await feed.until(lambda event: event[2] == {"id": enrolled["worker_id"], "removed": True})


@pytest.mark.parametrize("topics", ["", ",", "nodes", "runs,nodes"])
async def test_topics_that_there_are_not_are_refused(app, topics):
    (await app.get(f"/api/stream?topics={topics}")).refused(400, "request.invalid")
    with pytest.raises(CodefyError):
        topics_of(topics)


def test_a_topic_that_is_named_twice_is_followed_once():
    assert topics_of("runs,workers,runs") == ["runs", "workers"]


# ---------------------------------------------------------------- ends


async def test_readers_that_leave_cost_nothing_afterwards(app, follow, until, monkeypatch, caplog):
    monkeypatch.setattr(sse, "BEAT_S", 0.02)
    run_id, process = await app.running()
    feeds = [await follow(f"/api/runs/{run_id}/events") for _ in range(3)] + [await follow("/api/stream")]
    for feed in feeds:
        await feed.next()
    assert len(tasks_of_streams()) == 5
    for feed in feeds:
        feed.response.close()
    await until(lambda: not tasks_of_streams())
    process.log("to nobody")
    process.finish()
    await app.row_when(run_id, active=False)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_streams_end_when_the_server_does(app, follow, until):
    run_id, _ = await app.running()
    feeds = [await follow(f"/api/runs/{run_id}/events"), await follow("/api/stream")]
    for feed in feeds:
        await feed.next()
    app.plane.over.set()
    for feed in feeds:
        await feed.rest()
    await until(lambda: not tasks_of_streams())


async def test_a_feed_that_fails_ends_its_streams_so_that_browsers_come_back(
    app, follow, until, monkeypatch, caplog
):
    async def broken():
        yield {"id": "1"}
        raise RuntimeError("lost the database")

    monkeypatch.setattr(app.plane.runs, "changes", broken)
    feed = await follow("/api/stream")
    assert [event[2]["id"] for event in await feed.rest()] == ["1"]
    assert "lost the database" in caplog.text
    await until(lambda: not tasks_of_streams())


async def test_a_slow_reader_holds_up_its_own_feed_alone(app, follow):
    run_id, process = await app.running()
    slow = await follow(f"/api/runs/{run_id}/events")
    await slow.next()
    for number in range(400):
        process.log(f"{number} " + "x" * 4000)
    process.finish()
    quick = await follow(f"/api/runs/{run_id}/events")
    events = await quick.rest()
    assert events[-1][1] == "closed"
    assert len([event for event in await slow.rest() if event[1] == "log"]) == 400
