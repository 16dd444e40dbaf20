"""Who may call what, and in which order a request is refused."""

import asyncio
import re

import pytest

from codefyui_core.control.app import all_routes
from codefyui_core.plugin.http import Auth

CHANGES = {"POST", "PUT", "PATCH", "DELETE"}


def requests_of(app):
    """Method, a path that fits, and the auth of every route of core and plugins."""
    for owned in all_routes(app.plane):
        path = re.sub(r"\{\w+(:[^{}]*)?\}", "x", owned.route.path)
        yield owned.route.method, path, owned.route.auth


async def test_whatever_changes_something_needs_the_session_token(app):
    app.plane.runs.catalog_changed()
    asked = 0
    for resource in app.client.app.router.routes():
        path = re.sub(r"\{\w+(:[^{}]*)?\}", "x", resource.resource.canonical)
        if resource.method not in CHANGES or path == "/api/workers/enroll":
            continue
        for token in (None, "wrong", "wrong" + app.plane.token, "\u00e9"):
            answer = await app.ask(resource.method, path, token=token)
            assert "X-CodefyUI-Token" in answer.refused(403, "auth.token")["detail"]
        asked += 1
    assert asked >= 20


async def test_only_enrollment_is_open_among_what_changes_something(app):
    found = {(method, path): auth for method, path, auth in requests_of(app) if method in CHANGES}
    others = {request: auth for request, auth in found.items() if auth is not Auth.SESSION}
    assert others == {("POST", "/api/workers/enroll"): Auth.ENROLLMENT}


async def test_reads_are_open_but_for_tokens_and_what_a_stop_would_do(app):
    reads = {path: auth for method, path, auth in requests_of(app) if method == "GET"}
    closed = {path for path, auth in reads.items() if auth is not Auth.OPEN}
    assert closed == {"/api/workers/tokens", "/api/server/stop", "/api/runs/x/inputs/x"}
    assert reads["/api/runs/x/inputs/x"] is Auth.RUN_WORKER


async def test_the_token_that_pages_get_is_the_one_that_counts(app):
    answer = await app.get("/api/auth/bootstrap")
    assert answer.headers["Cache-Control"] == "no-store"
    token = answer.json["token"]
    assert token == (app.plane.install.user_data / "session.token").read_text()
    assert (await app.ask("GET", "/api/workers/tokens", token=token)).status == 200
    assert (app.plane.install.user_data / "session.token").stat().st_mode & 0o777 == 0o600


async def test_a_bad_enrollment_token_is_unknown(app):
    body = {"token": "cde_000000_x", "name": "box", "nonce": "n" * 16, "machine_id": "m", "platform": "linux"}
    answer = await app.ask("POST", "/api/workers/enroll", token=None, json=body)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"


# ---------------------------------------------------------------- order and bodies


class Endless:
    """A body that says how much of it was taken."""

    def __init__(self, total):
        self.total = total
        self.sent = 0

    async def chunks(self):
        while self.sent < self.total:
            self.sent += 64 * 1024
            yield b" " * (64 * 1024)


async def raw(app, head, body=b"", *, wait=True):
    """Bytes over a socket of one's own; the head of the answer."""
    host, port = app.client.host, app.client.port
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        await writer.drain()
        async with asyncio.timeout(10):
            return (await reader.readuntil(b"\r\n\r\n")).decode()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.spec("direct/unknown-host-refused")
async def test_the_host_is_judged_first_then_the_caller_then_the_size_of_the_body(app):
    huge = str(10**12)
    wrong = f"POST /api/runs HTTP/1.1\nHost: evil.example\nContent-Length: {huge}"
    assert " 421 " in await raw(app, wrong)
    anonymous = f"POST /api/runs HTTP/1.1\nHost: localhost\nContent-Length: {huge}"
    assert " 403 " in await raw(app, anonymous)
    known = f"{anonymous}\nX-CodefyUI-Token: {app.plane.token}"
    assert " 413 " in await raw(app, known)


async def test_nobody_is_asked_for_a_body_that_is_refused(app):
    head = "POST /api/runs HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 2"
    assert " 403 " in await raw(app, head)
    token = f"X-CodefyUI-Token: {app.plane.token}"
    assert " 100 " in await raw(app, f"{head}\n{token}")
    assert " 413 " in await raw(app, f"{head}{'0' * 11}\n{token}")


async def test_a_chunked_body_is_cut_off_once_it_is_too_large(make_app_of):
    app = await make_app_of(max_run_body_bytes="100000")
    body = Endless(300_000)
    answer = await app.ask("POST", "/api/runs", data=body.chunks())
    answer.refused(413, "request.too_large")
    announced = await app.ask("POST", "/api/graph/validate", data=b"x" * 100_001)
    assert "100001" in announced.refused(413, "request.too_large")["detail"]
    assert (await app.ask("POST", "/api/graph/validate", data=b"x" * 100_000)).status == 422


# ---------------------------------------------------------------- hosts


@pytest.mark.spec("direct/unknown-host-refused")
@pytest.mark.parametrize(
    "path",
    ["/", "/docs", "/openapi.json", "/assets/x.js", "/api/health", "/ws/worker", "/metrics", "/nothing"],
)
async def test_foreign_host_names_get_nothing_at_all(app, path):
    body = (await app.get(path, headers={"Host": "gpu-gw.lan:8000"})).refused(421, "host.not_allowed")
    assert "CODEFYUI_EXTRA_ALLOWED_HOSTS" in body["detail"]


@pytest.mark.spec("direct/extra-allowed-hosts")
async def test_a_listed_host_name_is_answered(make_app_of):
    app = await make_app_of(extra_allowed_hosts="gpu-gw.lan:8000")
    assert (await app.get("/api/health", headers={"Host": "gpu-gw.lan:8000"})).status == 200
    await app.get("/api/health", headers={"Host": "gpu-gw.lan"})
    (await app.get("/api/health", headers={"Host": "gpu-gw.lan"})).refused(421, "host.not_allowed")


async def test_enrollment_is_refused_under_a_foreign_host_before_its_token_is_looked_at(app):
    answer = await app.ask(
        "POST", "/api/workers/enroll", headers={"Host": "evil.example"}, json={"token": "x"}
    )
    answer.refused(421, "host.not_allowed")


# ---------------------------------------------------------------- other origins


async def test_only_listed_origins_may_read_answers_streams_and_errors(make_app_of):
    app = await make_app_of(cors_origins="http://localhost:5173")
    ours, other = {"Origin": "http://localhost:5173"}, {"Origin": "http://evil.example"}
    for path in ("/api/health", "/api/nothing", "/api/runs/x"):
        assert (await app.get(path, headers=ours)).headers["Access-Control-Allow-Origin"] == ours["Origin"]
        assert "Access-Control-Allow-Origin" not in (await app.get(path, headers=other)).headers
    async with app.client.get("/api/stream", headers=ours) as stream:
        assert stream.headers["Access-Control-Allow-Origin"] == ours["Origin"]


async def test_browsers_may_ask_before_they_call_from_a_listed_origin(app):
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "X-CodefyUI-Token"}
    yes = await app.ask(
        "OPTIONS", "/api/runs", token=None, headers={"Origin": "http://localhost:5173", **ask}
    )
    assert yes.status == 204
    assert "X-CodefyUI-Token" in yes.headers["Access-Control-Allow-Headers"]
    no = await app.ask("OPTIONS", "/api/runs", token=None, headers={"Origin": "http://evil.example", **ask})
    no.refused(405, "method_not_allowed")
