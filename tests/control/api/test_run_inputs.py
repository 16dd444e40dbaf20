"""What a worker's run reads, by its hash: for that worker alone, and that run's files alone."""

from types import SimpleNamespace

import pytest

from codefyui_core.plugin.views import AttemptView

RUN, SHA = "r" * 32, "a" * 64


async def enrolled(app, name):
    token = (await app.post("/api/workers/tokens", {})).json["token"]
    body = {"token": token, "name": name, "nonce": "n" * 16, "machine_id": "m", "platform": "linux"}
    answer = (await app.ask("POST", "/api/workers/enroll", token=None, json=body)).json
    return answer["credential"], answer["worker_id"]


@pytest.fixture
async def held(app, monkeypatch):
    """A run that a worker executes, which reads an upload and an earlier run's checkpoint; and its credential."""
    credential, worker_id = await enrolled(app, "box")
    files = [
        ("files", "a b.csv", None, b"table", SHA),
        ("models", "x", "runs/r1/checkpoint/e3.pt", b"weights", "b" * 64),
    ]
    inputs = []
    for family, name, place, data, sha256 in files:
        path = app.plane.install.data / (place or f"{family}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        inputs.append(
            {"sha256": sha256, "size_bytes": len(data), "family": family, "name": name, "place": place}
        )
    ticket = {"inputs": inputs, "of_the_backend": 1}
    app.plane.runs.board.flights[RUN] = SimpleNamespace(now=SimpleNamespace(number=1, ticket=ticket))

    async def attempt_of(run_id):
        return AttemptView(run_id=RUN, number=1, worker_id=worker_id) if run_id == RUN else None

    monkeypatch.setattr(app.plane.runs, "attempt_of", attempt_of)
    yield credential
    del app.plane.runs.board.flights[RUN]


def by(credential, **more):
    return {"Authorization": f"Bearer {credential}", **more}


async def test_a_worker_gets_the_files_of_its_run_in_parts_too(app, held):
    path = f"/api/runs/{RUN}/inputs"
    assert (await app.get(f"{path}/{SHA}", headers=by(held))).body == b"table"
    rest = await app.get(f"{path}/{'b' * 64}", headers=by(held, Range="bytes=3-"))
    assert (rest.status, rest.body) == (206, b"ghts")


@pytest.mark.parametrize("sha256", ["c" * 64, "..", "%2e%2e%2fsession.token"])
async def test_what_the_run_does_not_read_is_not_there(app, held, sha256):
    answer = await app.get(f"/api/runs/{RUN}/inputs/{sha256}", headers=by(held))
    assert answer.status == 404


async def test_a_file_that_is_gone_is_said_to_be_gone(app, held):
    (app.plane.install.data / "files" / "a b.csv").unlink()
    answer = await app.get(f"/api/runs/{RUN}/inputs/{SHA}", headers=by(held))
    assert "a b.csv" in answer.refused(404, "files.not_found")["detail"]


async def test_nobody_else_gets_them(app, held):
    path = f"/api/runs/{RUN}/inputs/{SHA}"
    assert (await app.get(path)).status == 401
    assert (await app.ask("GET", path)).status == 401
    other, _ = await enrolled(app, "other")
    (await app.get(path, headers=by(other))).refused(403, "run.not_yours")
    (await app.get(f"/api/runs/{'0' * 32}/inputs/{SHA}", headers=by(held))).refused(403, "run.not_yours")


async def test_a_link_in_its_place_is_not_followed(app, held):
    file = app.plane.install.data / "files" / "a b.csv"
    file.unlink()
    file.symlink_to(app.plane.install.user_data / "session.token")
    answer = await app.get(f"/api/runs/{RUN}/inputs/{SHA}", headers=by(held))
    answer.refused(400, "files.bad_name")
