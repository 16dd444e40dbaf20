"""stop and restart say what becomes of the runs before they do anything."""

import json
from pathlib import Path

import pytest

from codefyui_core.cli.client import Running

ROW = {
    "own": 1,
    "on_workers": 2,
    "waiting": 0,
    "waiting_with_secrets": 0,
    "durable": True,
    "if_kept": ["2 run(s) on workers go on.", "1 run(s) of this server end interrupted."],
    "if_stopped": ["2 run(s) on workers are stopped.", "1 run(s) of this server end interrupted."],
}


@pytest.fixture
def stopped(server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A server that answers; how it was stopped, once it was, and what had been printed by then."""
    server.write_down(tmp_path / "user")
    server.answer("GET", "/api/server/stop", ROW)
    running = Running(pid=1, url=server.url, boot_id="b1", version="0.1.0")
    stops = []

    def stop_server(found, *, keep_runs, token):
        stops.append((keep_runs, token, [(path, said) for _, path, said, _ in server.asked]))
        return True

    monkeypatch.setattr("codefyui_core.cli.server_process.live_server", lambda _folder: running)
    monkeypatch.setattr("codefyui_core.cli.server_process.stop_server", stop_server)
    monkeypatch.setattr("codefyui_core.cli.server_process.start_background", lambda *_, **__: running)
    return stops


@pytest.mark.parametrize(
    ("words", "keep", "lines"),
    [
        (("stop",), False, ROW["if_stopped"]),
        (("stop", "--keep-runs"), True, ROW["if_kept"]),
        (("restart",), True, ROW["if_kept"]),
    ],
)
def test_what_becomes_of_the_runs_is_said_before_the_server_is_stopped(cdui, stopped, words, keep, lines):
    ran = cdui(*words)
    assert (ran.status, ran.out.splitlines()[: len(lines)]) == (0, lines)
    assert stopped == [(keep, "tok", [("/api/server/stop", "tok")])]


@pytest.mark.parametrize("words", [("stop",), ("restart",)])
def test_the_numbers_are_in_the_json(cdui, stopped, words):
    said = json.loads(cdui(*words, "--json").out)
    assert said["runs"] == {name: value for name, value in ROW.items() if not name.startswith("if_")}


def test_a_server_that_can_not_be_asked_is_stopped_all_the_same(cdui, stopped, server):
    server.answers.clear()
    ran = cdui("stop")
    assert (ran.status, ran.out) == (0, "The server is stopped.\n")
    assert len(stopped) == 1


@pytest.mark.parametrize("project", [None, "/srv/p"])
def test_a_restart_works_in_the_project_that_the_server_was_started_with(
    cdui, stopped, server, monkeypatch, project
):
    began = []
    running = Running(pid=1, url=server.url, boot_id="b1", version="0.1.0", project=project)

    def start(arguments, **_):
        began.append(arguments[4:])
        return running

    monkeypatch.setattr("codefyui_core.cli.server_process.live_server", lambda _folder: running)
    monkeypatch.setattr("codefyui_core.cli.server_process.start_background", start)
    assert cdui("restart").status == 0
    assert began == [[] if project is None else ["--project", "/srv/p"]]


def test_a_server_that_works_elsewhere_is_not_taken_for_the_one_of_a_project(
    cdui, stopped, tmp_path, monkeypatch
):
    monkeypatch.setattr("codefyui_core.cli.server_process.healthy", lambda _running: True)
    assert cdui("start").status == 0
    ran = cdui("start", "--project", str(tmp_path))
    assert (ran.status, "cdui stop" in ran.err) == (3, True)
