"""Exit statuses, and how errors are shown: a message on standard error, a traceback only on demand."""

import os
import sys
import traceback
from collections.abc import Callable
from enum import IntEnum
from typing import ClassVar

import click

from ..errors import CodefyError, LinkProblem, UsageProblem


class ExitCode(IntEnum):
    """What the status of ``cdui`` means."""

    OK = 0
    FAILED = 1
    USAGE = 2
    STOP_SERVER_FIRST = 3
    ONE_SHOT_START = 4
    INTERRUPTED = 130


class CommandProblem(CodefyError):
    """A command can't go on; the message is shown and the process ends with ``exit_code``."""

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED


class NoServer(CommandProblem):
    """A command needs the running server."""

    def __init__(self) -> None:
        super().__init__("No server is running here. Start it with: cdui start")


class StopServerFirst(CommandProblem):
    """A command changes what a running server uses."""

    exit_code: ClassVar[ExitCode] = ExitCode.STOP_SERVER_FIRST


class OneShotStart(CommandProblem):
    """A one-shot agent can't start here."""

    exit_code: ClassVar[ExitCode] = ExitCode.ONE_SHOT_START


def run_explained(command: Callable[[], object]) -> int:
    """Call a command; what it raises becomes text on standard error. The answer is the exit status: an
    integer that the command returns, else 0.
    """
    try:
        answer = command()
    except BrokenPipeError:
        _let_go_of_output()
        return ExitCode.FAILED
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted.", err=True)
        return ExitCode.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except CodefyError as error:
        click.echo(shown(error), err=True)
        return exit_code_of(error)
    except Exception as error:
        click.echo(_unexpected(error), err=True)
        return ExitCode.FAILED
    return answer if isinstance(answer, int) else ExitCode.OK


def exit_code_of(error: CodefyError) -> int:
    """The status of the process for an error that a command raised."""
    if isinstance(error, CommandProblem):
        return error.exit_code
    if isinstance(error, UsageProblem):
        return ExitCode.USAGE
    if isinstance(error, LinkProblem) and error.exit_code is not None:
        return error.exit_code
    return ExitCode.FAILED


def shown(error: CodefyError) -> str:
    """The message, with the code where it is one that can be looked up."""
    return f"{error.message} [{error.code}]" if "." in error.code else error.message


def _unexpected(error: Exception) -> str:
    if os.environ.get("CODEFYUI_DEBUG"):
        return "".join(traceback.format_exception(error))
    return (
        f"An error of CodefyUI itself: {type(error).__name__}: {error}\n"
        "Run the command again with CODEFYUI_DEBUG=1 for the details, and report them."
    )


def _let_go_of_output() -> None:
    """The reader has gone: nothing more may be written, not even at the interpreter's end."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
