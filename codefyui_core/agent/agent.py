"""A running agent: its attempts, its link, and what it says of itself in hello, report and beats."""

import asyncio
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

from codefyui_core._version import __version__
from codefyui_core.loading import Registry
from codefyui_core.plugin.connector import Dial
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import PluginState
from codefyui_core.runner.definitions import Catalog
from codefyui_core.runs.status import StopReason
from codefyui_core.wire.messages import (
    PROTOCOL,
    Ack,
    AgentBeat,
    AgentBye,
    Assign,
    DeviceInfo,
    FailedPlugin,
    GrantMessage,
    Hello,
    ReadReply,
    ReadRequest,
    Report,
    Rewind,
    Stop,
    Welcome,
)

from .attempts import Batch
from .catalog import catalog_message, oversize
from .facts import FactsOf, all_facts
from .holdings import Holdings
from .identity import Identity
from .link import Link
from .machine import FILES_WITHIN_S, STOP_GRACE_S
from .reads import Reads
from .session import AgentSession

KILL_WITHIN_S = 5.0
DELIVER_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Self:
    """What hello says of this agent, the same for its whole life."""

    name: str
    instance: str = ""
    one_shot: bool = False
    run_id: str | None = None
    identity: Identity
    connector: str
    registry: Registry
    catalog: Catalog | None
    catalog_problem: str
    devices: tuple[DeviceInfo, ...]
    version: str = __version__


