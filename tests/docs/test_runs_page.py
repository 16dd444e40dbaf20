"""``docs/runs.md`` against the words of the runs room and what is done with them."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from codefyui_core.control.runs import reasons
from codefyui_core.control.runs.worker_desk import REFUSALS, STOP_GRACE_S
from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs import sharing
from codefyui_core.runs.conclude import Evidence, conclude
from codefyui_core.runs.events import EventType, WarningKind
from codefyui_core.runs.status import Cause, StopReason
from codefyui_core.settings import ControlSettings

TEXT = (Path(__file__).parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table that begins with a heading."""
    found = re.search(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    assert found is not None, heading
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found.group(1).splitlines()]


@pytest.mark.parametrize(
    ("heading", "values"),
    [("status", RunStatus), ("cause", Cause), ("type", EventType), ("kind", WarningKind)],
)
def test_closed_lists_are_whole(heading: str, values: Iterable[str]) -> None:
    assert sorted(row[0].strip("`") for row in rows(heading)) == sorted(str(value) for value in values)


def test_every_reason_for_waiting_is_there() -> None:
    source = "".join(Path(one.__file__).read_text(encoding="utf-8") for one in (reasons, sharing))
    given = set(re.findall(r'code=f?"(queue\.\w+)"', source)) - {"queue.worker_"}
    given |= {f"queue.worker_{word}" for word in ("disabled", "drained")}
    assert {row[0].strip("`") for row in rows("code")} == given


def test_how_a_stopped_run_reads_depends_on_who_asked() -> None:
    by = {row[0]: row[1:] for row in rows("asked by")}
    asked = {
        "a person": [StopReason.USER],
        "the stop of its agent": [StopReason.AGENT_STOP],
        "the stop of the server": [StopReason.SERVER_STOP],
        "anything else: ended already at the server, credential revoked, agent restarted": [
            StopReason.LATE,
            StopReason.REVOKED,
            StopReason.AGENT_RESTARTED,
            StopReason.LOST_TUNNEL,
            StopReason.ONE_SHOT_STOP,
        ],
    }
    assert set(by) == set(asked)
    for who, stops in asked.items():
        for stop in stops:
            for cell, in_time in zip(by[who], (True, False), strict=True):
                ended = conclude(Evidence(stop_reason=stop, stopped_in_time=in_time))
                assert cell.partition(",")[0] == ended.status.value, (who, stop)


def test_numbers_are_those_of_the_code() -> None:
    settings = ControlSettings()
    assert STOP_GRACE_S == 10
    assert "still there after 10 s is\nkilled" in TEXT
    assert REFUSALS == 3
    assert "The third refusal fails the run" in TEXT
    assert f"The newest {settings.run_retention_keep_last} ended runs" in TEXT
    assert (settings.run_queue_max_concurrent_gpu, settings.run_queue_max_concurrent_cpu) == (1, 2)
