"""What a person sees: a line a step on standard error, everything else in the log."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .problem import SetupProblem

TAIL_LINES = 15

HINTS = (
    ("ensurepip", "This Python can't make environments. On Debian and Ubuntu: apt-get install python3-venv"),
    ("No space left", "The disk is full: make room."),
    ("torch-backend", "This choice isn't known to uv; see cdui install --help for the choices."),
    ("Could not resolve", "The package index can't be reached: check the network and the proxy settings."),
    ("dns error", "The package index can't be reached: check the network and the proxy settings."),
    ("Failed to fetch", "The package index can't be reached: check the network and the proxy settings."),
    ("Connection", "The package index can't be reached: check the network and the proxy settings."),
)


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


class Console:
    """Runs commands with their output in a log."""

    def __init__(self, log: Path) -> None:
        self._log = log

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A progress line around a piece of work."""
        say(f"  {title} ...", end="")
        started = time.monotonic()
        try:
            yield
        except BaseException:
            say(" failed")
            raise
        say(f" {time.monotonic() - started:.1f} s")

    def run(
        self, command: Sequence[str | Path], *, cwd: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        """Raises: SetupProblem with the end of the log when the command fails."""
        words = [str(word) for word in command]
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a") as log:
            print(f"$ {' '.join(words)}", file=log, flush=True)
            begin = self._log.stat().st_size
            ended = subprocess.run(
                words,
                cwd=cwd,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environ or {})},
                check=False,
            )
        if ended.returncode != 0:
            raise SetupProblem(self._explain(words, ended.returncode, begin))

    def _explain(self, words: Sequence[str], status: int, begin: int) -> str:
        with self._log.open(errors="replace") as log:
            log.seek(begin)
            lines = log.read().splitlines()
        tail = [f"    {line}" for line in lines[-TAIL_LINES:]]
        hints = [hint for sign, hint in HINTS if any(sign in line for line in lines)]
        return "\n".join(
            [
                f"{Path(words[0]).name} {' '.join(words[1:3])} ended with status {status}. The end of {self._log}:",
                *tail,
                *dict.fromkeys(hints),
                "Then run the command again: it goes on with the step that broke off.",
            ]
        )
