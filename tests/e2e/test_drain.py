"""An agent that was asked to stop after its runs, as a process of its own."""

import os
import signal
from pathlib import Path

import pytest
from e2e_site import Site, graph, wait_for

pytestmark = pytest.mark.service


def test_an_agent_that_drains_ends_with_0_when_its_run_is_done_and_takes_nothing_more(
    site: Site, tmp_path: Path
) -> None:
    site.start_server()
    agent = site.start_agent("box")
    gate = tmp_path / "gate"
    run_id = site.submit(graph("TrialHold", {"file": str(gate)}), target="box")
    site.holding(run_id)
    os.kill(agent.pid, signal.SIGUSR1)
    wait_for(lambda: not site.worker("box")["accepting"], 30, "the worker to take no more runs")
    waiting = site.submit(graph("TrialCount", {"n": 2}), target="box")
    gate.touch()
    assert agent.wait(60) == 0
    assert site.run(run_id)["status"] == "succeeded"
    assert site.run(waiting)["status"] == "queued"
    wait_for(lambda: site.worker("box")["status"] == "offline", 30, "offline")
