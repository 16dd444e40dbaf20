"""Which workers the mount backend serves, and what it says of the others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from codefyui_core.plugin import (
    AttemptView,
    Because,
    Family,
    FileRole,
    FileSource,
    FileUse,
    Offer,
    Refusal,
    RunFiles,
    RunView,
    WorkerView,
)
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble
from codefyui_storage_mount.agent import MountAgent
from codefyui_storage_mount.control import MountControl
from codefyui_storage_mount.marker import MARKER, read_marker
from codefyui_storage_mount.models import Mounted, MountFacts

FILES = RunFiles(uses_files=True)


@pytest.fixture
async def control(host: ControlStoreDouble) -> MountControl:
    made = MountControl(host)
    await made.start()
    return made


@pytest.fixture
async def facts(control: MountControl, agent_host: AgentStoreDouble, worker: WorkerView) -> MountFacts:
    agent = MountAgent(agent_host)
    await agent.start()
    await agent.welcomed(await control.welcome(worker))
    found = await agent.facts()
    assert found is not None
    return found


def an_upload(family: Family, *, present: bool = True, source: FileSource = FileSource.UPLOAD) -> RunFiles:
    use = FileUse(
        node_id="read",
        node_type="Reader",
        param="file",
        role=FileRole.READS,
        source=source,
        family=family,
        value="train.csv",
        present=present,
    )
    return RunFiles(uses=(use,), uses_files=True)


@pytest.mark.spec(
    "mount/control-plane-data-folder-has-label-data", "placement/mount-worker-takes-uploads-run"
)
async def test_a_worker_that_has_the_folder_is_served(
    control: MountControl, worker: WorkerView, facts: MountFacts
) -> None:
    assert isinstance(control.offer(FILES, worker, facts), Offer)
    assert isinstance(control.offer(an_upload(Family.FILES), worker, facts), Offer)


@pytest.mark.spec("placement/mount-worker-takes-runs-transfer-cannot-carry")
async def test_why_files_could_not_travel_does_not_matter(
    control: MountControl, worker: WorkerView, facts: MountFacts
) -> None:
    over = RunFiles(uses_files=True, carry_problem="its inputs add up to 3.10 GiB")
    assert isinstance(control.offer(over, worker, facts), Offer)
    assert isinstance(control.offer(an_upload(Family.FILES, present=False), worker, facts), Offer)


@pytest.mark.spec("placement/file-run-needs-mount-or-file-carrier", "placement/refusal-message-text")
async def test_a_worker_without_it_is_told_which_flag_helps(
    control: MountControl, worker: WorkerView
) -> None:
    refusal = control.offer(FILES, worker, None)
    assert isinstance(refusal, Refusal)
    assert refusal.because is Because.WORKER
    assert refusal.lack == "has no `data` mount"
    assert refusal.remedy == "add `--mount data=...` to its agent"


@pytest.mark.spec("mount/label-setting-renames-control-plane-label", "setting/mount-label")
async def test_the_label_is_the_settings(host: ControlStoreDouble, worker: WorkerView, share: Path) -> None:
    host.given["mount_label"] = "lab"
    control = MountControl(host)
    await control.start()
    marker = read_marker(share)
    lab, data = (Mounted(label=label, path=str(share), id=marker) for label in ("lab", "data"))
    assert isinstance(control.offer(FILES, worker, MountFacts(mounts=(data, lab))), Offer)
    refusal = control.offer(FILES, worker, MountFacts(mounts=(data,)))
    assert isinstance(refusal, Refusal)
    assert refusal.lack == "has no `lab` mount"
    assert refusal.remedy == "add `--mount lab=...` to its agent"


async def test_a_mount_of_another_folder_is_refused_in_words_of_its_own(
    control: MountControl, host: ControlStoreDouble, worker: WorkerView, facts: MountFacts
) -> None:
    other = MountFacts(mounts=(facts.mounts[0].model_copy(update={"id": "0" * 32}),))
    unmarked = MountFacts(mounts=(Mounted(label="data", path="/mnt/not/mounted"),))
    for found in (other, unmarked):
        refusal = control.offer(FILES, worker, found)
        assert isinstance(refusal, Refusal)
        assert refusal.because is Because.WORKER
        assert refusal.lack == "has a `data` mount that holds another folder than the server's"
        assert refusal.remedy == f"point `--mount data=...` at the server's folder {host.folders.root}"


async def test_what_can_not_be_compared_is_taken_at_its_label(
    host: ControlStoreDouble, worker: WorkerView, facts: MountFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable = MountFacts(mounts=(Mounted(label="data", path="/b", readable=False),))
    control = MountControl(host)
    await control.start()
    assert isinstance(control.offer(FILES, worker, unreadable), Offer)

    def read_only(folder: Path) -> str:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("codefyui_storage_mount.control.mark", read_only)
    control = MountControl(host)
    await control.start()
    assert isinstance(control.offer(FILES, worker, facts), Offer)
    assert isinstance(control.offer(FILES, worker, unreadable), Offer)
    assert "Read-only file system" in control.condition()


async def test_a_run_is_staged_without_a_marker_that_can_be_read(
    host: ControlStoreDouble,
    worker: WorkerView,
    run: RunView,
    attempt: AttemptView,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def closed(folder: Path) -> str:
        raise PermissionError(13, "Permission denied")

    for name in ("mark", "read_marker"):
        monkeypatch.setattr(f"codefyui_storage_mount.control.{name}", closed)
    control = MountControl(host)
    await control.start()
    assert (await control.stage(run, worker, attempt)).ticket.id is None


async def test_facts_of_a_worker_that_is_away_outlive_a_restart_of_the_server(
    control: MountControl, host: ControlStoreDouble, worker: WorkerView, facts: MountFacts
) -> None:
    again = MountControl(host)
    await again.start()
    stored = MountFacts.model_validate_json(facts.model_dump_json())
    assert isinstance(again.offer(FILES, replace(worker, connected=False), stored), Offer)


async def test_of_the_servers_own_machine_the_local_backend_has_more_to_say(
    control: MountControl, worker: WorkerView
) -> None:
    refusal = control.offer(FILES, replace(worker, same_machine=True), None)
    assert isinstance(refusal, Refusal)
    assert refusal.because is Because.OFF


@pytest.mark.spec("mount/project-uploads-not-shared")
async def test_an_upload_outside_of_the_shared_folder_is_found_by_no_worker(
    host: ControlStoreDouble,
    worker: WorkerView,
    facts: MountFacts,
    elsewhere: Callable[..., ControlStoreDouble],
) -> None:
    control = MountControl(elsewhere(Family.FILES))
    await control.start()
    refusal = control.offer(an_upload(Family.FILES), worker, facts)
    assert isinstance(refusal, Refusal)
    assert refusal.because is Because.RUN
    assert "train.csv" in refusal.lack
    assert str(host.root / "elsewhere") in refusal.lack
    assert isinstance(control.offer(an_upload(Family.MODELS), worker, facts), Offer)
    assert isinstance(control.offer(an_upload(Family.FILES, present=False), worker, facts), Offer)
    assert "without files" in control.condition()


async def test_what_an_earlier_run_left_is_found_when_it_lies_in_the_shared_folder(
    control: MountControl,
    host: ControlStoreDouble,
    worker: WorkerView,
    facts: MountFacts,
    elsewhere: Callable[..., ControlStoreDouble],
) -> None:
    left = an_upload(Family.MODELS, source=FileSource.ARTIFACT)
    assert isinstance(control.offer(left, worker, facts), Offer)
    moved = MountControl(elsewhere(Family.FILES, Family.IMAGES, Family.MODELS, Family.MEDIA))
    for family in (Family.FILES, Family.IMAGES, Family.MODELS, Family.MEDIA):
        (host.root / "elsewhere" / family.value).mkdir(parents=True)
    await moved.start()
    there = MountFacts(mounts=(Mounted(label="data", path="/b", id=read_marker(host.root / "elsewhere")),))
    assert isinstance(moved.offer(an_upload(Family.MODELS), worker, there), Offer)
    assert isinstance(moved.offer(left, worker, there), Refusal)


@pytest.mark.spec("mount/agent-flag-label-equals-path", "mount/same-host-workers-api-shows-server-path")
async def test_the_workers_row_has_its_mounts_and_the_servers_path_on_its_own_machine(
    control: MountControl, host: ControlStoreDouble, worker: WorkerView, facts: MountFacts, share: Path
) -> None:
    here = replace(worker, same_machine=True)
    root = str(host.folders.root)
    assert control.worker_fields(worker, facts) == {"mounts": {"data": str(share)}}
    assert control.worker_fields(worker, None) == {"mounts": {}}
    assert control.worker_fields(here, None) == {"mounts": {"data": root}}
    assert control.worker_fields(here, facts) == {"mounts": {"data": root}}


async def test_a_ticket_says_which_folder_and_nothing_of_the_run(
    control: MountControl,
    host: ControlStoreDouble,
    worker: WorkerView,
    run: RunView,
    attempt: AttemptView,
) -> None:
    ticket = (await control.stage(run, worker, attempt)).ticket
    assert (ticket.label, ticket.root, ticket.inputs) == ("data", str(host.folders.root), ())
    assert ticket.id is not None
    assert ticket.id in (host.folders.root / MARKER).read_text()
