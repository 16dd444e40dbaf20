"""What a worker is and isn't, on real processes."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from e2e_site import FINAL, Site, gapless, graph, metrics, wait_for

from codefyui_core.cli.client import ApiProblem

pytestmark = pytest.mark.service


@pytest.mark.spec("overview/worker-is-an-agent-process", "reach/single-url-suffices")
def test_an_agent_process_alone_makes_a_machine_a_worker(shared_site: Site) -> None:
    row = shared_site.worker("box")
    assert row["status"] == "online"
    assert row["devices"][0]["device"] == "cpu"
    assert row["version"]


@pytest.mark.spec("overview/receives-run-naming-it", "target/api-runs-options-target")
def test_a_run_that_names_a_worker_executes_there_and_its_events_come_home(shared_site: Site) -> None:
    run_id = shared_site.submit(graph("TrialCount", {"n": 500}), target={"worker": "box"})
    row = shared_site.wait_status(run_id, "succeeded")
    assert row["worker"] == "box"
    assert row["target"] == {"worker": "box"}
    assert row["queue_key"] == "box/cpu"
    events = shared_site.events(run_id)
    assert gapless(events)
    assert metrics(events, "count") == [float(n) for n in range(500)]
    assert events[0]["type"] == "execution_start"
    assert events[-1]["type"] == "execution_complete"


@pytest.mark.spec("overview/receives-run-for-any")
def test_a_run_for_any_goes_to_the_connected_worker(shared_site: Site) -> None:
    run_id = shared_site.submit(graph("TrialCount", {"n": 1}), target="any")
    assert shared_site.wait_status(run_id, "succeeded")["worker"] == "box"


def test_a_run_without_a_target_executes_on_the_server_itself(shared_site: Site) -> None:
    run_id = shared_site.submit(graph("TrialCount", {"n": 3}))
    row = shared_site.wait_status(run_id, "succeeded")
    assert row["worker"] is None
    assert row["target"] == {"server": True}
    assert metrics(shared_site.events(run_id), "count") == [0.0, 1.0, 2.0]


@pytest.mark.spec("overview/one-subprocess-per-run", "overview/worker-listens-on-no-port")
def test_each_run_has_a_process_of_its_own_that_ends_with_it_and_nothing_listens(
    shared_site: Site, tmp_path: Path
) -> None:
    agent = shared_site.processes[1]
    gates = [tmp_path / "a", tmp_path / "b"]
    runs = [shared_site.submit(graph("TrialHold", {"file": str(gate)}), target="box") for gate in gates]
    pids = [shared_site.holding(run_id) for run_id in runs]
    assert len(set(pids)) == 2
    below = {process.pid for process in agent.descendants()}
    assert set(pids) <= below
    for process in [psutil.Process(agent.pid), *agent.descendants()]:
        listening = [c for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
        assert all(c.laddr.ip in {"127.0.0.1", "::1"} for c in listening), listening
    for gate in gates:
        gate.touch()
    for run_id in runs:
        shared_site.wait_status(run_id, "succeeded")
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids), what="the run processes to be gone")


@pytest.mark.spec("overview/run-crash-is-contained", "overview/run-oom-kill-is-contained")
@pytest.mark.parametrize(
    ("how", "signal_number", "exit_code"), [("abort", 6, None), ("kill", 9, None), ("exit", None, 3)]
)
def test_a_run_that_crashes_ends_alone(
    shared_site: Site, tmp_path: Path, how: str, signal_number: int | None, exit_code: int | None
) -> None:
    gate = tmp_path / "gate"
    sibling = shared_site.submit(graph("TrialHold", {"file": str(gate)}), target="box")
    shared_site.holding(sibling)
    row = shared_site.wait_status(shared_site.submit(graph("TrialEnd", {"how": how}), target="box"), "failed")
    assert (row["signal"], row["exit_code"]) == (signal_number, exit_code)
    assert row["cause"] == ("signal" if signal_number else "user_code")
    assert row["error"].startswith("run subprocess exited with code")
    assert shared_site.worker("box")["status"] == "online"
    gate.touch()
    shared_site.wait_status(sibling, "succeeded")
    again = shared_site.submit(graph("TrialCount", {"n": 1}), target="box")
    shared_site.wait_status(again, "succeeded")


def test_an_allocation_beyond_memory_ends_that_run_alone(shared_site: Site) -> None:
    row = shared_site.wait_end(shared_site.submit(graph("TrialEnd", {"how": "memory"}), target="box"))
    assert row["status"] == "failed"
    assert "node" in row["error"]
    assert shared_site.worker("box")["status"] == "online"


def test_a_node_that_raises_fails_the_run_with_its_words_and_no_traceback(shared_site: Site) -> None:
    run_id = shared_site.submit(graph("TrialEnd", {"how": "raise"}), target="box")
    row = shared_site.wait_end(run_id)
    assert row["status"] == "failed"
    assert row["cause"] == "user_code"
    assert "it went wrong on purpose" in row["error"]
    assert "Traceback" not in row["error"]
    assert shared_site.events(run_id)[-1]["type"] == "execution_error"


def test_the_last_words_of_a_process_are_kept(shared_site: Site) -> None:
    row = shared_site.wait_end(shared_site.submit(graph("TrialEnd", {"how": "stderr"}), target="box"))
    assert row["exit_code"] == 4
    assert "the last words" in row["stderr_tail"]


def test_what_a_run_starts_ends_with_it(shared_site: Site) -> None:
    before = {process.pid for process in shared_site.processes[1].descendants()}
    shared_site.wait_status(
        shared_site.submit(graph("TrialEnd", {"how": "strays"}), target="box"), "succeeded"
    )

    def clean() -> bool:
        return {process.pid for process in shared_site.processes[1].descendants()} <= before

    wait_for(clean, what="no stray to be left")


@pytest.mark.spec("overview/worker-never-opens-database")
def test_the_agent_and_its_runs_never_open_the_database(shared_site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run_id = shared_site.submit(graph("TrialHold", {"file": str(gate)}), target="box")
    shared_site.holding(run_id)
    agent = shared_site.processes[1]
    for process in [psutil.Process(agent.pid), *agent.descendants()]:
        assert not [file.path for file in process.open_files() if ".db" in Path(file.path).name]
    home = shared_site.root / "agent-box"
    assert not [path for path in home.rglob("*") if path.suffix in {".db", ".sqlite"}]
    gate.touch()
    shared_site.wait_status(run_id, "succeeded")


@pytest.mark.spec("overview/queue-stays-on-control-plane")
def test_an_agent_knows_only_what_was_assigned_to_it(shared_site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    runs = [shared_site.submit(graph("TrialHold", {"file": str(gate)}), target="box") for _ in range(4)]
    for run_id in runs[:2]:
        shared_site.holding(run_id)
    waiting = [shared_site.run(run_id) for run_id in runs[2:]]
    assert [row["status"] for row in waiting] == ["queued", "queued"]
    assert [row["queue_position"] for row in waiting] == [1, 2]
    assert all(row["queue_reason"] for row in waiting)
    spools = shared_site.root / "agent-box" / "agent-spool"
    known = {path.name.partition(".")[0] for path in spools.rglob("*") if path.is_dir()}
    assert not known & set(runs[2:])
    assert set(runs[:2]) <= known
    gate.touch()
    for run_id in runs:
        shared_site.wait_status(run_id, "succeeded")


@pytest.mark.spec("overview/session-token-never-given-to-worker")
def test_the_session_token_is_in_no_file_of_the_agent(shared_site: Site) -> None:
    token = shared_site.token.encode()
    home = shared_site.root / "agent-box"
    files = [path for path in home.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if token in path.read_bytes()]


@pytest.mark.spec("overview/agent-always-dials-out")
def test_every_connection_between_them_was_opened_by_the_agent(shared_site: Site) -> None:
    port = int(shared_site.url.rpartition(":")[2])
    agent = psutil.Process(shared_site.processes[1].pid)
    established = [c for c in agent.net_connections("inet") if c.status == psutil.CONN_ESTABLISHED]
    assert established
    assert all(c.raddr.port == port for c in established)
    server = psutil.Process(shared_site.processes[0].pid)
    from_server = [
        c
        for c in server.net_connections("inet")
        if c.status == psutil.CONN_ESTABLISHED and c.laddr.port != port
    ]
    assert not from_server


@pytest.mark.spec("overview/assignment-fills-in-secrets")
def test_a_secret_reaches_the_node_and_no_file(shared_site: Site) -> None:
    secret = "s3cr3t-" + "x" * 40
    run_id = shared_site.submit(graph("TrialSecret", {"key": secret}), target="box")
    shared_site.wait_status(run_id, "succeeded")
    assert metrics(shared_site.events(run_id), "length") == [float(len(secret))]
    for path in shared_site.root.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path
    assert secret not in json.dumps(shared_site.run(run_id))


def test_a_stop_ends_a_run_cancelled(shared_site: Site, tmp_path: Path) -> None:
    run_id = shared_site.submit(graph("TrialHold", {"file": str(tmp_path / "never")}), target="box")
    shared_site.holding(run_id)
    answer = shared_site.post(f"/api/runs/{run_id}/cancel")
    assert answer["cancelled"]
    row = shared_site.wait_end(run_id)
    assert (row["status"], row["cause"]) == ("cancelled", "cancelled")
    assert shared_site.events(run_id)[-1]["type"] == "execution_stopped"
    again = shared_site.post(f"/api/runs/{run_id}/cancel")
    assert (again["status"], again["cancelled"]) == ("cancelled", False)


def test_a_queued_run_that_is_stopped_never_starts(shared_site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    holders = [shared_site.submit(graph("TrialHold", {"file": str(gate)}), target="box") for _ in range(2)]
    for run_id in holders:
        shared_site.holding(run_id)
    waiting = shared_site.submit(graph("TrialCount", {"n": 1}), target="box")
    shared_site.post(f"/api/runs/{waiting}/cancel")
    row = shared_site.wait_end(waiting)
    assert (row["status"], row["started_at"]) == ("cancelled", None)
    gate.touch()
    for run_id in holders:
        shared_site.wait_status(run_id, "succeeded")


def test_the_same_submission_twice_is_one_run(shared_site: Site) -> None:
    body = {"graph": graph("TrialCount", {"n": 1}), "submit_id": os.urandom(8).hex()}
    first = shared_site.post("/api/runs", body)
    second = shared_site.post("/api/runs", body)
    assert first["run_id"] == second["run_id"]
    shared_site.wait_end(first["run_id"])


def test_a_removed_run_is_gone_and_an_active_one_stays(shared_site: Site, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run_id = shared_site.submit(graph("TrialHold", {"file": str(gate)}))
    with pytest.raises(ApiProblem) as refused:
        shared_site.api().call("DELETE", f"/api/runs/{run_id}")
    assert refused.value.code == "run.active"
    gate.touch()
    assert shared_site.wait_end(run_id)["status"] in FINAL
    assert shared_site.api().call("DELETE", f"/api/runs/{run_id}")["deleted"]  # type: ignore[index,call-overload]
    with pytest.raises(ApiProblem) as missing:
        shared_site.run(run_id)
    assert missing.value.code == "run.not_found"


def test_signals_are_told_apart_from_exit_codes(shared_site: Site) -> None:
    row = shared_site.wait_end(shared_site.submit(graph("TrialEnd", {"how": "kill"})))
    assert (row["status"], row["signal"]) == ("failed", signal.SIGKILL)
