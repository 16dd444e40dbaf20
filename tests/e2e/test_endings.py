"""How runs end that don't succeed: the cause, what is known beside it, and what a training leaves to go on from."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from e2e_site import Site, gapless, graph, metrics, wait_for

pytestmark = pytest.mark.service
TORCH_NODES = True
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-cnn.graph.json"
AFTER = {"evaluate", "save", "accuracy"}


def training(**params: Any) -> dict[str, Any]:
    """The digits example, without what follows the training; it goes on for longer than anybody waits."""
    document: dict[str, Any] = json.loads(EXAMPLE.read_text())
    document["nodes"] = [node for node in document["nodes"] if node["id"] not in AFTER]
    document["edges"] = [edge for edge in document["edges"] if edge["target"] not in AFTER]
    for node in document["nodes"]:
        if node["id"] == "training":
            node["data"]["params"] |= {"epochs": 100_000, "checkpoint_every": 0} | params
        if node["id"] == "train_batches":
            node["data"]["params"]["num_workers"] = params.pop("num_workers", 0)
    return document


def trains(site: Site, run_id: str) -> dict[str, Any]:
    """Waits for an epoch."""
    wait_for(
        lambda: metrics(site.events(run_id), "train_loss"), 120, f"an epoch of {run_id}: {site.run(run_id)}"
    )
    return site.run(run_id)


def run_process(above: psutil.Process) -> list[psutil.Process]:
    return [one for one in above.children(recursive=True) if one.name() == "cdui-run"]


def checkpoint_of(site: Site, run_id: str) -> Path:
    """The one that a stop wrote: recorded, named by run, node, epoch and batch, and there."""
    rows = site.get(f"/api/runs/{run_id}/artifacts")
    (row,) = [row for row in rows if row["kind"] == "checkpoint"]
    assert row["meta"]["interrupted"] is True
    epoch, batch = row["meta"]["epoch"], row["meta"]["batch"]
    path = site.data / "models" / "interrupted" / f"{run_id}-training-e{epoch}b{batch}.pt"
    assert path.is_file()
    assert Path(row["path"]).resolve() == path.resolve()
    return path


ENDINGS = {
    "raise": ("user_code", 1, None),
    "exit": ("user_code", 3, None),
    "term": ("signal", None, signal.SIGTERM),
    "kill": ("signal", None, signal.SIGKILL),
    "card_memory": ("cuda_oom", 1, None),
    "memory": ("host_oom", 1, None),
    "disk": ("disk_full", 1, None),
}


@pytest.mark.parametrize("target", ["box", "server"])
@pytest.mark.spec("service/subprocess-sigterm-ends-failed")
def test_every_failure_has_a_cause_an_exit_a_peak_and_the_last_words(shared_site: Site, target: str) -> None:
    runs = {how: shared_site.submit(graph("TrialFails", {"how": how}), target=target) for how in ENDINGS}
    for how, (cause, exit_code, number) in ENDINGS.items():
        row = shared_site.wait_end(runs[how])
        found = (how, row["status"], row["cause"], row["exit_code"], row["signal"])
        assert found == (how, "failed", cause, exit_code, number)
        assert f"the last words of {how}" in row["stderr_tail"]
        assert row["peak_memory_bytes"] > 1 << 20
        assert row["error"]
        events = shared_site.events(runs[how])
        assert gapless(events)
        assert (events[-1]["type"], events[-1]["payload"]["cause"]) == ("execution_error", cause)
    error = shared_site.run(runs["term"])["error"]
    assert error == "run subprocess exited with code -15"


@pytest.mark.parametrize("victim", ["rank", "loader"])
def test_a_killed_process_of_a_run_fails_it_with_the_signal_and_frees_its_slot(
    shared_site: Site, victim: str
) -> None:
    document = training(strategy="ddp", ranks=2) if victim == "rank" else training(num_workers=1)
    run_id = shared_site.submit(document, target="box")
    trains(shared_site, run_id)
    agent = psutil.Process(shared_site.processes[-1].pid)
    everything: set[psutil.Process] = set()

    def killed() -> bool:
        """A rank is a child of the process that ranks are forked from. A worker is the run's own, for an epoch."""
        for process in run_process(agent):
            below = process.children(recursive=True)
            everything.update([process, *below])
            for one in below:
                if (one.ppid() != process.pid) == (victim == "rank"):
                    one.kill()
                    return True
        return False

    wait_for(killed, what=f"a {victim} to kill")
    row = shared_site.wait_end(run_id, within_s=60)
    assert (row["status"], row["cause"]) == ("failed", "signal"), row["error"]
    assert "SIGKILL" in row["error"]
    _, alive = psutil.wait_procs(list(everything), timeout=30)
    assert not alive
    wait_for(lambda: shared_site.worker("box")["running"] == 0, what="box without runs")
    (cpu,) = [device for device in shared_site.worker("box")["devices"] if device["device"] == "cpu"]
    assert cpu["used"] == 0


