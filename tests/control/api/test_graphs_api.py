"""Saved graphs, validation and examples over HTTP."""

import json

import pytest


async def test_validation_names_each_problem_by_node_and_code(app, graph, node):
    fine = await app.post("/api/graph/validate", graph())
    assert fine.json == {"valid": True, "errors": [], "issues": []}
    answer = (await app.post("/api/graph/validate", graph(node("a", "Nowhere")))).json
    assert not answer["valid"]
    assert [(issue["node_id"], issue["code"]) for issue in answer["issues"]] == [("a", "unknown_node_type")]
    assert answer["errors"] == [answer["issues"][0]["message"]]


@pytest.mark.parametrize("body", [[], "text", 5, None])
async def test_what_is_no_object_is_no_graph(app, body):
    answer = await app.ask("POST", "/api/graph/validate", data=json.dumps(body).encode())
    assert "object" in answer.refused(422, "request.schema")["detail"]


async def test_a_graph_is_saved_without_its_secrets_and_loaded_whole(app, graph, node):
    document = graph(node("ask", "Ask", key="s3cret!"), name="My graph", own={"kept": 2**70})
    saved = (await app.post("/api/graph/save", document)).json
    assert saved["file"] == "My_graph"
    assert "s3cret!" not in (app.plane.install.data / "graphs" / "My_graph.json").read_text()
    loaded = (await app.get("/api/graph/load/My graph")).json
    assert loaded["own"] == {"kept": 2**70}
    assert loaded["nodes"][1]["data"]["params"] == {"key": ""}
    assert "file" not in loaded
    rows = (await app.get("/api/graph/list")).json
    assert [(row["name"], row["file"]) for row in rows] == [("My graph", "My_graph")]


async def test_an_occupied_name_is_overwritten_unless_told_otherwise(app, graph):
    await app.post("/api/graph/save", graph(name="a", version=1))
    refused = await app.post("/api/graph/save", {**graph(name="a", version=2), "overwrite": False})
    refused.refused(409, "graph.exists")
    assert (await app.get("/api/graph/load/a")).json["version"] == 1
    await app.post("/api/graph/save", graph(name="a", version=3))
    assert (await app.get("/api/graph/load/a")).json["version"] == 3
    await app.post("/api/graph/save", {**graph(name="b"), "file": "a", "overwrite": False})
    assert (await app.get("/api/graph/load/a")).json["name"] == "b"


@pytest.mark.parametrize(
    "body", [{}, {"nodes": 5}, {"nodes": []}, [], {"nodes": [], "edges": [], "file": "x" * 256}]
)
async def test_what_is_no_graph_is_not_saved(app, body):
    answer = await app.post("/api/graph/save", body)
    assert answer.status in {200, 400, 422}
    if body != {"nodes": []}:
        answer.refused(422, "request.schema")


async def test_a_name_without_letters_is_refused(app, graph):
    (await app.post("/api/graph/save", graph(name="..."))).refused(400, "graph.bad_name")


async def test_renaming_and_deleting(app, graph):
    await app.post("/api/graph/save", graph(name="a"))
    renamed = (await app.post("/api/graph/rename", {"from": "a", "to": "b c"})).json
    assert (renamed["name"], renamed["file"]) == ("b c", "b_c")
    (await app.post("/api/graph/rename", {"from": "a", "to": "x"})).refused(404, "graph.not_found")
    (await app.post("/api/graph/rename", {"from": "b c", "to": "d", "more": 1})).refused(
        422, "request.schema"
    )
    await app.post("/api/graph/save", graph(name="taken"))
    (await app.post("/api/graph/rename", {"from": "b c", "to": "taken"})).refused(409, "graph.exists")
    gone = await app.ask("DELETE", "/api/graph/b%20c")
    assert gone.json["removed"] == ["b_c.json"]
    (await app.ask("DELETE", "/api/graph/b%20c")).refused(404, "graph.not_found")


@pytest.mark.parametrize("name", ["nothing", "..%2F..%2Fsession.token", "%00", "a%2Fb"])
async def test_names_lead_nowhere_else(app, name):
    answer = await app.get(f"/api/graph/load/{name}")
    assert answer.json["code"] in {"graph.not_found", "graph.bad_name"}


async def test_a_file_that_is_no_graph_is_told_as_such(app):
    folder = app.plane.install.data / "graphs"
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(("{", "[]", '{"a": NaN}')):
        (folder / f"bad{number}.json").write_text(text)
        (await app.get(f"/api/graph/load/bad{number}")).refused(400, "graph.invalid")
    assert len((await app.get("/api/graph/list")).json) == 3


async def test_examples_are_listed_and_loaded_by_their_path(app, graph):
    folder = app.plane.install.examples / "Vision"
    folder.mkdir(parents=True)
    (folder / "one.graph.json").write_text(json.dumps(graph(name="One", description="Two nodes")))
    row = (await app.get("/api/examples/list")).json[0]
    assert (row["name"], row["category"], row["node_count"], row["edge_count"]) == ("One", "Vision", 2, 1)
    assert (await app.get("/api/examples/load", params={"path": row["path"]})).json["name"] == "One"
    for path in ("nothing.graph.json", "../user/session.token", "x"):
        answer = await app.get("/api/examples/load", params={"path": path})
        assert answer.json["code"] in {"example.not_found", "files.bad_name"}
    (await app.get("/api/examples/load")).refused(400, "request.invalid")
