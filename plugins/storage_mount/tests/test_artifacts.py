"""What runs record on a mount: published on the worker, listed, read and removed on the server."""

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codefyui_core.plugin import (
    Assignment,
    AttemptView,
    Busy,
    Discard,
    DiscardReason,
    Family,
    LocalFile,
    Output,
    Receipt,
    Refused,
    RunView,
    StoredObject,
    WorkerView,
)
from codefyui_core.testing.clock import ManualClock
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble, NotesDouble, ProgressDouble
from codefyui_storage_mount import stored as stored_module
from codefyui_storage_mount.agent import MountAgent, MountSession
from codefyui_storage_mount.control import LAG_S, MountControl
from codefyui_storage_mount.marker import MARKER
from codefyui_storage_mount.models import MountTicket

CONTENT = b"weights"


@pytest.fixture
async def control(host: ControlStoreDouble) -> MountControl:
    made = MountControl(host)
    await made.start()
    return made


@pytest.fixture
async def given(
    control: MountControl, run: RunView, worker: WorkerView, attempt: AttemptView
) -> Assignment[MountTicket]:
    staged = await control.stage(run, worker, attempt)
    return Assignment(run=run, attempt=attempt, ticket=staged.ticket)


@pytest.fixture
async def session(
    agent_host: AgentStoreDouble, given: Assignment[MountTicket]
) -> AsyncIterator[MountSession]:
    agent = MountAgent(agent_host)
    await agent.start()
    async with agent.open(given.attempt, given.ticket, None) as opened:
        yield opened


def output(relative_path: str, kind: str = "checkpoint") -> Output:
    return Output(key="7", kind=kind, name=Path(relative_path).name, relative_path=relative_path)


