"""Health, devices, nodes, plugins, settings, metrics, workers' tokens, stopping, pages."""

import asyncio
import dataclasses

import pytest

from codefyui_core.control.api.server import is_loopback
from codefyui_core.control.plane import BACK_WITHIN_S
from codefyui_core.control.serve import host_of
from codefyui_core.errors import CodefyError
from codefyui_core.plugin.node import CatalogProblem
from codefyui_core.wire.messages import PROTOCOL


async def test_health_says_what_the_server_waits_for(make_app_of):
    app = await make_app_of(ready=False)
    body = (await app.get("/api/health")).json
    assert (body["status"], body["waiting_for"], body["nodes_loaded"]) == (
        "starting",
        ["node definitions"],
        0,
    )
    (await app.get("/api/nodes")).refused(503, "catalog.loading")


async def test_health_when_ready_and_when_stopping(app):
    body = (await app.get("/api/health")).json
    assert (body["status"], body["waiting_for"], body["nodes_loaded"]) == ("ready", [], 3)
    assert (body["version"], body["boot_id"], body["project"]) == (app.plane.version, app.plane.boot_id, None)
    app.plane.ask_to_stop(keep=False)
    assert (await app.get("/api/health")).json["status"] == "stopping"


async def test_devices_are_those_that_the_helper_saw(app):
    body = (await app.get("/api/system/devices")).json
    assert body == {
        "default": "cpu",
        "devices": [
            {
                "value": "cpu",
                "label": "CPU",
                "detail": "A processor",
                "available": True,
                "slots": 2,
                "used": 0,
                "policy": "count",
                "memory_total_bytes": None,
                "memory_free_bytes": None,
            }
        ],
    }


async def test_nodes_speak_the_names_of_the_reference(app):
    rows = {row["name"]: row for row in (await app.get("/api/nodes")).json}
    assert {name: row["provider"] for name, row in rows.items()} == {
        "Start": "builtin",
        "Make": "plugin:codefyui-test",
        "Ask": "custom",
    }
    assert rows["Ask"]["params"][0]["param_type"] == "secret"
    assert rows["Make"]["outputs"][0]["data_type"] == "SCALAR"
    assert (await app.get("/api/nodes/Ask")).json == rows["Ask"]
    (await app.get("/api/nodes/Other")).refused(404, "node.not_found")
    assert [preset["name"] for preset in (await app.get("/api/presets")).json] == ["Nothing"]
    assert (await app.get("/api/presets/Nothing")).json["name"] == "Nothing"
    (await app.get("/api/presets/Other")).refused(404, "preset.not_found")


async def test_reading_nodes_again_counts_them_or_says_why_not(app, monkeypatch):
    async def again():
        return app.plane.catalog.current

    monkeypatch.setattr(app.plane.catalog, "reload", again)
    assert (await app.post("/api/nodes/reload")).json == {
        "builtin": 1,
        "custom": 1,
        "plugins": 1,
        "presets": 1,
        "total": 3,
    }

    async def broken():
        raise CodefyError("The helper ended with a syntax error.", code="catalog.failed")

    monkeypatch.setattr(app.plane.catalog, "reload", broken)
    assert "syntax error" in (await app.post("/api/nodes/reload")).refused(503, "catalog.failed")["detail"]
    assert len((await app.get("/api/nodes")).json) == 3


async def test_plugins_are_listed_with_what_gave_no_node(app):
    problem = CatalogProblem(source="nodes/broken.py", message="SyntaxError")
    app.plane.catalog.current = dataclasses.replace(app.plane.catalog.current, problems=(problem,))
    body = (await app.get("/api/plugins")).json
    assert body["problems"] == [{"source": "nodes/broken.py", "message": "SyntaxError"}]
    states = {row["entry_point"]: row["state"] for row in body["plugins"]}
    assert states["builtin"] == "loaded"


# ---------------------------------------------------------------- settings


async def test_settings_have_sources_and_secrets_are_stars(make_app_of):
    app = await make_app_of(database_url="postgresql://me:s3cret@db/x", max_parallel_nodes="7")
    answer = await app.get("/api/settings")
    assert b"s3cret" not in answer.body
    rows = {row["name"]: row for row in answer.json["settings"]}
    assert rows["CODEFYUI_DATABASE_URL"]["value"] == "**********"
    parallel = rows["CODEFYUI_MAX_PARALLEL_NODES"]
    assert (parallel["value"], parallel["default"], parallel["source"]) == (7, 4, "flag")
    assert rows["CODEFYUI_PORT"]["source"] == "default"
    assert all(row["description"] for row in rows.values())


async def test_core_values_of_a_changed_file_need_a_restart_and_say_so(app):
    file = app.plane.install.user_data / ".env"
    file.write_text("CODEFYUI_MAX_PARALLEL_NODES=9\n")
    answer = (await app.post("/api/settings/reload")).json
    assert answer == {"changed": [], "needs_restart": ["CODEFYUI_MAX_PARALLEL_NODES"]}
    rows = {row["name"]: row for row in (await app.get("/api/settings")).json["settings"]}
    assert rows["CODEFYUI_MAX_PARALLEL_NODES"]["value"] == 4
    file.write_text("CODEFYUI_MAX_PARALLEL_NODES=none\n")
    refused = (await app.post("/api/settings/reload")).refused(400, "usage")
    assert "CODEFYUI_MAX_PARALLEL_NODES" in refused["detail"]


