"""What a run is asked to do: its options and its target, parsed in one place."""

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator

from codefyui_core.plugin.values import JsonObject, Model

DEVICE = re.compile(r"^(cpu|auto|cuda(:\d+)?|mps(:\d+)?)$")
WORKER_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")
RESERVED_NAMES = frozenset({"server", "any", "one-shot"})


class ErrorMode(StrEnum):
    """What happens to the rest of a run when a node raises."""

    FAIL_FAST = "fail_fast"
    CONTINUE = "continue"
    RETRY = "retry"


class ServerTarget(Model):
    """The server itself."""

    server: Literal[True]


class AnyTarget(Model):
    """Any connected regular worker, never the server."""

    any: Literal[True]


class WorkerTarget(Model):
    """One worker by its name, perhaps on some of its devices."""

    worker: Annotated[str, Field(min_length=1, max_length=128)]
    devices: tuple[str, ...] | None = None


class PoolTarget(Model):
    """The pool of one-shot agents."""

    pool: Literal["one-shot"]
    device: Annotated[str | None, Field(pattern=DEVICE.pattern)] = None
    """Of the kind that the agent has to offer."""


Target = ServerTarget | AnyTarget | WorkerTarget | PoolTarget


class RunOptions(Model):
    """The closed set of ``options`` of ``POST /api/runs``; an unknown key is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    device: str | None = None
    """cpu, auto, cuda, cuda:N, mps, mps:N; None: the graph's own, else cpu."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    deterministic: bool = False
    record_outputs: bool = False
    lane: Literal["queued", "interactive"] = "queued"
    verbose: bool = False
    graph_id: Annotated[str, Field(max_length=128)] | None = None
    weights_persistent: bool = False
    backward_mode: bool = False
    auto_backward: bool = False
    error_mode: Annotated[ErrorMode, Field(strict=False)] = ErrorMode.FAIL_FAST
    max_retries: Annotated[int, Field(ge=0, le=10)] = 0
    target: str | JsonObject | None = None
    """As it came; ``parse_target`` answers what it means."""

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str | None) -> str | None:
        if value is not None and not DEVICE.match(value):
            raise ValueError("a device is cpu, auto, cuda, cuda:N, mps or mps:N")
        return value


def parse_target(value: str | JsonObject | None, device: str | None = None) -> Target:
    """``"server"`` (the default), ``"any"``, a worker's name, or one of the object forms.

    Raises: ValueError saying which forms there are.
    """
    match value:
        case None | "server":
            return ServerTarget(server=True)
        case "any":
            return AnyTarget(any=True)
        case {"server": _}:
            return ServerTarget.model_validate(value)
        case {"any": _}:
            return AnyTarget.model_validate(value)
        case str():
            return WorkerTarget(worker=value)
        case {"worker": _}:
            return WorkerTarget.model_validate(value)
        case {"pool": _}:
            pool = PoolTarget.model_validate(value)
            return pool if pool.device else PoolTarget(pool=pool.pool, device=device)
    raise ValueError(
        'a target is "server", "any", a worker\'s name, {"worker": name} or {"pool": "one-shot", "device": kind}'
    )


def is_instance_id(text: str) -> bool:
    """May ``text`` name one of several agents of a worker? It has no dot, so ``<worker>.<ID>`` has one."""
    return WORKER_NAME.match(text) is not None


def worker_name_problem(name: str) -> str | None:
    """Why ``name`` can't be a worker's, or None."""
    if name.lower() in RESERVED_NAMES:
        return f"{name} is a reserved name; choose another with --name"
    if not WORKER_NAME.match(name):
        return "a worker's name has 1 to 63 letters, digits, - and _, and begins with a letter or digit"
    return None
