"""The checks of files: each kind of damage is noticed, and what a fault may do to a file is none."""

import dataclasses
import hashlib
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from cdui_faults import carried
from cdui_faults.findings import Findings
from cdui_faults.journal import Journal
from cdui_faults.stored import Artifact, StoredRun
from cdui_faults.uploads import HASHES, FilePlan, draw
from cdui_faults.watcher import Asked


def sha(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


PLAN = FilePlan(
    input="small.bin", checkpoints=(3,), outputs=(3,), latest=False, shared=False, folder=False, sync=True
)
ASKED = Asked(
    label="r0", target="box-a", n=3, pause_ms=0, ending="return", deaf=False, files=PLAN, run_id="a"
)
STEP, MODEL = sha(b"step"), sha(b"model")
JOURNAL = Journal(
    over=True,
    inputs=(("small.bin", HASHES["small.bin"]),),
    begun=(("models/r0/step-1.bin", STEP), ("output/r0/output-1.bin", MODEL)),
    wrote=(("models/r0/step-1.bin", STEP), ("output/r0/output-1.bin", MODEL)),
)
ROW = Artifact(
    artifact_id="1",
    kind="checkpoint",
    name="step-1.bin",
    backend="transfer",
    state="stored",
    relative_path="runs/a/checkpoint/step-1.bin",
    sha256=STEP,
    wanted=STEP,
)
OUTPUT = dataclasses.replace(
    ROW,
    artifact_id="2",
    kind="output",
    name="output/r0/output-1.bin",
    relative_path="output/r0/output-1.bin",
    sha256=MODEL,
    wanted=None,
)
WARNED = {"types": ("run_warning",), "payloads": ({"kind": "transfer_failed"},)}
RUN = StoredRun(
    run_id="a",
    name="r0",
    status="succeeded",
    cause=None,
    error=None,
    finished_ms=1,
    last_cursor=0,
    cursors=(),
    types=(),
    payloads=(),
    stamps=(),
    counts=(),
    attempts=(),
)


def problems(
    monkeypatch: pytest.MonkeyPatch,
    *artifacts: Artifact,
    journal: Journal = JOURNAL,
    bytes_of: dict[str, str] | None = None,
    statuses: dict[str, int] | None = None,
    asked: Asked = ASKED,
    kept: Sequence[str] = (),
    **run: object,
) -> str:
    """What is said, with the server's answers as given: by default, every row is what it says."""

    def get(site: object, run: StoredRun, row: Artifact) -> carried.Got:
        digest = (bytes_of or {}).get(row.artifact_id, row.sha256 or "")
        status = (statuses or {}).get(row.artifact_id, 200)
        stored = row.state == "stored"
        return carried.Got(row=row, status=status * stored, digest=digest if stored else "")

    monkeypatch.setattr(carried, "_get", get)
    found = Findings()
    watcher = SimpleNamespace(asked={"r0": asked}, journal=lambda _: journal)
    site = SimpleNamespace(carrying=SimpleNamespace(kept=lambda _: kept))
    carried.check(site, [dataclasses.replace(RUN, artifacts=artifacts, **run)], watcher, found)
    return "; ".join(found.violations)


def left(row: Artifact) -> Artifact:
    return dataclasses.replace(row, state="on_worker", sha256=None)


def test_what_was_written_and_is_listed_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems(monkeypatch, ROW, OUTPUT) == ""


def test_a_file_left_on_the_worker_is_sound_with_a_warning_and_not_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert problems(monkeypatch, ROW, left(OUTPUT), **WARNED) == ""
    assert "without a warning" in problems(monkeypatch, ROW, left(OUTPUT))


def test_a_missing_file_is_noticed_after_every_end_that_the_agent_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for ending in ({}, {"status": "failed", "cause": "user_code"}, {"status": "cancelled"}):
        assert "output-1.bin was written and isn't listed" in problems(monkeypatch, ROW, **ending)
    assert problems(monkeypatch, ROW, status="interrupted", cause="lease_lost") == ""


def test_other_bytes_than_the_run_wrote_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    torn = sha(b"ste")
    assert "another hash than it has" in problems(monkeypatch, ROW, OUTPUT, bytes_of={"1": torn})
    same = dataclasses.replace(ROW, sha256=torn)
    assert "isn't what was recorded" in problems(monkeypatch, same, OUTPUT)
    never = dataclasses.replace(OUTPUT, sha256=torn)
    assert "a content that the run never wrote" in problems(monkeypatch, ROW, never)
    other = dataclasses.replace(OUTPUT, sha256=STEP)
    assert "has the content of" in problems(monkeypatch, ROW, other)


def test_a_file_that_a_killed_run_had_half_written_may_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = dataclasses.replace(
        OUTPUT, artifact_id="3", name="output/r0/output-2.bin.tmp", relative_path="x.tmp", sha256=sha(b"mo")
    )
    assert problems(monkeypatch, ROW, OUTPUT, beside, status="failed", cause="signal") == ""


def test_a_checkpoint_may_hold_what_replaced_it_and_not_what_it_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = sha(b"epoch 1"), sha(b"epoch 2")
    versions = tuple(("models/r0/latest.bin", digest) for digest in (first, second))
    journal = dataclasses.replace(JOURNAL, begun=versions, wrote=versions)
    one = dataclasses.replace(ROW, name="latest.bin", sha256=second, wanted=first)
    two = dataclasses.replace(one, artifact_id="2", relative_path="latest-1.bin", wanted=second)
    assert problems(monkeypatch, one, two, journal=journal) == ""
    shared = dataclasses.replace(two, relative_path=one.relative_path)
    assert problems(monkeypatch, one, shared, journal=journal) == ""
    before = dataclasses.replace(two, sha256=first)
    assert "isn't what was recorded" in problems(monkeypatch, one, before, journal=journal)


@pytest.mark.parametrize("status", [404, 409, 503])
def test_a_row_without_a_file_is_noticed(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    assert f"status {status}" in problems(monkeypatch, ROW, OUTPUT, statuses={"2": status})


def test_two_rows_for_one_file_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    again = dataclasses.replace(OUTPUT, artifact_id="3")
    assert "listed more than once" in problems(monkeypatch, ROW, OUTPUT, again)
    again = dataclasses.replace(ROW, artifact_id="3", relative_path="elsewhere")
    assert "listed more often" in problems(monkeypatch, ROW, OUTPUT, again)


def test_an_object_that_nothing_lists_is_noticed_unless_a_file_was_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = (str(ROW.relative_path), "runs/a/checkpoint/step-1-1.bin")
    assert problems(monkeypatch, ROW, OUTPUT, kept=kept[:1]) == ""
    assert "step-1-1.bin is in the store and isn't listed" in problems(monkeypatch, ROW, OUTPUT, kept=kept)
    assert problems(monkeypatch, ROW, left(OUTPUT), kept=kept, **WARNED) == ""


def test_a_file_that_is_still_arriving_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is arriving after the end" in problems(
        monkeypatch, ROW, dataclasses.replace(OUTPUT, state="arriving"), **WARNED
    )


def test_an_input_with_other_bytes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = dataclasses.replace(JOURNAL, inputs=(("small.bin", sha(b"torn")),))
    assert "read small.bin with other content" in problems(monkeypatch, ROW, OUTPUT, journal=journal)


def test_the_servers_own_runs_list_what_they_record_and_have_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    own = dataclasses.replace(ROW, backend="local", sha256=None)
    asked = dataclasses.replace(ASKED, target="server")
    assert problems(monkeypatch, own, asked=asked, bytes_of={"1": STEP}) == ""
    assert "isn't what was recorded" in problems(monkeypatch, own, asked=asked, bytes_of={"1": MODEL})


def test_the_journal_keeps_what_was_read_and_written(tmp_path) -> None:
    path = tmp_path / "r0"
    path.write_text(
        f"start 7\nread small.bin {STEP}\n0\nwrites models/a {MODEL}\nwrote models/a {MODEL}\nwrites mod"
    )
    journal = Journal.read(path)
    assert (journal.inputs, journal.begun, journal.wrote) == (
        (("small.bin", STEP),),
        (("models/a", MODEL),),
        (("models/a", MODEL),),
    )
    assert journal.counts == (0,)


def test_runs_in_shared_folders_replace_nothing_and_leave_nothing_unrecorded() -> None:
    import random

    plans = [draw(random.Random(seed), carried=False) for seed in range(50)]
    assert not any(plan.latest or plan.shared or plan.folder for plan in plans)
    carried_plans = [draw(random.Random(seed), carried=True) for seed in range(50)]
    assert {plan.latest for plan in carried_plans} == {True, False}