# ---------------------------------------------------------------- metrics


async def test_metrics_count_runs_slots_and_answers_with_refusals(app):
    await app.running()
    await app.get("/api/nothing")
    await app.ask("POST", "/api/runs", token=None)
    answer = await app.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    lines = set(answer.body.decode().splitlines())
    assert 'codefyui_runs{status="running"} 1.0' in lines
    assert 'codefyui_slots{device="cpu",state="used",worker="server"} 1.0' in lines
    assert 'codefyui_http_requests_total{route="none",status="404"} 1.0' in lines
    assert 'codefyui_http_requests_total{route="/api/runs",status="403"} 1.0' in lines
    assert any(line.startswith("codefyui_events_total ") for line in lines)


# ---------------------------------------------------------------- workers and tokens


async def test_a_token_is_shown_once_with_the_command_that_uses_it(app):
    made = await app.post("/api/workers/tokens", {"valid_s": 60, "uses": 2})
    assert made.status == 201
    body = made.json
    assert body["token"] in body["command"]
    assert app.url in body["command"]
    listed = (await app.ask("GET", "/api/workers/tokens")).json
    assert [(row["id"], row["uses_left"], row["state"]) for row in listed] == [(body["id"], 2, "valid")]
    assert body["token"].encode() not in (await app.ask("GET", "/api/workers/tokens")).body
    away = (await app.post("/api/workers/tokens", {"address": "http://10.0.0.7:8000"})).json
    assert "http://10.0.0.7:8000" in away["command"]
    assert "unencrypted" in away["notes"][0]["text"]


async def test_a_revoked_token_stays_listed_and_a_hidden_one_does_not(app):
    first, second = [(await app.post("/api/workers/tokens", {})).json for _ in range(2)]
    assert (await app.post(f"/api/workers/tokens/{first['id']}/revoke")).json["revoked"] is True
    assert (await app.ask("DELETE", f"/api/workers/tokens/{second['id']}")).json["revoked"] is True
    listed = (await app.ask("GET", "/api/workers/tokens")).json
    assert [(row["id"], row["state"]) for row in listed] == [(first["id"], "revoked")]
    for token in (first, second):
        body = {"token": token["token"], "name": "box", "nonce": "n" * 16}
        answer = await app.ask("POST", "/api/workers/enroll", token=None, json=body)
        answer.refused(403, "enrollment.revoked")
    (await app.post("/api/workers/tokens/zzzzzz/revoke")).refused(404, "enrollment.not_found")
    (await app.ask("DELETE", "/api/workers/tokens/zzzzzz")).refused(404, "enrollment.not_found")


@pytest.mark.parametrize("body", [{"uses": 0}, {"valid_s": 0}, {"valid_s": -1}, {"more": 1}, {"uses": "x"}])
async def test_a_token_that_can_not_be_is_refused_by_field(app, body):
    answer = (await app.post("/api/workers/tokens", body)).refused(422, "request.schema")
    assert [problem["field"] for problem in answer["problems"]] == list(body)


async def test_workers_are_listed_enrolled_and_removed(app):
    assert (await app.get("/api/workers")).json == {"workers": [], "refused": []}
    token = (await app.post("/api/workers/tokens", {})).json["token"]
    body = {"token": token, "name": "box", "nonce": "n" * 16, "machine_id": "m", "platform": "linux"}
    enrolled = await app.ask("POST", "/api/workers/enroll", token=None, json=body)
    assert set(enrolled.json) == {"credential", "worker_id", "name", "db_id"}
    assert [row["name"] for row in (await app.get("/api/workers")).json["workers"]] == ["box"]
    (await app.ask("DELETE", "/api/workers/other")).refused(404, "worker.not_found")
    assert (await app.ask("DELETE", "/api/workers/box")).json == {"name": "box", "removed": True}
    assert (await app.get("/api/workers")).json["workers"] == []


async def enroll(app, name, **token):
    made = (await app.post("/api/workers/tokens", token)).json["token"]
    body = {"token": made, "name": name, "nonce": made[-16:], "machine_id": "m", "platform": "linux"}
    return await app.ask("POST", "/api/workers/enroll", token=None, json=body)


async def test_a_worker_is_drained_and_undrained_by_name(app):
    await enroll(app, "box")
    for order, drained in (("drain", True), ("drain", True), ("undrain", False)):
        assert (await app.post(f"/api/workers/BOX/{order}")).json == {"name": "box", "drained": drained}
        assert (await app.get("/api/workers")).json["workers"][0]["drained"] is drained
        (await app.post(f"/api/workers/other/{order}")).refused(404, "worker.not_found")
        refused = await app.ask("POST", f"/api/workers/box/{order}", token="wrong")
        refused.refused(403, "auth.token")


