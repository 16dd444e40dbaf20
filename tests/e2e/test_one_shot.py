"""One-shot agents with real processes: what a batch job sees of them."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from e2e_site import Process, Site, gapless, graph, wait_for

pytestmark = pytest.mark.service

POOL = {"pool": "one-shot", "device": "cpu"}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server, and no worker. Without the nodes of torch, jobs start within a second."""
    settings = {"CODEFYUI_RUN_ZYGOTE": "0", "CODEFYUI_PLUGINS_ONLY": "builtin"}
    made = Site(root=tmp_path_factory.mktemp("once"), settings=settings)
    try:
        made.start_server()
        made.keep_port()
        yield made
    finally:
        made.aclose()


def start(site: Site, name: str, *words: str, **env: str) -> Process:
    """``cdui agent start --one-shot`` in the folder of a name; enrolls when that has no credential."""
    user_data = site.root / f"agent-{name}"
    line = ["-m", "codefyui_core.cli", "agent", "start", "--one-shot", "--control", site.url]
    if not list(user_data.glob("agent/*.token")) and "--token" not in words:
        line += ["--token", site.enroll_token(), "--name", name]
    return site.spawn(f"agent-{name}", [*line, *words], user_data=user_data, **env)


def connected(site: Site, name: str, agent: Process) -> None:
    def there() -> bool:
        assert agent.popen.poll() is None, agent.said()
        return bool(site.worker(name).get("connected"))

    wait_for(there, 90, f"{name} to be connected:\n{agent.said()}")


def count(site: Site, n: int = 1, **options: Any) -> str:
    return site.submit(graph("TrialCount", {"n": n}), **options)


@pytest.mark.spec("oneshot/takes-one-run-and-exits", "oneshot/pool-target", "oneshot/next-agent-same-name")
@pytest.mark.spec("oneshot/exit-0-success-recorded", "oneshot/pool-never-refused-for-lack")
@pytest.mark.spec("oneshot/always-foreground", "oneshot/no-pidfile", "oneshot/exit-1-run-not-successful")
@pytest.mark.spec("oneshot/run-id-takes-only-that-run", "oneshot/pool-fifo-per-device-kind")
@pytest.mark.point(40)
def test_job_after_job_takes_one_run_and_its_status_says_how_it_went(once: Site) -> None:
    first = count(once, target=POOL)
    second = once.submit(graph("TrialEnd", {"how": "raise"}), target={"pool": "one-shot"})
    third = count(once, target=POOL)
    assert once.run(first)["queue_reason_code"] == "queue.one_shot"
    job = start(once, "n1", "--run-id", third)
    assert job.wait(90) == 0, job.said()
    assert once.run(third)["status"] == "succeeded"
    assert [once.run(one)["status"] for one in (first, second)] == ["queued", "queued"]
    row = once.worker("n1")
    assert (row["status"], row["one_shot"], row["one_shot_run"]) == ("offline", True, third)
    assert not list(once.root.glob("agent-n1/agent/*.pid"))
    job = start(once, "n1")
    assert job.wait(90) == 0, job.said()
    assert (once.run(first)["status"], once.run(second)["status"]) == ("succeeded", "queued")
    job = start(once, "n1")
    assert job.wait(90) == 1, job.said()
    assert once.run(second)["status"] == "failed"


@pytest.mark.spec("oneshot/exit-3-stopped-before-run", "slurm/sigterm-interrupts-run-exit-1")
@pytest.mark.spec("oneshot/named-target", "oneshot/any-never-selects-it", "oneshot/exit-2-name-held")
@pytest.mark.spec("oneshot/pool-target-device-kind", "oneshot/exit-2-bad-run-id")
def test_what_stops_or_refuses_a_job_is_told_by_its_status(once: Site, tmp_path: Path) -> None:
    anywhere = count(once, target="any")
    big = count(once, target={"pool": "one-shot", "device": "cuda"})
    waiting = start(once, "n2")
    connected(once, "n2", waiting)
    second = start(once, "n2")
    assert second.wait(60) == 2, second.said()
    waiting.popen.send_signal(signal.SIGINT)
    assert waiting.wait(40) == 3, waiting.said()
    assert (once.worker("n2")["one_shot"], once.worker("n2")["one_shot_run"]) == (True, None)
    named = once.submit(graph("TrialHold", {"file": str(tmp_path / "never")}), target={"worker": "n2"})
    busy = start(once, "n2")
    once.holding(named)
    elsewhere = start(once, "n1", "--run-id", named)
    assert elsewhere.wait(60) == 2
    assert "was given to worker n2 already" in elsewhere.said()
    busy.popen.terminate()
    assert busy.wait(40) == 1, busy.said()
    assert once.run(named)["status"] == "interrupted"
    assert {once.run(one)["status"] for one in (anywhere, big)} == {"queued"}
    for run_id in (anywhere, big):
        once.post(f"/api/runs/{run_id}/cancel")


