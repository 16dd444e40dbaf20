"""kill -9 of each process in the middle of a run: honest endings, no event lost or doubled, no orphan."""

import os
import signal
from pathlib import Path

import psutil
import pytest
from e2e_site import Site, gapless, graph, metrics, wait_for

pytestmark = pytest.mark.service


def counted(site: Site, run_id: str, at_least: int) -> list[float]:
    """The stored counts, once there are some."""

    def enough() -> list[float] | None:
        values = metrics(site.events(run_id), "count")
        return values if len(values) >= at_least else None

    found = wait_for(enough, 90, f"{at_least} counts of {run_id}")
    return list(found)


@pytest.mark.point(21)
def test_a_killed_run_process_fails_its_run_and_nothing_else(site: Site, tmp_path: Path) -> None:
    site.start_server()
    site.start_agent("box")
    run_id = site.submit(graph("TrialHold", {"file": str(tmp_path / "never")}), target="box")
    pid = site.holding(run_id)
    os.kill(pid, signal.SIGKILL)
    row = site.wait_status(run_id, "failed", within_s=20)
    assert (row["signal"], row["cause"]) == (9, "signal")
    assert gapless(site.events(run_id))
    after = site.submit(graph("TrialCount", {"n": 2}), target="box")
    site.wait_status(after, "succeeded")


def test_a_killed_zygote_costs_no_run(site: Site, tmp_path: Path) -> None:
    site.start_server()
    agent = site.start_agent("box")
    gate = tmp_path / "gate"
    run_id = site.submit(graph("TrialHold", {"file": str(gate)}), target="box")
    site.holding(run_id)

    def zygotes() -> list[psutil.Process]:
        """Keepers and runs are forked from it and share its command line; its name is its own."""
        return [p for p in agent.descendants() if "zygote" in p.name()]

    for zygote in wait_for(zygotes, what="a zygote"):
        zygote.kill()
    gate.touch()
    site.wait_status(run_id, "succeeded")
    after = site.submit(graph("TrialCount", {"n": 2}), target="box")
    site.wait_status(after, "succeeded")


@pytest.mark.point(23)
def test_a_killed_agent_takes_its_runs_along_and_the_next_one_tells_the_end(site: Site) -> None:
    site.start_server()
    agent = site.start_agent("box")
    run_id = site.submit(graph("TrialCount", {"n": 100000, "pause_ms": 2}), target="box")
    before = counted(site, run_id, 50)
    processes = agent.descendants()
    agent.kill()
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert not alive, [p.cmdline() for p in alive]
    wait_for(lambda: site.run(run_id)["status"] == "disconnected", 40, "disconnected")
    site.start_agent("box")
    row = site.wait_end(run_id)
    assert (row["status"], row["cause"]) == ("interrupted", "lease_lost")
    events = site.events(run_id)
    assert gapless(events)
    values = metrics(events, "count")
    assert values[: len(before)] == before
    assert values == [float(n) for n in range(len(values))]
    after = site.submit(graph("TrialCount", {"n": 2}), target="box")
    site.wait_status(after, "succeeded")


@pytest.mark.point(22)
def test_a_run_that_ended_while_both_sides_were_down_is_told_as_soon_as_they_are_back(
    site: Site, tmp_path: Path
) -> None:
    server = site.start_server()
    site.keep_port()
    agent = site.start_agent("box")
    run_id = site.submit(graph("TrialHold", {"file": str(tmp_path / "never")}), target="box")
    site.holding(run_id)
    processes = agent.descendants()
    server.kill()
    agent.kill()
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert not alive, [p.cmdline() for p in alive]
    site.start_server()
    assert site.run(run_id)["status"] == "disconnected"
    site.start_agent("box")
    row = site.wait_end(run_id)
    assert (row["status"], row["cause"]) == ("interrupted", "lease_lost")
    assert gapless(site.events(run_id))
    after = site.submit(graph("TrialCount", {"n": 2}), target="box")
    site.wait_status(after, "succeeded")


@pytest.mark.spec("restart/duplicates-bounded-to-last-second")
def test_a_run_goes_on_while_the_control_plane_is_killed_and_comes_back(site: Site) -> None:
    site.start_server()
    site.keep_port()
    site.start_agent("box")
    run_id = site.submit(graph("TrialCount", {"n": 3000, "pause_ms": 2}), target="box")
    before = counted(site, run_id, 50)
    assert site.server is not None
    site.server.kill()
    site.start_server()
    row = site.wait_end(run_id)
    assert row["status"] == "succeeded", row
    events = site.events(run_id)
    assert gapless(events)
    values = metrics(events, "count")
    assert values == [float(n) for n in range(3000)]
    assert values[: len(before)] == before
    kinds = [event["payload"].get("kind") for event in events if event["type"] == "run_warning"]
    assert kinds.count("worker_disconnected") == 1
    assert kinds.count("worker_reconnected") == 1


def test_a_killed_control_plane_ends_its_own_runs_interrupted_and_keeps_the_queue(
    site: Site, tmp_path: Path
) -> None:
    server = site.start_server()
    gate = tmp_path / "gate"
    own = [site.submit(graph("TrialHold", {"file": str(gate)})) for _ in range(2)]
    for run_id in own:
        site.holding(run_id)
    waiting = site.submit(graph("TrialCount", {"n": 2}))
    processes = server.descendants()
    server.kill()
    _, alive = psutil.wait_procs(processes, timeout=5)
    assert not alive, [p.cmdline() for p in alive]
    site.start_server()
    for run_id in own:
        row = site.wait_end(run_id)
        assert row["status"] == "interrupted"
        assert gapless(site.events(run_id))
        assert site.events(run_id)[-1]["type"] == "execution_stopped"
    site.wait_status(waiting, "succeeded")


@pytest.mark.point(34)
def test_a_planned_restart_leaves_the_runs_of_workers_executing(site: Site) -> None:
    server = site.start_server()
    site.keep_port()
    site.start_agent("box")
    run_id = site.submit(graph("TrialCount", {"n": 3000, "pause_ms": 2}), target="box")
    counted(site, run_id, 20)
    site.post("/api/server/stop", {"runs": "keep"})
    assert server.wait(30) == 0
    site.start_server()
    assert site.wait_end(run_id)["status"] == "succeeded"
    assert metrics(site.events(run_id), "count") == [float(n) for n in range(3000)]


def test_a_graceful_stop_of_the_server_interrupts_the_runs_of_workers(site: Site, tmp_path: Path) -> None:
    server = site.start_server()
    site.keep_port()
    site.start_agent("box")
    run_id = site.submit(graph("TrialHold", {"file": str(tmp_path / "never")}), target="box")
    site.holding(run_id)
    site.post("/api/server/stop", {"runs": "stop"})
    assert server.wait(40) == 0
    site.start_server()
    row = site.wait_end(run_id)
    assert (row["status"], row["cause"]) == ("interrupted", "shutdown")


def test_a_graceful_stop_of_the_agent_ends_its_runs_cancelled(site: Site, tmp_path: Path) -> None:
    site.start_server()
    agent = site.start_agent("box")
    run_id = site.submit(graph("TrialHold", {"file": str(tmp_path / "never")}), target="box")
    site.holding(run_id)
    assert agent.terminate() == 0
    row = site.wait_end(run_id)
    assert (row["status"], row["cause"]) == ("cancelled", "shutdown")
    wait_for(lambda: site.worker("box")["status"] == "offline", 40, "offline")
