"""What a plane knows of its nodes: collected by a helper process, kept in a file, never by importing them."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from codefyui_core.errors import CodefyError
from codefyui_core.files import write_private
from codefyui_core.graph import Definitions
from codefyui_core.loading import Registry, check_node_types
from codefyui_core.plugin.node import CatalogProblem
from codefyui_core.plugin.values import JsonObject
from codefyui_core.wire.messages import DeviceInfo

from .code_state import stamp
from .log_text import Lines, Tail

log = logging.getLogger(__name__)

FORMAT = 1
CONFLICT = "plugin.conflict"
CONFLICT_CLASS = "PluginConflict"
"""How the helper's traceback names it on its last line."""


class HelperFailed(CodefyError):
    """No definitions could be had at all; the message says why."""

    default_code = "catalog.failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All node types of this machine, and what else the helper found. A value."""

    definitions: Definitions
    providers: Mapping[str, str]
    """By type: ``builtin``, ``custom`` or ``plugin:<distribution>``."""
    problems: tuple[CatalogProblem, ...] = ()
    devices: tuple[DeviceInfo, ...] = ()
    fingerprint: JsonObject
    digest: str
    """Of the fingerprint."""
    examples: tuple[Path, ...] = ()
    watch: tuple[Path, ...] = ()

    def to_json(self) -> JsonObject:
        return {
            "definitions": self.definitions.to_json(),
            "providers": dict(self.providers),
            "problems": [{"source": one.source, "message": one.message} for one in self.problems],
            "devices": [one.model_dump(mode="json") for one in self.devices],
            "fingerprint": self.fingerprint,
            "digest": self.digest,
            "examples": [str(path) for path in self.examples],
            "watch": [str(path) for path in self.watch],
        }

    @classmethod
    def from_json(cls, document: Any) -> Self:
        """Raises: KeyError, TypeError, ValueError for what another version wrote."""
        return cls(
            definitions=Definitions.from_json(document["definitions"]),
            providers=document["providers"],
            problems=tuple(CatalogProblem(**one) for one in document["problems"]),
            devices=tuple(DeviceInfo.model_validate(one) for one in document["devices"]),
            fingerprint=document["fingerprint"],
            digest=document["digest"],
            examples=tuple(Path(path) for path in document["examples"]),
            watch=tuple(Path(path) for path in document["watch"]),
        )


async def collect(
    registry: Registry,
    *,
    cache: Path | None,
    timeout_s: float = 60,
    block: Collection[str] = (),
    only: Collection[str] = (),
    python: str = sys.executable,
) -> Catalog:
    """Run the helper; when it dies, once more for each catalog alone, so that a pack that crashes costs its
    own nodes. Writes ``cache``.

    Raises: CodefyError ``plugin.conflict`` for a type that two distributions claim; HelperFailed.
    """
    before = await asyncio.to_thread(stamp, _watched(registry))
    helper = _Helper(python=python, timeout_s=timeout_s, block=block, only=only)
    try:
        document = await helper.run(None)
    except HelperFailed as error:
        log.error("the helper that loads node definitions failed: %s", error.message)
        document = await _one_by_one(registry, helper, error)
    catalog = Catalog.from_json(document)
    if cache is not None:
        await asyncio.to_thread(_write, cache, before, document)
    return catalog


def read_cached(registry: Registry, cache: Path) -> Catalog | None:
    """What the last helper wrote, while no version, no module and no watched file has changed since."""
    try:
        stored = json.loads(cache.read_bytes())
        if stored["format"] != FORMAT or stored["stamp"] != stamp(_watched(registry)):
            return None
        return Catalog.from_json(stored["catalog"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None


def _write(cache: Path, stamped: str, document: JsonObject) -> None:
    """A file that can't be written costs the next start some seconds, nothing else."""
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"format": FORMAT, "stamp": stamped, "catalog": document})
        write_private(cache, text.encode())
    except OSError as error:
        log.warning("%s can't be written (%s); definitions are collected anew at each start", cache, error)


def _watched(registry: Registry) -> list[Path]:
    return [folder for catalog in registry.catalogs for folder in catalog.watch]


