"""Runs whose files are carried, from their assignment to their end."""

import pytest

from codefyui_core.files import Family


@pytest.mark.spec(
    "transfer/per-run-data-folder",
    "transfer/input-copied-under-graph-name",
    "transfer/agent-cache-location-and-name",
    "transfer/progress-event-kind",
)
async def test_inputs_lie_in_the_runs_own_folder_under_the_names_of_the_graph(carried):
    train = carried.upload("tables/train.csv", b"x" * 1_258_291)
    model = carried.upload("base.pt", b"weights", Family.MODELS)
    await carried.line.agent()
    stored, process = await carried.begin("r1", train, model)
    data = carried.data()
    assert (data / "files/tables/train.csv").read_bytes() == b"x" * 1_258_291
    assert (data / "models/base.pt").read_bytes() == b"weights"
    assert {"images", "media", "files", "models"} <= {path.name for path in data.iterdir()}
    assert carried.cached() == sorted([train.sha256, model.sha256])
    go = process.went.result()
    assert go.folders.data == str(data)
    process.end("succeeded")
    await carried.ended(stored)
    details = [one["detail"] for one in carried.warnings(stored, "transfer_progress")]
    assert [detail.partition(":")[0] for detail in details] == ["fetching inputs 1/2", "fetching inputs 2/2"]
    assert any(detail.endswith(": tables/train.csv (1.2 MiB, fetched)") for detail in details)
    assert any(detail.endswith(": base.pt (7 B, fetched)") for detail in details)
    assert carried.artifacts(stored) == []


@pytest.mark.spec(
    "transfer/other-written-files-uploaded-after-run",
    "transfer/writer-outputs-have-kind-output",
    "transfer/outputs-uploaded-before-end-is-reported",
)
async def test_what_a_run_recorded_and_what_it_left_is_delivered_before_its_end(carried):
    await carried.line.agent()
    stored, process = await carried.begin()
    carried.write("models/epoch.pt", "epoch 1")
    carried.report(process, "models/epoch.pt", "a1")
    await carried.line.until(lambda: carried.artifacts(stored))
    carried.write("models/iris/model.pt", "weights")
    carried.write("output/plot.png", "pixels")
    carried.write("files/scratch.txt", "elsewhere")
    process.end("succeeded")
    await carried.ended(stored)
    rows = sorted(carried.artifacts(stored), key=lambda one: one["relative_path"])
    assert [(one["kind"], one["relative_path"], carried.sent(one["artifact_id"])) for one in rows] == [
        ("checkpoint", "models/epoch.pt", "epoch 1"),
        ("output", "models/iris/model.pt", "weights"),
        ("output", "output/plot.png", "pixels"),
    ]
    assert {(one["state"], one["backend"]) for one in rows} == {("stored", "folder")}
    assert rows[0]["receipt"]["size_bytes"] == 7
    assert [len(one["artifact_id"]) for one in rows[1:]] == [32, 32]
    assert stored.kinds[-1] == "end"
    assert stored.kinds.index("exited") < stored.kinds.index("end") - 2
    told = [one["detail"] for one in carried.warnings(stored, "transfer_progress")]
    assert [detail.partition(":")[0] for detail in told] == ["uploading outputs 1/2", "uploading outputs 2/2"]
    assert {detail.partition(": ")[2] for detail in told} == {
        "models/iris/model.pt (7 B, sent)",
        "output/plot.png (6 B, sent)",
    }
