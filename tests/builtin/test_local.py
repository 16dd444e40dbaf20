"""The local storage backend."""

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from codefyui_core.builtin.local.backend import LocalBackend
from codefyui_core.builtin.local.models import FolderPlaces, LocalTicket
from codefyui_core.plugin import (
    AnyBackend,
    Assignment,
    AttemptView,
    Because,
    Family,
    Folders,
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
    WorkerId,
    WorkerView,
)
from codefyui_core.plugin.storage import Discard, DiscardReason
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble, NotesDouble, ProgressDouble
from codefyui_core.testing.suites import StorageSuite

HERE = WorkerView(id=WorkerId("2"), name="here", connected=True, same_machine=True)
AWAY = WorkerView(id=WorkerId("3"), name="away", connected=True)
RUN = RunView(id=RunId("1"), name="train", status=RunStatus.RUNNING)
ATTEMPT = AttemptView(run_id=RUN.id, number=1, worker_id=HERE.id)


class TestLocalHoldsToTheContract(StorageSuite):
    @pytest.fixture
    def backend(self) -> AnyBackend:
        return LocalBackend()


@pytest.fixture
def host(tmp_path: Path) -> ControlStoreDouble:
    host = ControlStoreDouble(root=tmp_path / "control")
    host.folders.of(Family.MODELS).mkdir(parents=True)
    return host


def _assignment(host: ControlStoreDouble, folders: Folders | None = None) -> Assignment[LocalTicket]:
    ticket = LocalTicket(places=FolderPlaces.of(folders or host.folders))
    return Assignment(run=RUN, attempt=ATTEMPT, ticket=ticket)


def _output(relative_path: str) -> Output:
    return Output(key="7", kind="checkpoint", name="x", relative_path=relative_path)


def _receipt(data: bytes) -> Receipt:
    return Receipt.model_validate({"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)})


def _discard(*stored: StoredObject) -> Discard:
    return Discard(run=RUN, stored=stored, why=DiscardReason.DELETE, keep_kinds=frozenset({"output"}))


async def test_only_workers_on_the_servers_machine_are_served(host: ControlStoreDouble) -> None:
    control, agent = LocalBackend().control(host), LocalBackend().agent(AgentStoreDouble(root=host.root))
    await agent.welcomed(await control.welcome(HERE))
    facts = await agent.facts()
    assert isinstance(control.offer(RunFiles(), HERE, facts), Offer)
    refusal = control.offer(RunFiles(), AWAY, facts)
    assert isinstance(refusal, Refusal)
    assert refusal.because is Because.WORKER


async def test_a_worker_elsewhere_is_told_no_paths_and_offers_nothing(host: ControlStoreDouble) -> None:
    control, agent = LocalBackend().control(host), LocalBackend().agent(AgentStoreDouble(root=host.root))
    welcome = await control.welcome(AWAY)
    assert str(host.root) not in str(welcome)
    await agent.welcomed(welcome)
    assert await agent.facts() is None


async def test_an_agent_that_cannot_see_the_servers_folder_does_not_offer_itself(
    host: ControlStoreDouble, tmp_path: Path
) -> None:
    agent = LocalBackend().agent(AgentStoreDouble(root=tmp_path))
    assert await agent.facts() is None
    places = FolderPlaces.of(Folders(root=tmp_path / "not there"))
    await agent.welcomed({"places": places.model_dump(mode="json")})
    assert await agent.facts() is None


@pytest.mark.spec("mount/same-host-run-uses-server-folders-verbatim")
async def test_a_run_works_in_the_servers_folders_moved_ones_too(
    host: ControlStoreDouble, tmp_path: Path
) -> None:
    folders = Folders(root=tmp_path / "data", moved=((Family.MODELS, tmp_path / "m"),))
    agent = LocalBackend().agent(AgentStoreDouble(root=tmp_path))
    async with agent.open(ATTEMPT, _assignment(host, folders).ticket, None) as session:
        assert session.workspace.folders == folders
        assert not session.workspace.private


async def test_what_was_recorded_is_found_after_the_server_moved_its_folders(
    host: ControlStoreDouble, tmp_path: Path
) -> None:
    old = Folders(root=tmp_path / "old")
    old.of(Family.MODELS).mkdir(parents=True)
    (old.of(Family.MODELS) / "a.pt").write_bytes(b"w")
    control = LocalBackend().control(host)
    stored = await control.accept(_assignment(host, old), _output("models/a.pt"), _receipt(b"w"))
    reading = await control.read(stored, None)
    assert isinstance(reading, LocalFile)
    assert reading.path.read_bytes() == b"w"
    assert control.place(stored).path == str(old.of(Family.MODELS) / "a.pt")


async def test_a_folder_is_one_object_and_goes_as_one(host: ControlStoreDouble) -> None:
    folder = host.folders.of(Family.OUTPUT) / "board"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "events").write_bytes(b"e")
    agent, control = LocalBackend().agent(AgentStoreDouble(root=host.root)), LocalBackend().control(host)
    async with agent.open(ATTEMPT, _assignment(host).ticket, None) as session:
        receipt = await session.publish(_output("output/board"), folder, NotesDouble(), ProgressDouble())
    stored = await control.accept(_assignment(host), _output("output/board"), receipt)
    assert (stored.size_bytes, stored.sha256) == (None, None)
    assert control.place(stored).downloadable
    await control.discard(_discard(stored))
    assert not folder.exists()


@pytest.mark.parametrize(
    "name",
    ["models", "models/../../secret", "/etc/passwd", "secret/a", "models/link/secret", "models/gone.pt"],
)
async def test_nothing_outside_the_families_can_be_recorded(host: ControlStoreDouble, name: str) -> None:
    outside = host.root / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"s")
    (host.folders.of(Family.MODELS) / "link").symlink_to(outside)
    with pytest.raises(Refused):
        await LocalBackend().control(host).accept(_assignment(host), _output(name), _receipt(b"s"))