async def _one_by_one(registry: Registry, helper: "_Helper", first: HelperFailed) -> JsonObject:
    """Raises: HelperFailed when none answers; PluginConflict."""
    found: list[JsonObject] = []
    problems: list[JsonObject] = []
    for catalog in sorted(registry.catalogs, key=lambda one: one.gives_way):
        try:
            found.append(await helper.run([catalog.name]))
        except HelperFailed as error:
            problems.append({"source": catalog.name, "message": error.message})
    if not found:
        raise first
    merged = merge(found)
    merged["problems"] = [*_list(merged["problems"]), *problems]
    return merged


def merge(found: Collection[JsonObject]) -> JsonObject:
    """Documents of single catalogs as one; those that give way come last.

    Raises: PluginConflict for a type that two of them have, unless the later one is people's own.
    """
    merged: dict[str, Any] = {**next(iter(found))}
    nodes: dict[str, Any] = {}
    providers: dict[str, str] = {}
    claims: list[tuple[str, str]] = []
    problems: list[Any] = []
    groups: dict[str, list[Any]] = {name: [] for name in ("presets", "data_types", "examples", "watch")}
    for document in found:
        one: dict[str, Any] = dict(document)
        problems += one["problems"]
        for node in one["definitions"]["nodes"]:
            name, brought = node["type"], one["providers"][node["type"]]
            if name in nodes and brought == "custom":
                message = f"the node type {name} is taken by {providers[name]}; rename it"
                problems.append({"source": brought, "message": message})
                continue
            claims.append((brought.removeprefix("plugin:"), name))
            nodes[name], providers[name] = node, brought
        for group in ("presets", "data_types"):
            groups[group] += one["definitions"][group]
        for group in ("examples", "watch"):
            groups[group] += one[group]
        if len(one["devices"]) > len(merged["devices"]):
            merged["devices"] = one["devices"]
    check_node_types(claims)
    return merged | {
        "definitions": {
            "nodes": list(nodes.values()),
            "presets": groups["presets"],
            "data_types": sorted(set(groups["data_types"])),
        },
        "providers": providers,
        "problems": problems,
        "examples": groups["examples"],
        "watch": groups["watch"],
    }


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Helper:
    """Starts helper processes and ends them in time."""

    python: str
    timeout_s: float
    block: Collection[str]
    only: Collection[str]

    async def run(self, catalogs: list[str] | None) -> JsonObject:
        """Raises: HelperFailed; CodefyError ``plugin.conflict``."""
        request = json.dumps({"block": [*self.block], "only": [*self.only], "catalogs": catalogs})
        with tempfile.TemporaryDirectory(prefix="cdui-helper-") as folder:
            out = Path(folder) / "definitions.json"
            process = await asyncio.create_subprocess_exec(
                self.python,
                "-m",
                "codefyui_core.runner.helper",
                request,
                str(out),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=os.name == "posix",
            )
            tail = Tail()
            try:
                code = await asyncio.wait_for(_followed(process, tail), self.timeout_s)
            except TimeoutError:
                raise HelperFailed(f"it took longer than {self.timeout_s:g} s and was ended") from None
            finally:
                _kill(process)
                await process.wait()
            return _read(out, code, tail)


async def _followed(process: asyncio.subprocess.Process, tail: Tail) -> int:
    """Reads what it prints while it lives: what it leaves behind may hold the pipe."""
    reading = asyncio.ensure_future(_tailed(process, tail))
    try:
        code = await process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(reading), 1)
        return code
    finally:
        reading.cancel()


async def _tailed(process: asyncio.subprocess.Process, tail: Tail) -> None:
    lines = Lines()
    if process.stdout is not None:
        while data := await process.stdout.read(1 << 16):
            tail.add(lines.feed(data))
        tail.add(lines.end())


def _kill(process: asyncio.subprocess.Process) -> None:
    """With its group, also after its end, for what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _read(out: Path, code: int, tail: Tail) -> JsonObject:
    lines = tail.lines()
    try:
        document: JsonObject = json.loads(out.read_bytes())
    except (OSError, ValueError):
        last = lines[-1] if lines else "it printed nothing"
        if CONFLICT_CLASS in last:
            raise CodefyError(last.partition(": ")[2] or last, code=CONFLICT) from None
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        raise HelperFailed(f"it {how}: {last}") from None
    return document
