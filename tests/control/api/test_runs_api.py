"""Runs over HTTP: submit, rows, pages, files, CSV, stopping and removing."""

import csv
import io
import json

import pytest

from codefyui_core.control.api.models import RunRow
from codefyui_core.plugin.storage import Redirect, Stream

FIELDS = set(RunRow.model_fields)


# ---------------------------------------------------------------- submit


async def test_a_run_is_queued_and_its_row_says_what_was_asked(app, graph):
    answer = await app.post("/api/runs", {"graph": graph(), "name": "mine", "options": {"seed": 3}})
    assert answer.status == 200
    run_id = answer.json["run_id"]
    assert answer.json["status"] in {"queued", "running"}
    row = (await app.get(f"/api/runs/{run_id}")).json
    assert set(row) == FIELDS | {"stderr_tail", "execution_facts"}
    assert (row["name"], row["options"]["seed"], row["target"]) == ("mine", 3, {"server": True})
    assert len(run_id) == 32
    assert row["created_at"].endswith("Z")


async def test_the_same_submit_id_answers_the_same_run(app, graph):
    body = {"graph": graph(), "submit_id": "s1"}
    first, second = await app.post("/api/runs", body), await app.post("/api/runs", body)
    assert first.json["run_id"] == second.json["run_id"]
    assert (await app.get("/api/runs")).json["total"] == 1


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ([], 422, "request.schema"),
        ({}, 422, "request.schema"),
        ({"graph": None}, 422, "request.schema"),
        ({"graph": {}, "more": 1}, 400, "request.invalid"),
        ({"graph": {"nodes": [], "edges": []}, "name": "n" * 65}, 400, "request.invalid"),
        ({"graph": {"nodes": [], "edges": []}, "submit_id": "n" * 65}, 400, "request.invalid"),
        ({"graph": {"nodes": [], "edges": []}, "options": 5}, 400, "request.invalid"),
        ({"graph": {"nodes": [], "edges": []}}, 400, "graph.invalid"),
        ({"graph": {"nodes": 5}}, 400, "graph.invalid"),
    ],
)
async def test_a_body_that_is_no_run_is_refused_by_its_kind(app, body, status, code):
    (await app.post("/api/runs", body)).refused(status, code)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b'{"graph": NaN}', b"[" * 5000])
async def test_a_body_that_is_no_json_is_refused_with_the_place(app, text):
    (await app.ask("POST", "/api/runs", data=text)).refused(422, "request.not_json")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"colour": "red"}, "run.option_unknown"),
        ({"seed": "x"}, "run.option_invalid"),
        ({"target": "nobody"}, "target.unknown"),
        ({"target": {"pool": "other"}}, "run.option_invalid"),
    ],
)
async def test_options_that_do_not_fit_are_refused(app, graph, options, code):
    (await app.post("/api/runs", {"graph": graph(), "options": options})).refused(400, code)


async def test_a_graph_that_can_not_run_is_refused_with_its_issues(app, graph, node):
    answer = await app.post("/api/runs", {"graph": graph(node("a", "Nowhere"))})
    issues = answer.refused(400, "graph.invalid")["issues"]
    assert [(issue["node_id"], issue["code"]) for issue in issues] == [("a", "unknown_node_type")]


async def test_nothing_is_queued_before_the_node_definitions_are_there(make_app_of, graph):
    app = await make_app_of(ready=False)
    answer = await app.post("/api/runs", {"graph": graph()})
    answer.refused(503, "catalog.loading")
    assert answer.headers["Retry-After"] == "1"


async def test_nothing_is_queued_while_the_server_stops(app, graph):
    await app.plane.stop_work()
    (await app.post("/api/runs", {"graph": graph()})).refused(503, "server.stopping")


async def test_secrets_reach_the_process_and_no_answer(app, graph, node):
    run_id, process = await app.running(document=graph(node("ask", "Ask", key="s3cret!")))
    assert "s3cret!" in json.dumps(process.document)
    process.log("nothing to see")
    process.finish()
    await app.row_when(run_id, active=False)
    for path in ("", "/events", "/metrics", "/artifacts"):
        assert b"s3cret!" not in (await app.get(f"/api/runs/{run_id}{path}")).body


# ---------------------------------------------------------------- lists


async def test_lists_are_newest_first_in_pages_without_the_long_fields(app):
    made = [await app.submit(name=f"run {number}") for number in range(3)]
    page = (await app.get("/api/runs?limit=2&offset=1")).json
    assert [row["id"] for row in page["runs"]] == [made[1], made[0]]
    assert (page["total"], page["limit"], page["offset"]) == (3, 2, 1)
    assert set(page["runs"][0]) == FIELDS


