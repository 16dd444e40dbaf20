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

from .databases import DatabaseKind
from .findings import Findings
from .schedule import Kind
from .storages import StorageKind

Times = dict[str, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One schedule."""

    seed: int
    findings: Findings
    faults: Counter[str]
    skipped: int
    """Drawn, but their target wasn't there at the time."""
    statuses: Counter[str]
    database: str = DatabaseKind.SQLITE.value
    storage: str = StorageKind.NONE.value
    online_s: Times = field(default_factory=dict)
    """Kind -> seconds from its mending until the workers were online."""
    recovery_s: Times = field(default_factory=dict)
    """Kind -> seconds from its mending until a new event was stored of each place."""
    took_s: float = 0.0
    missing: dict[str, str] = field(default_factory=dict)
    """Kinds that were left out, and what they need."""

    @property
    def passed(self) -> bool:
        return not self.findings.violations


def as_json(outcomes: Sequence[Outcome], command: str) -> dict[str, Any]:
    """The sum of all schedules."""
    faults, statuses = Counter[str](), Counter[str]()
    missing: dict[str, str] = {}
    for outcome in outcomes:
        faults += outcome.faults
        statuses += outcome.statuses
        missing |= outcome.missing
    return {
        "command": command,
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}",
        "seeds": [outcome.seed for outcome in outcomes],
        "failed_seeds": [outcome.seed for outcome in outcomes if not outcome.passed],
        "schedules_by_storage": dict(sorted(Counter(outcome.storage for outcome in outcomes).items())),
        "schedules_by_database": dict(sorted(Counter(outcome.database for outcome in outcomes).items())),
        "seconds": round(sum(outcome.took_s for outcome in outcomes), 1),
        "faults": {kind.value: faults[kind.value] for kind in Kind},
        "faults_total": faults.total(),
        "faults_without_target": sum(outcome.skipped for outcome in outcomes),
        "runs": statuses.total(),
        "runs_by_status": dict(sorted(statuses.items())),
        **{
            name: sum(getattr(outcome.findings, name) for outcome in outcomes)
            for name in (
                "emitted",
                "stored",
                "events",
                "unsent",
                "lost",
                "doubled",
                "orphans",
                "written",
                "left",
                "replaced",
            )
        },
        "delivered": dict(sorted(sum((o.findings.delivered for o in outcomes), Counter[str]()).items())),
        "violations": [f"seed {o.seed}: {text}" for o in outcomes for text in o.findings.violations],
        "left_out": missing,
        "online_s": _figures([outcome.online_s for outcome in outcomes]),
        "recovery_s": _figures([outcome.recovery_s for outcome in outcomes]),
    }


def _figures(times: Sequence[Times]) -> dict[str, dict[str, float]]:
    found: Times = {}
    for one in times:
        for kind, more in one.items():
            found.setdefault(kind, []).extend(more)
    return {
        kind.value: {
            "measured": len(took),
            "median": round(median(took), 2),
            "worst": round(max(took), 2),
        }
        for kind in Kind
        if (took := found.get(kind.value))
    }


def as_markdown(report: dict[str, Any]) -> str:
    """The same for people."""
    statuses = ", ".join(f"{count} {status}" for status, count in report["runs_by_status"].items())
    databases = ", ".join(f"{count} on {name}" for name, count in report["schedules_by_database"].items())
    lines = [
        f"`{report['command']}`: {len(report['seeds'])} schedules in {report['seconds'] / 60:.1f} minutes; {report['machine']}.",
        "",
        "| | |",
        "|---|---|",
        f"| schedules | {databases} |",
        f"| faults | {report['faults_total']} ({report['faults_without_target']} more found no target) |",
        f"| runs | {report['runs']}: {statuses} |",
        f"| counts written down by the runs | {report['emitted']} |",
        f"| counts stored | {report['stored']}, in {report['events']} events |",
        f"| never got out of a process that was ended | {report['unsent']} |",
        f"| lost | {report['lost']} |",
        f"| doubled | {report['doubled']} |",
        f"| orphans | {report['orphans']} |",
        *_files(report),
        f"| violations | {len(report['violations'])} |",
        "",
        "| fault | times | online: median s | worst s | event: median s | worst s |",
        "|---|---|---|---|---|---|",
    ]
    for kind, times in report["faults"].items():
        shown = " | ".join(_shown(report[name].get(kind)) for name in ("online_s", "recovery_s"))
        lines.append(f"| {kind} | {times} | {shown} |")
    lines += ["", *(f"- {kind} was left out: it needs {needs}" for kind, needs in report["left_out"].items())]
    lines += ["", *(f"- {violation}" for violation in report["violations"])]
    return "\n".join(lines).rstrip() + "\n"


def _files(report: dict[str, Any]) -> list[str]:
    if not report["written"] and not report["delivered"]:
        return []
    delivered = ", ".join(f"{count} {backend}" for backend, count in report["delivered"].items())
    return [
        f"| files written by the runs | {report['written']} |",
        f"| files listed as stored, got and compared | {delivered or 0} |",
        f"| of these, replaced by the run before they were taken | {report['replaced']} |",
        f"| files listed as left on their worker, with a warning | {report['left']} |",
    ]


def _shown(figures: dict[str, float] | None) -> str:
    return f"{figures['median']} | {figures['worst']}" if figures else "| "


def write(folder: Path, report: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "faults.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (folder / "faults.md").write_text(as_markdown(report), encoding="utf-8")
