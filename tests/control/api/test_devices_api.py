"""How runs are admitted to single cards, over HTTP."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from codefyui_core.control.db.tables import workers
from codefyui_core.wire.messages import DeviceInfo


async def enroll(app, name):
    made = (await app.post("/api/workers/tokens", {})).json["token"]
    body = {"token": made, "name": name, "nonce": made[-16:], "machine_id": "m", "platform": "linux"}
    return await app.ask("POST", "/api/workers/enroll", token=None, json=body)


CARD = DeviceInfo(device="cuda:0", name="A card", uuid="GPU-a", memory_total_bytes=80 << 30)


@pytest.mark.spec("limits/memory-admission-opt-in")
async def test_a_card_of_the_server_is_set_to_share_its_memory(app, monkeypatch):
    monkeypatch.setattr(app.plane.runs._card_desk, "_measure", lambda devices: {"cuda:0": 7})
    app.plane.catalog.current = replace(app.plane.catalog.current, devices=(DeviceInfo(device="cpu"), CARD))
    path = "/api/system/devices/cuda:0"
    (await app.ask("PATCH", path, token="wrong", json={"policy": "memory"})).refused(403, "auth.token")
    (await app.ask("PATCH", path, json={"policy": "luck"})).refused(422, "request.schema")
    answer = await app.ask("PATCH", path, json={"policy": "memory"})
    assert answer.json == {"name": "server", "device": "cuda:0", "policy": "memory"}
    rows = {row["value"]: row for row in (await app.get("/api/system/devices")).json["devices"]}
    assert (rows["cuda:0"]["policy"], rows["cuda:0"]["memory_free_bytes"]) == ("memory", 7)
    assert rows["cpu"]["policy"] == "count"
    for device, status, code in (("cpu", 400, "request.invalid"), ("cuda:9", 404, "device.not_found")):
        refused = await app.ask("PATCH", f"/api/system/devices/{device}", json={"policy": "memory"})
        refused.refused(status, code)


@pytest.mark.spec("limits/memory-admission-opt-in")
async def test_a_card_of_a_worker_is_set_to_share_its_memory(app):
    await enroll(app, "box")
    async with app.plane.db.begin() as connection:
        devices = [CARD.model_dump(mode="json")]
        await connection.execute(update(workers).values(devices=devices))
    path = "/api/workers/BOX/devices/cuda:0"
    answer = await app.ask("PATCH", path, json={"policy": "memory"})
    assert answer.json == {"name": "BOX", "device": "cuda:0", "policy": "memory"}
    (row,) = (await app.get("/api/workers")).json["workers"]
    assert row["devices"][0]["policy"] == "memory"
    await app.ask("PATCH", path, json={"policy": "count"})
    (row,) = (await app.get("/api/workers")).json["workers"]
    assert row["devices"][0]["policy"] == "count"
    for name, device, code in (
        ("other", "cuda:0", "worker.not_found"),
        ("box", "cuda:9", "device.not_found"),
    ):
        refused = await app.ask("PATCH", f"/api/workers/{name}/devices/{device}", json={"policy": "memory"})
        refused.refused(404, code)
