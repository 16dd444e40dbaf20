"""One schedule from its beginning to its verdict."""

import time
from collections import Counter
from pathlib import Path

from . import checks, stored
from .checks import Findings
from .injector import Injector, recovery_s
from .processes import NotInTime, wait_for
from .report import Outcome
from .schedule import SERVER, schedule
from .site import READY_S, Site
from .watcher import Watcher

DRAIN_S = 240.0


def play(seed: int, length_s: float, folder: Path) -> Outcome:
    """Everything that it starts lives in ``folder`` and is over when it returns."""
    began = time.monotonic()
    site = Site(folder)
    watcher = Watcher(site, seed)
    faults = schedule(seed, length_s)
    injector = Injector(site, watcher, faults, seed)
    found = Findings()
    try:
        _through(site, watcher, injector, length_s, found)
    except NotInTime as late:
        found.violations.append(str(late))
    finally:
        watcher.stop()
        found.violations += site.down()
        checks.nothing_left(site, found)
        site.proxy.close()
    database = site.user_data(SERVER) / "codefyui.db"
    runs = stored.read(database) if database.exists() else ()
    checks.runs(runs, watcher, injector.injected, found)
    found.violations += watcher.problems + injector.problems
    return Outcome(
        seed=seed,
        findings=found,
        faults=Counter(one.fault.kind.value for one in injector.injected),
        skipped=len(faults) - len(injector.injected),
        statuses=Counter(run.status for run in runs),
        recovery_s=_recoveries(injector, watcher),
        took_s=time.monotonic() - began,
    )


def _through(site: Site, watcher: Watcher, injector: Injector, length_s: float, found: Findings) -> None:
    site.up()
    watcher.start()
    injector.play(length_s)
    wait_for(site.server_ready, READY_S, "the server to be ready again")
    wait_for(site.workers_online, READY_S, "both workers online again")
    checks.busy(site, found)
    watcher.no_more()
    wait_for(watcher.all_over, DRAIN_S, "the end of every run")
    checks.quiet(site, found)


def _recoveries(injector: Injector, watcher: Watcher) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for one in injector.injected:
        took = recovery_s(one, watcher.progress)
        if took is not None:
            times.setdefault(one.fault.kind.value, []).append(took)
    return times
