"""``cdui faults``: schedules one after another, never two at once."""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many schedules, one a seed")
    parser.add_argument(
        "--minutes", type=float, default=1.0, metavar="M", help="how long faults come, a schedule"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first seed")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="write faults.json and faults.md there")


def run(arguments: argparse.Namespace) -> int:
    """0 when everything held for every seed."""
    if sys.platform != "linux":
        print("cdui faults needs Linux: it signals processes and reads their environment.", file=sys.stderr)
        return 1
    from .report import as_json, as_markdown, write

    command = f"./cdui faults --seeds {arguments.seeds} --minutes {arguments.minutes:g}"
    command += f" --seed {arguments.seed}" if arguments.seed != 1 else ""
    outcomes: list[Outcome] = []
    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        outcomes.append(_one(seed, arguments.minutes))
        if arguments.report is not None:
            write(arguments.report, as_json(outcomes, command))
    print()
    print(as_markdown(as_json(outcomes, command)), end="")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _one(seed: int, minutes: float) -> "Outcome":
    from .play import play

    folder = Path(tempfile.mkdtemp(prefix=f"cdui-faults-{seed}-"))
    outcome = play(seed, minutes * 60, folder / "site")
    runs, total = outcome.statuses.total(), outcome.faults.total()
    word = "passed" if outcome.passed else "FAILED"
    print(f"seed {seed}: {word}, {total} faults, {runs} runs, {outcome.took_s:.0f} s", flush=True)
    if outcome.passed:
        shutil.rmtree(folder)
        return outcome
    for violation in outcome.findings.violations:
        print(f"  {violation}")
    print(f"  Repeat it: ./cdui faults --seed {seed} --minutes {minutes:g}")
    print(f"  Logs, database and journals: {folder}{os.sep}site", flush=True)
    return outcome


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="cdui faults")
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
