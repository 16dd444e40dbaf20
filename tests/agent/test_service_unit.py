"""A unit that signals the runs of its agent behind the agent's back is noticed at start."""

import os

import pytest

from codefyui_core.agent.service_unit import kill_mode_problem

SYSTEM = "1:name=systemd:/system.slice/gpu.service\n0::/system.slice/gpu.service\n"
USER = "0::/user.slice/user-7.slice/user@7.service/app.slice/mine.service/cdui-supervisor\n"
LOGIN = "0::/user.slice/user-7.slice/user@7.service/init.scope\n"


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    """Answers what its file says, and writes down what it was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "systemctl").write_text('#!/bin/sh\necho "$@" > "$0.asked"\ncat "$0.answer"\n')
    (folder / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def problem(tmp_path, groups, **environ):
    (tmp_path / "cgroup").write_text(groups)
    return kill_mode_problem(environ, tmp_path / "cgroup")


@pytest.mark.parametrize(
    ("groups", "asked"),
    [
        (SYSTEM, "show --property=KillMode --value -- gpu.service"),
        (USER, "--user show --property=KillMode --value -- mine.service"),
    ],
)
def test_a_unit_that_signals_everything_is_named_with_what_to_change(tmp_path, systemctl, groups, asked):
    (systemctl / "systemctl.answer").write_text("control-group\n")
    text = problem(tmp_path, groups, INVOCATION_ID="7")
    assert "KillMode=mixed" in text
    assert asked.split()[-1] in text
    assert (systemctl / "systemctl.asked").read_text().strip() == asked
    (systemctl / "systemctl.answer").write_text("mixed\n")
    assert problem(tmp_path, groups, INVOCATION_ID="7") is None


def test_nothing_is_asked_outside_of_a_unit(tmp_path, systemctl):
    assert problem(tmp_path, SYSTEM) is None
    assert problem(tmp_path, LOGIN, INVOCATION_ID="7") is None
    assert problem(tmp_path, "0::/\n", INVOCATION_ID="7") is None
    assert not (systemctl / "systemctl.asked").exists()


def test_no_answer_is_no_problem(tmp_path, systemctl):
    assert problem(tmp_path, SYSTEM, INVOCATION_ID="7") is None
