"""What must hold after a schedule, from the database, the journals, the spools and the process table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from .endings import unexplained
from .injector import Injected
from .journal import Journal
from .processes import KEEPER, RUN, NotInTime, marked, shown, wait_for
from .schedule import AGENTS
from .site import Site
from .stored import CLOSING, StoredRun
from .watcher import FINAL, Asked, Watcher, digest

SETTLE_S = 30.0


@dataclass(slots=True, kw_only=True)
class Findings:
    """Counts of one schedule, and every violation in words."""

    violations: list[str] = field(default_factory=list)
    lost: int = 0
    doubled: int = 0
    orphans: int = 0
    emitted: int = 0
    stored: int = 0
    events: int = 0
    unsent: int = 0
    """Counts that killed processes had written down and never got out; nobody was told of them."""


def busy(site: Site, found: Findings) -> None:
    """While runs come and go: in one look at all counters, as many slots are in use as attempts live."""
    _holds(
        found,
        lambda: _live(scrape := _scrape(site)) == _used(scrape),
        lambda: f"live attempts and used slots differ: {_scrape(site)}",
    )


def quiet(site: Site, found: Findings) -> None:
    """While everything still runs, and no run does: no slot, process or spool may be left of any."""
    _holds(found, lambda: not _used_slots(site), lambda: f"slots in use without runs: {_used_slots(site)}")
    _holds(found, lambda: not _spools(site), lambda: f"spools that nobody waits for: {_spools(site)}")
    left = marked(site.mark, (RUN, KEEPER))
    _, left = psutil.wait_procs(left, timeout=10)
    found.orphans += len(left)
    found.violations += [f"a process of an ended run: {shown(process)}" for process in left]


def nothing_left(site: Site, found: Findings) -> None:
    """After the end of server and agents; what is found is ended. Nothing unforeseen was raised in them meanwhile."""
    for log in sorted(site.folder.glob("*.log")):
        raised = log.read_text(encoding="utf-8", errors="replace").count("Traceback (most recent call last)")
        found.violations += [f"{log.name} has {raised} tracebacks"] if raised else []
    _, left = psutil.wait_procs(marked(site.mark), timeout=10)
    found.orphans += len(left)
    for process in left:
        found.violations.append(f"left behind: {shown(process)}")
        with suppress(psutil.Error):
            process.kill()


def runs(
    stored: Sequence[StoredRun], watcher: Watcher, injected: Sequence[Injected], found: Findings
) -> None:
    """Every run against what was asked, noted and seen of it."""
    names = [run.name for run in stored]
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.violations.append(f"{name} was submitted once and is {names.count(name)} runs")
    for label in sorted(watcher.asked.keys() - set(names)):
        if watcher.asked[label].run_id is not None:
            found.violations.append(f"{label} was accepted and isn't in the database")
    for run in stored:
        asked = watcher.asked.get(run.name)
        if asked is not None:
            _run(run, asked, watcher, injected, found)


def _run(
    run: StoredRun, asked: Asked, watcher: Watcher, injected: Sequence[Injected], found: Findings
) -> None:
    journal = watcher.journal(asked)
    _count(run, journal, found)
    problems = [
        *_ending(run),
        *_log(run, watcher.seen.get(run.run_id, {}), asked.cursor),
        *_counts(run, journal, asked),
    ]
    problem = unexplained(run, asked, injected)
    problems += [problem] if problem else []
    found.violations += [f"{run.name} {run.run_id} on {asked.target}: {problem}" for problem in problems]


def _count(run: StoredRun, journal: Journal, found: Findings) -> None:
    found.emitted += len(journal.counts)
    found.stored += len(run.counts)
    found.events += len(run.cursors)
    found.doubled += len(run.counts) - len(set(run.counts))
    inside = int(max(run.counts, default=-1.0)) + 1 - len(set(run.counts))
    missing = max(len(journal.counts) - len(set(run.counts)), 0)
    if run.status == "succeeded":
        found.lost += missing
    else:
        found.lost += inside
        found.unsent += missing - inside


def _ending(run: StoredRun) -> Iterator[str]:
    if run.status not in FINAL:
        yield f"is {run.status} after the end"
        return
    wanted = CLOSING.get(run.status, "execution_stopped")
    if run.closings != [wanted] or run.types[-1] != wanted:
        yield f"closing events {run.closings}, last {run.types[-1:]}; wanted one {wanted} at the end"
    for attempt in run.attempts:
        if not attempt.slots_released:
            yield f"attempt {attempt.number} ({attempt.state}) holds its slots for ever"


def _log(run: StoredRun, seen: Mapping[int, str], cursor: int) -> Iterator[str]:
    if run.cursors != tuple(range(1, run.last_cursor + 1)):
        yield f"cursors have gaps or repeats: {len(run.cursors)} rows, last cursor {run.last_cursor}"
    if run.last_cursor < cursor:
        yield f"cursor {cursor} was shown, and {run.last_cursor} is the last"
    now = {
        number: digest(kind, payload)
        for number, kind, payload in zip(run.cursors, run.types, run.payloads, strict=True)
    }
    changed = [number for number, before in seen.items() if now.get(number) != before]
    if changed:
        yield f"events that were shown are others now: {changed[:5]}"


def _counts(run: StoredRun, journal: Journal, asked: Asked) -> Iterator[str]:
    if list(run.counts) != list(range(len(run.counts))):
        yield f"stored counts aren't 0 .. {len(run.counts) - 1} in order"
    if len(run.counts) > len(journal.counts):
        yield f"{len(run.counts)} counts stored, {len(journal.counts)} emitted"
    if run.status == "succeeded" and len(run.counts) != asked.n:
        yield f"succeeded with {len(run.counts)} of {asked.n} counts"
    if len(journal.pids) > 1:
        yield f"user code started {len(journal.pids)} times, in {journal.pids}"


def _holds(found: Findings, met: Callable[[], bool], said: Callable[[], str]) -> None:
    try:
        wait_for(met, SETTLE_S, "")
    except NotInTime:
        found.violations.append(said())


def _used_slots(site: Site) -> list[str]:
    """By both of the ways that people look at it."""
    rows = site.get("/api/workers")["workers"]
    by_row = [
        f"{row['name']} {device['device']} {device['used']}"
        for row in rows
        for device in row["devices"]
        if device["used"]
    ]
    used = {line: value for line, value in _scrape(site).items() if 'state="used"' in line and value}
    return by_row + [f"{line} {value:g}" for line, value in used.items()]


def _scrape(site: Site) -> dict[str, float]:
    """Runs and slots of ``/metrics``, by their names with labels."""
    lines = str(site.get("/metrics")).splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith(("codefyui_runs{", "codefyui_slots{")))
    return {name: float(value) for name, _, value in pairs}


def _live(scrape: Mapping[str, float]) -> float:
    states = ('codefyui_runs{status="running"}', 'codefyui_runs{status="disconnected"}')
    return sum(scrape.get(state, 0.0) for state in states)


def _used(scrape: Mapping[str, float]) -> float:
    return sum(value for name, value in scrape.items() if 'state="used"' in name)


def _spools(site: Site) -> list[str]:
    """And the working folders of runs."""
    return [
        str(path.relative_to(site.folder))
        for name in AGENTS
        for pattern in ("agent-spool/*/*.*", "agent-runs/*")
        for path in site.user_data(name).glob(pattern)
        if path.is_dir()
    ]
