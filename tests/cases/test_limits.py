"""Messages and uploads that are too large, too many or too slow: cut or refused once, and the server stays as it is."""

import asyncio
import io
import json

import aiohttp
import psutil
import pytest

from codefyui_core.control.api import pace
from codefyui_core.control.runs.documents import MAX_SENT_BYTES
from codefyui_core.wire.limits import EVENT_BYTES, MESSAGE_BYTES, MIB

FORM = {"Content-Type": "multipart/form-data; boundary=xx"}
HEAD = b'--xx\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
TINY = b'--xx\r\nContent-Disposition: form-data; name="note"\r\n\r\n1\r\n'
TOO_MUCH_BYTES = 50 * MIB


class Endless:
    """Bodies that don't end by themselves; ``sent`` counts how much of one was taken."""

    def __init__(self):
        self.sent = 0

    async def of(self, piece, head=b""):
        yield head
        while True:
            self.sent += len(piece)
            yield piece

    async def parts(self, count):
        for _ in range(count // 1000):
            self.sent += len(TINY) * 1000
            yield TINY * 1000
        yield b"--xx--\r\n"


async def upload(url, token, body, headers=FORM, **client):
    """The answer's status and code; None for a line that was cut before it could be read."""
    headers = {**headers, "X-CodefyUI-Token": token}
    async with aiohttp.ClientSession(**client) as http:
        try:
            async with http.post(f"{url}/api/files/upload", data=body, headers=headers) as answer:
                return answer.status, (await answer.json())["code"]
        except aiohttp.ClientError:
            return None


BODIES = {
    "a file without an end": (lambda made: made.of(b"x" * MIB, HEAD), (413, "request.too_large")),
    "a line without an end": (lambda made: made.of(b"x" * MIB), (400, "request.invalid")),
    "lines without a boundary": (
        lambda made: made.of((b"x" * 2000 + b"\r\n") * 200),
        (413, "request.too_large"),
    ),
    "a header without an end": (
        lambda made: made.of(b"x" * MIB, b"--xx\r\nContent-Disposition: "),
        (400, "request.invalid"),
    ),
    "headers without an end": (
        lambda made: made.of(b"X-Header: 1\r\n" * 10_000, b"--xx\r\n"),
        (400, "request.invalid"),
    ),
    "tiny parts without an end": (lambda made: made.of(TINY * 100), (400, "request.invalid")),
    "a hundred thousand tiny parts": (lambda made: made.parts(100_000), (400, "request.invalid")),
}


@pytest.mark.parametrize("name", BODIES)
async def test_an_upload_that_would_never_end_is_cut_by_its_size_or_its_parts(make_app_of, name):
    app = await make_app_of(max_upload_size=str(4 * MIB))
    made = Endless()
    body, expected = BODIES[name]
    async with asyncio.timeout(30):
        answer = await upload(app.url, app.plane.token, body(made))
    assert answer in {expected, None}
    assert made.sent < 16 * MIB
    assert (await app.get("/api/files/list")).json == []
    assert [path for path in (app.plane.install.data / "files").rglob("*") if path.is_file()] == []


async def test_an_upload_of_one_byte_a_second_is_cut_by_time_and_leaves_nothing(app, until):
    clock = app.plane.clock
    asked = asyncio.Event()

    async def drip():
        yield HEAD
        while True:
            asked.set()
            await asyncio.sleep(0.001)
            yield b"x"

    sending = asyncio.create_task(upload(app.url, app.plane.token, drip()))
    await asked.wait()
    await until(lambda: any(timer._delay_s == pace.LOOK_S for timer in clock._timers))

    def minute_by_minute():
        clock._attentive_s += pace.LOOK_S + 1
        clock._fire()
        return sending.done()

    await until(minute_by_minute)
    answer = await sending
    assert answer in {(408, "request.too_slow"), None}
    await until(lambda: not any(timer._delay_s == pace.LOOK_S for timer in clock._timers))
    assert (await app.get("/api/files/list")).json == []
    assert [path for path in (app.plane.install.data / "files").rglob("*") if path.is_file()] == []


async def test_an_upload_that_comes_slowly_but_comes_is_left_alone(app, until):
    clock = app.plane.clock
    more, looked = asyncio.Event(), 0

    async def slowly():
        yield HEAD
        for _ in range(3):
            await more.wait()
            more.clear()
            yield b"x" * (pace.LEAST_BYTES + 1)
        yield b"\r\n--xx--\r\n"

    sending = asyncio.create_task(upload(app.url, app.plane.token, slowly()))
    await until(lambda: any(timer._delay_s == pace.LOOK_S for timer in clock._timers))
    (timer,) = [timer for timer in clock._timers if timer._delay_s == pace.LOOK_S]
    content = timer._callback.__self__._content
    while looked < 2:
        before = content.total_bytes
        more.set()
        await until(lambda before=before: content.total_bytes > before + pace.LEAST_BYTES)
        clock._attentive_s += pace.LOOK_S + 1
        clock._fire()
        looked += 1
    more.set()
    async with asyncio.timeout(30):
        await asyncio.gather(sending, return_exceptions=True)
    assert [row["name"] for row in (await app.get("/api/files/list")).json] == ["a.csv"]


@pytest.mark.parametrize("size", [1, 4, 16, 64])
async def test_a_graph_of_any_size_is_taken_in_or_refused_at_submit(app, graph_of, size):
    """In mebibytes. What is taken in may be sent: the limit of a submit lies below the line's."""
    body = json.dumps({"graph": graph_of(size * MIB), "options": {"target": "any"}}).encode()
    answer = await app.ask("POST", "/api/runs", data=io.BytesIO(body))
    if size * MIB < MAX_SENT_BYTES:
        assert answer.status in {200, 400}, answer.json
        assert answer.json.get("code") != "request.too_large"
    else:
        answer.refused(413, "request.too_large")
        assert (await app.get("/api/runs")).json["total"] == 0
    assert MAX_SENT_BYTES < MESSAGE_BYTES


@pytest.mark.parametrize("size", [1, 4])
async def test_an_event_of_any_size_is_replaced_in_its_place_on_the_server_too(room, size):
    run_id = await room.submit()
    process = await room.process(run_id)
    process.say(lines=["before"])
    process.say(lines=["x" * (size * MIB)])
    process.say(lines=["after"])
    process.finish()
    await room.becomes(run_id, "succeeded")
    log = await room.log(run_id)
    assert [one["type"] for one in log] == ["log", "event_unstorable", "log", "execution_complete"]
    assert log[1]["payload"]["bytes"] > size * MIB
    assert size * MIB > EVENT_BYTES


@pytest.mark.service
async def test_hostile_uploads_cost_a_server_under_50_mb_of_memory(site):
    """Several of each kind at once, beside one that sends a byte now and then; the server answers meanwhile."""
    server = await asyncio.to_thread(site.start_server, CODEFYUI_MAX_UPLOAD_SIZE=str(32 * MIB))
    process = psutil.Process(server.pid)
    url, token = site.url, site.token
    await upload(url, token, TINY * 10)
    before = process.memory_info().rss
    peak = [before]
    dripping = asyncio.Event()

    async def drip():
        yield HEAD
        while True:
            dripping.set()
            await asyncio.sleep(0.05)
            yield b"x"

    slow = [asyncio.create_task(upload(url, token, drip())) for _ in range(5)]
    await dripping.wait()
    hostile = [
        asyncio.create_task(upload(url, token, body(Endless())))
        for body, _ in BODIES.values()
        for _ in range(2)
    ]
    async with asyncio.timeout(120):
        while not all(task.done() for task in hostile):
            peak.append(process.memory_info().rss)
            health = await asyncio.to_thread(site.get, "/api/health")
            assert health["status"] == "ready"
    for task in hostile:
        answer = task.result()
        assert answer is None or answer[0] in {400, 413}
    for task in slow:
        task.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    assert max(peak) - before < TOO_MUCH_BYTES
    assert await asyncio.to_thread(site.get, "/api/files/list") == []
