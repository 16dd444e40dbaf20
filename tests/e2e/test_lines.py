"""What the line promises, seen on real processes: silence is noticed, and graces run out."""

import os
import signal

import psutil
import pytest
from e2e_site import Site, graph, wait_for

pytestmark = pytest.mark.service


def test_a_worker_that_does_not_come_back_ends_its_run_interrupted_after_the_grace(site: Site) -> None:
    site.start_server(CODEFYUI_WORKER_RESUME_GRACE_S="3")
    agent = site.start_agent("box")
    run_id = site.submit(graph("TrialCount", {"n": 100000, "pause_ms": 5}), target="box")
    site.wait_status(run_id, "running")
    agent.kill()
    site.wait_status(run_id, "disconnected", "interrupted")
    row = site.wait_end(run_id, 60)
    assert (row["status"], row["cause"]) == ("interrupted", "lease_lost")
    kinds = [event["payload"].get("kind") for event in site.events(run_id) if event["type"] == "run_warning"]
    assert kinds == ["worker_disconnected"]


@pytest.mark.timeout(180)
def test_a_stopped_agent_process_is_noticed_by_its_silence(site: Site) -> None:
    site.start_server()
    agent = site.start_agent("box")
    frozen = [psutil.Process(agent.pid), *agent.descendants()]
    for process in frozen:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        wait_for(lambda: site.worker("box")["status"] == "offline", 60, "offline after 30 s of silence")
    finally:
        for process in frozen:
            os.kill(process.pid, signal.SIGCONT)
    wait_for(lambda: site.worker("box")["status"] == "online", 60, "online again")
    run_id = site.submit(graph("TrialCount", {"n": 2}), target="box")
    site.wait_status(run_id, "succeeded")


def test_a_removed_worker_ends_with_status_2_and_its_run_at_once(site: Site) -> None:
    site.start_server()
    agent = site.start_agent("box")
    run_id = site.submit(graph("TrialCount", {"n": 100000, "pause_ms": 5}), target="box")
    site.wait_status(run_id, "running")
    site.api().call("DELETE", "/api/workers/box")
    assert site.run(run_id)["status"] == "interrupted"
    assert agent.wait(40) == 2
    assert "revoked" in agent.said()
    assert site.worker("box")["status"] == "absent"
