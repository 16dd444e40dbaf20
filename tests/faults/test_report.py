"""What is told of schedules: sums over seeds, and how to repeat one that failed."""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cdui_faults.findings import Findings
from cdui_faults.injector import Injected, recovery_s
from cdui_faults.main import add_arguments, lives, main
from cdui_faults.report import Outcome, as_json, as_markdown
from cdui_faults.schedule import Fault, Kind, Schedule
from cdui_faults.watcher import Seen


def outcome(seed: int, *violations: str) -> Outcome:
    return Outcome(
        seed=seed,
        findings=Findings(violations=list(violations), emitted=10, stored=9, unsent=1),
        faults=Counter({"cut line": 2}),
        skipped=1,
        statuses=Counter(succeeded=3, failed=1),
        online_s={"cut line": [0.5]},
        recovery_s={"cut line": [1.0, float(seed)]},
        took_s=60,
        missing={"clock step": "a C compiler (cc)"},
    )


def test_the_report_adds_up_all_seeds() -> None:
    report = as_json([outcome(2), outcome(4)], "./cdui faults --seeds 2")
    assert (report["faults"]["cut line"], report["runs"], report["emitted"], report["lost"]) == (4, 8, 20, 0)
    assert report["recovery_s"]["cut line"] == {"measured": 4, "median": 1.5, "worst": 4.0}
    assert "| cut line | 4 | 0.5 | 0.5 | 1.5 | 4.0 |" in as_markdown(report)


def test_what_was_left_out_is_said_with_what_it_needs() -> None:
    assert "- clock step was left out: it needs a C compiler (cc)" in as_markdown(as_json([outcome(1)], "x"))


def played(plans: Sequence[Schedule], *_: object) -> Iterator[Outcome]:
    """Seed 8 fails, which ends the life of its site."""
    for plan in plans:
        yield outcome(plan.seed, *["bad"] * (plan.seed == 8))
        if plan.seed == 8:
            return


def test_a_failing_seed_says_how_to_repeat_it_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cdui_faults.play.play", played)
    monkeypatch.setattr("tempfile.mkdtemp", lambda prefix: str(_made(tmp_path / prefix)))
    report = tmp_path / "report"
    assert main(["--seed", "7", "--seeds", "4", "--database", "postgresql", "--report", str(report)]) == 1
    said = capsys.readouterr().out
    assert "seed 7 on" in said
    assert "FAILED" in said
    assert "Repeat it: ./cdui faults --seed 7 --seeds 2 --database postgresql" in said
    found = json.loads((report / "faults.json").read_text())
    assert (found["seeds"], found["failed_seeds"]) == ([7, 8, 9, 10], [8])
    assert found["violations"] == ["seed 8: bad"]
    assert [path.name for path in tmp_path.glob("cdui-faults-*")] == ["cdui-faults-7-"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--seeds", "3"], [((1, 2, 3), "sqlite")]),
        (
            ["--seeds", "5", "--per-site", "2", "--database", "both"],
            [((1, 2), "sqlite"), ((3, 4), "postgresql"), ((5,), "sqlite")],
        ),
        (["--seeds", "2", "--minutes", "1"], [((1,), "sqlite"), ((2,), "sqlite")]),
    ],
)
def test_seeds_share_sites_and_sites_take_turns_with_databases(
    words: list[str], expected: list[tuple[tuple[int, ...], str]]
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert [(life.seeds, life.database) for life in lives(parser.parse_args(words))] == expected


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_recovery_is_what_was_stored_after_the_mending_and_not_just_seen_then() -> None:
    fault = Fault(at_s=1, kind=Kind.CUT, target="box-a", lasts_s=0)
    done = Injected(fault=fault, wall_ms=0, mended=10.0)
    seen = {"box-a": [Seen(after=9.9, by=10.2), Seen(after=10.2, by=11.5)]}
    assert recovery_s(done, seen) == 1.5
    assert recovery_s(done, {"box-a": []}) is None
