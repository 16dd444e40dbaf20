"""The control half: offers, what it accepts, what it removes."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transfer_between import ATTEMPT, WORKER

from codefyui_core.plugin import (
    Arrived,
    Arriving,
    Assignment,
    Because,
    Discard,
    DiscardReason,
    Family,
    InputItem,
    LocalFile,
    Offer,
    Output,
    Receipt,
    Refusal,
    Refused,
    RunFiles,
    RunId,
    RunStatus,
    RunView,
    StoredObject,
)
from codefyui_core.testing.clock import ManualClock
from codefyui_core.testing.hosts import ControlStoreDouble
from codefyui_storage_transfer.control import TransferControl
from codefyui_storage_transfer.models import TransferFacts, TransferTicket

RUN = RunView(id=ATTEMPT.run_id, name="train", status=RunStatus.RUNNING)
FILES = RunFiles(uses_files=True)
CANNOT = RunFiles(uses_files=True, carry_problem="node r reads the plain path a.txt")
GIVEN = Assignment(
    run=RUN,
    attempt=ATTEMPT,
    ticket=TransferTicket(
        max_upload_bytes=1000,
        chunk_bytes=65536,
        inputs=(InputItem(sha256="0" * 64, size_bytes=1, family=Family.FILES, name="train.csv"),),
    ),
)


async def send(host: ControlStoreDouble, data: bytes, *, folder: Path, name: str, key: str = "k") -> None:
    async def chunks() -> Any:
        yield data

    file = Arriving(run_id=RUN.id, key=key, folder=folder, name=name)
    await host.arrivals.append(file, 0, chunks())
    await host.arrivals.finish(file, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


async def sent_checkpoint(host: ControlStoreDouble, control: TransferControl, key: str = "k") -> StoredObject:
    await send(host, b"w", folder=host.run_files / RUN.id, name=f"checkpoint/{key}.pt", key=key)
    return await control.accept(GIVEN, output("checkpoint", f"{key}.pt", key=key), receipt(b"w"))


async def sent_output(host: ControlStoreDouble, control: TransferControl) -> StoredObject:
    await send(host, b"o", folder=host.folders.of(Family.MODELS), name="o.pt", key="o")
    return await control.accept(GIVEN, output("output", "o.pt", "models/o.pt", "o"), receipt(b"o"))


def output(kind: str, name: str, path: str = "models/x", key: str = "k") -> Output:
    return Output(key=key, kind=kind, name=name, relative_path=path)


def receipt(data: bytes) -> Receipt:
    return Receipt(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))


def discard(*stored: StoredObject, why: DiscardReason = DiscardReason.DELETE, keep: str = "") -> Discard:
    return Discard(run=RUN, stored=stored, why=why, keep_kinds=frozenset({"output", keep} - {""}))


def test_it_offers_what_can_travel(control: TransferControl) -> None:
    assert isinstance(control.offer(FILES, WORKER, TransferFacts()), Offer)


@pytest.mark.spec("transfer/refuse-plain-path-readers")
def test_what_cannot_travel_is_refused_with_the_cores_reason(control: TransferControl) -> None:
    for facts in (TransferFacts(), None):
        refusal = control.offer(CANNOT, WORKER, facts)
        assert isinstance(refusal, Refusal)
        assert refusal.because is Because.RUN
        assert refusal.lack == ""
        assert refusal.remedy == f"make the run fit the transfer backend: {CANNOT.carry_problem}"


def test_an_agent_without_the_plugin_is_told_what_to_install(control: TransferControl) -> None:
    refusal = control.offer(FILES, WORKER, None)
    assert isinstance(refusal, Refusal)
    assert refusal.because is Because.WORKER
    assert refusal.remedy == "install codefyui-storage-transfer there"


@pytest.mark.spec("placement/transfer-disabled-refuses-uploads-run", "setting/transfer-enabled")
def test_switched_off_it_says_by_which_setting(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    clock = ManualClock()
    control_host.clock = clock
    assert isinstance(control.offer(FILES, WORKER, TransferFacts()), Offer)
    control_host.given["transfer_enabled"] = False
    clock.jump(1)
    refusal = control.offer(FILES, WORKER, TransferFacts())
    assert isinstance(refusal, Refusal)
    assert refusal.because is Because.OFF
    assert refusal.remedy == "make the run fit the transfer backend: it is off (CODEFYUI_TRANSFER_ENABLED=0)"
    assert control_host.offers_changed_count == 1
    assert "CODEFYUI_TRANSFER_ENABLED=0" in control.condition()


async def test_the_ticket_says_what_is_sent_and_how(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    control_host.uploads[Family.FILES, "a.csv"] = b"a,b"
    control_host.given["transfer_chunk_bytes"] = 1 << 20
    staged = await control.stage(RUN, WORKER, ATTEMPT)
    assert [item.name for item in staged.ticket.inputs] == ["a.csv"]
    assert staged.ticket.chunk_bytes == 1 << 20
    assert staged.ticket.max_upload_bytes == control_host.max_upload_bytes
    assert staged.grant is None


@pytest.mark.spec(
    "transfer/recorded-artifact-path-on-control-plane", "transfer/artifacts-list-backend-transfer"
)
async def test_a_file_of_the_run_is_listed_where_it_lies(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    stored = await sent_checkpoint(control_host, control)
    path = control_host.run_files / RUN.id / "checkpoint/k.pt"
    assert control.place(stored).path == str(path)
    assert await control.read(stored, None) == LocalFile(path=path)


@pytest.mark.spec(
    "transfer/writer-output-placed-where-local-run-writes", "transfer/writer-outputs-have-kind-output"
)
async def test_an_output_is_listed_below_its_family(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    stored = await sent_output(control_host, control)
    assert (stored.kind, stored.relative_path) == ("output", "models/o.pt")


@pytest.mark.parametrize(
    "wrong",
    [
        (output("checkpoint", "k.pt"), receipt(b"x")),
        (output("checkpoint", "other.pt", key="never"), receipt(b"w")),
        (output("output", "k.pt", "models/k.pt"), receipt(b"w")),
        (output("../..", "k.pt"), receipt(b"w")),
        (output("output", "k.pt", "../../k.pt"), receipt(b"w")),
        (output("output", "k.pt", "graphs/k.json"), receipt(b"w")),
    ],
)
async def test_a_receipt_that_does_not_fit_what_arrived_is_refused(
    wrong: tuple[Output, Receipt], control: TransferControl, control_host: ControlStoreDouble
) -> None:
    await sent_checkpoint(control_host, control)
    with pytest.raises(Refused):
        await control.accept(GIVEN, *wrong)


@pytest.mark.spec("transfer/overwritten-input-is-uploaded")
async def test_among_uploads_only_an_input_of_the_run_comes_back(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    files = control_host.folders.of(Family.FILES)
    await send(control_host, b"new", folder=files, name="train.csv")
    stored = await control.accept(GIVEN, output("output", "train.csv", "files/train.csv"), receipt(b"new"))
    assert stored.relative_path == "files/train.csv"
    await send(control_host, b"new", folder=files, name="other.csv", key="k2")
    with pytest.raises(Refused, match="none of the run's inputs"):
        await control.accept(GIVEN, output("output", "other.csv", "files/other.csv", "k2"), receipt(b"new"))


async def test_what_was_moved_or_replaced_is_told(
    control: TransferControl, control_host: ControlStoreDouble, tmp_path: Path
) -> None:
    stored = await sent_checkpoint(control_host, control)
    path = control_host.run_files / RUN.id / "checkpoint/k.pt"
    path.write_bytes(b"longer")
    with pytest.raises(Refused, match="changed"):
        await control.read(stored, None)
    secret = tmp_path / "secret"
    secret.write_bytes(b"s")
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(Refused):
        await control.read(stored, None)
    with pytest.raises(Refused):
        await control.accept(GIVEN, output("checkpoint", "k.pt"), receipt(b"w"))


@pytest.mark.spec("transfer/delete-removes-run-folder", "transfer/placed-outputs-survive-clean-up")
async def test_deleting_a_run_removes_its_folder_and_leaves_what_was_placed(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    checkpoint = await sent_checkpoint(control_host, control)
    placed = await sent_output(control_host, control)
    for _ in range(2):
        await control.discard(discard(checkpoint, placed))
        assert not (control_host.run_files / RUN.id).exists()
        assert (control_host.folders.of(Family.MODELS) / "o.pt").read_bytes() == b"o"


@pytest.mark.spec("transfer/retention-removes-run-folder")
async def test_a_run_of_which_nothing_is_listed_leaves_nothing(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    own = control_host.run_files / RUN.id / "tensorboard"
    own.mkdir(parents=True)
    (own / "unlisted").write_bytes(b"x")
    await control.discard(discard(why=DiscardReason.RETENTION))
    assert not (control_host.run_files / RUN.id).exists()


@pytest.mark.spec("transfer/retention-keeps-checkpoint-of-interrupted-run")
async def test_kept_checkpoints_stay_and_the_rest_goes(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    checkpoint = await sent_checkpoint(control_host, control)
    (control_host.run_files / RUN.id / "tensorboard").mkdir()
    await control.discard(discard(checkpoint, why=DiscardReason.RETENTION, keep="checkpoint"))
    assert [path.name for path in (control_host.run_files / RUN.id).iterdir()] == ["checkpoint"]
    assert isinstance(await control.read(checkpoint, None), LocalFile)


async def test_a_single_artifact_goes_alone(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    one = await sent_checkpoint(control_host, control, "one")
    two = await sent_checkpoint(control_host, control, "two")
    await control.discard(discard(one, why=DiscardReason.ARTIFACT))
    with pytest.raises(Refused):
        await control.read(one, None)
    assert isinstance(await control.read(two, None), LocalFile)


async def test_a_file_that_two_artifacts_share_goes_with_the_last_of_them(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    one = await sent_checkpoint(control_host, control, "one")
    same = replace(one, key="2" * 32)
    control_host.recorded[RUN.id] = {stored.key: stored for stored in (one, same)}
    await control.discard(discard(one, why=DiscardReason.ARTIFACT))
    assert isinstance(await control.read(same, None), LocalFile)
    del control_host.recorded[RUN.id][one.key]
    await control.discard(discard(same, why=DiscardReason.ARTIFACT))
    with pytest.raises(Refused):
        await control.read(same, None)


async def test_a_run_folder_that_became_a_link_is_not_followed(
    control: TransferControl, control_host: ControlStoreDouble, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_bytes(b"mine")
    control_host.run_files.mkdir(parents=True)
    (control_host.run_files / RUN.id).symlink_to(elsewhere)
    with pytest.raises(Exception, match="link"):
        await control.discard(discard())
    assert (elsewhere / "mine").read_bytes() == b"mine"


async def test_settling_drops_what_is_unfinished(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    async def chunks() -> Any:
        yield b"half"

    folder = control_host.run_files / RUN.id
    await control_host.arrivals.append(
        Arriving(run_id=RUN.id, key="half", folder=folder, name="checkpoint/h.pt"), 0, chunks()
    )
    await control.settled(GIVEN)
    assert control_host.arrivals.parts == {}


async def test_what_came_whole_without_a_receipt_is_listed_when_the_attempt_is_settled(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    own, models = control_host.run_files / RUN.id, control_host.folders.of(Family.MODELS)
    await send(control_host, b"w", folder=own, name="checkpoint/deep/e1.pt", key="own")
    await send(control_host, b"o", folder=models, name="iris/o.pt", key="out")
    await sent_checkpoint(control_host, control)
    control_host.arrivals.without_row = {"own", "out"}
    control_host.attempts.clear()
    control_host.settling.add(RUN.id)
    await control.settled(GIVEN)
    found = control_host.recorded[RUN.id]
    assert {key: (one.kind, one.name, one.relative_path) for key, one in found.items()} == {
        "own": ("checkpoint", "deep/e1.pt", f"runs/{RUN.id}/checkpoint/deep/e1.pt"),
        "out": ("output", "models/iris/o.pt", "models/iris/o.pt"),
    }
    for stored, data in ((found["own"], b"w"), (found["out"], b"o")):
        reading = await control.read(stored, None)
        assert isinstance(reading, LocalFile)
        assert reading.path.read_bytes() == data
        assert stored.sha256 == hashlib.sha256(data).hexdigest()


async def test_an_end_that_is_told_late_leaves_a_later_attempt_alone(
    control: TransferControl, control_host: ControlStoreDouble
) -> None:
    async def chunks() -> Any:
        yield b"half"

    file = Arriving(run_id=RUN.id, key="k", folder=control_host.run_files / RUN.id, name="checkpoint/e2.pt")
    await control_host.arrivals.append(file, 0, chunks())
    control_host.attempts[RUN.id] = replace(ATTEMPT, number=2)
    await control.settled(GIVEN)
    assert list(control_host.arrivals.parts) == [(RUN.id, "k")]


async def test_receipts_that_come_together_are_looked_at_together_and_fail_alone(
    control: TransferControl, control_host: ControlStoreDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    lots: list[Sequence[str]] = []
    among = control_host.arrivals.arrived_among

    async def counted(run: RunId, keys: Sequence[str]) -> Mapping[str, Arrived]:
        lots.append(keys)
        return await among(run, keys)

    monkeypatch.setattr(control_host.arrivals, "arrived_among", counted)
    keys = [f"k{number}" for number in range(40)]
    for key in keys[:-1]:
        await send(
            control_host, b"w", folder=control_host.run_files / RUN.id, name=f"checkpoint/{key}.pt", key=key
        )
    (control_host.run_files / RUN.id / "checkpoint" / "k3.pt").unlink()
    asked = (control.accept(GIVEN, output("checkpoint", f"{key}.pt", key=key), receipt(b"w")) for key in keys)
    found = await asyncio.gather(*asked, return_exceptions=True)
    codes = {key: one.code for key, one in zip(keys, found, strict=True) if isinstance(one, Refused)}
    assert codes == {"k3": "artifact.not_found", "k39": "upload.not_found"}
    assert [one.key for one in found if isinstance(one, StoredObject)] == [
        key for key in keys if key not in codes
    ]
    assert len(lots) <= 2
    await control.aclose()
