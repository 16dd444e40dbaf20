"""What must hold after a schedule, from the database, the journals, the spools and the process table."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import psutil

from . import carried, stored
from .endings import Setting, unexplained
from .findings import Findings
from .injector import Injected
from .journal import Journal
from .processes import KEEPER, RUN, NotInTime, marked, place_of, shown, wait_for
from .schedule import AGENTS, PLACES, SERVER
from .site import Site
from .stored import CLOSING, StoredRun
from .watcher import FINAL, Asked, Watcher, digest

SETTLE_S = 30.0
ANSWER_S = 90.0
"""A backend that was away is asked again within a minute."""
_USED = 'state="used"'


def busy(site: Site, found: Findings) -> None:
    """While runs come and go: as many slots are in use as attempts live, in one look at all counters; and at
    one look of several, each place has as many processes of runs as slots in use. What lasts is the same in all.
    """
    agreed: set[str] = set()

    def agree() -> bool:
        slots, keepers = _slots_by_place(site), _keepers_by_place(site)
        agreed.update(name for name in PLACES if slots[name] == keepers[name])
        return agreed == set(PLACES)

    _holds(
        found,
        agree,
        lambda: f"slots in use: {_slots_by_place(site)}, processes of runs: {_keepers_by_place(site)}",
    )
    _holds(
        found,
        lambda: _live(scrape := _scrape(site)) == _used(scrape),
        lambda: f"live attempts and used slots differ: {_scrape(site)}",
    )


def quiet(site: Site, found: Findings) -> None:
    """While everything still runs, and no run does: no line, slot, process or spool may be left of any."""
    _holds(found, lambda: not _waiting(site), lambda: f"lines aren't empty: {_waiting(site)}")
    _holds(
        found,
        lambda: not stored.unsettled(site.store),
        lambda: f"not settled: {stored.unsettled(site.store)[:5]}",
    )
    _holds(
        found,
        lambda: not stored.unanswered(site.store),
        lambda: f"not answered by a storage backend: {stored.unanswered(site.store)[:5]}",
        within_s=ANSWER_S,
    )
    _holds(found, lambda: not _used_slots(site), lambda: f"slots in use without runs: {_used_slots(site)}")
    _holds(found, lambda: not _spools(site), lambda: f"spools that nobody waits for: {_spools(site)}")
    _holds(found, lambda: not carried.unfinished(site), lambda: f"came in half: {carried.unfinished(site)}")
    left = marked(site.mark, (RUN, KEEPER))
    _, left = psutil.wait_procs(left, timeout=10)
    found.orphans += len(left)
    found.violations += [f"a process of an ended run: {shown(process)}" for process in left]


class Logs:
    """What servers and agents said, looked through once."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._read: dict[str, int] = {}

    def tracebacks(self) -> list[str]:
        """Nothing unforeseen was raised since the last look."""
        found = []
        for log in sorted(self._site.folder.glob("*.log")):
            name, said = log.stem, log.read_bytes()
            raised = said.count(b"Traceback (most recent call last)", self._read.get(name, 0))
            self._read[name] = len(said)
            found += [f"{name}.log has {raised} tracebacks"] if raised else []
        return found


def nothing_left(site: Site, found: Findings) -> None:
    """After the end of server and agents; what is found is ended."""
    _, left = psutil.wait_procs(marked(site.mark), timeout=10)
    found.orphans += len(left)
    for process in left:
        found.violations.append(f"left behind: {shown(process)}")
        with suppress(psutil.Error):
            process.kill()


def runs(
    rows: Sequence[StoredRun],
    watcher: Watcher,
    injected: Sequence[Injected],
    setting: Setting,
    found: Findings,
) -> None:
    """Every run against what was asked, noted and seen of it."""
    names = [run.name for run in rows]
    for name in sorted({name for name in names if names.count(name) > 1}):
        found.violations.append(f"{name} was submitted once and is {names.count(name)} runs")
    for label in sorted(watcher.asked.keys() - set(names)):
        if watcher.asked[label].run_id is not None:
            found.violations.append(f"{label} was accepted and isn't in the database")
    for run in rows:
        asked = watcher.asked.get(run.name)
        if asked is not None:
            _run(run, asked, watcher, unexplained(run, asked, injected, setting), found)


def _run(run: StoredRun, asked: Asked, watcher: Watcher, ending: str | None, found: Findings) -> None:
    journal = watcher.journal(asked)
    _count(run, journal, found)
    problems = [
        *_ending(run),
        *_log(run, watcher.seen.get(run.run_id, {}), asked.cursor),
        *_counts(run, journal, asked),
    ]
    problems += [ending] if ending else []
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


def _holds(
    found: Findings, met: Callable[[], bool], said: Callable[[], str], within_s: float = SETTLE_S
) -> None:
    try:
        wait_for(met, within_s, "")
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
    used = {line: value for line, value in _scrape(site).items() if _USED in line and value}
    return by_row + [f"{line} {value:g}" for line, value in used.items()]


def _slots_by_place(site: Site) -> dict[str, int]:
    rows = site.get("/api/workers")["workers"]
    used = {row["name"]: sum(device["used"] for device in row["devices"]) for row in rows}
    own = sum(
        value for name, value in _scrape(site).items() if _USED in name and f'worker="{SERVER}"' in name
    )
    return {name: int(used.get(name, own)) for name in PLACES}


def _keepers_by_place(site: Site) -> Counter[str]:
    return Counter(place_of(process) for process in marked(site.mark, (KEEPER,)))


def _waiting(site: Site) -> dict[str, float]:
    lines = str(site.get("/metrics")).splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith("codefyui_queue_waiting{"))
    return {name: float(value) for name, _, value in pairs if float(value)}


def _scrape(site: Site) -> dict[str, float]:
    """Runs and slots of ``/metrics``, by their names with labels."""
    lines = str(site.get("/metrics")).splitlines()
    pairs = (line.rpartition(" ") for line in lines if line.startswith(("codefyui_runs{", "codefyui_slots{")))
    return {name: float(value) for name, _, value in pairs}


def _live(scrape: Mapping[str, float]) -> float:
    states = ('codefyui_runs{status="running"}', 'codefyui_runs{status="disconnected"}')
    return sum(scrape.get(state, 0.0) for state in states)


def _used(scrape: Mapping[str, float]) -> float:
    return sum(value for name, value in scrape.items() if _USED in name)


def _spools(site: Site) -> list[str]:
    """And the working folders of runs, but for those with files of their own, which stay for a while."""
    patterns = ("agent-spool/*/*.*",) if site.carries else ("agent-spool/*/*.*", "agent-runs/*")
    return [
        str(path.relative_to(site.folder))
        for name in AGENTS
        for pattern in patterns
        for path in site.user_data(name).glob(pattern)
        if path.is_dir()
    ]