@pytest.mark.spec("undefined/resume-from-interrupted")
def test_a_person_stops_a_training_and_another_run_goes_on_from_its_checkpoint(shared_site: Site) -> None:
    run_id = shared_site.submit(training(), target="box")
    trains(shared_site, run_id)
    shared_site.post(f"/api/runs/{run_id}/cancel")
    row = shared_site.wait_end(run_id)
    assert (row["status"], row["cause"], row["error"]) == ("cancelled", "cancelled", None)
    path = checkpoint_of(shared_site, run_id)
    epoch = int(path.stem.rpartition("-e")[2].partition("b")[0])
    resumed = shared_site.submit(training(epochs=epoch, resume_from=f"interrupted/{path.name}"), target="box")
    shared_site.wait_status(resumed, "succeeded")
    steps = [
        point["step"]
        for event in shared_site.events(resumed)
        if event["type"] == "metric"
        for point in event["payload"]["points"]
        if point["name"] == "train_loss"
    ]
    assert steps == [epoch]


@pytest.mark.spec("limits/worker-run-fresh-weights")
def test_a_training_begins_with_fresh_weights_each_time(shared_site: Site) -> None:
    first, second = [
        shared_site.submit(training(epochs=1), target="box", seed=7, device="cpu") for _ in range(2)
    ]
    losses = []
    for run_id in (first, second):
        shared_site.wait_status(run_id, "succeeded")
        losses.append(metrics(shared_site.events(run_id), "train_loss"))
    assert len(losses[0]) == 1
    assert losses[0] == losses[1]


def test_a_run_that_holds_the_interpreter_and_every_core_costs_its_worker_no_beat(
    shared_site: Site, tmp_path: Path
) -> None:
    """The worker answers for itself all the while, and takes another run."""
    gate = tmp_path / "gate"
    run_id = shared_site.submit(graph("TrialHoldsAll", {"file": str(gate)}), target="box")
    shared_site.holding(run_id)

    def told() -> int:
        """With each beat the agent tells how much memory is free, which never stands still."""
        return int(shared_site.worker("box")["devices"][0]["memory_free_bytes"])

    began = told()
    beside = shared_site.submit(graph("TrialCount", {"n": 100}), target="box")
    shared_site.wait_status(beside, "succeeded")
    wait_for(lambda: told() != began, 60, "a beat")
    assert shared_site.run(run_id)["status"] == "running"
    gate.touch()
    shared_site.wait_status(run_id, "succeeded")
    kinds = {event["payload"].get("kind") for event in shared_site.events(run_id)}
    assert "worker_disconnected" not in kinds


@pytest.mark.spec("service/sigterm-writes-interrupt-checkpoint")
@pytest.mark.spec("service/sigterm-run-ends-cancelled")
def test_a_stopped_agent_and_a_stopped_server_leave_the_checkpoints_of_their_trainings(site: Site) -> None:
    server = site.start_server()
    agent = site.start_agent("box")
    on_worker, own = [site.submit(training(), target=target) for target in ("box", "server")]
    for run_id in (on_worker, own):
        trains(site, run_id)
    os.kill(agent.pid, signal.SIGTERM)
    assert agent.wait(40) == 0
    row = site.wait_end(on_worker)
    assert (row["status"], row["cause"]) == ("cancelled", "shutdown")
    checkpoint_of(site, on_worker)
    site.post("/api/server/stop", {"runs": "stop"})
    assert server.wait(40) == 0
    site.start_server()
    row = site.wait_end(own)
    assert (row["status"], row["cause"]) == ("interrupted", "shutdown")
    checkpoint_of(site, own)
