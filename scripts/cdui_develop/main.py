"""``develop.py check | test | faults``."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import cdui_faults.main as faults

from . import services
from .gates import docs_gate, gates
from .stages import Result, failed, print_table, run_stage
from .suites import suites
from .summary import summary

PYTEST_SUITES = ("tests", "services")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit status."""
    words, extra = _split(list(sys.argv[1:] if argv is None else argv))
    arguments = _parser().parse_args(words)
    root = Path(os.environ.get("CODEFYUI_DIR") or Path(__file__).resolve().parents[2])
    try:
        if arguments.command == "check":
            return _check(root)
        if arguments.command == "faults":
            return faults.run(arguments)
        return _test(root, fast=arguments.fast, extra=extra)
    except KeyboardInterrupt:
        print("\ninterrupted")
        return 130


def _check(root: Path) -> int:
    results = [run_stage(stage) for stage in (*gates(root), docs_gate(root))]
    return _close(results)


def _test(root: Path, *, fast: bool, extra: Sequence[str]) -> int:
    started = time.monotonic()
    absent = [] if fast else _services()
    if absent and services.on_ci():
        print(f"Services are missing, and on CI that is a failure: {', '.join(absent)}")
        return 1
    results = [run_stage(stage) for stage in gates(root)]
    results += [run_stage(stage) for stage in suites(root, fast=fast, extra=extra)]
    status = _close(results)
    if absent:
        print(f"Left out, because these aren't installed: tests that need {', '.join(absent)}")
    lines = [result.last_line for result in results if result.name in PYTEST_SUITES]
    print(summary(lines, time.monotonic() - started), flush=True)
    return status


def _services() -> list[str]:
    services.install(services.missing())
    absent = [service.name for service in services.missing()]
    return absent if shutil.which("npm") else [*absent, "npm"]


def _close(results: Sequence[Result]) -> int:
    print_table(results)
    names = failed(results)
    if names:
        print(f"\nFailed: {', '.join(names)}")
    return 1 if names else 0


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    if "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cdui")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="the gates: lint, format, types, imports, docs")
    test = commands.add_parser("test", help="the gates and all tests; words after -- go to pytest")
    test.add_argument("--fast", action="store_true", help="leave out the tests that start services")
    faults.add_arguments(
        commands.add_parser("faults", help="seeded faults over a real server, agents and runs")
    )
    return parser
