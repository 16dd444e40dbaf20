"""The main job, as a newcomer types it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_site import Site, metrics

pytestmark = pytest.mark.service
TORCH_NODES = True


@pytest.fixture
def home(site: Site) -> Iterator[Site]:
    """The processes that quickstart starts are detached: whatever the test finds, they are stopped."""
    yield site
    assert site.spawn("last", ["-m", "codefyui_core.cli", "stop"], user_data=site.user_data).wait(60) == 0


@pytest.mark.timeout(300)
def test_quickstart_trains_a_model_on_a_worker_and_stop_ends_both(home: Site) -> None:
    site = home
    words = ["-m", "codefyui_core.cli", "quickstart"]
    first = site.spawn("quickstart", words, user_data=site.user_data)
    assert first.wait(240) == 0, first.said()
    said = first.said()
    assert "val_accuracy" in said
    assert site.url in said
    runs = site.get("/api/runs")["runs"]
    assert len(runs) == 1
    run_id = runs[0]["id"]
    row = site.run(run_id)
    assert row["status"] == "succeeded"
    assert row["worker"] is not None
    assert row["final_metrics"]["val_accuracy"] > 0.95
    events = site.events(run_id)
    assert len(metrics(events, "train_loss")) == 20
    assert len(metrics(events, "val_accuracy")) == 20
    artifacts = site.get(f"/api/runs/{run_id}/artifacts")
    kinds = [artifact["kind"] for artifact in artifacts]
    assert kinds.count("checkpoint") == 4
    assert kinds.count("output") == 1
    for artifact in artifacts:
        assert artifact["state"] == "stored"
        assert Path(artifact["path"]).stat().st_size == artifact["size_bytes"] > 0
    model = next(artifact for artifact in artifacts if artifact["kind"] == "output")
    assert model["path"] in said.replace("\n", "")

    again = site.spawn("quickstart", words, user_data=site.user_data)
    assert again.wait(240) == 0, again.said()
    assert len(site.get("/api/workers")["workers"]) == 1
    assert len(site.get("/api/runs")["runs"]) == 2

    stop = site.spawn("stop", ["-m", "codefyui_core.cli", "stop"], user_data=site.user_data)
    assert stop.wait(60) == 0, stop.said()
    assert not (site.user_data / "server.json").exists()
    assert not list(site.user_data.glob("agent/*.pid"))
    status = site.spawn("status", ["-m", "codefyui_core.cli", "status"], user_data=site.user_data)
    assert status.wait(30) == 1
