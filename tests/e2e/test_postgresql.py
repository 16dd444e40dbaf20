"""The whole system on PostgreSQL."""

from pathlib import Path

import pytest
from e2e_site import Site, gapless, graph, metrics, wait_for

pytestmark = [pytest.mark.service, pytest.mark.needs("postgresql")]


def test_runs_on_a_worker_survive_a_killed_server_on_postgresql(
    site: Site, postgresql, tmp_path: Path
) -> None:
    url = postgresql.empty_database()
    site.start_server(CODEFYUI_DATABASE_URL=url)
    site.keep_port()
    site.start_agent("box")
    own = site.submit(graph("TrialCount", {"n": 300}))
    site.wait_status(own, "succeeded")
    assert metrics(site.events(own), "count") == [float(n) for n in range(300)]
    run_id = site.submit(graph("TrialCount", {"n": 2000, "pause_ms": 2}), target="box")
    wait_for(lambda: len(metrics(site.events(run_id), "count")) > 50, 60, "counts")
    assert site.server is not None
    site.server.kill()
    site.start_server(CODEFYUI_DATABASE_URL=url)
    site.wait_status(run_id, "succeeded")
    events = site.events(run_id)
    assert gapless(events)
    assert metrics(events, "count") == [float(n) for n in range(2000)]
    assert not list(site.root.rglob("*.db"))


def test_a_second_server_on_the_same_postgresql_refuses_to_start(site: Site, postgresql) -> None:
    url = postgresql.empty_database()
    site.start_server(ready=False, CODEFYUI_DATABASE_URL=url)
    second = site.spawn(
        "second",
        ["-m", "codefyui_core.control", "--port", "0"],
        user_data=site.root / "other",
        CODEFYUI_DATABASE_URL=url,
    )
    assert second.wait(40) == 1
    assert "Traceback" not in second.said()
    assert f"pid {site.processes[0].pid}" in second.said()