@pytest.mark.spec("oneshot/exit-2-wrong-flag", "instance/one-shot-only", "oneshot/exit-4-could-not-start")
def test_a_wrong_flag_is_2_and_a_token_that_does_not_enroll_is_4(once: Site) -> None:
    jobs = {
        2: once.spawn(
            "wrong",
            [
                "-m",
                "codefyui_core.cli",
                "agent",
                "start",
                "--instance",
                "a",
                "--control",
                "http://127.0.0.1:9",
            ],
            user_data=once.root / "agent-wrong",
        ),
        4: start(once, "late", "--token", "abcdef.0123456789abcdef"),
    }
    for status, job in jobs.items():
        assert job.wait(60) == status, job.said()
    assert "--one-shot" in jobs[2].said()
    assert not (once.root / "agent-wrong" / "agent").exists()
    assert once.worker("late")["status"] == "absent"


@pytest.mark.spec("oneshot/drop-keeps-run-and-reconnects", "oneshot/exits-only-after-ack")
@pytest.mark.spec("oneshot/refused-while-run-in-flight", "oneshot/one-shot-record-persisted")
@pytest.mark.spec("instance/exclusive-after-restart")
@pytest.mark.point(23)
def test_a_job_outlives_the_server_and_a_killed_one_is_settled_by_the_next(
    once: Site, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    run_id = once.submit(graph("TrialHold", {"file": str(gate)}), target=POOL)
    job = start(once, "n1")
    once.holding(run_id)
    assert once.server is not None
    once.server.kill()
    gate.touch()
    wait_for(lambda: not job.descendants(), 60, "the run's end")
    assert job.popen.poll() is None
    once.start_server()
    assert job.wait(60) == 0, job.said()
    assert once.run(run_id)["status"] == "succeeded"
    assert gapless(once.events(run_id))

    lost = once.submit(graph("TrialHold", {"file": str(tmp_path / "never")}), target=POOL)
    killed = start(once, "n1")
    once.holding(lost)
    killed.kill()
    stranger = once.root / "agent-copy" / "agent"
    stranger.mkdir(parents=True)
    for token in (once.root / "agent-n1" / "agent").glob("*.token"):
        (stranger / token.name).write_bytes(token.read_bytes())
    refused = start(once, "copy")
    assert refused.wait(60) == 2, refused.said()
    after = count(once, target=POOL)
    heir = start(once, "n1")
    assert heir.wait(90) == 0, heir.said()
    assert (once.run(lost)["status"], once.run(after)["status"]) == ("interrupted", "succeeded")


@pytest.mark.spec("instance/enroll-lock-single-use", "instance/takes-pool-or-own-named-run")
@pytest.mark.spec("instance/registers-as-name-dot-id", "instance/run-folder-deleted-on-exit")
@pytest.mark.spec("slurm/sample-script-works", "instance/default-id-array-task")
@pytest.mark.spec("instance/duplicate-id-exit-2")
@pytest.mark.point(41)
def test_tasks_of_an_array_share_a_token_of_one_use_and_take_a_run_each(once: Site, tmp_path: Path) -> None:
    tasks = range(4)
    token = once.enroll_token()
    words = ("--instance", "--name", "slurm", "--token", token)
    env = [
        {"SLURM_ARRAY_JOB_ID": "41", "SLURM_ARRAY_TASK_ID": str(task), "SLURM_JOB_ID": "43"} for task in tasks
    ]
    with ThreadPoolExecutor() as pool:
        jobs = list(pool.map(lambda one: start(once, "slurm", *words, **one), env))
    for task, job in zip(tasks, jobs, strict=True):
        connected(once, f"slurm.41-{task}", job)
    (left,) = [one["uses_left"] for one in once.get("/api/workers/tokens") if token.startswith(one["id"])]
    assert left == 0
    twin = start(once, "slurm", *words, **env[0])
    assert twin.wait(60) == 2, twin.said()
    named = once.submit(graph("TrialHold", {"file": str(tmp_path / "gate")}), target="slurm.41-3")
    once.holding(named)
    runs = [count(once, target=POOL) for _ in tasks[:-1]]
    assert [job.wait(90) for job in jobs[:-1]] == [0, 0, 0]
    assert {once.run(one)["worker"] for one in runs} == {f"slurm.41-{task}" for task in tasks[:-1]}
    (tmp_path / "gate").touch()
    assert jobs[-1].wait(60) == 0, jobs[-1].said()
    assert once.run(named)["status"] == "succeeded"
    assert not list((once.root / "agent-slurm" / "agent-instances").iterdir())
