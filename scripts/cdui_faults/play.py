"""Schedules from their beginning to their verdict, one after another on a site that lives on."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from codefyui_core.errors import CodefyError

from . import carried, checks, stored
from .acts import ACTS
from .checks import Logs
from .databases import DatabaseKind
from .endings import Setting
from .findings import Findings
from .injector import Injector, hit_places, recovery_s
from .processes import NotInTime, wait_for
from .report import Outcome, Times
from .schedule import Pace, Schedule
from .site import READY_S, Site
from .storages import StorageKind
from .stored import StoredRun
from .watcher import Seen, Watcher

DRAIN_S = 240.0
PROGRESS_S = 10.0
"""How long is waited for an event of each place after the last mending, for the sake of measuring it."""


def play(
    plans: Sequence[Schedule],
    pace: Pace,
    database: DatabaseKind,
    folder: Path,
    storage: StorageKind = StorageKind.NONE,
) -> Iterator[Outcome]:
    """One outcome a schedule, until one fails: what it left behind may not be blamed on the next.

    Everything that it starts lives in ``folder`` and is over at its end. Raises: CodefyError when the database
    or the store isn't installed.
    """
    site = Site(folder, pace, database, storage)
    logs = Logs(site)
    outcome: Outcome | None = None
    try:
        for number, plan in enumerate(plans):
            if outcome is not None:
                yield outcome
            outcome = _one(site, plan, logs, first=number == 0)
            if not outcome.passed:
                break
    finally:
        found = outcome.findings if outcome is not None else Findings()
        found.violations += site.down()
        checks.nothing_left(site, found)
        found.violations += logs.tracebacks()
        site.close()
    if outcome is not None:
        yield outcome


def _one(site: Site, plan: Schedule, logs: Logs, *, first: bool) -> Outcome:
    began = time.monotonic()
    watcher = Watcher(site, plan.seed)
    injector = Injector(site, watcher, plan, ACTS)
    found = Findings()
    rows: Sequence[StoredRun] = ()
    try:
        if first:
            site.up()
        _through(site, watcher, injector, found)
    except (NotInTime, CodefyError, OSError) as error:
        found.violations.append(f"{type(error).__name__}: {error}")
    finally:
        watcher.stop()
    try:
        rows = stored.read(site.store, watcher.prefix)
        setting = Setting(grace_s=site.pace.grace_s, began_ms=site.began_ms)
        checks.runs(rows, watcher, injector.injected, setting, found)
        carried.check(site, rows, watcher, found)
    except Exception as error:
        found.violations.append(f"the verdict can't be reached: {error!r}")
    found.violations += watcher.problems + injector.problems + logs.tracebacks()
    return Outcome(
        seed=plan.seed,
        database=site.store.kind.value,
        storage=site.carrying.kind.value,
        findings=found,
        faults=Counter(one.fault.kind.value for one in injector.injected),
        skipped=len(plan.faults) - len(injector.injected),
        statuses=Counter(run.status for run in rows),
        online_s=_recoveries(injector, watcher.online),
        recovery_s=_recoveries(injector, watcher.progress),
        took_s=time.monotonic() - began,
        missing={kind.value: needs for kind, needs in site.means.missing.items()},
    )


def _through(site: Site, watcher: Watcher, injector: Injector, found: Findings) -> None:
    watcher.start()
    injector.play()
    _wait(injector, site.server_ready, READY_S, "the server to be ready again")
    _wait(injector, site.workers_online, READY_S, "both workers online again")
    checks.busy(site, found)
    _progress(injector, watcher)
    watcher.no_more()
    _wait(injector, watcher.all_over, DRAIN_S, "the end of every run")
    checks.quiet(site, found)


def _wait(injector: Injector, met: Callable[[], bool], within_s: float, what: str) -> None:
    def tended() -> bool:
        injector.tend()
        return met()

    wait_for(tended, within_s, what)


def _progress(injector: Injector, watcher: Watcher) -> None:
    """Runs go on until there is something to measure each recovery by. That it takes long is no failure."""
    mended = [one for one in injector.injected if one.mended is not None]

    def measured() -> bool:
        return all(
            any(seen.after >= (one.mended or 0.0) for seen in watcher.progress[place])
            for one in mended
            for place in hit_places(one.fault)
        )

    with suppress(NotInTime):
        wait_for(measured, PROGRESS_S, "")


def _recoveries(injector: Injector, seen: Mapping[str, Sequence[Seen]]) -> Times:
    times: Times = {}
    for one in injector.injected:
        took = recovery_s(one, seen)
        if took is not None:
            times.setdefault(one.fault.kind.value, []).append(took)
    return times