def receipt(data: bytes = CONTENT) -> Receipt:
    return Receipt.model_validate({"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)})


async def publish(session: MountSession, path: Path) -> Receipt:
    return await session.publish(output("models/a.pt"), path, NotesDouble(), ProgressDouble())


def discard(given: Assignment[MountTicket], *stored: StoredObject, keep: str = "output") -> Discard:
    return Discard(run=given.run, stored=stored, why=DiscardReason.DELETE, keep_kinds=frozenset({keep}))


@pytest.fixture
async def listed(
    control: MountControl, session: MountSession, given: Assignment[MountTicket]
) -> StoredObject:
    """A checkpoint that a run wrote."""
    path = session.workspace.folders.of(Family.MODELS) / "iris" / "a.pt"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    said = await publish(session, path)
    return await control.accept(given, output("models/iris/a.pt"), said)


# ---------------------------------------------------------------- where they are


@pytest.mark.spec("mount/worker-folders-derived-from-mount-path", "mount/paths-may-differ-between-machines")
async def test_the_run_works_below_the_workers_own_path(
    session: MountSession, share: Path, host: ControlStoreDouble
) -> None:
    folders = session.workspace.folders
    assert {folders.of(family) for family in Family} == {share / family.value for family in Family}
    assert not session.workspace.private
    assert session.workspace.known_as == host.folders.root


@pytest.mark.spec("mount/artifact-stored-relative-with-backend-mount")
@pytest.mark.spec("mount/artifact-listed-at-control-plane-path", "mount/paths-may-differ-between-machines")
async def test_a_file_is_recorded_relative_to_the_mount_and_listed_at_the_servers_path(
    control: MountControl, host: ControlStoreDouble, listed: StoredObject
) -> None:
    assert (listed.label, listed.relative_path) == ("data", "models/iris/a.pt")
    place = control.place(listed)
    assert place.path == str(host.folders.root / "models" / "iris" / "a.pt")
    assert place.downloadable
    reading = await control.read(listed, None)
    assert isinstance(reading, LocalFile)
    assert reading.path.read_bytes() == CONTENT


@pytest.mark.spec("mount/worker-folders-from-project-toml")
async def test_a_projects_layout_is_used_on_both_sides(
    host: ControlStoreDouble,
    agent_host: AgentStoreDouble,
    share: Path,
    given: Assignment[MountTicket],
) -> None:
    (host.folders.root / "codefyui.project.toml").write_text('[folders]\nmodels = "weights"')
    control = MountControl(host)
    await control.start()
    agent = MountAgent(agent_host)
    await agent.start()
    async with agent.open(given.attempt, given.ticket, None) as session:
        path = session.workspace.folders.of(Family.MODELS) / "a.pt"
        assert path == share / "weights" / "a.pt"
        path.parent.mkdir()
        path.write_bytes(CONTENT)
        stored = await control.accept(given, output("models/a.pt"), await publish(session, path))
    assert stored.relative_path == "weights/a.pt"
    assert control.place(stored).path == str(host.folders.root / "weights" / "a.pt")


@pytest.mark.spec("mount/artifact-of-unheld-mount-has-null-path")
async def test_a_row_of_a_label_that_the_server_gave_up_has_no_path(
    host: ControlStoreDouble, listed: StoredObject, given: Assignment[MountTicket]
) -> None:
    host.given["mount_label"] = "lab"
    control = MountControl(host)
    await control.start()
    place = control.place(listed)
    assert (place.path, place.downloadable) == (None, False)
    with pytest.raises(Refused, match="in the mount data"):
        await control.read(listed, None)
    with pytest.raises(Refused, match=r"These files stay: models/iris/a\.pt in a mount"):
        await control.discard(discard(given, listed))
    assert (host.folders.root / "models" / "iris" / "a.pt").exists()


async def test_a_row_of_another_folder_with_the_same_label_has_no_path(
    host: ControlStoreDouble, listed: StoredObject
) -> None:
    (host.folders.root / MARKER).unlink()
    control = MountControl(host)
    await control.start()
    assert control.place(listed).path is None


async def test_what_comes_after_the_label_was_given_up_is_recorded_as_its_worker_says(
    host: ControlStoreDouble, given: Assignment[MountTicket]
) -> None:
    host.given["mount_label"] = "lab"
    control = MountControl(host)
    await control.start()
    stored = await control.accept(given, output("models/a.pt"), receipt())
    assert (stored.label, stored.relative_path) == ("data", "models/a.pt")
    assert stored.sha256 == receipt().sha256
    assert control.place(stored).path is None


# ---------------------------------------------------------------- publishing


async def test_a_folder_is_one_object_and_goes_as_one(
    control: MountControl, session: MountSession, given: Assignment[MountTicket]
) -> None:
    board = session.workspace.folders.of(Family.OUTPUT) / "board"
    (board / "train").mkdir(parents=True)
    (board / "train" / "events").write_bytes(b"e")
    (board / "loop").symlink_to(board)
    said = await publish(session, board)
    stored = await control.accept(given, output("output/board", "tensorboard"), said)
    assert (stored.size_bytes, stored.sha256, stored.relative_path) == (None, None, "output/board")
    assert control.place(stored).downloadable
    reading = await control.read(stored, None)
    assert isinstance(reading, LocalFile)
    assert reading.path.samefile(board)
    await control.discard(discard(given, stored))
    assert not board.exists()


async def test_what_leads_out_of_the_mount_is_not_published(session: MountSession, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"s")
    link = session.workspace.folders.of(Family.MODELS) / "link"
    link.symlink_to(outside)
    for path in (outside / "secret", link / "secret", link, session.workspace.folders.root):
        with pytest.raises(Refused, match="leads out"):
            await publish(session, path)


async def test_what_the_run_removed_is_refused(session: MountSession) -> None:
    with pytest.raises(Refused, match="gone"):
        await publish(session, session.workspace.folders.of(Family.MODELS) / "gone.pt")


async def test_a_file_that_does_not_keep_still_is_refused(
    session: MountSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session.workspace.folders.of(Family.MODELS) / "log"
    path.write_bytes(b"x")

    class Writing(ProgressDouble):
        def advance(self, n_bytes: int) -> None:
            with path.open("ab") as file:
                file.write(b"x")

    with pytest.raises(Refused, match="written to"):
        await session.publish(output("models/log"), path, NotesDouble(), Writing())


async def test_nothing_is_published_once_the_share_is_not_mounted_any_more(
    session: MountSession, share: Path, tmp_path: Path
) -> None:
    """The empty mount point is a folder, too."""
    path = share / "models" / "a.pt"
    share.unlink()
    share.mkdir()
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    with pytest.raises(Busy, match="mount the share again"):
        await publish(session, path)


# ---------------------------------------------------------------- what a worker says is checked


@pytest.mark.parametrize(
    "name", ["models", "models/../../secret", "/etc/passwd", "secret/a", "models/link/secret"]
)
async def test_nothing_outside_of_the_families_is_recorded(
    control: MountControl, host: ControlStoreDouble, given: Assignment[MountTicket], name: str
) -> None:
    outside = host.root / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(CONTENT)
    (host.folders.of(Family.MODELS) / "link").symlink_to(outside)
    with pytest.raises(Refused):
        await control.accept(given, output(name), receipt())


async def test_a_file_that_does_not_show_yet_is_waited_for_as_long_as_caches_last(
    host: ControlStoreDouble, control: MountControl, given: Assignment[MountTicket]
) -> None:
    clock = host.clock
    assert isinstance(clock, ManualClock)
    with pytest.raises(Busy):
        await control.accept(given, output("models/a.pt"), receipt())
    await clock.advance(LAG_S)
    path = host.folders.of(Family.MODELS) / "a.pt"
    path.write_bytes(CONTENT[:3])
    with pytest.raises(Busy, match="has 3 bytes"):
        await control.accept(given, output("models/a.pt"), receipt())
    await clock.advance(1)
    with pytest.raises(Refused, match="moved or changed"):
        await control.accept(given, output("models/a.pt"), receipt())
    path.write_bytes(CONTENT)
    assert (await control.accept(given, output("models/a.pt"), receipt())).size_bytes == len(CONTENT)


async def test_a_folder_that_does_not_show_yet_is_waited_for(
    control: MountControl, given: Assignment[MountTicket]
) -> None:
    with pytest.raises(Busy):
        await control.accept(given, output("output/board"), Receipt())


async def test_other_bytes_of_the_same_size_are_refused(
    host: ControlStoreDouble, control: MountControl, given: Assignment[MountTicket]
) -> None:
    (host.folders.of(Family.MODELS) / "a.pt").write_bytes(b"WEIGHTS")
    with pytest.raises(Refused, match="changed meanwhile"):
        await control.accept(given, output("models/a.pt"), receipt())


async def test_a_large_file_is_not_read_again(
    host: ControlStoreDouble,
    control: MountControl,
    given: Assignment[MountTicket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_module, "CHECKED_BYTES", 3)
    (host.folders.of(Family.MODELS) / "a.pt").write_bytes(b"WEIGHTS")
    assert (await control.accept(given, output("models/a.pt"), receipt())).sha256 == receipt().sha256


async def test_a_file_is_not_a_folder_and_a_folder_no_file(
    host: ControlStoreDouble, control: MountControl, given: Assignment[MountTicket]
) -> None:
    (host.folders.of(Family.MODELS) / "a.pt").write_bytes(CONTENT)
    (host.folders.of(Family.MODELS) / "b").mkdir()
    with pytest.raises(Refused):
        await control.accept(given, output("models/a.pt"), Receipt())
    with pytest.raises(Refused):
        await control.accept(given, output("models/b"), receipt(b""))


async def test_a_file_of_another_user_is_recorded_though_the_server_may_not_read_it(
    host: ControlStoreDouble,
    control: MountControl,
    given: Assignment[MountTicket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (host.folders.of(Family.MODELS) / "a.pt").write_bytes(CONTENT)

    class Closed(stored_module.SafeFolder):
        def read(self, name: str):
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(stored_module, "SafeFolder", Closed)
    stored = await control.accept(given, output("models/a.pt"), receipt())
    assert control.place(stored).path is not None
    with pytest.raises(Refused, match="may not read it"):
        await control.read(stored, None)


async def test_a_share_that_fails_is_waited_for(
    control: MountControl, given: Assignment[MountTicket], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(stored_module.SafeFolder):
        def read(self, name: str):
            raise OSError(116, "Stale file handle")

    monkeypatch.setattr(stored_module, "SafeFolder", Failing)
    with pytest.raises(Busy, match="Stale file handle"):
        await control.accept(given, output("models/a.pt"), receipt())


# ---------------------------------------------------------------- reading and removing


async def test_a_file_swapped_for_a_link_is_neither_read_nor_removed(
    control: MountControl, host: ControlStoreDouble, listed: StoredObject, given: Assignment[MountTicket]
) -> None:
    secret = host.root / "secret"
    secret.write_bytes(CONTENT)
    path = host.folders.root / "models" / "iris" / "a.pt"
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(Refused):
        await control.read(listed, None)
    await control.discard(discard(given, listed))
    assert secret.exists()


async def test_removing_a_run_leaves_what_a_later_run_wrote_over(
    control: MountControl, host: ControlStoreDouble, listed: StoredObject, given: Assignment[MountTicket]
) -> None:
    path = host.folders.root / "models" / "iris" / "a.pt"
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(1, 1))
    await control.discard(discard(given, listed))
    assert path.read_bytes() == b"WEIGHTS"


async def test_a_file_that_nobody_looked_at_when_it_came_goes_by_its_content(
    control: MountControl, host: ControlStoreDouble, listed: StoredObject, given: Assignment[MountTicket]
) -> None:
    from dataclasses import replace

    path = host.folders.root / "models" / "iris" / "a.pt"
    unseen = replace(listed, data={})
    path.write_bytes(b"WEIGHTS")
    await control.discard(discard(given, unseen))
    assert path.exists()
    path.write_bytes(CONTENT)
    await control.discard(discard(given, unseen))
    assert not path.exists()


async def test_kept_kinds_stay(
    control: MountControl, host: ControlStoreDouble, listed: StoredObject, given: Assignment[MountTicket]
) -> None:
    await control.discard(discard(given, listed, keep="checkpoint"))
    assert (host.folders.root / "models" / "iris" / "a.pt").exists()


async def test_while_the_servers_share_is_away_nothing_counts_as_gone(
    control: MountControl,
    host: ControlStoreDouble,
    listed: StoredObject,
    given: Assignment[MountTicket],
    worker: WorkerView,
) -> None:
    away = host.folders.root.rename(host.root / "away")
    host.folders.root.mkdir()
    with pytest.raises(Refused, match="mount the share again"):
        await control.discard(discard(given, listed))
    for asked in (
        control.read(listed, None),
        control.accept(given, output("models/iris/a.pt"), receipt()),
        control.stage(given.run, worker, given.attempt),
    ):
        with pytest.raises(Busy, match="mount the share again"):
            await asked
    assert (away / "models" / "iris" / "a.pt").exists()