class Agent:
    """Implements ``Duty``."""

    def __init__(
        self,
        me: Self,
        *,
        holdings: Callable[["Agent"], Holdings],
        link: Callable[["Agent"], Link],
        facts: Mapping[str, FactsOf],
        free_memory: Callable[[], Mapping[str, int]],
        reads: Reads,
        log: logging.Logger,
    ) -> None:
        self._me = me
        self._reads = reads
        too_large = "" if me.catalog is None else oversize(me.catalog)
        self._catalog = None if too_large else me.catalog
        self._catalog_problem = me.catalog_problem or too_large
        self._facts = facts
        self._free_memory = free_memory
        self._log = log
        self._dials = 0
        self._reported: Report | None = None
        self._reporting: asyncio.Task[None] | None = None
        self.grace_s = 300.0
        self.holdings = holdings(self)
        self.link = link(self)

    # ------------------------------------------------------------ hello

    def hello(self) -> Hello:
        self.holdings.disconnected()
        self._reads.disconnected()
        self._dials += 1
        me, registry = self._me, self._me.registry
        return Hello(
            protocol=PROTOCOL,
            version=me.version,
            name=me.name,
            instance=me.instance,
            one_shot=me.one_shot,
            run_id=me.run_id,
            incarnation=me.identity.incarnation,
            home_id=me.identity.home_id,
            machine_id=me.identity.machine_id,
            boot_id=me.identity.boot_id,
            pid=os.getpid(),
            accepting=self.holdings.accepting,
            platform=f"{platform.system()} {platform.machine()}",
            devices=me.devices,
            backends={name: registry.backends[name].protocol for name in self._facts},
            connectors={name: one.protocol for name, one in registry.connectors.items()},
            connector=me.connector,
            plugins={
                info.distribution: info.version
                for info in registry.plugins
                if info.state not in {PluginState.FAILED, PluginState.BLOCKED}
            },
            plugins_failed=tuple(
                FailedPlugin(entry_point=info.entry_point, distribution=info.distribution, error=info.error)
                for info in registry.failed
            ),
            catalog_hash=None if self._catalog is None else self._catalog.definitions.hash,
            catalog_problem=self._catalog_problem,
            fingerprint=None if me.catalog is None else me.catalog.digest,
            wall_time_ms=int(time.time() * 1000),
            dial=self._dials,
            attempts=self.holdings.listed(),
        )

    async def welcomed(self, welcome: Welcome, session: AgentSession) -> None:
        self.grace_s = welcome.settings.grace_s
        await self.holdings.welcomed(
            welcome.worker.id, welcome.db_id, welcome.settings.grace_s, welcome.verdicts
        )
        await self.link.accepted()
        self._log.info("connected to %s as %s", self._url(), welcome.worker.name)
        if welcome.version != self._me.version:
            self._log.warning(
                "this agent is of version %s, the control plane of %s: it only finishes its runs. Then update "
                "it (cdui update) and start it again",
                self._me.version,
                welcome.version,
            )
        self._cancel_report()
        self._reporting = asyncio.create_task(self._greet(welcome, session), name="report")

    def _url(self) -> str:
        dial = self.link.dial
        return "the control plane" if dial is None else dial.base_url

    # ------------------------------------------------------------ report

    async def _greet(self, welcome: Welcome, session: AgentSession) -> None:
        """The catalog if it is wanted, then the first report: runs come only after it."""
        if welcome.want_catalog and self._catalog is not None:
            session.send(await asyncio.to_thread(catalog_message, self._catalog))
        for name, facts in self._facts.items():
            if name in welcome.storage:
                await facts.welcomed(welcome.storage[name])
        self._reported = await self._report()
        self._log.info("announced %s", self._announced(self._reported))
        session.send(self._reported)

    async def _report(self) -> Report:
        return Report(storage=await all_facts(self._facts), trust=_trust(self.link.dial))

    def _announced(self, report: Report) -> str:
        offered = [name for name, facts in report.storage.items() if facts is not None]
        connectors = ", ".join(sorted(self._me.registry.connectors))
        return f"storage: {', '.join(sorted(offered)) or 'none'}; connectors: {connectors}"

    async def _report_again(self, session: AgentSession) -> None:
        report = await self._report()
        if report != self._reported:
            self._reported = report
            session.send(report)

    def _cancel_report(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
        self._reporting = None

    def beat(self, number: int) -> AgentBeat:
        session = self.link.session
        if session is not None and self._reporting is not None and self._reporting.done():
            self._reporting = asyncio.create_task(self._report_again(session), name="report")
        return AgentBeat(
            n=number,
            free_memory=dict(self._free_memory()),
            accepting=self.holdings.accepting,
            **asdict(self.holdings.beat()),
        )

    # ------------------------------------------------------------ orders

    def acked(self, message: Ack) -> None:
        self.holdings.acked(message.acks)

    def rewind(self, message: Rewind) -> None:
        self.holdings.rewind(message)

    def assign(self, message: Assign) -> None:
        self.holdings.assign(message)

    def stop(self, message: Stop) -> None:
        self.holdings.stop(message)

    def granted(self, message: GrantMessage) -> None:
        self.holdings.granted(message)

    def read(self, message: ReadRequest) -> None:
        self._reads.ask(message)

    def next_part(self) -> ReadReply | None:
        return self._reads.next_part()

    def gathering_s(self, window_bytes: int) -> float:
        return self.holdings.outgoing.gathering_s(window_bytes)

    async def next_batch(self, window_bytes: int) -> Batch | None:
        return await self.holdings.outgoing.next_batch(window_bytes)

    # ------------------------------------------------------------ the end

    async def stop_runs(self, reason: StopReason) -> None:
        """Ask all runs to stop, and wait until their processes are gone. At a stop of the agent a run that has
        ended may still write what it recorded.
        """
        self.holdings.stop_all(reason)
        writes_for_s = self.holdings.writes_for_s if reason is StopReason.AGENT_STOP else 0.0
        if await self._idle_within(STOP_GRACE_S + writes_for_s + KILL_WITHIN_S):
            return
        if not self.holdings.publishing:
            self._log.error("some runs didn't stop in time")
        elif reason is StopReason.AGENT_STOP and not await self._idle_within(FILES_WITHIN_S):
            self._log.warning("some files aren't delivered yet; that goes on when the agent is started again")

    async def _idle_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.holdings.idle()
                return True
        return False

    async def drain(self) -> None:
        """Take no more runs, finish and deliver those that are here, however long that takes, and say bye."""
        self.holdings.drain()
        session = self.link.session
        if session is not None and self.link.connected.is_set():
            session.send(self.beat(0))
        await self.holdings.drained.wait()
        await self.link.leave(AgentBye(reason="drained"))

    async def shut_down(self, reason: StopReason) -> None:
        """Stop the runs, deliver what they said as far as there is a line, and say bye."""
        await self.stop_runs(reason)
        deadline = asyncio.get_running_loop().time() + DELIVER_WITHIN_S
        while self.link.connected.is_set() and any(one.ended for one in self.holdings.undelivered):
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.02)
        await self.link.leave(AgentBye(reason="stopping"))

    async def aclose(self) -> None:
        self._cancel_report()
        self.link.stop()
        await self.holdings.aclose()
        await self._reads.aclose()
        for facts in self._facts.values():
            facts.close()


def _trust(dial: Dial | None) -> JsonObject | None:
    if dial is None:
        return None
    trust = dial.trust()
    return {"kind": trust.kind.value, "fingerprint": trust.fingerprint, "note": trust.note}
