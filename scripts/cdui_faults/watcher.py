"""A thread that keeps runs coming and remembers what the server said of them meanwhile."""

import hashlib
import json
import random
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from codefyui_core.cli.client import ApiProblem
from codefyui_core.errors import CodefyError

from .journal import Journal
from .schedule import AGENTS, SERVER
from .site import Site

FINAL = frozenset({"succeeded", "failed", "cancelled", "interrupted"})
FLOWING = frozenset({"running", "succeeded", "failed"})
"""In the others, the newest event is the server's own word about a line that is down or a run that it ended."""
AT_ONCE = 3
"""Runs of one place that wait or execute; two of them execute."""
TICK_S = 0.25


@dataclass(slots=True, kw_only=True)
class Asked:
    """One run that was submitted, perhaps several times under one id."""

    label: str
    target: str
    n: int
    pause_ms: float
    ending: str
    deaf: bool
    run_id: str | None = None
    status: str = "unsent"
    cursor: int = 0
    """The greatest that was seen."""


@dataclass(frozen=True, slots=True)
class Seen:
    """New events were stored between two looks, by the monotonic clock."""

    after: float
    by: float


class Watcher:
    """Submits, and looks; never breaks anything itself."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.asked: dict[str, Asked] = {}
        self.seen: dict[str, dict[int, str]] = {}
        """Run id -> cursor -> digest of the event that was shown for it."""
        self.progress: dict[str, list[Seen]] = {name: [] for name in (*AGENTS, SERVER)}
        """When new events of its runs were stored."""
        self._looked = 0.0
        self.problems: list[str] = []
        self._rng = random.Random(f"runs of {seed}")
        self._submitting = True
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join(60)

    def no_more(self) -> None:
        self._submitting = False

    def journal(self, asked: Asked) -> Journal:
        return Journal.read(self.site.journals / asked.label)

    def active(self, target: str) -> list[Asked]:
        return [one for one in list(self.asked.values()) if one.target == target and one.status not in FINAL]

    def all_over(self) -> bool:
        return all(one.status in FINAL for one in list(self.asked.values()))

    def _loop(self) -> None:
        while not self._end.wait(TICK_S):
            with suppress(CodefyError, OSError, ValueError):
                self._tick()

    def _tick(self) -> None:
        if self._submitting:
            for target in self.progress:
                if len(self.active(target)) < AT_ONCE:
                    self._draw(target)
        for one in list(self.asked.values()):
            if one.run_id is None:
                self._submit(one)
        looking = time.monotonic()
        rows = self.site.get("/api/runs?limit=100", 3.0)["runs"]
        for row in rows:
            self._look(row)
        self._looked = looking
        self._read_one()

    def _draw(self, target: str) -> None:
        rng = self._rng
        label = f"r{len(self.asked):04}"
        ending = rng.choices(("return", "raise", "exit"), (8, 1, 1))[0]
        self.asked[label] = Asked(
            label=label,
            target=target,
            n=rng.randint(50, 2500),
            pause_ms=rng.choice((0.0, 1.0, 3.0, 6.0)),
            ending=ending,
            deaf=rng.random() < 0.1,
        )

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
    return {
        "name": one.label,
        "nodes": [
            {"id": "start", "type": "Start", "position": {"x": 0, "y": 0}, "data": {"params": {}}},
            {
                "id": "node",
                "type": "FaultsCount",
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
