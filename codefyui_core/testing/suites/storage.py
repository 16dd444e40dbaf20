"""The suite for storage backends."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pydantic import SecretStr

from codefyui_core.errors import CodefyError, StorageProblem
from codefyui_core.ids import RunId, WorkerId
from codefyui_core.loading import answers, check_routes
from codefyui_core.plugin import (
    AnyBackend,
    Assignment,
    AttemptView,
    Discard,
    DiscardReason,
    Facts,
    Family,
    LocalFile,
    Offer,
    Output,
    Reading,
    Receipt,
    Redirect,
    Refusal,
    RunFiles,
    RunStatus,
    RunView,
    StorageAgent,
    StorageControl,
    StorageKind,
    StorageSession,
    StoredObject,
    WorkerView,
)
from codefyui_core.testing.hosts import (
    AgentStoreDouble,
    ControlStoreDouble,
    NotesDouble,
    ProgressDouble,
)

AnyControl: TypeAlias = StorageControl[Any, Any, Any, Any]
AnyAgent: TypeAlias = StorageAgent[Any, Any, Any, Any]
AnySession: TypeAlias = StorageSession[Any, Any]

DEADLINE_S = 30
CONTENT = b"weights " * 5000


class StorageSuite:
    """Override ``backend``; for a carrier that talks to the control plane, ``connection`` in ``agent_host`` (see
    ``served_routes``); for one whose bytes are read elsewhere, ``bytes_of``.
    """

    @pytest.fixture
    def backend(self) -> AnyBackend:
        """The descriptor under test."""
        raise NotImplementedError("override the fixture `backend`")

    @pytest.fixture
    def worker(self) -> WorkerView:
        """A worker that the backend serves."""
        return WorkerView(id=WorkerId("0" * 31 + "2"), name="gpu", connected=True, same_machine=True)

    @pytest.fixture
    def files(self) -> RunFiles:
        """What a run uses that the backend serves."""
        return RunFiles(uses_files=True)

    @pytest.fixture
    def run(self, files: RunFiles, worker: WorkerView) -> RunView:
        return RunView(
            id=RunId("0" * 31 + "1"),
            name="train",
            status=RunStatus.QUEUED,
            files=files,
            worker_id=worker.id,
        )

    @pytest.fixture
    def attempt(self, run: RunView, worker: WorkerView) -> AttemptView:
        return AttemptView(run_id=run.id, number=1, worker_id=worker.id)

    @pytest.fixture
    def uploads(self) -> dict[tuple[Family, str], bytes]:
        """The inputs of the run: where they lie on the control plane, and their bytes."""
        return {(Family.IMAGES, "cats/one.png"): b"\x89PNG" * 3000}

    @pytest.fixture
    async def control_host(
        self,
        backend: AnyBackend,
        attempt: AttemptView,
        uploads: dict[tuple[Family, str], bytes],
        tmp_path: Path,
    ) -> AsyncIterator[ControlStoreDouble]:
        host = ControlStoreDouble(root=tmp_path / "control", name=backend.name, uploads=uploads)
        host.attempts[attempt.run_id] = attempt
        host.folders.root.mkdir(parents=True)
        yield host
        await host.aclose()

    @pytest.fixture
    async def agent_host(
        self, backend: AnyBackend, control: AnyControl, tmp_path: Path
    ) -> AsyncIterator[AgentStoreDouble]:
        host = AgentStoreDouble(root=tmp_path / "agent", name=backend.name)
        yield host
        await host.aclose()

    @pytest.fixture
    async def control(
        self, backend: AnyBackend, control_host: ControlStoreDouble
    ) -> AsyncIterator[AnyControl]:
        half = backend.control(control_host)
        check_routes((backend.name, route) for route in half.routes())
        await half.start()
        yield half
        await asyncio.wait_for(half.aclose(), 5)

    @pytest.fixture
    async def agent(self, backend: AnyBackend, agent_host: AgentStoreDouble) -> AsyncIterator[AnyAgent]:
        half = backend.agent(agent_host)
        await half.start()
        yield half
        await asyncio.wait_for(half.aclose(), 5)

    @pytest.fixture
    async def facts(self, control: AnyControl, agent: AnyAgent, worker: WorkerView) -> Facts | None:
        """What the agent says after it was welcomed."""
        await agent.welcomed(await control.welcome(worker))
        return await asyncio.wait_for(agent.facts(), 5)

    @pytest.fixture
    async def given(
        self, control: AnyControl, run: RunView, worker: WorkerView, attempt: AttemptView
    ) -> "_Given":
        """The run, staged and sent."""
        staged = await control.stage(run, worker, attempt)
        return _Given(Assignment(run=run, attempt=attempt, ticket=staged.ticket), staged.grant)

    async def bytes_of(self, reading: Reading) -> bytes:
        """The bytes that a person gets."""
        if isinstance(reading, LocalFile):
            return reading.path.read_bytes()
        if isinstance(reading, Redirect):
            raise NotImplementedError("override `bytes_of` for a backend that redirects")
        return b"".join([chunk async for chunk in reading.chunks])

    # ------------------------------------------------------------ the descriptor and what travels

    def test_the_descriptor_is_one_that_the_loader_takes(self, backend: AnyBackend) -> None:
        assert answers.backends([backend]) == (backend,)

    def test_its_options_are_click_options(self, backend: AnyBackend) -> None:
        import click

        assert all(isinstance(option, click.Option) for option in backend.agent_options())

    def test_settle_without_options_keeps_what_was_saved(self, backend: AnyBackend) -> None:
        assert backend.settle({}, {}) == {}

    def test_tickets_and_receipts_have_no_secret_fields(self, backend: AnyBackend) -> None:
        for model in (backend.ticket, backend.receipt, backend.facts):
            secret = [name for name, one in model.model_fields.items() if one.annotation is SecretStr]
            assert not secret, f"{model.__name__} is stored, so {secret} belong into the grant"

    async def test_a_ticket_survives_being_stored(self, backend: AnyBackend, given: "_Given") -> None:
        ticket = given.assignment.ticket
        assert isinstance(ticket, backend.ticket)
        assert backend.ticket.model_validate_json(ticket.model_dump_json()) == ticket

    async def test_a_grant_shows_its_secrets_to_the_core_alone(
        self, backend: AnyBackend, given: "_Given"
    ) -> None:
        if given.grant is None:
            return
        assert isinstance(given.grant, backend.grant)
        sent = given.grant.model_dump_json(context={"reveal": True})
        assert backend.grant.model_validate_json(sent) == given.grant

    # ------------------------------------------------------------ placement

    async def test_it_offers_itself_to_a_worker_that_it_serves(
        self, control: AnyControl, files: RunFiles, worker: WorkerView, facts: Facts | None
    ) -> None:
        assert facts is not None, "the agent doesn't offer the backend"
        assert isinstance(control.offer(files, worker, facts), Offer)

    async def test_offers_are_equal_for_equal_questions(
        self, control: AnyControl, files: RunFiles, worker: WorkerView, facts: Facts | None
    ) -> None:
        assert control.offer(files, worker, facts) == control.offer(files, worker, facts)

    async def test_a_worker_without_the_backend_is_refused_with_a_remedy(
        self, control: AnyControl, files: RunFiles, worker: WorkerView
    ) -> None:
        refusal = control.offer(files, worker, None)
        assert isinstance(refusal, Refusal)
        assert refusal.reason
        assert refusal.lack
        assert refusal.remedy

    async def test_worker_fields_are_the_declared_ones(
        self, backend: AnyBackend, control: AnyControl, worker: WorkerView, facts: Facts | None
    ) -> None:
        assert set(control.worker_fields(worker, facts)) <= set(backend.worker_fields)
        assert set(control.worker_fields(worker, None)) <= set(backend.worker_fields)

    # ------------------------------------------------------------ inputs

    async def test_inputs_arrive_whole(
        self,
        backend: AnyBackend,
        agent: AnyAgent,
        facts: Facts | None,
        given: "_Given",
        uploads: dict[tuple[Family, str], bytes],
        tmp_path: Path,
    ) -> None:
        async with self.opened(agent, given) as session:
            if backend.kind is StorageKind.SHARED:
                self.check_shared(session, given, uploads)
                return
            items = given.assignment.ticket.inputs
            assert {(item.family, item.name) for item in items} == set(uploads)
            for item in items:
                into = tmp_path / item.sha256
                into.touch()
                said = await session.fetch(item, into, ProgressDouble())
                assert into.read_bytes() == uploads[item.family, item.name]
                assert said in {None, item.sha256}

    def check_shared(
        self, session: AnySession, given: "_Given", uploads: dict[tuple[Family, str], bytes]
    ) -> None:
        """A shared workspace: nothing is fetched, and the run's folders are the ones that it sees."""
        assert given.assignment.ticket.inputs == ()
        assert not session.workspace.private

    # ------------------------------------------------------------ outputs

    async def test_an_output_arrives_whole_and_can_be_read(
        self, control: AnyControl, agent: AnyAgent, facts: Facts | None, given: "_Given"
    ) -> None:
        stored = await self.published(control, agent, given)
        assert stored.key == "0" * 31 + "7"
        assert stored.size_bytes == len(CONTENT)
        assert stored.sha256 == hashlib.sha256(CONTENT).hexdigest()
        assert await self.bytes_of(await control.read(stored, None)) == CONTENT
        assert control.place(stored).downloadable

    async def test_a_receipt_that_comes_twice_gives_the_same_object(
        self, backend: AnyBackend, control: AnyControl, agent: AnyAgent, facts: Facts | None, given: "_Given"
    ) -> None:
        async with self.opened(agent, given) as session:
            output, receipt = await self.publish(session)
        again = backend.receipt.model_validate_json(receipt.model_dump_json())
        first = await control.accept(given.assignment, output, receipt)
        assert await control.accept(given.assignment, output, again) == first

    async def test_publishing_again_is_the_same_as_once(
        self, control: AnyControl, agent: AnyAgent, facts: Facts | None, given: "_Given"
    ) -> None:
        async with self.opened(agent, given) as session:
            await self.publish(session)
            output, receipt = await self.publish(session)
        stored = await control.accept(given.assignment, output, receipt)
        assert await self.bytes_of(await control.read(stored, None)) == CONTENT

    async def test_an_output_that_never_came_is_refused(
        self, backend: AnyBackend, control: AnyControl, given: "_Given"
    ) -> None:
        output = self.output("models/never.pt", key="0" * 31 + "8")
        with pytest.raises(StorageProblem):
            await control.accept(given.assignment, output, self.forged_receipt(backend))

    def forged_receipt(self, backend: AnyBackend) -> Receipt:
        """What a worker would say that lies. Override for a receipt with more required fields."""
        digest = hashlib.sha256(b"never sent").hexdigest()
        forged: Receipt = backend.receipt.model_validate({"sha256": digest, "size_bytes": 10})
        return forged

    async def test_a_message_that_makes_no_sense_harms_nothing(
        self, control: AnyControl, given: "_Given"
    ) -> None:
        with suppress(CodefyError):
            await control.told(given.assignment, {"no": ["such", {"message": None}]})
        assert isinstance(control.condition(), str)

    async def test_settling_and_renewing_bear_repetition(self, control: AnyControl, given: "_Given") -> None:
        await control.renew(given.assignment)
        await control.renew(given.assignment)
        await control.settled(given.assignment)
        await control.settled(given.assignment)

    # ------------------------------------------------------------ removal

    async def test_a_discarded_object_is_gone_and_discarding_it_again_is_fine(
        self, control: AnyControl, agent: AnyAgent, facts: Facts | None, given: "_Given"
    ) -> None:
        stored = await self.published(control, agent, given)
        await control.settled(given.assignment)
        await control.discard(self.removal(given, stored))
        await control.discard(self.removal(given, stored))
        with pytest.raises(StorageProblem):
            await self.bytes_of(await control.read(stored, None))

    async def test_kept_kinds_stay(
        self, control: AnyControl, agent: AnyAgent, facts: Facts | None, given: "_Given"
    ) -> None:
        stored = await self.published(control, agent, given)
        await control.discard(self.removal(given, stored, keep={stored.kind}))
        assert await self.bytes_of(await control.read(stored, None)) == CONTENT

    # ------------------------------------------------------------ pieces, for further tests of a backend

    @asynccontextmanager
    async def opened(self, agent: AnyAgent, given: "_Given") -> AsyncIterator[AnySession]:
        """The session of the attempt."""
        async with asyncio.timeout(DEADLINE_S):
            async with agent.open(given.assignment.attempt, given.assignment.ticket, given.grant) as session:
                yield session

    async def publish(self, session: AnySession) -> tuple[Output, Receipt]:
        """Write a checkpoint as the run would, and publish it."""
        output = self.output("models/digits/epoch-1.pt")
        path = session.workspace.folders.locate(output.relative_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)
        return output, await session.publish(output, path, NotesDouble(), ProgressDouble())

    async def published(self, control: AnyControl, agent: AnyAgent, given: "_Given") -> StoredObject:
        async with self.opened(agent, given) as session:
            output, receipt = await self.publish(session)
        return await control.accept(given.assignment, output, receipt)

    def output(self, relative_path: str, *, key: str = "0" * 31 + "7") -> Output:
        return Output(
            key=key,
            kind="checkpoint",
            name=relative_path.partition("/")[2],
            relative_path=relative_path,
            size_bytes=len(CONTENT),
        )

    def removal(self, given: "_Given", *stored: StoredObject, keep: set[str] | None = None) -> Discard:
        return Discard(
            run=given.assignment.run,
            stored=stored,
            why=DiscardReason.DELETE,
            keep_kinds=frozenset({"output"} | (keep or set())),
        )


class _Given:
    """An assignment and the grant that went with it."""

    def __init__(self, assignment: Assignment[Any], grant: Any) -> None:
        self.assignment = assignment
        self.grant = grant
