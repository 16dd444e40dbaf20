"""What is told of schedules: sums over seeds, and how to repeat one that failed."""

import json
from collections import Counter
from pathlib import Path

import pytest

from cdui_faults.checks import Findings
from cdui_faults.injector import Injected, recovery_s
from cdui_faults.main import main
from cdui_faults.report import Outcome, as_json, as_markdown
from cdui_faults.schedule import Fault, Kind
from cdui_faults.watcher import Seen


def outcome(seed: int, *violations: str) -> Outcome:
    return Outcome(
        seed=seed,
        findings=Findings(violations=list(violations), emitted=10, stored=9, unsent=1),
        faults=Counter({"cut line": 2}),
        skipped=1,
        statuses=Counter(succeeded=3, failed=1),
        recovery_s={"cut line": [1.0, float(seed)]},
        took_s=60,
    )


def test_the_report_adds_up_all_seeds() -> None:
    report = as_json([outcome(2), outcome(4)], "./cdui faults --seeds 2")
    assert (report["faults"]["cut line"], report["runs"], report["emitted"], report["lost"]) == (4, 8, 20, 0)
    assert report["recovery_s"]["cut line"] == {"measured": 4, "median": 1.5, "worst": 4.0}
    assert "| cut line | 4 | 1.5 | 4.0 |" in as_markdown(report)


def test_a_failing_seed_says_how_to_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cdui_faults.play.play", lambda seed, *_: outcome(seed, *["bad"] * (seed == 8)))
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(_made(tmp_path / prefix)))
    assert (
        main(["--seed", "7", "--seeds", "2", "--minutes", "0.5", "--report", str(tmp_path / "report")]) == 1
    )
    said = capsys.readouterr().out
    assert "seed 7: passed" in said
    assert "seed 8: FAILED" in said
    assert "./cdui faults --seed 8 --minutes 0.5" in said
    report = json.loads((tmp_path / "report" / "faults.json").read_text())
    assert (report["failed_seeds"], report["violations"]) == ([8], ["seed 8: bad"])


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_recovery_is_what_was_stored_after_the_mending_and_not_just_seen_then() -> None:
    fault = Fault(at_s=1, kind=Kind.CUT, target="box-a", lasts_s=0)
    done = Injected(fault=fault, wall_ms=0, mended=10.0)
    seen = {"box-a": [Seen(after=9.9, by=10.2), Seen(after=10.2, by=11.5)]}
    assert recovery_s(done, seen) == 1.5
    assert recovery_s(done, {"box-a": []}) is None
