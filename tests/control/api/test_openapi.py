"""The description of the API against the routes and the answers that there are."""

import re

import pytest
from jsonschema import Draft202012Validator

from codefyui_core.control.app import all_routes
from codefyui_core.errors import status_of


@pytest.fixture
async def document(app):
    return (await app.get("/openapi.json")).json


def references(value):
    if isinstance(value, dict):
        yield from [value["$ref"]] if "$ref" in value else []
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_reference_leads_somewhere(document):
    found = set(references(document))
    assert found
    for reference in found:
        assert re.fullmatch(r"#/components/schemas/\w+", reference)
        assert reference.rpartition("/")[2] in document["components"]["schemas"]


def test_every_route_is_described_with_its_auth_its_parameters_and_its_refusals(app, document):
    for owned in all_routes(app.plane):
        route = owned.route
        path = re.sub(r":[^{}]*}", "}", route.path)
        operation = document["paths"][path][route.method.lower()]
        assert operation["summary"]
        assert set(re.findall(r"\{(\w+)", route.path)) == {
            one["name"] for one in operation["parameters"] if one["in"] == "path"
        }
        assert {str(status_of(code)) for code in route.errors} <= set(operation["responses"])
        assert str(route.status) in operation["responses"]
        assert ("security" in operation) is (route.auth.value in {"session", "worker", "run_worker"})


def test_every_json_answer_has_a_schema(app, document):
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                schema = answer.get("content", {}).get("application/json", {}).get("schema", "none")
                assert schema != {}, (method, path, status)


def test_names_of_operations_are_unique(document):
    names = [
        operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
    ]
    assert len(names) == len(set(names))


async def test_rows_of_a_whole_run_fit_their_schemas(app, document):
    run_id, process = await app.running(name="whole")
    process.say("metric", points=[{"name": "loss", "value": 0.5, "step": 1, "node_id": "make"}])
    artifact = {"artifact_id": "a", "kind": "export", "name": "a.pt", "relative_path": "models/a.pt"}
    process.say(
        "artifact", backend="local", size_bytes=1, state="stored", node_id="make", meta={}, **artifact
    )
    process.finish()
    await app.row_when(run_id, active=False)
    await app.post("/api/workers/tokens", {})
    paths = ["/api/runs", "/api/nodes", "/api/presets", "/api/plugins", "/api/settings", "/api/workers"]
    paths += ["/api/health", "/api/system/devices", "/api/workers/tokens", "/api/graph/list"]
    shown = {path: path for path in paths}
    for end in ("", "/events", "/metrics", "/artifacts"):
        shown[f"/api/runs/{{run_id}}{end}"] = f"/api/runs/{run_id}{end}"
    for described, path in shown.items():
        answer = await app.ask("GET", path)
        content = document["paths"][described]["get"]["responses"]["200"]["content"]
        schema = content["application/json"]["schema"]
        whole = {**schema, "components": document["components"]}
        problems = [error.message for error in Draft202012Validator(whole).iter_errors(answer.json)]
        assert problems == [], (path, problems)
    assert (await app.get(f"/api/runs/{run_id}/artifacts")).json
