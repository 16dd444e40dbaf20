"""What every refusal looks like, whoever makes it."""

import ast
import importlib
import pkgutil
import re
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

import codefyui_core
from codefyui_core.control.api.errors import error_body
from codefyui_core.errors import STATUS_BY_CODE, CodefyError

DOCS = Path(__file__).parents[3] / "docs" / "api.md"


async def test_an_unknown_path_is_answered_in_the_shape_of_all_errors(app):
    body = (await app.get("/api/nothing")).refused(404, "not_found")
    assert "/api/nothing" in body["detail"]


async def test_a_wrong_method_says_which_ones_there_are(app):
    answer = await app.ask("PATCH", "/api/runs")
    answer.refused(405, "method_not_allowed")
    assert set(answer.headers["Allow"].split(",")) == {"GET", "POST"}


async def test_a_client_names_its_requests_by_plain_names_only(app):
    for given, kept in (("mine-1", True), ("a b", False), ("x" * 65, False)):
        answer = await app.get("/api/nothing", headers={"X-Request-Id": given})
        assert (answer.headers["X-Request-Id"] == given) is kept
    fine = await app.get("/api/health", headers={"X-Request-Id": "mine-2"})
    assert fine.headers["X-Request-Id"] == "mine-2"


async def test_a_bug_is_logged_under_its_request_and_says_nothing_of_the_inside(app, monkeypatch, caplog):
    async def broken(run_id):
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(app.plane.runs, "get", broken)
    answer = await app.get("/api/runs/x")
    body = answer.refused(500, "internal")
    assert "secret" not in answer.body.decode()
    assert body["request_id"] in body["detail"]
    assert f"request {body['request_id']}: GET /api/runs/x" in caplog.text
    assert "RuntimeError: the secret inside" in caplog.text


async def test_debug_shows_the_inside(make_app_of, monkeypatch):
    app = await make_app_of(debug="1")

    async def broken(run_id):
        raise RuntimeError("the inside")

    monkeypatch.setattr(app.plane.runs, "get", broken)
    body = (await app.get("/api/runs/x")).refused(500, "internal")
    assert "RuntimeError: the inside" in body["detail"]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OperationalError("select", {}, sqlite3.OperationalError("database is locked")), 503, "server.busy"),
        (
            OperationalError("insert", {}, sqlite3.OperationalError("database or disk is full")),
            507,
            "storage.full",
        ),
        (OSError(28, "No space left on device"), 507, "storage.full"),
        (TimeoutError(), 500, "internal"),
        (ConnectionRefusedError(), 500, "internal"),
    ],
)
async def test_trouble_of_the_machine_is_told_as_what_it_is(app, monkeypatch, error, status, code):
    async def broken(run_id):
        raise error

    monkeypatch.setattr(app.plane.runs, "get", broken)
    answer = await app.get("/api/runs/x")
    answer.refused(status, code)
    assert (answer.headers.get("Retry-After") == "1") is (code == "server.busy")


async def test_an_outage_of_the_database_is_one_line_in_the_log(app, monkeypatch, caplog):
    async def away():
        raise ConnectionRefusedError(111, "Connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(app.plane.db, "_engines", SimpleNamespace(reading=SimpleNamespace(connect=away)))
        (await app.get("/api/runs")).refused(503, "server.busy")
    assert "Connection refused" in caplog.text
    assert "Traceback" not in caplog.text


def test_a_401_says_how_to_authenticate_and_problems_name_their_fields():
    body = error_body(CodefyError("No.", code="run.not_found"), "r1")
    assert body == {"detail": "No.", "code": "run.not_found", "request_id": "r1"}


# ---------------------------------------------------------------- the tree of errors


def every_error():
    for module in pkgutil.walk_packages(codefyui_core.__path__, "codefyui_core."):
        if not module.name.endswith(("__main__", ".migrations.env")) and ".versions." not in module.name:
            importlib.import_module(module.name)
    found, waiting = [], [CodefyError]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if cls.__module__.startswith("codefyui_core"):
            found.append(cls)
    return sorted(found, key=lambda cls: cls.__qualname__)


def test_every_class_of_errors_has_a_code_with_a_status_and_a_row_in_the_docs():
    documented = set(re.findall(r"^\| `([a-z_]+(?:\.[a-z_]+)?)` \|", DOCS.read_text(), re.MULTILINE))
    lacking = {
        cls.__qualname__: cls.default_code
        for cls in every_error()
        if cls.default_code not in STATUS_BY_CODE or cls.default_code not in documented
    }
    assert lacking == {}


def test_every_code_that_a_server_may_answer_with_has_a_status():
    names = {cls.__name__ for cls in [CodefyError, *every_error()]}
    root = Path(codefyui_core.__path__[0])
    raised = {
        (code.value.value, path.relative_to(root).as_posix())
        for room in ("control", "graph", "loading", "runs", "settings")
        for path in (root / room).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names
        for code in call.keywords
        if code.arg == "code" and isinstance(code.value, ast.Constant)
    }
    assert len(raised) > 20
    assert {(code, path) for code, path in raised if code not in STATUS_BY_CODE} == set()