async def test_a_file_swapped_for_a_link_after_it_was_recorded_is_not_read(host: ControlStoreDouble) -> None:
    path = host.folders.of(Family.MODELS) / "a.pt"
    path.write_bytes(b"w")
    control = LocalBackend().control(host)
    stored = await control.accept(_assignment(host), _output("models/a.pt"), _receipt(b"w"))
    secret = host.root / "secret"
    secret.write_bytes(b"w")
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(Refused):
        await control.read(stored, None)
    await control.discard(_discard(stored))
    assert secret.exists()


@pytest.mark.parametrize("receipt", [_receipt(b"longer than it is"), Receipt()])
async def test_a_receipt_that_does_not_fit_the_file_is_refused(
    host: ControlStoreDouble, receipt: Receipt
) -> None:
    (host.folders.of(Family.MODELS) / "a.pt").write_bytes(b"w")
    with pytest.raises(Refused):
        await LocalBackend().control(host).accept(_assignment(host), _output("models/a.pt"), receipt)


async def test_removing_a_run_leaves_what_a_later_run_wrote_over(host: ControlStoreDouble) -> None:
    path = host.folders.of(Family.MODELS) / "a.pt"
    path.write_bytes(b"old")
    control = LocalBackend().control(host)
    stored = await control.accept(_assignment(host), _output("models/a.pt"), _receipt(b"old"))
    path.write_bytes(b"new")
    os.utime(path, ns=(1, 1))
    await control.discard(_discard(stored))
    assert path.read_bytes() == b"new"


def _own(path: Path, **known: Any) -> StoredObject:
    """A row as the server writes it for a run of its own."""
    row: dict[str, Any] = {"relative_path": f"models/{path.name}", "size_bytes": path.stat().st_size}
    return StoredObject(
        **({"key": "7", "kind": "checkpoint", "name": path.name, "sha256": None} | row | known)
    )


async def test_artifacts_of_the_servers_own_runs_are_found_by_their_name(host: ControlStoreDouble) -> None:
    path = host.folders.of(Family.MODELS) / "own.pt"
    path.write_bytes(b"own")
    control = LocalBackend().control(host)
    assert control.place(_own(path)).path == str(path)
    reading = await control.read(_own(path), None)
    assert isinstance(reading, LocalFile)
    assert reading.path == path.resolve()


@pytest.mark.parametrize(
    ("known", "gone"),
    [
        ({}, False),
        ({"sha256": hashlib.sha256(b"own").hexdigest()}, True),
        ({"sha256": hashlib.sha256(b"new").hexdigest()}, False),
        ({"data": {"mtime_ns": 5_000}}, True),
        ({"data": {"mtime_ns": 6_000}}, False),
        ({"size_bytes": 99, "data": {"mtime_ns": 5_000}}, False),
        ({"kind": "output", "data": {"mtime_ns": 5_000}}, False),
    ],
)
async def test_a_file_goes_only_when_it_is_known_to_be_the_runs(
    host: ControlStoreDouble, known: dict[str, Any], gone: bool
) -> None:
    path = host.folders.of(Family.MODELS) / "own.pt"
    path.write_bytes(b"own")
    os.utime(path, ns=(5_000, 5_000))
    await LocalBackend().control(host).discard(_discard(_own(path, **known)))
    assert path.exists() is not gone


async def test_what_lies_outside_the_data_folder_has_no_place(host: ControlStoreDouble) -> None:
    stored = StoredObject(key="7", kind="output", name="x", relative_path="", size_bytes=1, sha256=None)
    control = LocalBackend().control(host)
    place = control.place(stored)
    assert (place.path, place.downloadable) == (None, False)
    with pytest.raises(Refused):
        await control.read(stored, None)
    await control.discard(_discard(stored))


async def test_publishing_what_the_run_removed_is_refused(host: ControlStoreDouble, tmp_path: Path) -> None:
    agent = LocalBackend().agent(AgentStoreDouble(root=tmp_path))
    async with agent.open(ATTEMPT, _assignment(host).ticket, None) as session:
        with pytest.raises(Refused):
            await session.publish(_output("models/a"), tmp_path / "a", NotesDouble(), ProgressDouble())


async def test_links_inside_a_published_folder_are_not_followed(host: ControlStoreDouble) -> None:
    folder = host.folders.of(Family.OUTPUT) / "board"
    folder.mkdir(parents=True)
    (folder / "loop").symlink_to(folder)
    (folder / "dangling").symlink_to(host.root / "nothing")
    progress = ProgressDouble()
    agent = LocalBackend().agent(AgentStoreDouble(root=host.root))
    async with agent.open(ATTEMPT, _assignment(host).ticket, None) as session:
        await session.publish(_output("output/board"), folder, NotesDouble(), progress)
    assert progress.n_bytes == 0
