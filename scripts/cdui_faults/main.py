"""``cdui faults``: schedules on sites that live for several, some of them side by side."""

import argparse
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Outcome

BOTH = "both"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="how many schedules, one a seed")
    parser.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="how long faults come, a schedule; 4 to 8 seconds if it isn't given",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first seed")
    parser.add_argument(
        "--database",
        choices=("sqlite", "postgresql", BOTH),
        default="sqlite",
        help="what the server stores in; both: sites take turns",
    )
    parser.add_argument(
        "--storage",
        choices=("none", "transfer", "s3"),
        default="none",
        help="how files of runs travel; s3 starts a store for each site",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="how many sites side by side")
    parser.add_argument(
        "--per-site", type=int, default=20, metavar="K", help="how many short schedules a site lives for"
    )
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="write faults.json and faults.md there")


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """The schedules of one site."""

    seeds: tuple[int, ...]
    database: str
    minutes: float | None
    storage: str = "none"

    def after(self, done: int) -> "Life":
        return replace(self, seeds=self.seeds[done:])

    def repeat(self, seed: int) -> str:
        """The command that plays it as it was up to that seed."""
        count = self.seeds.index(seed) + 1
        words = ["./cdui faults", f"--seed {self.seeds[0]}", f"--seeds {count}" if count > 1 else ""]
        words += [f"--minutes {self.minutes:g}" if self.minutes else ""]
        words += [f"--database {self.database}" if self.database != "sqlite" else ""]
        words += [f"--storage {self.storage}" if self.storage != "none" else ""]
        return " ".join(word for word in words if word)


def lives(arguments: argparse.Namespace) -> Iterator[Life]:
    """The seeds in the portions that share a site. A long schedule has its own."""
    databases = ("sqlite", "postgresql") if arguments.database == BOTH else (arguments.database,)
    per_site = 1 if arguments.minutes else max(arguments.per_site, 1)
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    for first, database in zip(range(0, len(seeds), per_site), itertools.cycle(databases), strict=False):
        yield Life(
            seeds=tuple(seeds[first : first + per_site]),
            database=database,
            minutes=arguments.minutes,
            storage=arguments.storage,
        )


def run(arguments: argparse.Namespace) -> int:
    """0 when everything held for every seed."""
    if sys.platform != "linux":
        print("cdui faults needs Linux: it signals processes and reads their environment.", file=sys.stderr)
        return 1
    from .report import as_json, as_markdown, write

    outcomes: list[Outcome] = []
    for ended in _played(list(lives(arguments)), max(arguments.jobs, 1)):
        outcomes += ended
        outcomes.sort(key=lambda outcome: outcome.seed)
        if arguments.report is not None:
            write(arguments.report, as_json(outcomes, _command(arguments)))
    print()
    print(as_markdown(as_json(outcomes, _command(arguments))), end="")
    return 0 if outcomes and all(outcome.passed for outcome in outcomes) else 1


def _command(arguments: argparse.Namespace) -> str:
    words = ["./cdui faults", f"--seeds {arguments.seeds}"]
    words += [f"--minutes {arguments.minutes:g}"] if arguments.minutes else []
    words += [f"--seed {arguments.seed}"] if arguments.seed != 1 else []
    words += [f"--database {arguments.database}"] if arguments.database != "sqlite" else []
    words += [f"--storage {arguments.storage}"] if arguments.storage != "none" else []
    words += [f"--jobs {arguments.jobs}"] if arguments.jobs > 1 else []
    return " ".join(words)


def _played(planned: Sequence[Life], jobs: int) -> "Iterator[list[Outcome]]":
    """As they end. Sites that still live when nobody wants to know any more are ended in order."""
    if jobs == 1:
        yield from map(live, planned)
        return
    context = get_context("spawn")
    waiting = deque(planned)
    running: dict[Connection, SpawnProcess] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(waiting.popleft(), theirs))
                process.start()
                theirs.close()
                running[ours] = process
            for ended in wait(list(running)):
                assert isinstance(ended, Connection)
                yield ended.recv()
                running.pop(ended).join()
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.join()


def _child(life: Life, told: Connection) -> None:
    """A process of its own. A terminal tells everybody of Ctrl-C: here the parent's word counts, once."""

    def stop(_number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
    with suppress(KeyboardInterrupt):
        told.send(live(life))


def live(life: Life) -> "list[Outcome]":
    """All schedules of a life. After one that failed, the others go on, on a new site."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(life.seeds):
        outcomes += _on_one_site(life.after(len(outcomes)))
    return outcomes


def _on_one_site(life: Life) -> "list[Outcome]":
    from .databases import DatabaseKind
    from .play import play
    from .schedule import LONG, SHORT, long_schedule, short_schedule, with_store
    from .storages import StorageKind

    folder = Path(tempfile.mkdtemp(prefix=f"cdui-faults-{life.seeds[0]}-"))
    plans = [
        long_schedule(seed, life.minutes * 60) if life.minutes else short_schedule(seed)
        for seed in life.seeds
    ]
    outcomes: list[Outcome] = []
    pace = LONG if life.minutes else SHORT
    if life.storage == StorageKind.S3:
        plans = [with_store(plan, pace) for plan in plans]
    database, storage = DatabaseKind(life.database), StorageKind(life.storage)
    try:
        for outcome in play(plans, pace, database, folder / "site", storage):
            outcomes.append(outcome)
            _say(outcome)
    finally:
        if all(outcome.passed for outcome in outcomes):
            shutil.rmtree(folder)
    if not outcomes[-1].passed:
        print(f"  Repeat it: {life.repeat(outcomes[-1].seed)}")
        print(f"  Logs, database and journals: {folder}{os.sep}site", flush=True)
    return outcomes


def _say(outcome: "Outcome") -> None:
    runs, total = outcome.statuses.total(), outcome.faults.total()
    word = "passed" if outcome.passed else "FAILED"
    lines = [
        f"seed {outcome.seed} on {outcome.database}: {word}, {total} faults, {runs} runs, {outcome.took_s:.0f} s",
        *(f"  {violation}" for violation in outcome.findings.violations),
    ]
    print("\n".join(lines), flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="cdui faults")
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
