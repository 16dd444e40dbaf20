"""A planned restart that updates the server leaves the runs of its not yet updated agents alone."""

from contextlib import suppress

import pytest
from e2e_site import Site, gapless, graph, metrics, wait_for

from codefyui_core._version import __version__
from codefyui_core.cli.client import Running

pytestmark = pytest.mark.service

NEXT = "9.9.9"
UPDATED = f"""
import sys
import codefyui_core._version as version
version.__version__ = {NEXT!r}
from codefyui_core.control.serve import main
sys.exit(main(sys.argv[1:]))
"""


def start_updated_server(site: Site) -> None:
    """The same control plane under another version."""
    process = site.spawn("server", ["-c", UPDATED, "--port", site._port()], user_data=site.user_data)
    site.server = process

    def ready() -> bool:
        assert process.popen.poll() is None, process.said()
        running = Running.read(site.user_data)
        with suppress(Exception):
            return (
                running is not None
                and running.pid == process.pid
                and site.get("/api/health")["status"] == "ready"
            )
        return False

    wait_for(ready, 90, "the updated server")


@pytest.mark.point(34)
@pytest.mark.spec("version/mismatch-exit-is-error", "version/listed-under-refused-connections")
def test_a_run_of_an_agent_that_was_not_updated_yet_succeeds_with_all_its_events(site: Site) -> None:
    server = site.start_server()
    site.keep_port()
    agent = site.start_agent("box")
    run_id = site.submit(graph("TrialCount", {"n": 1200, "pause_ms": 3}), target="box")
    wait_for(lambda: len(metrics(site.events(run_id), "count")) >= 20, 90, "counts")
    site.post("/api/server/stop", {"runs": "keep"})
    assert server.wait(30) == 0
    start_updated_server(site)
    wait_for(lambda: site.get("/api/workers")["refused"], 60, "the refusal listed while the run goes on")
    waiting = site.submit(graph("TrialCount", {"n": 2}), target="box")
    assert site.wait_end(run_id)["status"] == "succeeded"
    events = site.events(run_id)
    assert gapless(events)
    assert metrics(events, "count") == [float(n) for n in range(1200)]
    assert agent.wait(40) == 2
    text = f"version mismatch: worker {__version__}, control plane {NEXT}"
    assert text in agent.said()
    assert [row["reason"] for row in site.get("/api/workers")["refused"]] == [text]
    assert site.run(waiting)["status"] == "queued"
