"""What a person sees of an error, and the status that scripts see."""

import click
import pytest

from codefyui_core.cli.errors import ExitCode, NoServer, OneShotStart, StopServerFirst, run_explained
from codefyui_core.errors import BadName, CodefyError, LinkProblem, StartProblem, UsageProblem


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (CodefyError("it broke"), 1, "it broke\n"),
        (BadName("no such name"), 1, "no such name [files.bad_name]\n"),
        (UsageProblem("--x and --y"), 2, "--x and --y\n"),
        (StartProblem("no folder"), 1, "no folder\n"),
        (StopServerFirst("stop it first"), 3, "stop it first\n"),
        (OneShotStart("no device"), 4, "no device\n"),
        (NoServer(), 1, "No server is running here. Start it with: cdui start\n"),
        (LinkProblem("wrong pin", exit_code=2), 2, "wrong pin [link.unreachable]\n"),
        (KeyboardInterrupt(), 130, "Interrupted.\n"),
        (click.Abort(), 130, "Interrupted.\n"),
    ],
)
def test_an_error_is_a_message_and_a_status(
    error: BaseException, status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise error

    assert run_explained(command) == status
    assert capsys.readouterr().err == text


def test_a_bug_shows_no_traceback_unless_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def command() -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.delenv("CODEFYUI_DEBUG", raising=False)
    assert run_explained(command) == ExitCode.FAILED
    short = capsys.readouterr().err
    assert "ZeroDivisionError: oops" in short
    assert "Traceback" not in short
    monkeypatch.setenv("CODEFYUI_DEBUG", "1")
    run_explained(command)
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "status"), [(None, 0), (5, 5), ("text", 0)])
def test_a_command_may_answer_with_a_status(answer: object, status: int) -> None:
    assert run_explained(lambda: answer) == status
