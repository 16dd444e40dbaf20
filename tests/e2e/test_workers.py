"""Control of workers with real processes: drain, remove, re-key, catalogs and fingerprints."""

from pathlib import Path
from typing import Any

import pytest
from e2e_site import NODES, Process, Site, graph, wait_for

pytestmark = pytest.mark.service

EXTRA = """
from codefyui_core.plugin import DataType, Node, Port

class Extra(Node):
    type = "TrialExtra"
    category = "Trial"
    outputs = (Port(name="value", type=DataType.SCALAR),)

    def execute(self, inputs, params, context):
        return {"value": 1.0}
"""


def cdui(site: Site, *words: str, user_data: Path | None = None) -> tuple[int, str]:
    process = site.spawn("cdui", ["-m", "codefyui_core.cli", *words], user_data=user_data or site.user_data)
    return process.wait(90), process.said()


def restart_killed(site: Site) -> None:
    site.keep_port()
    assert site.server is not None
    site.server.kill()
    site.start_server()


def connected(site: Site, name: str = "box") -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        row = site.worker(name)
        return row if row.get("connected") else None

    return dict(wait_for(there, 90, f"{name} to be connected"))


def start_again(site: Site, *words: str) -> Process:
    """An agent in the folder of box."""
    start = ["-m", "codefyui_core.cli", "agent", "start", "--foreground", "--control", site.url]
    return site.spawn("agent-box", [*start, *words], user_data=site.root / "agent-box")


def test_a_drained_worker_stays_drained_whichever_side_is_killed(site: Site) -> None:
    site.start_server()
    agent = site.start_agent("box")
    assert cdui(site, "workers", "drain", "box")[0] == 0
    agent.kill()
    restart_killed(site)
    site.start_agent("box")
    assert connected(site)["drained"]
    assert "(drained)" in cdui(site, "workers", "list")[1]
    run_id = site.submit(graph("TrialCount", {"n": 1}), target="box")
    reason = wait_for(lambda: site.run(run_id)["queue_reason_code"], 30, "a reason to wait")
    assert (reason, site.run(run_id)["status"]) == ("queue.worker_drained", "queued")
    assert cdui(site, "workers", "undrain", "box")[0] == 0
    site.wait_status(run_id, "succeeded")


@pytest.mark.spec("remove/running-agent-told-revoked", "remove/agent-stops-with-message")
@pytest.mark.spec("remove/agent-exit-status-2", "remove/later-start-refused", "remove/revokes-credential")
@pytest.mark.spec("remove/running-runs-interrupted", "remove/attempt-listed-as-refused")
def test_a_removed_worker_ends_with_2_and_never_comes_back(site: Site, tmp_path: Path) -> None:
    site.start_server()
    agent = site.start_agent("box")
    running = site.submit(graph("TrialHold", {"file": str(tmp_path / "never")}), target="box")
    site.holding(running)
    assert cdui(site, "workers", "remove", "box")[0] == 0
    assert site.run(running)["status"] == "interrupted"
    assert agent.wait(30) == 2
    assert "revoked" in agent.said()
    assert site.worker("box")["status"] == "absent"
    assert start_again(site).wait(60) == 2
    restart_killed(site)
    late = start_again(site)
    assert late.wait(60) == 2
    assert "revoked" in late.said()
    (refused,) = site.get("/api/workers")["refused"]
    assert (refused["name"], refused["code"]) == ("box", "revoked")


@pytest.mark.spec("rekey/old-credential-refused-as-revoked", "rekey/forget-needed-when-file-exists")
@pytest.mark.spec("rekey/command-includes-name", "rekey/keeps-worker-identity")
@pytest.mark.spec("remove/agent-stops-with-message", "remove/agent-exit-status-2")
def test_a_re_keyed_worker_needs_its_old_file_forgotten(site: Site, tmp_path: Path) -> None:
    site.start_server()
    agent = site.start_agent("box")
    before = site.worker("box")["id"]
    running = site.submit(graph("TrialHold", {"file": str(tmp_path / "never")}), target="box")
    site.holding(running)
    made = site.post("/api/workers/tokens", {"worker": "box"})
    assert made["command"].endswith(" --name box")
    elsewhere = ["-m", "codefyui_core.cli", "agent", "start", "--foreground", "--control", site.url]
    elsewhere += ["--token", made["token"], "--name", "box"]
    first = site.spawn("agent-new", elsewhere, user_data=site.root / "agent-new")
    assert agent.wait(60) == 2
    assert "revoked" in agent.said()
    row = site.wait_status(running, "interrupted", within_s=20)
    assert (row["cause"], row["worker_id"]) == ("credentials", before)
    assert connected(site)["id"] == before
    assert first.terminate() == 0

    token = site.enroll_token(worker="box")
    assert start_again(site, "--token", token, "--name", "box").wait(60) == 2
    (left,) = [one["uses_left"] for one in site.get("/api/workers/tokens") if token.startswith(one["id"])]
    assert left == 1
    assert cdui(site, "agent", "forget", site.url, user_data=site.root / "agent-box")[0] == 0
    start_again(site, "--token", token, "--name", "box")
    assert connected(site)["id"] == before
    assert [one["name"] for one in site.get("/api/workers")["workers"]] == ["box"]


@pytest.mark.spec("catalog/reports-types-and-hash", "catalog/reported-only-at-agent-start")
@pytest.mark.spec("catalog/restart-clears-degraded", "catalog/named-run-needs-all-types")
@pytest.mark.spec("fingerprint/digest-recorded-at-run-start", "fingerprint/run-subprocess-replaces-it")
@pytest.mark.spec("fingerprint/digests-equal-when-unchanged", "fingerprint/numerics-switches")
def test_a_worker_is_degraded_until_it_has_the_nodes_and_was_started_again(
    site: Site, tmp_path: Path
) -> None:
    site.settings.clear()  # the numerics are those of torch
    site.start_server()
    own = tmp_path / "own"
    own.mkdir()
    for file in NODES.glob("*.py"):
        (own / file.name).write_text(file.read_text())
    agent = site.start_agent("box", CODEFYUI_CUSTOM_NODES_DIR=str(own))
    first = connected(site)
    assert (first["status"], first["catalog"]["missing"]) == ("online", [])
    gate = tmp_path / "gate"
    run_id = site.submit(graph("TrialHold", {"file": str(gate)}), target="box")
    site.wait_status(run_id, "running")
    site.holding(run_id)
    assert site.run(run_id)["execution_facts"]["digest"] == first["fingerprint"]
    gate.touch()
    facts = site.wait_status(run_id, "succeeded")["execution_facts"]
    assert (facts["fingerprint_source"], facts["digest"]) == ("worker-run", first["fingerprint"])
    assert facts["fingerprint"]["codefyui"]["version"] == first["version"]
    assert facts["resolved"]["numerics"]["default_dtype"] == "float32"

    site.data.joinpath("custom_nodes", "extra.py").write_text(EXTRA)
    lacks = wait_for(
        lambda: (row := site.worker("box"))["status"] == "degraded" and row, 60, "box to be degraded"
    )
    assert lacks["catalog"]["missing"] == ["TrialExtra"]
    with pytest.raises(Exception, match="TrialExtra"):
        site.submit(graph("TrialExtra"), target="box")
    (own / "extra.py").write_text(EXTRA)
    restart_killed(site)
    assert connected(site)["status"] == "degraded"
    agent.terminate()
    site.start_agent("box", CODEFYUI_CUSTOM_NODES_DIR=str(own))
    assert connected(site)["status"] == "online"
    site.wait_status(site.submit(graph("TrialExtra"), target="box"), "succeeded")
