"""A thread that keeps runs coming and remembers what the server said of them meanwhile."""

import hashlib
import json
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codefyui_core.cli.client import ApiProblem
from codefyui_core.errors import CodefyError

from .journal import Journal
from .schedule import PLACES, SERVER
from .site import Site
from .uploads import FilePlan, draw

FINAL = frozenset({"succeeded", "failed", "cancelled", "interrupted"})
FLOWING = frozenset({"running", "succeeded", "failed"})
"""In the others, the newest event is the server's own word about a line that is down or a run that it ended."""
AT_ONCE = 3
"""Runs of one place that wait or execute; two of them execute. In short schedules up to so many."""
TICK_S = 0.4
LOOK_AT = 40
"""Newest runs. More than wait and execute, with those that ended since the last look."""


@dataclass(slots=True, kw_only=True)
class Asked:
    """One run that was submitted, perhaps several times under one id."""

    label: str
    target: str
    n: int
    pause_ms: float
    ending: str
    deaf: bool
    files: FilePlan | None = None
    run_id: str | None = None
    status: str = "unsent"
    cursor: int = 0
    """The greatest that was seen."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Something was so at a moment between these two, by the monotonic clock."""

    after: float
    by: float


class Watcher:
    """Submits, and looks; never breaks anything itself. One a schedule, also on a site that lives longer."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.prefix = f"s{seed}-"
        """Of the names of its runs."""
        self.asked: dict[str, Asked] = {}
        self.seen: dict[str, dict[int, str]] = {}
        """Run id -> cursor -> digest of the event that was shown for it."""
        self.progress: dict[str, list[Seen]] = {name: [] for name in PLACES}
        """When new events of its runs were stored."""
        self.online: dict[str, list[Seen]] = {name: [] for name in PLACES}
        """When the server had it online."""
        self._looked = 0.0
        self.problems: list[str] = []
        self._rng = random.Random(f"runs of {seed}")
        self._of_files = random.Random(f"files of {seed}")
        self._at_once = {
            name: AT_ONCE if site.pace.run_s is None else self._rng.randint(1, AT_ONCE) for name in PLACES
        }
        self._submitting = True
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join(60)

    def no_more(self) -> None:
        self._submitting = False

    def journal(self, asked: Asked) -> Journal:
        return Journal.read(self.site.journals / asked.label)

    def journal_over(self, asked: Asked) -> bool:
        return Journal.is_over(self.site.journals / asked.label)

    def active(self, target: str) -> list[Asked]:
        return [one for one in list(self.asked.values()) if one.target == target and one.status not in FINAL]

    def all_over(self) -> bool:
        return all(one.status in FINAL for one in list(self.asked.values()))

    def _loop(self) -> None:
        while not self._end.wait(TICK_S):
            try:
                self._tick()
            except (CodefyError, OSError, ValueError):
                continue  # the server is down, or its answer was cut
            except Exception as error:
                self._say(f"the watcher itself failed: {error!r}")

    def _tick(self) -> None:
        if self._submitting:
            for target in PLACES:
                if len(self.active(target)) < self._at_once[target]:
                    self._draw(target)
        for one in list(self.asked.values()):
            if one.run_id is None:
                self._submit(one)
        looking = time.monotonic()
        rows = self.site.get(f"/api/runs?limit={LOOK_AT}", 3.0)["runs"]
        for row in rows:
            self._look(row)
        self._looked = looking
        self._read_one()
        asking = time.monotonic()
        for name in self.site.online():
            self.online[name].append(Seen(after=asking, by=time.monotonic()))

    def _draw(self, target: str) -> None:
        rng = self._rng
        label = f"{self.prefix}{len(self.asked):03}"
        ending = rng.choices(("return", "raise", "exit"), (8, 1, 1))[0]
        n, pause_ms = self._size()
        self.asked[label] = Asked(
            label=label,
            target=target,
            n=n,
            pause_ms=pause_ms,
            ending=ending,
            deaf=rng.random() < 0.1,
            files=draw(self._of_files, carried=target != SERVER) if self.site.carries else None,
        )

    def _size(self) -> tuple[int, float]:
        """How far to count, and how many ms to wait between two numbers."""
        span = self.site.pace.run_s
        if span is None:
            return self._rng.randint(50, 2500), self._rng.choice((0.0, 1.0, 3.0, 6.0))
        if self._rng.random() < 0.1:
            return 1500, 0.0
        pause_ms = self._rng.choice((5.0, 10.0, 20.0, 40.0))
        return int(self._rng.uniform(*span) * 1000 / pause_ms), pause_ms

    def _submit(self, one: Asked) -> None:
        body = {
            "graph": _graph(one, str(self.site.journals / one.label)),
            "name": one.label,
            "submit_id": f"{self.site.mark}-{one.label}"[-64:],
            "options": {} if one.target == SERVER else {"target": one.target},
        }
        try:
            one.run_id = str(self.site.post("/api/runs", body, 3.0)["run_id"])
            one.status = "queued"
        except ApiProblem as problem:
            if problem.status < 500:
                self._say(f"submit of {one.label} was refused: {problem}")
            raise

    def _look(self, row: Mapping[str, Any]) -> None:
        one = self.asked.get(str(row["name"]))
        if one is None or one.run_id is None:
            return
        if row["id"] != one.run_id:
            self._say(f"{one.label} was submitted once and is two runs: {one.run_id}, {row['id']}")
        if one.status in FINAL and row["status"] != one.status:
            self._say(f"{one.run_id} was {one.status} and became {row['status']}")
        if int(row["last_cursor"]) < one.cursor:
            self._say(f"{one.run_id} went back from cursor {one.cursor} to {row['last_cursor']}")
        if int(row["last_cursor"]) > one.cursor:
            if row["status"] in FLOWING:
                self.progress[one.target].append(Seen(after=self._looked, by=time.monotonic()))
            one.cursor = int(row["last_cursor"])
        one.status = str(row["status"])

    def _read_one(self) -> None:
        """A page of one run after what was read of it before."""
        unread = [one for one in self.asked.values() if one.run_id and self._next(one.run_id) < one.cursor]
        if not unread:
            return
        run_id = str(self._rng.choice(unread).run_id)
        page = self.site.get(f"/api/runs/{run_id}/events?cursor={self._next(run_id)}&limit=1000", 3.0)
        shown = self.seen.setdefault(run_id, {})
        for event in page["events"]:
            if event["cursor"] != len(shown) + 1:
                self._say(f"{run_id} showed cursor {event['cursor']} after {len(shown)}")
            shown[event["cursor"]] = digest(event["type"], event["payload"])

    def _next(self, run_id: str) -> int:
        return len(self.seen.get(run_id, ()))

    def _say(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def digest(event_type: str, payload: Any) -> str:
    """Of what an event says."""
    text = json.dumps([event_type, payload], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _graph(one: Asked, journal: str) -> dict[str, Any]:
    params = {
        "journal": journal,
        "n": one.n,
        "pause_ms": one.pause_ms,
        "ending": one.ending,
        "deaf": one.deaf,
    }
    if one.files is not None:
        params |= {"label": one.label, "input": one.files.input, "plan": one.files.text()}
    return {
        "name": one.label,
        "nodes": [
            {"id": "start", "type": "Start", "position": {"x": 0, "y": 0}, "data": {"params": {}}},
            {
                "id": "node",
                "type": "FaultsCount" if one.files is None else "FaultsFiles",
                "position": {"x": 200, "y": 0},
                "data": {"params": params},
            },
        ],
        "edges": [
            {
                "id": "e0",
                "source": "start",
                "target": "node",
                "sourceHandle": "trigger",
                "targetHandle": "__trigger",
                "type": "trigger",
            }
        ],
    }
