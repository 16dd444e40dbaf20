"""Commands run one after another, and the table of what became of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .summary import ran

PATIENCE_S = 30
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
"""The tests start hundreds of Python processes. What the first has compiled the others read, also on machines whose
setting forbids to keep it: without, most of what a start costs is compiling the same libraries again.
"""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One command. Its output is shown as it comes when ``loud``, else only when it fails."""

    name: str
    command: Sequence[str]
    cwd: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    loud: bool = False
    accepted: frozenset[int] = frozenset({0})


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a stage."""

    name: str
    passed: bool
    seconds: float
    last_line: str = ""

    @property
    def word(self) -> str:
        return "passed" if self.passed else "FAILED"


def run_stage(stage: Stage, *, clock: Callable[[], float] = time.monotonic) -> Result:
    """Run it, and tell as it goes: what begins, and what came of it after how long."""
    print(f"== {stage.name}: {' '.join(stage.command)}", flush=True)
    started = clock()
    with subprocess.Popen(
        stage.command,
        cwd=stage.cwd,
        env={**os.environ, **COMPILED, **stage.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            lines = _read(process, loud=stage.loud)
        except KeyboardInterrupt:
            _interrupt(process)
            raise
    passed = process.returncode in stage.accepted
    if not passed and not stage.loud:
        print("".join(lines), end="", flush=True)
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    result = Result(name=stage.name, passed=passed, seconds=clock() - started, last_line=last)
    print(f"== {result.name}: {result.word} after {result.seconds:.1f} s", flush=True)
    return result


def _read(process: "subprocess.Popen[str]", *, loud: bool) -> list[str]:
    lines = []
    for line in process.stdout or ():
        lines.append(line)
        if loud:
            sys.stdout.write(line)
            sys.stdout.flush()
    return lines


def _interrupt(process: "subprocess.Popen[str]") -> None:
    """As Ctrl-C does: pytest then stops what its tests have started."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def print_table(results: Sequence[Result]) -> None:
    """A line a stage: what became of it, how many tests it ran, and how long it took."""
    width = max(len(result.name) for result in results)
    print(f"\n{'stage':<{width}}  result    tests  seconds")
    for result in results:
        tests = ran(result.last_line)
        print(f"{result.name:<{width}}  {result.word:<6}  {tests or '':>7}  {result.seconds:7.1f}")


def failed(results: Sequence[Result]) -> list[str]:
    return [result.name for result in results if not result.passed]
