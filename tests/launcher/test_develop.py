"""``cdui check`` and ``cdui test``: what is run, and what is told at the end."""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdui_develop import main as develop
from cdui_develop.pytest_order import LONG, in_order
from cdui_develop.services import SERVICES, Service, install, missing, on_ci
from cdui_develop.stages import Stage, failed, print_table, run_stage
from cdui_develop.suites import suites
from cdui_develop.summary import counts, summary


def stage(
    code: str, *, name: str = "one", loud: bool = False, accepted: frozenset[int] = frozenset({0})
) -> Stage:
    command = [sys.executable, "-c", code]
    return Stage(name=name, command=command, cwd=Path.cwd(), loud=loud, accepted=accepted)


def test_a_passed_stage_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    result = run_stage(stage("print('details')"))
    assert (result.passed, result.last_line) == (True, "details")
    assert "\ndetails" not in capfd.readouterr().out


def test_a_failed_stage_shows_its_output(capfd: pytest.CaptureFixture[str]) -> None:
    result = run_stage(stage("print('details'); raise SystemExit(3)"))
    assert not result.passed
    assert "details" in capfd.readouterr().out


def test_a_loud_stage_shows_its_output_once(capfd: pytest.CaptureFixture[str]) -> None:
    run_stage(stage("print('details'); raise SystemExit(3)", loud=True))
    assert capfd.readouterr().out.count("\ndetails\n") == 1


def test_no_tests_collected_is_no_failure() -> None:
    assert run_stage(stage("raise SystemExit(5)", accepted=frozenset({0, 5}))).passed


def test_what_a_stage_compiles_is_kept_for_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert run_stage(stage("import sys; print(sys.dont_write_bytecode)")).last_line == "False"


def test_a_stopped_run_stops_what_it_runs(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    inner = (
        "import pathlib, time\n"
        "marks = pathlib.Path('marks'); (marks / 'started').touch()\n"
        "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    (marks / 'cleaned').touch()\n"
    )
    outer = (
        "import pathlib, signal, sys\n"
        "from cdui_develop.stages import Stage, run_stage\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        f"run_stage(Stage(name='x', command=[sys.executable, '-c', {inner!r}], cwd=pathlib.Path('.')))\n"
    )
    environ = os.environ | {"PYTHONPATH": str(Path(develop.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", outer], cwd=tmp_path, env=environ, stderr=subprocess.DEVNULL
    ) as process:
        deadline = time.monotonic() + 30
        while not (tmp_path / "marks" / "started").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.terminate()
        process.wait(30)
    assert (tmp_path / "marks" / "cleaned").exists()


def test_the_table_names_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    closing = "print('== 1 failed, 30 passed, 9 deselected, 2 rerun in 1.20s ==')"
    stages = [stage("", name="lint"), stage(f"{closing}; raise SystemExit(1)", name="tests")]
    results = [run_stage(one) for one in stages]
    assert "== tests: FAILED after " in capsys.readouterr().out
    print_table(results)
    lines = [line.split()[:-1] for line in capsys.readouterr().out.split("\n") if line]
    assert lines == [["stage", "result", "tests"], ["lint", "passed"], ["tests", "FAILED", "31"]]
    assert failed(results) == ["tests"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("===== 2 failed, 30 passed, 1 warning in 1.20s =====", {"failed": 2, "passed": 30, "warnings": 1}),
        (
            "10 passed, 3 deselected, 1 error in 61.02s (0:01:01)",
            {"passed": 10, "deselected": 3, "errors": 1},
        ),
        ("no tests ran in 0.01s", {}),
    ],
)
def test_closing_lines_are_read(line: str, expected: dict[str, int]) -> None:
    assert counts(line) == expected


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(1, 99)), min_size=1))
def test_closing_lines_add_up(runs: list[tuple[int, int]]) -> None:
    lines = [f"== {bad} failed, {good} passed in 1s ==" for bad, good in runs]
    found = counts(summary(lines, 2.0))
    assert (found["failed"], found["passed"]) == (sum(bad for bad, _ in runs), sum(good for _, good in runs))


def test_fast_leaves_out_services(tmp_path: Path) -> None:
    assert [one.name for one in suites(tmp_path, fast=True, extra=[])] == ["tests"]
    assert [one.name for one in suites(tmp_path, fast=False, extra=["-k", "x"])] == ["tests", "services"]


def test_modules_that_take_long_go_first_and_stay_together() -> None:
    nodes = ["plugins/x/a.py::one", "tests/docs/b.py::one", "tests/e2e/c.py::one", "tests/graph/d.py::one"]
    nodes += ["tests/graph/d.py::two", "tests/e2e/e.py::two", "tests/e2e/e.py::one"]
    items: Any = [SimpleNamespace(nodeid=node) for node in nodes]
    assert [item.nodeid for item in in_order(items)] == [
        *("tests/e2e/e.py::two", "tests/e2e/e.py::one", "tests/e2e/c.py::one", "tests/docs/b.py::one"),
        *("tests/graph/d.py::one", "tests/graph/d.py::two", "plugins/x/a.py::one"),
    ]


def test_what_was_collected_is_left_alone_by_the_garbage_collector() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_what_is_said_to_take_long_is_there() -> None:
    root = Path(develop.__file__).parents[2]
    assert [name for name in LONG if not (root / name).exists()] == []


def test_words_after_the_dashes_go_to_pytest(tmp_path: Path) -> None:
    assert all(one.command[-2:] == ["-k", "x"] for one in suites(tmp_path, fast=False, extra=["-k", "x"]))


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose editor has tests, on a machine with npm."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    (tmp_path / "web" / "node_modules").mkdir(parents=True)
    (tmp_path / "web" / "package.json").write_text('{"scripts": {"test": "vitest run"}}')
    return tmp_path


def test_the_editors_packages_are_installed_once(editor: Path) -> None:
    assert [one.name for one in suites(editor, fast=True, extra=[])] == ["tests", "web packages", "web"]
    (editor / "web" / "node_modules" / ".package-lock.json").touch()
    assert [one.name for one in suites(editor, fast=True, extra=[])] == ["tests", "web"]


def test_the_editors_tests_are_left_out_without_npm(editor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert [one.name for one in suites(editor, fast=True, extra=[])] == ["tests"]


ABSENT = Service(name="nothing", package="nothing-at-all", programs=("no-such-program", "/no/such/*"))
PRESENT = Service(name="sh", package="dash", programs=("no-such-program", "/bin/s*"))


def test_a_service_is_present_when_any_of_its_programs_is() -> None:
    assert missing([ABSENT, PRESENT]) == [ABSENT]


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("1", True), ("", False), ("false", False)])
def test_ci_is_told_by_its_variable(value: str, expected: bool) -> None:
    assert on_ci({"CI": value}) is expected


def test_services_are_installed_by_apt_as_root_and_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    install([ABSENT], run=lambda command, env, **_: commands.append((command, env)))
    assert [command[-1] for command, _ in commands] == ["update", "nothing-at-all"]
    assert all(environ["DEBIAN_FRONTEND"] == "noninteractive" for _, environ in commands)


def test_without_rights_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    install(SERVICES, run=lambda *_, **__: pytest.fail("must not run"))


def test_a_missing_service_is_a_failure_on_ci(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(develop, "_services", lambda: ["nginx"])
    assert develop.main(["test"]) == 1
    assert "nginx" in capsys.readouterr().out
