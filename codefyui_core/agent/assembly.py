"""Puts an agent together from its parts, in the order in which each may refuse."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from codefyui_core._version import __version__
from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import StartProblem
from codefyui_core.loading import Registry, load
from codefyui_core.outputs import OutputStore
from codefyui_core.plugin import Plane
from codefyui_core.plugin.connector import ConnectorAgent, Dial, Target
from codefyui_core.plugin.storage import AnyBackend, StorageAgent, Workspace
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import AttemptView
from codefyui_core.runner.api import RunStarter
from codefyui_core.runner.definitions import Catalog
from codefyui_core.runner.memory import free_memory
from codefyui_core.runner.supervisor import Supervisor
from codefyui_core.settings import AgentSettings, Install, environment_of_runs, read_settings
from codefyui_core.wire.messages import DeviceInfo, Refuse, WantGrant

from .agent import Agent, Self
from .budget import Budget
from .carrying.cache import InputCache
from .carrying.transfers import Means
from .carrying.tries import Line
from .definitions import read_catalog, within_wait
from .devices import offered
from .dialer import Dialer, choose
from .equipment import Equipment
from .facts import FactsOf
from .folder import Owner
from .halves import started
from .holdings import Holdings
from .hosts import PluginHost, StoreHost
from .http import Way
from .identity import Identity, make_identity
from .instances import InstanceFolder
from .link import Link
from .lock import FolderLock
from .membership import Membership
from .one_run import OneRun
from .places import Places
from .plan import AgentPlan
from .reads import Reads
from .same_host import Server
from .saved import read_saved
from .workspaces import AgentFolders

log = logging.getLogger("codefyui.agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a test puts in the place of the real thing."""

    registry: Registry | None = None
    starter: RunStarter | None = None
    catalog: Catalog | None = None
    version: str | None = None
    clock: AttentiveClock | None = None
    signals: bool = True