async def test_lists_are_filtered(app):
    done = await app.finished(name="Alpha")
    live, _ = await app.running(name="beta")
    queries = {
        "status=succeeded": [done],
        "status=running&status=succeeded": [live, done],
        "status=queued": [],
        "q=alp": [done],
        f"q={live}": [live],
        "q=%25": [],
        "target=server": [live, done],
        "target=box": [],
        "worker=box": [],
    }
    for query, wanted in queries.items():
        rows = (await app.get(f"/api/runs?{query}")).json["runs"]
        assert [row["id"] for row in rows] == wanted, query


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=done", "status.0"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=x", "limit"),
        ("offset=-1", "offset"),
        ("q=" + "x" * 257, "q"),
    ],
)
async def test_a_query_that_does_not_fit_names_its_field(app, query, field):
    body = (await app.get(f"/api/runs?{query}")).refused(400, "request.invalid")
    assert [problem["field"] for problem in body["problems"]] == [field]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/events"),
        ("GET", "/metrics"),
        ("GET", "/artifacts"),
        ("POST", "/cancel"),
        ("DELETE", ""),
    ],
)
async def test_a_run_that_is_not_there_is_not_found(app, method, path):
    (await app.ask(method, f"/api/runs/nothing{path}")).refused(404, "run.not_found")


# ---------------------------------------------------------------- stop and remove


async def test_stopping_says_whether_there_was_something_to_stop(app):
    run_id, _ = await app.running()
    stopped = await app.post(f"/api/runs/{run_id}/cancel")
    assert (stopped.status, stopped.json["cancelled"]) == (200, True)
    await app.row_when(run_id, status="cancelled", active=False)
    again = await app.post(f"/api/runs/{run_id}/cancel")
    assert again.json == {"run_id": run_id, "status": "cancelled", "cancelled": False}


async def test_only_a_run_that_has_ended_is_removed(app):
    run_id, process = await app.running()
    (await app.ask("DELETE", f"/api/runs/{run_id}")).refused(409, "run.active")
    process.finish()
    await app.row_when(run_id, active=False)
    gone = await app.ask("DELETE", f"/api/runs/{run_id}")
    assert (gone.status, gone.json) == (200, {"run_id": run_id, "deleted": True})
    (await app.get(f"/api/runs/{run_id}")).refused(404, "run.not_found")


# ---------------------------------------------------------------- metrics


async def with_metrics(app):
    run_id, process = await app.running()
    points = [
        {"name": "=loss", "value": 0.5, "step": 1, "node_id": "make"},
        {"name": "acc", "value": None, "special": "nan", "step": 1, "node_id": "make"},
    ]
    process.say("metric", points=points)
    process.finish()
    await app.row_when(run_id, active=False)
    return run_id


async def test_metrics_come_by_name_in_their_order(app):
    run_id = await with_metrics(app)
    found = (await app.get(f"/api/runs/{run_id}/metrics")).json
    assert found["names"] == ["=loss", "acc"]
    assert [(row["name"], row["step"], row["value"]) for row in found["metrics"]] == [
        ("=loss", 1, 0.5),
        ("acc", 1, None),
    ]
    one = (await app.get(f"/api/runs/{run_id}/metrics?name=acc")).json
    assert one["names"] == ["acc"]
    (await app.get(f"/api/runs/{run_id}/metrics?format=xml")).refused(400, "request.invalid")


