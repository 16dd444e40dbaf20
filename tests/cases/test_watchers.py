"""Pages that lose their connection: every line once, in order, and only what is new over the line."""

import asyncio
import json

import pytest

LINES = 1_000
DEADLINE_S = 20


class Page:
    """What a browser's EventSource does: it remembers the last id that it read whole, and names it when it returns.

    ``cursor=0`` stays in the address, as in the page; the header counts.
    """

    def __init__(self, app, run_id):
        self.app, self.run_id = app, run_id
        self.last_id = None
        self.cursors = []
        self.lines = []
        self.received = []
        """Bytes of each connection."""

    async def watch(self, *, until):
        """One connection: dropped in the middle of a frame once ``until`` lines are there; at the end otherwise."""
        headers = {"Accept": "text/event-stream"}
        if self.last_id is not None:
            headers["Last-Event-ID"] = self.last_id
        path = f"/api/runs/{self.run_id}/events?cursor=0"
        response = await self.app.client.get(path, headers=headers)
        self.received.append(0)
        try:
            if response.status == 204:
                return False
            async with asyncio.timeout(DEADLINE_S):
                return await self._read(response.content, until)
        finally:
            response.close()

    async def _read(self, content, until):
        fields = {}
        while raw := await content.readline():
            self.received[-1] += len(raw)
            text = raw.decode().rstrip("\n")
            if not text:
                if self._take(fields):
                    return False
                fields = {}
                if len(self.lines) >= until:
                    return True
            elif not text.startswith(":"):
                name, _, value = text.partition(": ")
                fields[name] = value
        return True

    def _take(self, fields):
        """True: the stream says that it was the last."""
        if fields["event"] == "closed":
            return True
        self.last_id = fields["id"]
        event = json.loads(fields["data"])
        self.cursors.append(event["cursor"])
        if event["type"] == "log":
            self.lines += event["payload"]["lines"]
        return False


@pytest.mark.spec("drop/no-gap-no-duplicate")
async def test_a_page_that_drops_and_returns_five_times_holds_every_line_once_in_order(app):
    run_id, process = await app.running()
    page = Page(app, run_id)
    for number in range(LINES):
        process.log(f"line {number}")
    assert await page.watch(until=LINES)
    for round_ in range(1, 6):
        for number in range(10):
            process.log(f"line {LINES + 10 * (round_ - 1) + number}")
        assert await page.watch(until=LINES + 10 * round_)
    process.log("the last one")
    process.finish()
    assert not await page.watch(until=10**6)
    row = await app.row_when(run_id, active=False)
    assert page.lines == [f"line {number}" for number in range(LINES + 50)] + ["the last one"]
    assert page.cursors == list(range(1, row["last_cursor"] + 1))
    assert not await page.watch(until=10**6), "a page that has everything is told to stop asking"


async def test_a_page_that_returns_gets_the_new_events_and_not_the_old_ones(app):
    """Bytes on the wire are bounded by what is new, however much is stored."""
    run_id, process = await app.running()
    page = Page(app, run_id)
    for number in range(LINES):
        process.log(f"line {number} " + "x" * 1_000)
    await page.watch(until=LINES)
    assert page.received[0] > LINES * 1_000
    for number in range(3):
        process.log(f"short {number}")
    await page.watch(until=LINES + 3)
    assert page.received[1] < 2_000
    assert page.lines[-3:] == ["short 0", "short 1", "short 2"]


async def test_a_page_that_asks_for_pages_of_events_gets_only_those_after_its_cursor(app):
    run_id, process = await app.running()
    for number in range(20):
        process.log(f"line {number}")
    process.finish()
    last = (await app.row_when(run_id, active=False))["last_cursor"]
    whole = await app.get(f"/api/runs/{run_id}/events?cursor=0")
    assert [event["cursor"] for event in whole.json["events"]] == list(range(1, last + 1))
    rest = await app.get(f"/api/runs/{run_id}/events?cursor={last - 2}")
    assert [event["cursor"] for event in rest.json["events"]] == [last - 1, last]
    assert len(rest.body) < len(whole.body) / 3
    nothing = await app.get(f"/api/runs/{run_id}/events?cursor={last}")
    assert (nothing.json["events"], nothing.json["cursor"]) == ([], last)


@pytest.mark.parametrize("given", [{}, {"Last-Event-ID": "0"}])
async def test_cursor_0_is_a_value_and_means_everything(app, given):
    """``Last-Event-ID: 0`` counts more than the address, which an older page may have got wrong."""
    run_id = await app.finished()
    path = f"/api/runs/{run_id}/events?cursor={9 if given else 0}"
    answer = await app.get(path, headers={"Accept": "text/event-stream", **given})
    assert answer.status == 200
    assert b"id: 1\n" in answer.body
