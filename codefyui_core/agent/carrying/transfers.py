"""Everything about the files of one attempt whose backend carries them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codefyui_core.agent.folder import JOURNAL
from codefyui_core.agent.stream import Stream
from codefyui_core.agent.workspaces import outbox_of
from codefyui_core.clocks import AttentiveClock
from codefyui_core.plugin.storage import InputItem, StorageSession
from codefyui_core.runs.events import WarningKind
from codefyui_core.wire.messages import AttemptKey

from .cache import InputCache
from .fetching import Fetching
from .grants import Grants
from .halt import Halt
from .journal import Journal
from .progress import Reports
from .sending import Sending
from .tries import Line, Tries


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the agent lends to all transfers."""

    cache: InputCache
    clock: AttentiveClock
    line: Line
    runs: Path
    """Folders of runs are below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The attempt."""

    key: AttemptKey
    backend: str
    parallel: int
    grace_s: float
    grants: Grants
    stream: Stream
    spool: Path
    """The folder of its spool, for the journal."""


class Transfers:
    """Made with the session open; ``fetch``, then ``record`` as often as it comes, then ``hold`` and ``finish``."""

    def __init__(
        self,
        work: Work,
        session: StorageSession[Any, Any],
        means: Means,
        *,
        tries: Tries,
        journal: Journal,
        inputs: Sequence[InputItem],
        log: logging.Logger,
    ) -> None:
        reports = Reports(work.stream, means.clock)
        self._reports = reports
        self._journal = journal
        self._before = journal.ledger.unsettled
        self._outbox = outbox_of(means.runs / work.key.run_id)
        self._fetching = Fetching(
            session=session,
            inputs=inputs,
            cache=means.cache,
            tries=tries,
            reports=reports,
            journal=journal,
            parallel=work.parallel,
        )
        self._sending = Sending(
            run_id=work.key.run_id,
            backend=work.backend,
            session=session,
            tries=tries,
            reports=reports,
            journal=journal,
            outbox=self._outbox,
            parallel=work.parallel,
            log=log,
        )

    async def fetch(self) -> None:
        """Bring all inputs. Raises: StorageProblem that names the input; TransferStopped."""
        await self._fetching.all()

    async def record(self, payload: Mapping[str, Any], ts: int | None) -> None:
        """A file or folder that the run reports; sent beside it."""
        await self._sending.record(payload, ts)

    async def recorded(self) -> None:
        """Nothing that the run reported can be lost any more when this returns."""
        await self._sending.recorded()

    async def hold(self) -> None:
        """The run's processes are gone: from now on a process after this one can deliver what is left, even after a loss
        of power.
        """
        await self._sending.hold()

    async def finish(self) -> None:
        """The run's processes are gone: deliver what is left, or give it up."""
        await self._sending.finish(before=self._before)
        await asyncio.to_thread(_remove_empty, self._outbox)

    async def aclose(self) -> None:
        """What isn't sent yet is left to the next process."""
        await self._sending.aclose()
        await self._reports.aclose()
        await self._journal.aclose()


async def warn_undelivered(work: Work, means: Means, error: Exception) -> None:
    """The agent itself failed: nobody knows which files are missing, so the run's log says where they are."""
    where = means.runs / work.key.run_id
    detail = f"files that aren't listed stay on the worker, in {where}: the agent failed ({error})"
    await Reports(work.stream, means.clock).warn(WarningKind.TRANSFER_FAILED, detail)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return


@asynccontextmanager
async def open_transfers(
    work: Work,
    session: StorageSession[Any, Any],
    means: Means,
    *,
    halt: Halt,
    inputs: Sequence[InputItem] = (),
    log: logging.Logger,
) -> AsyncIterator[Transfers]:
    """Those of one attempt, with what its journal says."""
    with closing(tries_of(work, means, halt, log)) as tries:
        journal = await asyncio.to_thread(Journal, work.spool / JOURNAL, log)
        transfers = Transfers(work, session, means, tries=tries, journal=journal, inputs=inputs, log=log)
        try:
            yield transfers
        finally:
            await transfers.aclose()


def tries_of(work: Work, means: Means, halt: Halt, log: logging.Logger) -> Tries:
    return Tries(
        work.key,
        grace_s=work.grace_s,
        grants=work.grants,
        line=means.line,
        clock=means.clock,
        halt=halt,
        log=log,
    )
