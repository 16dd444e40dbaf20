"""The page of ``codefyui_observe``."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime

from codefyui_core.loading import Registry
from codefyui_core.plugin import RunChanged, RunId, RunStatus, RunView


def test_the_documented_observer_is_told(documented: Callable[[str], Registry]) -> None:
    registry = documented("codefyui_observe")
    run = RunView(id=RunId("1"), name="r", status=RunStatus.FAILED)
    for cause in ("host_oom", "", "host_oom"):
        registry.observe(RunChanged(run=run, at=datetime(2026, 1, 1, tzinfo=UTC), cause=cause))
    assert sys.modules["documented"].endings == {"host_oom": 2}
