"""Endings told apart: by the process's own word, by signals, and by what the kernel counted."""

import signal

import pytest

from codefyui_core.runs.conclude import Evidence, conclude
from codefyui_core.runs.status import Cause, Outcome


@pytest.mark.parametrize(
    ("evidence", "cause", "error"),
    [
        (Evidence(outcome=Outcome.FAILED, error="it broke"), Cause.USER_CODE, "it broke"),
        (
            Evidence(outcome=Outcome.FAILED, error="no room", cause=Cause.DISK_FULL),
            Cause.DISK_FULL,
            "no room",
        ),
        (
            Evidence(outcome=Outcome.FAILED, error="a worker was killed", cause=Cause.SIGNAL, exit_code=1),
            Cause.SIGNAL,
            "a worker was killed",
        ),
        (
            Evidence(
                outcome=Outcome.FAILED,
                error="a worker was killed",
                cause=Cause.SIGNAL,
                exit_code=1,
                out_of_memory=True,
            ),
            Cause.HOST_OOM,
            "a worker was killed: out of memory",
        ),
        (
            Evidence(outcome=Outcome.FAILED, error="it broke", exit_code=1, out_of_memory=True),
            Cause.USER_CODE,
            "it broke",
        ),
        (
            Evidence(signal=signal.SIGKILL, out_of_memory=True),
            Cause.HOST_OOM,
            "run subprocess exited with code -9: out of memory",
        ),
        (Evidence(signal=signal.SIGKILL), Cause.SIGNAL, "run subprocess exited with code -9"),
        (
            Evidence(exit_code=3, out_of_memory=True),
            Cause.USER_CODE,
            "run subprocess exited with code 3",
        ),
    ],
)
def test_a_failure_has_its_cause_and_its_words(evidence, cause, error):
    conclusion = conclude(evidence)
    assert (conclusion.status, conclusion.cause, conclusion.error) == ("failed", cause, error)