async def test_metrics_as_csv_are_for_spreadsheets(app):
    run_id = await with_metrics(app)
    answer = await app.get(f"/api/runs/{run_id}/metrics?format=csv")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.body.startswith(b"\xef\xbb\xbf")
    assert f"{run_id}-metrics.csv" in answer.headers["Content-Disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.body.decode("utf-8-sig"))))
    assert list(rows[0]) == ["run_id", "node_id", "name", "step", "value", "ts"]
    assert rows[0]["name"] == "'=loss"


# ---------------------------------------------------------------- artifacts


async def with_artifact(app, content=b"0123456789", name="models/a b.pt"):
    path = app.plane.install.data / "models" / "a b.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    run_id, process = await app.running()
    process.say(
        "artifact",
        artifact_id="art-1",
        kind="checkpoint",
        name="a b.pt",
        relative_path=name,
        backend="local",
        size_bytes=len(content),
        state="stored",
        node_id="make",
        meta={"epoch": 1},
    )
    process.finish()
    await app.row_when(run_id, active=False)
    rows = (await app.get(f"/api/runs/{run_id}/artifacts")).json
    return run_id, rows[0]


async def test_artifacts_are_listed_and_filtered_by_kind(app):
    run_id, row = await with_artifact(app)
    assert (row["kind"], row["state"], row["node_id"], row["size_bytes"]) == (
        "checkpoint",
        "stored",
        "make",
        10,
    )
    assert (await app.get(f"/api/runs/{run_id}/artifacts?kind=export")).json == []
    assert len((await app.get(f"/api/runs/{run_id}/artifacts?kind=checkpoint")).json) == 1


async def test_a_download_has_its_name_ranges_and_nothing_that_a_browser_would_run(app):
    run_id, row = await with_artifact(app)
    path = f"/api/runs/{run_id}/artifacts/{row['id']}/download"
    whole = await app.get(path)
    assert (whole.status, whole.body) == (200, b"0123456789")
    assert 'filename="a b.pt"' in whole.headers["Content-Disposition"]
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    part = await app.get(path, headers={"Range": "bytes=2-4"})
    assert (part.status, part.body, part.headers["Content-Range"]) == (206, b"234", "bytes 2-4/10")
    tail = await app.get(path, headers={"Range": "bytes=-3"})
    assert (tail.status, tail.body) == (206, b"789")
    assert (await app.get(path, headers={"Range": "bytes=10-"})).status == 416
    same = await app.get(path, headers={"If-None-Match": whole.headers["ETag"]})
    assert same.status == 304


async def test_a_packed_file_beside_it_is_not_sent_in_its_place(app):
    run_id, row = await with_artifact(app)
    (app.plane.install.data / "models" / "a b.pt.gz").write_bytes(b"other")
    answer = await app.get(
        f"/api/runs/{run_id}/artifacts/{row['id']}/download", headers={"Accept-Encoding": "gzip, br"}
    )
    assert answer.body == b"0123456789"
    assert "Content-Encoding" not in answer.headers


async def test_what_is_not_there_any_more_is_told(app):
    run_id, row = await with_artifact(app)
    (app.plane.install.data / "models" / "a b.pt").unlink()
    answer = await app.get(f"/api/runs/{run_id}/artifacts/{row['id']}/download")
    assert answer.status in {400, 404, 409}
    assert answer.json["code"] in {"storage.refused", "artifact.not_found", "artifact.not_here"}
    (await app.get(f"/api/runs/{run_id}/artifacts/other/download")).refused(404, "artifact.not_found")


class FakeReading:
    """Stands for a backend whose bytes are elsewhere."""

    def __init__(self, reading, size=10):
        self.reading = reading
        self.row = {"name": "deep/x.bin", "size_bytes": size}
        self.spans = []

    async def __call__(self, run_id, artifact_id, span):
        self.spans.append(span)
        return self.row, self.reading(span)


async def test_bytes_from_elsewhere_pass_through_in_ranges(app, monkeypatch):
    closed = []

    def reading(span):
        first, last = span or (0, None)
        data = b"0123456789"[first:last]

        async def chunks():
            try:
                for place in range(0, len(data), 4):
                    yield data[place : place + 4]
            finally:
                closed.append(True)

        return Stream(size_bytes=len(data), chunks=chunks())

    fake = FakeReading(reading)
    monkeypatch.setattr(app.plane.runs, "artifact_reading", fake)
    whole = await app.get("/api/runs/x/artifacts/y/download")
    assert (whole.status, whole.body, whole.headers["Content-Length"]) == (200, b"0123456789", "10")
    assert 'filename="x.bin"' in whole.headers["Content-Disposition"]
    part = await app.get("/api/runs/x/artifacts/y/download", headers={"Range": "bytes=3-5"})
    assert (part.status, part.body, part.headers["Content-Range"]) == (206, b"345", "bytes 3-5/10")
    beyond = await app.get("/api/runs/x/artifacts/y/download", headers={"Range": "bytes=20-"})
    assert beyond.status == 416
    assert fake.spans == [None, (3, 6), (20, None)]
    assert closed == [True, True]


async def test_a_browser_is_sent_to_where_the_bytes_are(app, monkeypatch):
    monkeypatch.setattr(
        app.plane.runs,
        "artifact_reading",
        FakeReading(lambda span: Redirect(url="https://bucket.example/x?sig=1")),
    )
    answer = await app.get("/api/runs/x/artifacts/y/download", allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (302, "https://bucket.example/x?sig=1")


async def test_a_source_that_breaks_off_cuts_the_line_instead_of_ending_well(app, monkeypatch, caplog):
    def reading(span):
        async def chunks():
            yield b"half"
            raise RuntimeError("the bucket went away")

        return Stream(size_bytes=10, chunks=chunks())

    monkeypatch.setattr(app.plane.runs, "artifact_reading", FakeReading(reading))
    with pytest.raises(Exception, match=r"(?i)payload|disconnected|reset"):
        await app.get("/api/runs/x/artifacts/y/download")
    assert "the bucket went away" in caplog.text
    assert (await app.get("/api/health")).status == 200