class Assembly:
    """Made for one agent; ``build`` it once."""

    def __init__(
        self,
        plan: AgentPlan,
        install: Install,
        outside: Outside,
        connected: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self.plan = plan
        self.install = install
        self.outside = outside
        self.connected = connected
        self.warn = warn
        self.settings = read_settings(AgentSettings, install.layers)
        self.places = Places(user_data=install.user_data, key=plan.key, instance=plan.instance)
        self.server = Server(user_data=install.user_data)
        self.registry = outside.registry or load(
            plane=Plane.AGENT, block=self.settings.plugins_block, only=self.settings.plugins_only
        )
        self.clock = outside.clock or AttentiveClock()
        self.outputs = OutputStore(
            self.places.outputs, limit_bytes=self.settings.run_output_store_max_mb << 20
        )
        self.one = OneRun() if plan.one_shot else None
        self.link: Link | None = None
        self.holdings: Holdings | None = None
        secret = self.settings.agent_token
        token = plan.token or (secret.get_secret_value() if secret is not None else None)
        self.membership = Membership(plan, self.places, self.server, token)

    # ------------------------------------------------------------ the order

    async def build(self, stack: AsyncExitStack) -> Agent:
        """Raises: CodefyError."""
        try:
            return await self._build(stack)
        except OSError as error:
            raise StartProblem(f"The agent can't start: {error}.") from error

    async def _build(self, stack: AsyncExitStack) -> Agent:
        await asyncio.to_thread(self.install.prepare)
        identity = await asyncio.to_thread(make_identity, self.places.home_id)
        owner = Owner.this_process(identity.incarnation)
        heir = await self._take_folder(owner, stack)
        await asyncio.to_thread(self.places.prepare)
        await asyncio.to_thread(self.outputs.tidy)
        os.chdir(self.install.base)
        collecting = asyncio.create_task(self._catalog(), name="catalog")
        stack.push_async_callback(_cancel, collecting)
        connectors = await self._connectors(stack)
        backends = await self._backends(stack)
        dialer = self._dialer(connectors)
        await self.membership.join(dialer)
        catalog, problem = await within_wait(collecting)
        devices = self._devices(catalog)
        starter = await self._starter(stack)
        cache = await self._cache(owner, stack)
        me = self._self(dialer, identity, catalog, problem, devices)
        agent = self._agent(me, dialer, owner, backends, starter, cache, heir=heir)
        stack.push_async_callback(self._close, agent)
        ticking = asyncio.create_task(self.clock.run(), name="clock")
        stack.push_async_callback(_cancel, ticking)
        await agent.holdings.recover()
        return agent

    async def _take_folder(self, owner: Owner, stack: AsyncExitStack) -> bool:
        """The answer: whoever left something there is known to be dead."""
        if self.places.instance:
            folder = await asyncio.to_thread(InstanceFolder.take, self.places, owner, log)
            stack.callback(folder.delete)
            return folder.heir
        lock = FolderLock.take(self.places.lock)
        stack.callback(lock.release)
        if not lock.works:
            log.warning("this file system has no locks: don't start a second agent with this folder")
        return False

    async def _close(self, agent: Agent) -> None:
        await agent.aclose()
        if self.one is not None:
            await agent.holdings.release()

    # ------------------------------------------------------------ plugins

    async def _connectors(self, stack: AsyncExitStack) -> Mapping[str, ConnectorAgent]:
        halves: dict[str, ConnectorAgent] = {}
        for name, connector in self.registry.connectors.items():
            host = PluginHost(
                name=name,
                registry=self.registry,
                layers=self.install.layers,
                user_data=self.install.user_data,
            )
            half = await started(self.registry, host, connector.agent, stack)
            if half is not None:
                halves[name] = half
        return halves

    async def _backends(self, stack: AsyncExitStack) -> Mapping[str, tuple[AnyBackend, StorageAgent]]:
        saved = await asyncio.to_thread(read_saved, self.places.saved)
        halves: dict[str, tuple[AnyBackend, StorageAgent]] = {}
        for name, backend in self.registry.backends.items():
            host = StoreHost(
                name=name,
                registry=self.registry,
                layers=self.install.layers,
                user_data=self.install.user_data,
                saved=saved,
                way=self._way,
                lease=self._lease,
                workspace=self._workspace,
                tell=self._tell,
            )
            half = await started(self.registry, host, backend.agent, stack)
            if half is not None:
                halves[name] = (backend, half)
        return halves

    # ------------------------------------------------------------ dialing

    def _url(self) -> str:
        return self.plan.url.rstrip("/") if self.plan.url is not None else self.server.url

    def _dialer(self, connectors: Mapping[str, ConnectorAgent]) -> Dialer:
        target = Target(url=self._url(), options={}, kept={}, credential_file=self.places.credential)
        options = self.plan.connector_options
        chosen = choose(connectors, self._url(), options, target)
        return Dialer(
            chosen,
            url=self._url,
            options=options.get(chosen.name, {}),
            kept=lambda: self.membership.credential.kept(chosen.name),
            credential_file=self.places.credential,
            log=log,
        )

    async def _accepted(self, dialer: Dialer, dial: Dial) -> None:
        await self.membership.keep(dialer, dial)
        self.connected(self.membership.credential.name)

    # ------------------------------------------------------------ nodes and runs

    async def _catalog(self) -> tuple[Catalog | None, str]:
        if self.outside.catalog is not None:
            return self.outside.catalog, ""
        return await read_catalog(self.registry, self.settings, self.install.user_data)

    def _devices(self, catalog: Catalog | None) -> tuple[DeviceInfo, ...]:
        found = catalog.devices if catalog is not None else (DeviceInfo(device="cpu"),)
        return offered(found, self.plan.devices)

    async def _starter(self, stack: AsyncExitStack) -> RunStarter:
        if self.outside.starter is not None:
            return self.outside.starter
        supervisor = Supervisor(preload=self.registry.preload, zygote=self.settings.run_zygote, log=log)
        await supervisor.start()
        stack.push_async_callback(supervisor.aclose)
        return supervisor

    async def _cache(self, owner: Owner, stack: AsyncExitStack) -> InputCache:
        cache = InputCache(self.places.cache, owner, log)
        await asyncio.to_thread(cache.start)
        stack.push_async_callback(asyncio.to_thread, cache.close)
        return cache

    def _self(
        self,
        dialer: Dialer,
        identity: Identity,
        catalog: Catalog | None,
        problem: str,
        devices: tuple[DeviceInfo, ...],
    ) -> Self:
        return Self(
            name=self.membership.credential.name,
            instance=self.plan.instance,
            one_shot=self.plan.one_shot,
            run_id=self.plan.run_id,
            identity=identity,
            connector=dialer.name,
            registry=self.registry,
            catalog=catalog,
            catalog_problem=problem,
            devices=devices,
            version=self.outside.version or __version__,
        )

    def _agent(
        self,
        me: Self,
        dialer: Dialer,
        owner: Owner,
        backends: Mapping[str, tuple[AnyBackend, StorageAgent]],
        starter: RunStarter,
        cache: InputCache,
        *,
        heir: bool,
    ) -> Agent:
        budget = Budget(self.places.spools, lambda: self._held().spool_bytes)
        equipment = Equipment(
            starter=starter,
            folders=self._folders(),
            halves=backends,
            devices=me.devices,
            incarnation=me.identity.incarnation,
            fingerprint=None if me.catalog is None else me.catalog.digest,
            plugins_block=tuple(self.settings.plugins_block),
            plugins_only=tuple(self.settings.plugins_only),
            environ=environment_of_runs(self.settings, self.registry.settings),
            room=budget.room,
            outputs=self.outputs,
            writes_for_s=self.settings.worker_outputs_write_timeout_s,
            carrying=Means(
                cache=cache,
                clock=self.clock,
                line=Line(want_grant=self._send, contact=self._contact, news=self._connected_anew),
                runs=self.places.runs,
            ),
        )
        return Agent(
            me,
            holdings=partial(self._make_holdings, owner, equipment, heir),
            link=partial(self._make_link, dialer),
            facts={name: FactsOf(backend, half, log) for name, (backend, half) in backends.items()},
            free_memory=lambda: free_memory(me.devices),
            reads=Reads(self.outputs, news=self._news, log=log),
            log=log,
        )

    def _make_holdings(self, owner: Owner, equipment: Equipment, heir: bool, _agent: Agent) -> Holdings:
        self.holdings = Holdings(
            places=self.places,
            owner=owner,
            equipment=lambda: equipment,
            refuse=self._send,
            news=self._news,
            log=log,
            one=self.one,
            heir=heir,
            keep_runs=self.settings.run_retention_keep_last,
        )
        return self.holdings

    def _send(self, message: Refuse | WantGrant) -> None:
        """Lost while there is no line."""
        session = None if self.link is None else self.link.session
        if session is not None and session.welcomed:
            session.send(message)

    async def _connected_anew(self) -> None:
        if self.link is not None:
            await self.link.next_welcome()

    async def _contact(self) -> None:
        """Until there is a line. An agent with one run, or one that stops, has nobody who would wait for it."""
        if self.link is not None and self.one is None and self._held().stopping is None:
            await self.link.connected.wait()

    def _news(self) -> None:
        if self.link is not None:
            self.link.news()

    def _make_link(self, dialer: Dialer, agent: Agent) -> Link:
        self.link = Link(
            dialer=dialer,
            duty=agent,
            credential=self.membership.current,
            keep=partial(self._accepted, dialer),
            warn=self.warn,
            clock=self.clock,
            log=log,
            file=self.places.credential,
            grace_s=lambda: agent.grace_s,
            unknown=partial(self.membership.again, dialer),
        )
        return self.link

    def _folders(self) -> AgentFolders:
        return AgentFolders(
            base=self.install.base,
            samples=self.install.samples,
            runs=self.places.runs,
            cache=self.places.cache,
            folders=self.install.folders(),
            readable=self.install.readable,
        )

    # ------------------------------------------------------------ for the hosts of backends

    def _held(self) -> Holdings:
        assert self.holdings is not None
        return self.holdings

    def _way(self) -> Way | None:
        return None if self.link is None else self.link.way()

    def _lease(self, view: AttemptView) -> str | None:
        return self._held().lease(view.run_id, view.number)

    def _workspace(self, run_id: str) -> Workspace:
        return self._folders().private(run_id)

    async def _tell(self, view: AttemptView, backend: str, message: JsonObject) -> None:
        await self._held().tell(view.run_id, view.number, backend, message)


async def _cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
