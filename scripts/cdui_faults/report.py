"""What schedules found, as JSON and as Markdown."""

import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from .checks import Findings
from .schedule import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One schedule."""

    seed: int
    findings: Findings
    faults: Counter[str]
    skipped: int
    """Drawn, but their target wasn't there at the time."""
    statuses: Counter[str]
    recovery_s: dict[str, list[float]] = field(default_factory=dict)
    took_s: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.findings.violations


def as_json(outcomes: Sequence[Outcome], command: str) -> dict[str, Any]:
    """The sum of all schedules."""
    faults, statuses = Counter[str](), Counter[str]()
    recovery: dict[str, list[float]] = {}
    for outcome in outcomes:
        faults += outcome.faults
        statuses += outcome.statuses
        for kind, took in outcome.recovery_s.items():
            recovery.setdefault(kind, []).extend(took)
    return {
        "command": command,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}",
        "seeds": [outcome.seed for outcome in outcomes],
        "failed_seeds": [outcome.seed for outcome in outcomes if not outcome.passed],
        "seconds": round(sum(outcome.took_s for outcome in outcomes), 1),
        "faults": {kind.value: faults[kind.value] for kind in Kind},
        "faults_total": faults.total(),
        "faults_without_target": sum(outcome.skipped for outcome in outcomes),
        "runs": statuses.total(),
        "runs_by_status": dict(sorted(statuses.items())),
        **{
            name: sum(getattr(outcome.findings, name) for outcome in outcomes)
            for name in ("emitted", "stored", "events", "unsent", "lost", "doubled", "orphans")
        },
        "violations": [f"seed {o.seed}: {text}" for o in outcomes for text in o.findings.violations],
        "recovery_s": {
            kind.value: {
                "measured": len(times),
                "median": round(median(times), 2),
                "worst": round(max(times), 2),
            }
            for kind in Kind
            if (times := recovery.get(kind.value))
        },
    }


def as_markdown(report: dict[str, Any]) -> str:
    """The same for people."""
    statuses = ", ".join(f"{count} {status}" for status, count in report["runs_by_status"].items())
    lines = [
        f"`{report['command']}`: {len(report['seeds'])} seeds in {report['seconds'] / 60:.1f} minutes; {report['machine']}.",
        "",
        "| | |",
        "|---|---|",
        f"| faults | {report['faults_total']} ({report['faults_without_target']} more found no target) |",
        f"| runs | {report['runs']}: {statuses} |",
        f"| counts written down by the runs | {report['emitted']} |",
        f"| counts stored | {report['stored']}, in {report['events']} events |",
        f"| never got out of a process that was ended | {report['unsent']} |",
        f"| lost | {report['lost']} |",
        f"| doubled | {report['doubled']} |",
        f"| orphans | {report['orphans']} |",
        f"| violations | {len(report['violations'])} |",
        "",
        "| fault | times | recovery: median s | worst s |",
        "|---|---|---|---|",
    ]
    for kind, times in report["faults"].items():
        measured = report["recovery_s"].get(kind)
        shown = f"{measured['median']} | {measured['worst']}" if measured else "|"
        lines.append(f"| {kind} | {times} | {shown} |")
    lines += ["", *(f"- {violation}" for violation in report["violations"])]
    return "\n".join(lines).rstrip() + "\n"


def write(folder: Path, report: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "faults.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (folder / "faults.md").write_text(as_markdown(report), encoding="utf-8")
