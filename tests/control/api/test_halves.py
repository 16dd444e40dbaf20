"""Control halves of plugins: one that fails or hangs costs itself alone."""

import asyncio

import pytest

from codefyui_core.control import halves
from codefyui_core.loading import PluginConflict, load
from codefyui_core.plugin.values import Plane
from codefyui_core.plugin.views import PluginState, WorkerEvent, WorkerEventKind, WorkerView

SOURCE = """
import asyncio

from aiohttp import web

from codefyui_core.plugin import (
    Auth, Claim, Connector, ConnectorControl, Invitation, Note, Route, hookimpl,
)


class Half(ConnectorControl):
    def __init__(self, host):
        self.host = host
        self.told = []
        self.closed = False
        self.gate = asyncio.Event()

    def routes(self):
        async def hello(request, caller):
            return web.json_response({{"hello": True}})

        return [Route(method="GET", path="/api/{path}", handler=hello, auth=Auth.OPEN, on_links={on_links})]

    async def start(self):
        {start}

    async def aclose(self):
        {close}
        self.closed = True

    def serves(self, address):
        return Claim.FITS if address.startswith("http://mine") else Claim.NO

    async def invite(self, address):
        {invite}
        return Invitation(options=("--mine",), notes=(Note(text="mine"),))

    async def worker_changed(self, event):
        self.told.append((event.kind.value, event.worker.name))
        {told}


class Mine(Connector):
    name = "mine"
    title = "Mine"

    def control(self, host):
        {make}
        self.half = Half(host)
        return self.half

    def agent(self, host):
        raise NotImplementedError


@hookimpl
def codefyui_connectors():
    return [Mine()]
"""


@pytest.fixture
def with_plugin(site, make_app_of):
    """An app with a connector whose steps do what a test says."""

    async def make(*, start_server=True, name="acme-mine", **steps):
        defaults = {
            "path": "mine/hello",
            "on_links": False,
            "start": "pass",
            "close": "pass",
            "invite": "pass",
            "told": "pass",
            "make": "pass",
        }
        site.install(name, SOURCE.format(**defaults | steps))
        registry = load(plane=Plane.CONTROL, entry_points=site.entry_points())
        return await make_app_of(registry=registry, wait=steps.get("start") != "await self.gate.wait()")

    return make


def state(app):
    info = app.plane.registry.plugins[0]
    return info.state, info.error


async def test_a_half_serves_its_routes_and_its_invitations(with_plugin):
    app = await with_plugin()
    assert (await app.get("/api/mine/hello")).json == {"hello": True}
    made = (await app.post("/api/workers/tokens", {"address": "http://mine.lan"})).json
    assert "--mine" in made["command"]
    assert [note["text"] for note in made["notes"]] == ["mine"]
    shown = (await app.get("/api/workers/invitation?address=http://mine.lan")).json
    assert shown == {"address": "http://mine.lan", "options": ["--mine"], "notes": made["notes"]}
    assert (await app.get("/api/workers/invitation")).json["address"] == app.url
    assert len((await app.ask("GET", "/api/workers/tokens")).json) == 1
    other = (await app.post("/api/workers/tokens", {"address": "http://other.lan"})).json
    assert other["notes"] == []


async def test_what_a_half_says_of_itself_is_shown_also_when_it_can_not_say(with_plugin, monkeypatch, caplog):
    app = await with_plugin()
    (mine,) = [half for what, half in app.plane.halves._made.items() if what.name == "mine"]
    monkeypatch.setattr(mine, "condition", lambda: "on, for mine.lan")
    assert (await app.get("/api/plugins")).json["conditions"]["connector mine"] == "on, for mine.lan"
    monkeypatch.setattr(mine, "condition", lambda: 1 / 0)
    said = (await app.get("/api/plugins")).json["conditions"]
    assert said["connector mine"].startswith("it failed to say")
    assert "failed to say in what condition" in caplog.text


async def test_a_half_that_fails_to_start_is_listed_and_the_server_goes_on(with_plugin, caplog):
    app = await with_plugin(start='raise RuntimeError("no such bucket")')
    assert state(app) == (PluginState.FAILED, "RuntimeError: no such bucket")
    body = (await app.get("/api/mine/hello")).refused(503, "server.busy")
    assert "cdui plugin list" in body["detail"]
    assert (await app.get("/api/health")).json["status"] == "ready"
    rows = (await app.get("/api/plugins")).json["plugins"]
    assert [(row["state"], row["error"]) for row in rows] == [("failed", "RuntimeError: no such bucket")]


