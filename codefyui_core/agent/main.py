"""``run_agent``: puts an agent together, runs it until it is stopped or refused, and answers the exit status."""

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from codefyui_core._version import __version__
from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import CodefyError, LinkProblem, StartProblem
from codefyui_core.loading import Registry, load
from codefyui_core.plugin import Plane, PluginState
from codefyui_core.plugin.connector import (
    AgentEventKind,
    ConnectorAgent,
    Dial,
    Target,
)
from codefyui_core.plugin.halves import AgentHalf
from codefyui_core.plugin.storage import AnyBackend, StorageAgent, Workspace
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import AttemptView
from codefyui_core.runner.api import RunStarter
from codefyui_core.runner.definitions import Catalog, collect, read_cached
from codefyui_core.runner.memory import free_memory
from codefyui_core.runner.supervisor import Supervisor
from codefyui_core.runs.status import StopReason
from codefyui_core.settings import AgentSettings, Install, environment_of_runs, read_settings
from codefyui_core.wire.messages import DeviceInfo, Refuse

from .agent import Agent, Self
from .budget import Budget
from .credentials import CredentialFile, save
from .credentials import load as load_credential
from .devices import offered
from .dialer import Dialer, choose
from .driver import Equipment
from .enroll import enroll
from .facts import FactsOf
from .folder import Owner
from .holdings import Holdings
from .hosts import PluginHost, StoreHost
from .http import Way
from .identity import Identity, default_name, make_identity
from .link import Ending, Link
from .lock import FolderLock
from .places import Places
from .plan import AgentPlan
from .same_host import Server, ask_for_token
from .workspaces import AgentFolders

CATALOG_WAIT_S = 20.0
CACHE = "definitions.json"
log = logging.getLogger("codefyui.agent")

