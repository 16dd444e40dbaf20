"""Judging a submitted run before it is stored: its options, its target, its files. Refused here, where the
person is, or never.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from codefyui_core.errors import CodefyError
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.options import (
    AnyTarget,
    PoolTarget,
    RunOptions,
    ServerTarget,
    Target,
    WorkerTarget,
    parse_target,
)
from codefyui_core.runs.queue import kind_of, matching
from codefyui_core.wire.messages import DeviceInfo

from .board import Needs
from .desk import KnownWorker, WorkerDirectory
from .documents import MAX_SENT_BYTES, Prepared, too_large
from .offers import Storages, Unserved
from .places import has_types

ONE_SHOT = "one-shot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Where a run may go."""

    needs: Needs
    queue_key: str
    worker_name: str | None = None
    """Of a run that names one."""


def read_options(options: JsonObject) -> RunOptions:
    """Raises: CodefyError ``run.option_unknown``, ``run.option_invalid``."""
    unknown = sorted(set(options) - set(RunOptions.model_fields))
    if unknown:
        known = ", ".join(RunOptions.model_fields)
        raise CodefyError(
            f"There is no option {', '.join(unknown)}. Options are: {known}.", code="run.option_unknown"
        )
    try:
        return RunOptions.model_validate(options)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise CodefyError(f"Option {where}: {problem['msg']}.", code="run.option_invalid") from None


def read_target(options: RunOptions) -> Target:
    """Raises: CodefyError ``run.option_invalid``."""
    try:
        return parse_target(options.target, options.device)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        message = f"Option target.{'.'.join(map(str, problem['loc']))}: {problem['msg']}."
        raise CodefyError(message, code="run.option_invalid") from None
    except ValueError as error:
        raise CodefyError(f"Option target: {error}.", code="run.option_invalid") from None


class Judge:
    """Knows the workers and the storage backends."""

    def __init__(self, workers: WorkerDirectory, storages: Storages) -> None:
        self._workers = workers
        self._storages = storages

    async def judge(
        self, options: RunOptions, prepared: Prepared, server_devices: Sequence[DeviceInfo]
    ) -> Judged:
        """Raises: CodefyError ``target.*``, ``storage.*``, ``request.too_large``, ``run.option_invalid``."""
        target = read_target(options)
        asked = options.device or prepared.device or "cpu"
        if options.lane == "interactive" and not isinstance(target, ServerTarget):
            raise CodefyError("The interactive lane is the server's own.", code="run.option_invalid")
        if not isinstance(target, ServerTarget) and prepared.sent_bytes > MAX_SENT_BYTES:
            raise too_large(prepared.sent_bytes)
        match target:
            case ServerTarget():
                return self._on_server(target, asked, prepared, server_devices)
            case AnyTarget():
                return _judged(target, asked, prepared, f"any/{asked}")
            case PoolTarget():
                return self._in_pool(target, asked, prepared, options)
            case WorkerTarget():
                return await self._on_worker(target, asked, prepared, options)

    @staticmethod
    def _on_server(
        target: ServerTarget, asked: str, prepared: Prepared, devices: Sequence[DeviceInfo]
    ) -> Judged:
        """One line a device; a kind with one device is that device's line."""
        offered = [info.device for info in devices]
        found = matching(asked, offered) or matching(kind_of(asked), offered) or ("cpu",)
        line = found[0] if len(found) == 1 else asked
        return _judged(target, asked, prepared, f"server/{line}")

    @staticmethod
    def _in_pool(target: PoolTarget, asked: str, prepared: Prepared, options: RunOptions) -> Judged:
        """One line a kind of device: which card a job gets is its batch system's choice."""
        if options.record_outputs:
            raise _not_recorded("the one-shot pool")
        device = kind_of(target.device or asked)
        target = PoolTarget(pool=target.pool, device=device)
        return _judged(target, device, prepared, f"{ONE_SHOT}/{device}")

    async def _on_worker(
        self, target: WorkerTarget, asked: str, prepared: Prepared, options: RunOptions
    ) -> Judged:
        known = await self._workers.by_name(target.worker)
        if known is None:
            raise unknown_worker(target.worker)
        name = known.view.name
        if known.view.one_shot and options.record_outputs:
            raise _not_recorded(f"{name}, a one-shot worker")
        self._check_devices(target, asked, known)
        check_types(name, known.node_types, prepared.node_types)
        self._check_files(known, prepared)
        device = "+".join(target.devices) if target.devices else asked
        judged = _judged(target, asked, prepared, f"{name}/{device}")
        return Judged(needs=judged.needs, queue_key=judged.queue_key, worker_name=name)

    @staticmethod
    def _check_devices(target: WorkerTarget, asked: str, known: KnownWorker) -> None:
        offered = [info.device for info in known.devices]
        if not offered:
            return
        wanted = target.devices if target.devices is not None else (asked,)
        missing = [device for device in wanted if not matching(device, offered)]
        if missing or not wanted:
            raise CodefyError(
                f"worker {known.view.name} offers no {', '.join(missing) or 'device'}, only "
                f"{', '.join(offered)}; choose one of these with options.device",
                code="target.device_unknown",
            )

    def _check_files(self, known: KnownWorker, prepared: Prepared) -> None:
        """A worker that hasn't told what it offers is asked when it has: just after it connected, too."""
        link = self._workers.link(known.view.id)
        if not known.facts and (link is None or not link.ready):
            return
        answer = self._storages.serve(prepared.files, known.view, known.facts)
        if isinstance(answer, Unserved):
            raise CodefyError(answer.message, code=answer.code)


def unknown_worker(name: str) -> CodefyError:
    """A run names a worker that isn't enrolled, or isn't any more."""
    return CodefyError(
        f"There is no worker {name}. cdui workers list shows those that there are.", code="target.unknown"
    )


def check_types(worker: str, offered: frozenset[str] | None, needed: frozenset[str]) -> None:
    """Raises: CodefyError ``target.types_missing`` naming them all."""
    if not has_types(offered, needed):
        missing = sorted(needed - (offered or frozenset()))
        raise CodefyError(
            f"worker {worker} lacks node types that this graph uses: {', '.join(missing)}; install the same "
            "plugins and custom nodes there and restart its agent",
            code="target.types_missing",
        )


def _judged(target: Target, device: str, prepared: Prepared, queue_key: str) -> Judged:
    needs = Needs(target=target, device=device, files=prepared.files, node_types=prepared.node_types)
    return Judged(needs=needs, queue_key=queue_key[:160])


def _not_recorded(whom: str) -> CodefyError:
    return CodefyError(
        f"Recorded outputs can't be read from {whom}: its agent exits with the run, and recording needs a "
        "worker that stays. Turn off Record node outputs, or choose another target.",
        code="target.not_served",
    )