@pytest.mark.spec("rekey/ordinary-token-409", "rekey/token-bound-to-worker", "rekey/keeps-worker-identity")
async def test_a_taken_name_is_enrolled_again_by_a_token_for_it_alone(app):
    first = (await enroll(app, "box")).json
    (await enroll(app, "box")).refused(409, "enrollment.name_taken")
    (await enroll(app, "other", worker="box")).refused(403, "enrollment.bound")
    again = (await enroll(app, "box", worker="box")).json
    assert again["worker_id"] == first["worker_id"]
    assert again["credential"] != first["credential"]
    assert [row["name"] for row in (await app.get("/api/workers")).json["workers"]] == ["box"]


# ---------------------------------------------------------------- stopping


async def test_the_server_is_asked_to_stop_with_or_without_its_runs(app):
    await app.running()
    answer = await app.post("/api/server/stop", {"runs": "keep"})
    assert answer.json == {"stopping": True, "runs": "keep", "active": 1}
    assert (app.plane.stop_asked.is_set(), app.plane.keep_runs) == (True, True)
    await app.post("/api/server/stop", {"runs": "stop"})
    assert app.plane.keep_runs


@pytest.mark.point(34)
@pytest.mark.parametrize(("keep", "said"), [(True, ("restart", BACK_WITHIN_S)), (False, ("shutdown", None))])
async def test_agents_are_told_how_soon_the_server_means_to_be_back_from_a_restart(app, keep, said):
    credential = (await enroll(app, "box")).json["credential"]
    hello = {"t": "hello", "protocol": PROTOCOL, "version": app.plane.version, "name": "box", "devices": []}
    hello |= {"incarnation": "a" * 32, "home_id": "h" * 32, "machine_id": "m" * 32}
    headers = {"Authorization": f"Bearer {credential}"}
    async with app.client.ws_connect("/ws/worker", headers=headers) as agent:
        await agent.send_json(hello)
        assert (await agent.receive_json())["t"] == "welcome"
        app.plane.ask_to_stop(keep=keep)
        stopping = asyncio.create_task(app.plane.stop_work())
        while (bye := await agent.receive_json(timeout=20))["t"] != "bye":
            pass
        assert (bye["reason"], bye.get("back_within_s")) == said
    await stopping


async def test_a_stop_from_another_machine_is_refused(app, monkeypatch):
    monkeypatch.setattr("codefyui_core.control.api.server.is_loopback", lambda peer: False)
    (await app.post("/api/server/stop", {})).refused(403, "auth.token")
    assert not app.plane.stop_asked.is_set()


async def test_a_wrong_wish_stops_nothing(app):
    (await app.post("/api/server/stop", {"runs": "all"})).refused(422, "request.schema")
    assert not app.plane.stop_asked.is_set()


@pytest.mark.parametrize(
    ("peer", "is_it"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("", True),
        (None, True),
        ("10.0.0.1", False),
        ("x", False),
    ],
)
def test_which_peers_are_this_machine(peer, is_it):
    assert is_loopback(peer) is is_it


@pytest.mark.parametrize(
    ("bound", "shown"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("::1", "[::1]"),
        ("10.0.0.1", "10.0.0.1"),
        ("", "127.0.0.1"),
    ],
)
def test_how_a_url_names_the_address(bound, shown):
    assert host_of(bound) == shown


# ---------------------------------------------------------------- pages


async def test_without_its_files_the_page_says_so_and_runs_no_script_of_others(app):
    answer = await app.get("/")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "codefyui-web" in answer.body.decode()
    assert (await app.get("/docs")).headers["Content-Security-Policy"] == policy
    (await app.get("/assets/app.js")).refused(404, "not_found")


async def test_assets_are_sent_from_their_folder_alone(make_app_of, monkeypatch, tmp_path):
    root = tmp_path / "web"
    (root / "assets" / "deep").mkdir(parents=True)
    (root / "index.html").write_text("<title>mine</title>")
    (root / "assets" / "deep" / "x.js").write_text("1")
    monkeypatch.setattr("codefyui_core.loading.registry.Registry.web_root", lambda self: root)
    app = await make_app_of()
    assert b"mine" in (await app.get("/")).body
    script = await app.get("/assets/deep/x.js")
    assert (script.body, script.headers["Cache-Control"]) == (b"1", "no-cache")
    assert "javascript" in script.headers["Content-Type"]
    for path in (
        "%2E%2E/index.html",
        "..%2Findex.html",
        "deep",
        "none.js",
        "%00",
        "deep/%2E%2E/%2E%2E/index.html",
    ):
        (await app.get(f"/assets/{path}")).refused(404, "not_found")


async def test_the_table_of_routes_is_there_for_people_and_programs(app):
    document = (await app.get("/openapi.json")).json
    assert document["openapi"] == "3.1.0"
    page = (await app.get("/docs")).body.decode()
    for path in document["paths"]:
        assert path in page
