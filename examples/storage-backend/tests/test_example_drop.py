"""The drop folder holds to the contract of storage backends, and does what it says."""

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from codefyui_example_drop.models import input_name, output_name
from codefyui_example_drop.plugin import DropBackend

from codefyui_core.plugin import (
    AnyBackend,
    AttemptView,
    Because,
    Busy,
    Family,
    Offer,
    Receipt,
    Refusal,
    Refused,
    RunFiles,
    StartProblem,
    WorkerView,
)
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble, NotesDouble, ProgressDouble
from codefyui_core.testing.suites import StorageSuite
from codefyui_core.testing.suites.storage import CONTENT


class TestTheDropFolder(StorageSuite):
    @pytest.fixture
    def drop(self, tmp_path: Path) -> Path:
        folder = tmp_path / "drop"
        folder.mkdir()
        return folder

    @pytest.fixture
    def backend(self) -> AnyBackend:
        return DropBackend()

    @pytest.fixture
    async def control_host(
        self, drop: Path, attempt: AttemptView, uploads: dict[tuple[Family, str], bytes], tmp_path: Path
    ) -> AsyncIterator[ControlStoreDouble]:
        host = ControlStoreDouble(
            root=tmp_path / "control", name="drop", uploads=uploads, given={"example_drop_dir": drop}
        )
        host.attempts[attempt.run_id] = attempt
        yield host
        await host.aclose()

    @pytest.fixture
    async def agent_host(self, control: Any, drop: Path, tmp_path: Path) -> AsyncIterator[AgentStoreDouble]:
        other_way = tmp_path / "mnt"
        other_way.symlink_to(drop)
        saved = DropBackend().settle({"drop": str(other_way)}, {})
        host = AgentStoreDouble(root=tmp_path / "agent", name="drop", saved=saved)
        yield host
        await host.aclose()

    async def test_an_input_that_is_still_on_its_way_is_asked_for_again(
        self, agent, facts, given, drop, tmp_path
    ):
        (item,) = given.assignment.ticket.inputs
        there = drop / input_name(given.assignment.attempt, item.sha256)
        there.rename(tmp_path / "late")
        async with self.opened(agent, given) as session:
            with pytest.raises(Busy):
                await session.fetch(item, tmp_path / "into", ProgressDouble())
            (tmp_path / "late").rename(there)
            assert await session.fetch(item, tmp_path / "into", ProgressDouble()) == item.sha256

    async def test_an_output_that_is_still_on_its_way_is_waited_for(
        self, control, agent, facts, given, drop, tmp_path
    ):
        async with self.opened(agent, given) as session:
            output, receipt = await self.publish(session)
        there = drop / output_name(given.assignment.attempt, output.key)
        there.rename(tmp_path / "late")
        with pytest.raises(Busy):
            await control.accept(given.assignment, output, receipt)
        (tmp_path / "late").rename(there)
        assert (await control.accept(given.assignment, output, receipt)).size_bytes == len(CONTENT)

    async def test_other_content_than_the_worker_says_is_refused(self, control, agent, facts, given):
        async with self.opened(agent, given) as session:
            output, _ = await self.publish(session)
        lie = Receipt(sha256=hashlib.sha256(b"other").hexdigest(), size_bytes=len(CONTENT))
        with pytest.raises(Refused):
            await control.accept(given.assignment, output, lie)

    async def test_a_link_out_of_the_folder_is_not_followed(
        self, control, agent, facts, given, drop, tmp_path
    ):
        async with self.opened(agent, given) as session:
            output, receipt = await self.publish(session)
        there = drop / output_name(given.assignment.attempt, output.key)
        there.rename(tmp_path / "elsewhere")
        there.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(Refused):
            await control.accept(given.assignment, output, receipt)

    async def test_a_name_that_leads_elsewhere_is_refused(self, control, agent, facts, given):
        async with self.opened(agent, given) as session:
            output, receipt = await self.publish(session)
        climbing = output.model_copy(update={"kind": "../../.."})
        with pytest.raises(Refused):
            await control.accept(given.assignment, climbing, receipt)

    async def test_a_stopped_transfer_leaves_no_half_file(self, agent, facts, given, drop):
        output = self.output("models/large.pt")
        before = sorted(drop.rglob("*"))
        async with self.opened(agent, given) as session:
            path = session.workspace.folders.locate(output.relative_path)
            path.parent.mkdir(parents=True)
            path.write_bytes(CONTENT)
            with pytest.raises(Exception, match="the test stops"):
                await session.publish(output, path, NotesDouble(), ProgressDouble(stop_after=1))
        assert [one for one in sorted(drop.rglob("*")) if one.is_file() and one not in before] == []

    async def test_the_folder_is_empty_after_the_run_and_the_output_is_still_there(
        self, control, agent, facts, given, drop
    ):
        stored = await self.published(control, agent, given)
        await control.settled(given.assignment)
        assert [path.name for path in drop.iterdir()] == ["drop-id"]
        assert await self.bytes_of(await control.read(stored, None)) == CONTENT

    async def test_an_agent_that_sees_another_folder_is_told_what_to_do(
        self, control, agent, facts, files, worker, drop
    ):
        (drop / "drop-id").write_text("another")
        refusal = control.offer(files, worker, await agent.facts())
        assert isinstance(refusal, Refusal)
        assert refusal.lack == "sees another drop folder"
        assert "--drop" in refusal.remedy

    async def test_a_mark_comes_back_after_a_restart(
        self, backend, control, control_host, facts, files, worker
    ):
        again = backend.control(control_host)
        await again.start()
        assert isinstance(again.offer(files, worker, facts), Offer)

    async def test_inputs_that_cant_travel_are_refused_with_the_reason(self, control, facts, worker):
        refusal = control.offer(RunFiles(uses_files=True, carry_problem="cats is a folder"), worker, facts)
        assert isinstance(refusal, Refusal)
        assert refusal.because is Because.RUN
        assert "cats is a folder" in refusal.remedy

    async def test_an_agent_without_the_folder_doesnt_offer_it(self, backend, tmp_path):
        gone = AgentStoreDouble(root=tmp_path, saved={"path": str(tmp_path / "gone")})
        assert await backend.agent(gone).facts() is None
        assert await backend.agent(AgentStoreDouble(root=tmp_path)).facts() is None


@pytest.mark.parametrize("given", [{}, {"example_drop_dir": "/dev/null/drop"}])
async def test_without_a_usable_folder_it_is_off_and_says_why(tmp_path, given):
    half = DropBackend().control(ControlStoreDouble(root=tmp_path, given=given))
    await half.start()
    worker = WorkerView(id="0" * 32, name="gpu", connected=True)
    refusal = half.offer(RunFiles(uses_files=True), worker, None)
    assert isinstance(refusal, Refusal)
    assert refusal.because is Because.OFF
    assert "CODEFYUI_EXAMPLE_DROP_DIR" in refusal.remedy
    assert half.condition().startswith("off")


def test_the_option_is_kept_and_a_missing_folder_stops_the_start(tmp_path):
    backend = DropBackend()
    saved = backend.settle({"drop": str(tmp_path)}, {})
    assert json.loads(json.dumps(saved)) == {"path": str(tmp_path)}
    assert backend.settle({"drop": None}, saved) == saved
    with pytest.raises(StartProblem, match="no such folder"):
        backend.settle({"drop": str(tmp_path / "absent")}, saved)
