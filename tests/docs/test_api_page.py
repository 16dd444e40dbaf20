"""``docs/api.md`` against routes, error codes, rows and metrics."""

import re
from pathlib import Path
from unittest.mock import Mock

import pytest

from codefyui_core.control.api.metrics import HttpMetrics, PlaneCollector
from codefyui_core.control.app import core_routes
from codefyui_core.control.db.tables import artifacts
from codefyui_core.control.files.uploads import EXTENSIONS
from codefyui_core.control.runs.reading import FIRST_ROWS, ROW_INTERVAL_S
from codefyui_core.control.runs.views import artifact_json, run_row, shown_runs
from codefyui_core.errors import STATUS_BY_CODE
from codefyui_core.plugin.http import Auth, Route
from codefyui_core.plugin.storage import Place
from codefyui_core.settings import ControlSettings, Install

TEXT = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
NEEDS = {
    Auth.OPEN: "nothing",
    Auth.SESSION: "session",
    Auth.ENROLLMENT: "enrollment",
    Auth.RUN_WORKER: "run worker",
}
TWINS = re.compile(r"/api/(images|models)/")
"""The page shows the routes of one family of files for all three."""


@pytest.fixture
def routes(tmp_path: Path) -> list[Route]:
    install = Install.find(environ={"CODEFYUI_USER_DATA_DIR": str(tmp_path)})
    plane = Mock(install=install, settings=ControlSettings(), http_metrics=HttpMetrics())
    plane.workers.unacknowledged_bytes.return_value = 0
    numbers = {"counts": {}, "waiting": {}, "slots": {}, "committed": (0, 0.0, 0)}
    plane.runs = Mock(**{f"{name}.return_value": value for name, value in numbers.items()})
    return [owned.route for owned in core_routes(plane)]


def test_every_route_has_a_row_that_says_who_may_call_it(routes: list[Route]) -> None:
    shown = dict(re.findall(r"^\| `([A-Z]+ /\S+)` \| ([a-z ]+) \|", TEXT, re.MULTILINE))
    there = {
        f"{route.method} {re.sub(r':.[^}]*', '', route.path)}": NEEDS[route.auth]
        for route in routes
        if not TWINS.match(route.path)
    }
    assert shown == there


def test_the_families_of_files_have_the_same_routes(routes: list[Route]) -> None:
    paths: dict[str, set[tuple[str, str]]] = {family.value: set() for family in EXTENSIONS}
    for route in routes:
        family, _, rest = route.path.removeprefix("/api/").partition("/")
        if family in paths:
            paths[family].add((route.method, rest))
    assert paths["files"] == paths["images"] == paths["models"] != set()


def test_every_error_code_is_there_with_its_status_and_no_other_is() -> None:
    shown = re.findall(r"^\| `([a-z_.]+)` \| (\d+) \|", TEXT, re.MULTILINE)
    assert {code: int(status) for code, status in shown} == dict(STATUS_BY_CODE)
    assert len(shown) == len(STATUS_BY_CODE)


def test_extensions_of_uploads_are_those_that_are_taken() -> None:
    for family, extensions in EXTENSIONS.items():
        row = re.search(rf"^\| `{family.value}` \| (.+) \|$", TEXT, re.MULTILINE)
        assert row is not None
        assert set(re.findall(r"`(\.\w+)`", row[1])) == extensions


def test_every_field_of_a_run_is_explained() -> None:
    table = TEXT.partition("### The row of a run")[2].partition("###")[0]
    shown = {name for cell in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in _words(cell)}
    row = Mock(_mapping={column.name: None for column in shown_runs().selected_columns})
    assert shown == set(run_row(row, position=None, reason=None))


def test_every_field_of_an_artifact_is_named() -> None:
    row = Mock(**{column.name: None for column in artifacts.c})
    shown = set(_words(TEXT.partition("A row of an artifact:")[2].partition("Metrics:")[0]))
    assert set(artifact_json(row, Place(path=None))) <= shown


def test_the_stream_begins_with_as_many_runs_as_the_page_says() -> None:
    assert f"the {FIRST_ROWS} newest runs" in TEXT
    assert ROW_INTERVAL_S == 0.1


def test_every_metric_has_a_row_with_its_labels() -> None:
    plane = Mock()
    plane.runs.committed.return_value = (0, 0.0, 0)
    plane.runs.numbers.counts.return_value = {"queued": 0}
    plane.runs.numbers.waiting.return_value = {"server/cpu": 0}
    plane.runs.numbers.slots.return_value = {("server", "cpu"): (0, 2)}
    plane.workers.unacknowledged_bytes.return_value = 0
    of_plane, http = PlaneCollector(plane), HttpMetrics()
    of_plane.workers = {"online": 0}
    http.requests.labels("/api/health", "200").inc()
    found = {
        sample.name: set(sample.labels)
        for metric in (*of_plane.collect(), *http.registry.collect())
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }
    rows = re.findall(r"^\| `(codefyui_\w+)` \|(.*?)\|", TEXT, re.MULTILINE)
    assert {name: set(_words(labels)) for name, labels in rows} == found


def _words(text: str) -> list[str]:
    return re.findall(r"`([a-z_0-9]+)`", text)
