"""A worker that the server was away from for long brings a million events, while another run of it goes on."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Event, Thread

from codefyui_core.agent.records import scan
from codefyui_core.wire.limits import BATCH_ITEMS

from . import chatter, raw_inserts
from .measure import Aim, Row
from .plan import Effort
from .processes import Process, Site, site, wait_for

AIM = 20_000
"""Events a second."""
LATE_S = 1.0
LIVE_EVERY_MS = 50
SEVERAL = 4
_SAMPLED = 100_000
"""Of the events, what the bare inserts repeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """One reconnect with a backlog."""

    events: int
    seconds: float
    cpu_s: Mapping[str, float]
    """Processor time of the server and of the agent."""
    calm: Sequence[float]
    """How late each live event was seen without a backlog, in seconds."""
    late: Sequence[float]
    """The same while the backlog was taken in."""


def rows(effort: Effort) -> list[Row]:
    total = effort.choose(1_000_000, 2_000)
    sizes = (1, SEVERAL) if not effort.quick else (2,)
    return [row for runs in sizes for row in _rows(effort.folder, runs, total, effort.choose(10, 1))]


def _rows(folder: Path, runs: int, total: int, calm_s: float) -> Iterator[Row]:
    folder = folder / f"drain-{runs}"
    chatter.install(folder)
    with site(folder, CODEFYUI_RUN_QUEUE_MAX_CONCURRENT_CPU=str(runs + 1), **chatter.LIGHT) as made:
        server, agent = made.start_server(), made.start_agent()
        ids, drained = drain(made, server, agent, runs, total // runs, calm_s)
        bare = _bare(made, ids[0], min(_SAMPLED, total // runs) // BATCH_ITEMS * BATCH_ITEMS)
    yield from reported(drained, bare, f"{total:,} events of {'one run' if runs == 1 else f'{runs} runs'}")


def reported(drained: Drained, bare: tuple[float, float], what: str) -> Iterator[Row]:
    """``bare``: inserts a second, and processor seconds of one."""
    rate = Row(
        benchmark="drain",
        figure=f"spool to database, {what}",
        unit="events/s",
        samples=[drained.events / drained.seconds],
        baseline="bare inserts of the same rows",
        baseline_samples=[bare[0]],
    )
    met = rate.median >= AIM
    yield rate.aiming(Aim(text=f"{AIM:,} a second, {what}", reached=f"{rate.median:,.0f}", met=met))
    for name, cpu_s in drained.cpu_s.items():
        yield Row(
            benchmark="drain",
            figure=f"processor time of the {name} an event, {what}",
            unit="µs",
            samples=[cpu_s / drained.events * 1e6],
            baseline="bare inserts of the same rows",
            baseline_samples=[bare[1] * 1e6],
        )
    worst = max(drained.late)
    yield Row(
        benchmark="drain",
        figure=f"the latest live event beside {what}",
        unit="s",
        samples=[worst],
        baseline="without a backlog",
        baseline_samples=[max(drained.calm)],
    ).aiming(Aim(text=f"live events at most {LATE_S:g} s late", reached=f"{worst:.2f} s", met=worst < LATE_S))


def drain(
    made: Site, server: Process, agent: Process, runs: int, count: int, calm_s: float
) -> tuple[Sequence[str], Drained]:
    """The runs with the backlog, and what was measured."""
    live = chatter.submit(made, 1, then_every_ms=LIVE_EVERY_MS)
    chatter.wait_reported(made, live, chatter.RUNNING)
    with following(made, live) as calm:
        time.sleep(calm_s)
    gate = made.root / "gate"
    lasting = LIVE_EVERY_MS if runs == 1 else 0
    ids = [chatter.submit(made, count, then_every_ms=lasting, gate=gate) for _ in range(runs)]
    for one in ids:
        chatter.wait_reported(made, one, chatter.RUNNING - 1)
    port = made.port()
    server.kill()
    gate.touch()
    wait_for(lambda: all(spooled(made.root / "bench", one) > count for one in ids), "full spools", 900)
    server = made.start_server(port)
    backs = [reconnected(made, one) for one in ids]
    began, worked_s = min(at for _, at in backs), (server.worked_s(), agent.worked_s())
    with following(made, live) as late:
        for one in ids:
            chatter.wait_reported(made, one, count)
        ended = time.time()
    drained = Drained(
        events=sum(count - cursor for cursor, _ in backs),
        seconds=ended - began,
        cpu_s={"server": server.worked_s() - worked_s[0], "agent": agent.worked_s() - worked_s[1]},
        calm=calm,
        late=late,
    )
    for one in (live, *(ids if lasting else ())):
        made.post(f"/api/runs/{one}/cancel", {})
        made.wait_end(one, stopped=True)
    return ids, drained


def cursor_of(made: Site, run_id: str) -> int:
    """Of the newest event."""
    return int(made.get(f"/api/runs/{run_id}")["last_cursor"])


def reconnected(made: Site, run_id: str) -> tuple[int, float]:
    """Cursor and time, in seconds since 1970, of the warning that its worker is back."""
    cursor = 0
    while True:
        for event in chatter.page(made, run_id, cursor, limit=500):
            cursor = event["cursor"]
            if event["type"] == "run_warning" and event["payload"]["kind"] == "worker_reconnected":
                return cursor, datetime.fromisoformat(event["ts"]).timestamp()


def spooled(user_data: Path, run_id: str) -> int:
    """The last number that is in the spool of a run."""
    segments = sorted(user_data.glob(f"agent-spool/*/{run_id}.*/*.log"))
    newest = segments[-1].read_bytes() if segments else b""
    return max((record.seq for record in scan(newest)), default=0)


@contextmanager
def following(made: Site, run_id: str) -> Iterator[list[float]]:
    """How late a reader sees each event of a run that is reported within the block, in seconds."""
    seconds: list[float] = []
    over = Event()
    began, first = time.time(), cursor_of(made, run_id)

    def follow() -> None:
        cursor = first
        while not over.is_set():
            for event in chatter.page(made, run_id, cursor, limit=500):
                cursor, at = event["cursor"], datetime.fromisoformat(event["ts"]).timestamp()
                if at >= began:
                    seconds.append(time.time() - at)

    thread = Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield seconds
        wait_for(lambda: seconds, "a live event")
    finally:
        over.set()
        thread.join()


def _bare(made: Site, run_id: str, count: int) -> tuple[float, float]:
    """Inserts a second, and processor seconds of one."""
    file = made.user_data / "codefyui.db"
    batches = raw_inserts.batches(file, run_id, 1, count, BATCH_ITEMS)
    with closing(raw_inserts.empty_copy(file, made.root / "raw.db")) as database:
        rounds = raw_inserts.Rounds(database, batches, count)
        worked_s = time.process_time()
        seconds = rounds.insert()
    return count / seconds, (time.process_time() - worked_s) / count