H = TypeVar("H", bound=AgentHalf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a test puts in the place of the real thing."""

    registry: Registry | None = None
    starter: RunStarter | None = None
    catalog: Catalog | None = None
    version: str | None = None
    clock: AttentiveClock | None = None
    signals: bool = True


async def run_agent(
    plan: AgentPlan,
    install: Install,
    *,
    connected: Callable[[str], None] = lambda _name: None,
    warn: Callable[[str], None] = lambda text: log.warning("%s", text),
    stop: asyncio.Event | None = None,
    outside: Outside | None = None,
) -> int:
    """In the foreground, until it is stopped (0) or refused for good (2). ``connected`` is called with the
    worker's name at each welcome; ``stop`` asks it to end as SIGTERM does.

    Raises: CodefyError when it can't start.
    """
    outside = outside or Outside()
    stop = stop or asyncio.Event()
    async with AsyncExitStack() as stack:
        assembly = await _Assembly(plan.checked(), install, outside, connected, warn).build(stack)
        if outside.signals:
            stack.enter_context(_Signals(stop))
        return await _serve(assembly, stop)


async def _serve(agent: Agent, stop: asyncio.Event) -> int:
    running = asyncio.create_task(agent.link.run(), name="link")
    stopped = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        log.info("stopping: runs get 10 s to end")
        await agent.shut_down(StopReason.AGENT_STOP)
    stopped.cancel()
    ending: Ending = await running
    if ending.exit_code:
        await agent.stop_runs(_stop_reason(ending))
        log.error("%s", ending.message)
    return ending.exit_code


def _stop_reason(ending: Ending) -> StopReason:
    if ending.lost:
        return StopReason.LOST_TUNNEL
    return StopReason.REVOKED if ending.revoked else StopReason.AGENT_STOP


class _Signals:
    """SIGTERM and SIGINT ask for a stop while the block runs."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):
                self._loop.add_signal_handler(number, self._stop.set)

    def __exit__(self, *exc: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):
                self._loop.remove_signal_handler(number)


class _Assembly:
    """Puts the parts together, in the order in which each may refuse."""

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
        self.places = Places(user_data=install.user_data, key=plan.key)
        self.server = Server(user_data=install.user_data)
        self.registry = outside.registry or load(
            plane=Plane.AGENT, block=self.settings.plugins_block, only=self.settings.plugins_only
        )
        self.clock = outside.clock or AttentiveClock()
        self.link: Link | None = None
        self.credential = CredentialFile()
        self.holdings: Holdings | None = None

    # ------------------------------------------------------------ the order

    async def build(self, stack: AsyncExitStack) -> Agent:
        """Raises: CodefyError."""
        await asyncio.to_thread(self.install.prepare)
        await asyncio.to_thread(self.places.prepare)
        lock = FolderLock.take(self.places.lock)
        stack.callback(lock.release)
        if not lock.works:
            log.warning("this file system has no locks: don't start a second agent with this folder")
        os.chdir(self.install.base)
        collecting = asyncio.create_task(self._catalog(), name="catalog")
        stack.push_async_callback(_cancel, collecting)
        connectors = await self._connectors(stack)
        backends = await self._backends(stack)
        dialer = self._dialer(connectors)
        await self._enrolled(dialer)
        identity = await asyncio.to_thread(make_identity, self.places.home_id)
        catalog, problem = await _within(collecting)
        devices = self._devices(catalog)
        starter = await self._starter(stack)
        agent = self._agent(dialer, identity, catalog, problem, devices, backends, starter)
        stack.push_async_callback(agent.aclose)
        ticking = asyncio.create_task(self.clock.run(), name="clock")
        stack.push_async_callback(_cancel, ticking)
        await agent.holdings.recover()
        return agent

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
            half = await self._started(name, partial(connector.agent, host), stack)
            if half is not None:
                stack.push_async_callback(host.tasks.aclose)
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
            half = await self._started(name, partial(backend.agent, host), stack)
            if half is not None:
                stack.push_async_callback(host.tasks.aclose)
                halves[name] = (backend, half)
        return halves

    async def _started(self, name: str, make: Callable[[], H], stack: AsyncExitStack) -> H | None:
        """One half. A failing one is listed as failed; the agent goes on without it."""
        try:
            half = make()
            await half.start()
        except Exception as error:
            log.exception("the plugin of %s failed to start", name)
            with suppress(KeyError):
                entry = _entry_point(self.registry, name)
                self.registry.mark(entry, PluginState.FAILED, str(error))
            return None
        stack.push_async_callback(_close_half, name, half)
        return half

    # ------------------------------------------------------------ dialing and enrollment

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
            kept=lambda: self.credential.kept(chosen.name),
            credential_file=self.places.credential,
            log=log,
        )

    async def _enrolled(self, dialer: Dialer) -> None:
        stored = await asyncio.to_thread(load_credential, self.places.credential, log)
        if stored is not None and stored.enrolled:
            await self._check_name(stored, dialer)
            self.credential = stored
            return
        if self.plan.url is None:
            await self._enroll_here(dialer)
            return
        secret = self.settings.agent_token
        token = self.plan.token or (secret.get_secret_value() if secret is not None else None)
        if not token:
            raise StartProblem(
                f"This machine has no credential for {self.plan.url}. Generate a token with Add worker in "
                f"the Workers panel (or cdui workers token) and start with --token <token>."
            )
        name = self.plan.name or default_name()
        self.credential = await enroll(dialer, file=self.places.credential, token=token, name=name, log=log)
        log.info("enrolled as %s", self.credential.name)

    async def _enroll_here(self, dialer: Dialer) -> None:
        name = self.plan.name or default_name()
        async with dialer.dial() as (_, http):
            token = await ask_for_token(http, self.server, name)
        self.credential = await enroll(dialer, file=self.places.credential, token=token, name=name, log=log)

    async def _enroll_again(self) -> bool:
        """The server of the same user data has a new database: nobody has to be asked."""
        if self.plan.url is not None or self.link is None:
            return False
        try:
            await asyncio.to_thread(self.places.credential.unlink)
            await self._enroll_here(self.link.dialer)
        except (CodefyError, OSError) as error:
            log.warning("enrolling again failed: %s", error)
            return False
        return True

    async def _check_name(self, stored: CredentialFile, dialer: Dialer) -> None:
        if self.plan.name is None or self.plan.name.lower() == stored.name.lower():
            return
        message = (
            f"The stored credential belongs to the worker {stored.name}. Leave --name out, or run "
            f"cdui agent forget {self.plan.url or ''} to enroll as {self.plan.name}."
        )
        await dialer.notice(AgentEventKind.CREDENTIAL_OF_OTHER_NAME, stored.name)
        raise LinkProblem(message, exit_code=2)

    async def _keep(self, dial: Dial) -> None:
        """Accepted over this dial: what its connector wants kept is stored with the credential."""
        assert self.link is not None
        kept = self.credential.keeping(self.link.dialer.name, dial.keep)
        if kept != self.credential:
            self.credential = kept
            await asyncio.to_thread(save, self.places.credential, kept)
        self.connected(self.credential.name)

    async def _credential(self) -> CredentialFile:
        return self.credential

    # ------------------------------------------------------------ nodes and runs

    async def _catalog(self) -> tuple[Catalog | None, str]:
        if self.outside.catalog is not None:
            return self.outside.catalog, ""
        cache = self.install.user_data / f"agent-{CACHE}"
        known = await asyncio.to_thread(read_cached, self.registry, cache)
        if known is not None:
            return known, ""
        try:
            catalog = await collect(
                self.registry,
                cache=cache,
                block=self.settings.plugins_block,
                only=self.settings.plugins_only,
            )
        except CodefyError as error:
            log.error("the node definitions can't be had, so this worker reports none: %s", error.message)
            return None, error.message
        for problem in catalog.problems:
            log.warning("nodes of %s are left out: %s", problem.source, problem.message)
        return catalog, ""

    def _devices(self, catalog: Catalog | None) -> tuple[DeviceInfo, ...]:
        found = catalog.devices if catalog is not None else (DeviceInfo(device="cpu"),)
        return offered(found, self.plan.devices)

    async def _starter(self, stack: AsyncExitStack) -> RunStarter:
        if self.outside.starter is not None:
            return self.outside.starter
        preload = [module for catalog in self.registry.catalogs for module in catalog.preload]
        supervisor = Supervisor(preload=preload, zygote=self.settings.run_zygote, log=log)
        await supervisor.start()
        stack.push_async_callback(supervisor.aclose)
        return supervisor

    def _agent(
        self,
        dialer: Dialer,
        identity: Identity,
        catalog: Catalog | None,
        problem: str,
        devices: tuple[DeviceInfo, ...],
        backends: Mapping[str, tuple[AnyBackend, StorageAgent]],
        starter: RunStarter,
    ) -> Agent:
        me = Self(
            name=self.credential.name,
            identity=identity,
            connector=dialer.name,
            registry=self.registry,
            catalog=catalog,
            catalog_problem=problem,
            devices=devices,
            version=self.outside.version or __version__,
        )
        budget = Budget(self.places.spools, lambda: self._held().spool_bytes)
        equipment = Equipment(
            starter=starter,
            folders=self._folders(),
            halves=backends,
            devices=devices,
            incarnation=identity.incarnation,
            fingerprint=None if catalog is None else catalog.digest,
            plugins_block=tuple(self.settings.plugins_block),
            plugins_only=tuple(self.settings.plugins_only),
            environ=environment_of_runs(self.settings, self.registry.settings),
            room=budget.room,
        )
        return Agent(
            me,
            holdings=partial(self._make_holdings, identity, equipment),
            link=partial(self._make_link, dialer),
            facts={name: FactsOf(backend, half, log) for name, (backend, half) in backends.items()},
            free_memory=lambda: free_memory(devices),
            log=log,
        )

    def _make_holdings(self, identity: Identity, equipment: Equipment, agent: Agent) -> Holdings:
        def refuse(message: Refuse) -> None:
            if agent.link.session is not None:
                agent.link.session.send(message)

        def news() -> None:
            agent.link.news()

        self.holdings = Holdings(
            places=self.places,
            owner=Owner.this_process(identity.incarnation),
            equipment=lambda: equipment,
            refuse=refuse,
            news=news,
            log=log,
        )
        return self.holdings

    def _make_link(self, dialer: Dialer, agent: Agent) -> Link:
        self.link = Link(
            dialer=dialer,
            duty=agent,
            credential=self._credential,
            keep=self._keep,
            warn=self.warn,
            clock=self.clock,
            log=log,
            file=self.places.credential,
            grace_s=lambda: agent.grace_s,
            unknown=self._enroll_again,
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


def _entry_point(registry: Registry, name: str) -> str:
    for brought in registry.contributions:
        if name in brought.connectors or name in brought.backends:
            return brought.entry_point
    raise KeyError(name)


async def _close_half(name: str, half: AgentHalf) -> None:
    try:
        async with asyncio.timeout(5):
            await half.aclose()
    except Exception:
        log.exception("the plugin of %s failed to close", name)


async def _cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _within(collecting: "asyncio.Task[tuple[Catalog | None, str]]") -> tuple[Catalog | None, str]:
    """Hello waits for the definitions, but not for ever."""
    done, _ = await asyncio.wait({collecting}, timeout=CATALOG_WAIT_S)
    if not done:
        log.error("the node definitions weren't there within %g s, so none are reported", CATALOG_WAIT_S)
        return None, f"the helper took longer than {CATALOG_WAIT_S:g} s"
    return collecting.result()


def read_saved(path: Path) -> dict[str, JsonObject]:
    """``agent.json``: what storage backends keep of their options. Blocking.

    Raises: StartProblem for a file that can't be read.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StartProblem(f"{path} can't be read: {error}. Correct it or remove it.") from error
    if not isinstance(value, dict):
        raise StartProblem(f"{path} isn't an object. Correct it or remove it.")
    return {name: saved for name, saved in value.items() if isinstance(saved, dict)}