async def test_a_half_that_can_not_be_made_is_listed(with_plugin, caplog):
    app = await with_plugin(make='raise ValueError("no")')
    assert state(app)[0] is PluginState.FAILED
    (await app.get("/api/mine/hello")).refused(404, "not_found")


async def test_a_route_that_no_plugin_may_have_costs_its_plugin(with_plugin, caplog):
    app = await with_plugin(path="{x:[}")
    assert state(app)[0] is PluginState.FAILED


async def test_a_route_that_the_core_has_stops_the_start_naming_both(with_plugin):
    with pytest.raises(PluginConflict, match=r"codefyui-core.*acme-mine|acme-mine.*codefyui-core"):
        await with_plugin(path="health")


async def test_while_a_half_starts_its_routes_say_so_and_health_names_it(with_plugin):
    app = await with_plugin(start="await self.gate.wait()")
    answer = await app.get("/api/mine/hello")
    answer.refused(503, "server.busy")
    assert answer.headers["Retry-After"] == "1"
    health = (await app.get("/api/health")).json
    assert (health["status"], health["waiting_for"]) == ("starting", ["connector mine"])
    app.plane.registry.connectors["mine"].half.gate.set()
    async with asyncio.timeout(10):
        await app.starting
    assert (await app.get("/api/mine/hello")).json == {"hello": True}
    assert (await app.get("/api/health")).json["status"] == "ready"


async def test_a_half_that_does_not_close_is_left_behind_and_named(with_plugin, monkeypatch, caplog):
    monkeypatch.setattr(halves, "CLOSE_WITHIN_S", 0.05)
    stubborn = """
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            await self.gate.wait()"""
    app = await with_plugin(close=stubborn.strip())
    async with asyncio.timeout(10):
        await app.plane.halves.aclose()
    assert "connector mine didn't close within" in caplog.text
    app.plane.registry.connectors["mine"].half.gate.set()
    await asyncio.sleep(0)


async def test_a_half_that_fails_to_close_is_named(with_plugin, caplog):
    app = await with_plugin(close='raise RuntimeError("stuck")')
    await app.plane.halves.aclose()
    assert "connector mine didn't close: RuntimeError: stuck" in caplog.text


@pytest.mark.parametrize("step", ["await asyncio.Event().wait()", 'raise RuntimeError("no")'])
async def test_an_invitation_that_fails_or_hangs_leaves_the_command_as_it_is(
    with_plugin, monkeypatch, caplog, step
):
    monkeypatch.setattr(halves, "INVITE_WITHIN_S", 0.05)
    app = await with_plugin(invite=step)
    made = (await app.post("/api/workers/tokens", {"address": "http://mine.lan"})).json
    assert "--mine" not in made["command"]
    assert made["notes"] == []
    assert "failed to invite" in caplog.text


async def test_halves_are_told_of_workers_in_order_even_when_they_are_slow(with_plugin, until):
    app = await with_plugin(told="await asyncio.sleep(0)")
    view = WorkerView(id="w", name="box", connected=True)
    kinds = [WorkerEventKind.ENROLLED, WorkerEventKind.CONNECTED, WorkerEventKind.DISCONNECTED]
    for kind in kinds:
        for listener in app.plane.workers.listeners:
            listener(WorkerEvent(kind=kind, worker=view))
    half = app.plane.registry.connectors["mine"].half
    await until(lambda: len(half.told) == 3)
    assert half.told == [(kind.value, "box") for kind in kinds]


async def test_a_half_that_fails_to_hear_of_a_worker_is_logged_as_its_own(with_plugin, caplog, until):
    app = await with_plugin(told='raise RuntimeError("deaf")')
    for listener in app.plane.workers.listeners:
        listener(
            WorkerEvent(kind=WorkerEventKind.CONNECTED, worker=WorkerView(id="w", name="box", connected=True))
        )
    await until(lambda: "deaf" in caplog.text)
    assert (await app.get("/api/mine/hello")).status == 200
