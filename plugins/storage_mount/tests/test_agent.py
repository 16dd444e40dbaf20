"""What an agent offers of the mounts that it has saved."""

import asyncio
import logging
import threading
from pathlib import Path

import pytest

from codefyui_core.plugin import AttemptView, Busy, Refused, StartProblem, WorkerView
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble
from codefyui_storage_mount import agent as agent_module
from codefyui_storage_mount.agent import MountAgent, Seen
from codefyui_storage_mount.control import MountControl
from codefyui_storage_mount.marker import mark
from codefyui_storage_mount.models import MountTicket
from codefyui_storage_mount.sight import NoAnswer, Sight


async def agent_with(tmp_path: Path, **mounts: Path) -> MountAgent:
    saved = {"mounts": {label: str(path) for label, path in mounts.items()}}
    agent = MountAgent(AgentStoreDouble(root=tmp_path / "worker", name="mount", saved={**saved}))
    await agent.start()
    return agent


async def test_an_agent_without_mounts_offers_nothing(tmp_path: Path) -> None:
    assert await (await agent_with(tmp_path)).facts() is None


@pytest.mark.spec("mount/saved-mount-with-missing-folder-not-offered")
@pytest.mark.spec("mount/missing-folder-rechecked-each-heartbeat")
async def test_a_folder_that_is_missing_is_offered_as_soon_as_it_appears(tmp_path: Path) -> None:
    late, there = tmp_path / "late", tmp_path / "there"
    there.mkdir()
    agent = await agent_with(tmp_path, data=late, lab=there)
    facts = await agent.facts()
    assert facts is not None
    assert [one.label for one in facts.mounts] == ["lab"]
    late.mkdir()
    marker = mark(late)
    facts = await agent.facts()
    assert facts is not None
    found = facts.of("data")
    assert found is not None
    assert (found.path, found.id, found.readable) == (str(late), marker, True)
    late.rename(tmp_path / "gone")
    facts = await agent.facts()
    assert facts is not None
    assert facts.of("data") is None


async def test_a_file_in_the_place_of_the_folder_is_not_offered(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert await (await agent_with(tmp_path, data=tmp_path / "file")).facts() is None


async def test_a_marker_that_may_not_be_read_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(agent_module, "read_marker", closed)
    facts = await (await agent_with(tmp_path, data=tmp_path)).facts()
    assert facts is not None
    assert facts.mounts[0].readable is False


async def test_a_folder_that_fails_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(folder: Path) -> None:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(agent_module, "read_marker", stale)
    assert await (await agent_with(tmp_path, data=tmp_path)).facts() is None


async def test_a_dead_share_costs_one_thread_and_leaves_the_others_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, alive = tmp_path / "dead", tmp_path / "alive"
    released = threading.Event()
    hanging: list[threading.Thread] = []

    def look(path: Path) -> Seen:
        if path == dead:
            hanging.append(threading.current_thread())
            released.wait(30)
        return Seen(id=None, readable=True)

    monkeypatch.setattr(agent_module, "look", look)
    monkeypatch.setattr(agent_module, "FACTS_WITHIN_S", 0.05)
    agent = await agent_with(tmp_path, dead=dead, alive=alive)
    for _ in range(3):
        facts = await agent.facts()
        assert facts is not None
        assert [one.label for one in facts.mounts] == ["alive"]
    assert len(hanging) == 1
    assert hanging[0].daemon, "the end of the agent would wait for it"
    released.set()
    hanging[0].join(30)
    monkeypatch.setattr(agent_module, "FACTS_WITHIN_S", 30)
    facts = await agent.facts()
    assert facts is not None
    assert [one.label for one in facts.mounts] == ["dead", "alive"]


async def test_a_question_that_fails_is_asked_again() -> None:
    answers = iter([OSError("first"), None])

    def look() -> str:
        error = next(answers)
        if error is not None:
            raise error
        return "second"

    sight = Sight(look, "test")
    with pytest.raises(OSError, match="first"):
        await sight.now(30)
    assert await sight.now(30) == "second"


async def test_an_answer_after_its_asker_left_is_lost_quietly() -> None:
    released = threading.Event()

    def look() -> int:
        released.wait(30)
        raise OSError("too late")

    sight = Sight(look, "test")
    with pytest.raises(NoAnswer):
        await sight.now(0)
    released.set()
    with pytest.raises(OSError, match="too late"):
        await sight.now(30)


async def test_the_log_says_once_that_a_mount_is_another_folder(
    tmp_path: Path, host: ControlStoreDouble, worker: WorkerView, caplog: pytest.LogCaptureFixture
) -> None:
    control = MountControl(host)
    await control.start()
    other = tmp_path / "other"
    other.mkdir()
    agent = await agent_with(tmp_path, data=other)
    await agent.welcomed(await control.welcome(worker))
    with caplog.at_level(logging.WARNING, "codefyui.mount"):
        await agent.facts()
        await agent.facts()
    (record,) = caplog.records
    assert str(other) in record.message
    assert str(host.folders.root) in record.message


async def test_a_run_for_a_label_that_was_forgotten_is_refused(tmp_path: Path, attempt: AttemptView) -> None:
    agent = await agent_with(tmp_path)
    with pytest.raises(Refused, match="--mount data="):
        async with agent.open(attempt, MountTicket(label="data", id=None, root="/a"), None):
            pass


async def test_a_run_never_starts_in_another_folder_than_the_servers(
    tmp_path: Path, attempt: AttemptView
) -> None:
    share = tmp_path / "share"
    share.mkdir()
    agent = await agent_with(tmp_path, data=share, gone=tmp_path / "gone")
    for label in ("data", "gone"):
        with pytest.raises(Busy, match="mount the share again"):
            async with agent.open(attempt, MountTicket(label=label, id="1" * 32, root="/a"), None):
                pass


async def test_a_run_on_a_share_that_hangs_does_not_start(
    tmp_path: Path, attempt: AttemptView, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(agent_module, "look", lambda path: released.wait(30))
    monkeypatch.setattr(agent_module, "OPEN_WITHIN_S", 0.01)
    agent = await agent_with(tmp_path, data=tmp_path)
    with pytest.raises(Busy, match="doesn't answer"):
        async with agent.open(attempt, MountTicket(label="data", id=None, root="/a"), None):
            pass
    released.set()
    await asyncio.sleep(0)


async def test_a_damaged_entry_of_agent_json_stops_the_half(tmp_path: Path) -> None:
    with pytest.raises(StartProblem):
        await MountAgent(AgentStoreDouble(root=tmp_path, saved={"mounts": 5})).start()
