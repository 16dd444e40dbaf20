"""The helper, from the planes' side: what it wrote, kept by distribution versions and file times."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from codefyui_core._version import __version__
from codefyui_core.errors import CodefyError
from codefyui_core.files import write_private
from codefyui_core.graph import Definitions
from codefyui_core.loading import Registry
from codefyui_core.plugin.node import CatalogProblem
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import PluginInfo, PluginState
from codefyui_core.wire.messages import DeviceInfo

FORMAT = 1
TAIL_LINES = 5
NO_CATALOG = "-"
"""Names none: for devices and fingerprint alone."""


class HelperFailed(CodefyError):
    """The helper process ended badly, or took too long."""

    default_code = "catalog.loading"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """All that a plane knows of nodes, devices and environment."""

    definitions: Definitions
    providers: Mapping[str, str]
    """Node type -> ``builtin``, ``custom`` or ``plugin:<distribution>``."""
    problems: tuple[CatalogProblem, ...]
    devices: tuple[DeviceInfo, ...]
    fingerprint: JsonObject
    digest: str
    examples: tuple[Path, ...]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Catalog":
        """Raises: KeyError, TypeError, ValueError for another shape."""
        return cls(
            definitions=Definitions.from_json(value["definitions"]),
            providers=dict(value["providers"]),
            problems=tuple(CatalogProblem(**problem) for problem in value["problems"]),
            devices=tuple(DeviceInfo.model_validate(device) for device in value["devices"]),
            fingerprint=value["fingerprint"],
            digest=str(value["digest"]),
            examples=tuple(Path(path) for path in value["examples"]),
        )


async def collect(
    registry: Registry,
    *,
    cache: Path | None,
    timeout_s: float = 60,
    block: Collection[str] = (),
    only: Collection[str] = (),
) -> Catalog:
    """Have the helper write everything down. One that dies is run once more for each catalog alone, so that a
    pack that crashes costs its own nodes.

    Raises: PluginConflict's code for a type that two distributions have; HelperFailed when nothing could be had.
    """
    before = await asyncio.to_thread(fitting, registry)
    run = partial(_run_helper, timeout_s=timeout_s, block=block, only=only)
    try:
        answer = await run(None)
    except HelperFailed:
        answer = await _one_by_one(registry, run)
    catalog = Catalog.from_json(answer)
    if cache is not None:
        await asyncio.to_thread(_write_cache, cache, {"format": FORMAT, "for": before, **answer})
    return catalog


def read_cached(registry: Registry, cache: Path) -> Catalog | None:
    """What the last helper wrote, if distributions and files are still the same. Blocking, milliseconds."""
    try:
        value = json.loads(cache.read_text(encoding="utf-8"))
        if value["format"] != FORMAT or value["for"] != fitting(registry):
            return None
        return Catalog.from_json(value)
    except (OSError, KeyError, TypeError, ValueError):
        return None


def fitting(registry: Registry) -> JsonObject:
    """What the definitions depend on: versions, and times of the files that nodes come from."""
    return {
        "core": __version__,
        "python": sys.version,
        "plugins": [*sorted(map(_identity, registry.plugins))],
        "files": _stamps(_folders(registry)),
    }


def _identity(info: PluginInfo) -> str:
    blocked = info.state is PluginState.BLOCKED
    return f"{info.entry_point} {info.distribution} {info.version} {info.revision} {blocked}"


def _folders(registry: Registry) -> Iterable[Path]:
    """The packages of catalogs, and the folders that they watch."""
    packages = {type(catalog).__module__.partition(".")[0] for catalog in registry.catalogs}
    for package in sorted(packages):
        spec = find_spec(package)
        yield from map(Path, (spec.submodule_search_locations or ()) if spec is not None else ())
    for catalog in registry.catalogs:
        yield from catalog.watch


def _stamps(folders: Iterable[Path]) -> JsonObject:
    found: JsonObject = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in {".py", ".json"} and path.is_file():
                stat = path.stat()
                found[str(path)] = [stat.st_mtime_ns, stat.st_size]
    return found


async def _one_by_one(registry: Registry, run: Any) -> dict[str, Any]:
    """Merge what each catalog alone gives; one that fails is a problem of its own."""
    merged: dict[str, Any] = await run((NO_CATALOG,))
    for catalog in registry.catalogs:
        try:
            answer = await run((catalog.name,))
        except HelperFailed as error:
            merged["problems"].append({"source": f"catalog {catalog.name}", "message": error.message})
            continue
        _add(merged, answer)
    return merged


def _add(merged: dict[str, Any], answer: Mapping[str, Any]) -> None:
    known = merged["providers"]
    for node in answer["definitions"]["nodes"]:
        if node["type"] in known:
            message = f"the node type {node['type']} is taken by {known[node['type']]}; rename it"
            merged["problems"].append({"source": answer["providers"][node["type"]], "message": message})
        else:
            merged["definitions"]["nodes"].append(node)
            known[node["type"]] = answer["providers"][node["type"]]
    merged["definitions"]["presets"] += answer["definitions"]["presets"]
    types = {*merged["definitions"]["data_types"], *answer["definitions"]["data_types"]}
    merged["definitions"]["data_types"] = sorted(types)
    merged["problems"] += answer["problems"]
    merged["examples"] += answer["examples"]


async def _run_helper(
    catalogs: Sequence[str] | None, *, timeout_s: float, block: Collection[str], only: Collection[str]
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="codefyui-helper-") as folder:
        out = Path(folder) / "definitions.json"
        words = [sys.executable, "-m", "codefyui_core.runner.helper", str(out)]
        for option, names in (("--block", block), ("--only", only), ("--catalogs", catalogs)):
            words += [] if names is None or not names else [option, ",".join(names)]
        said = await _wait(words, timeout_s)
        if not out.exists():
            raise HelperFailed(f"the helper that reads node definitions {said}")
        answer: dict[str, Any] = json.loads(await asyncio.to_thread(out.read_text, encoding="utf-8"))
    if "error" in answer:
        raise CodefyError(answer["error"]["message"], code=answer["error"]["code"])
    return answer


async def _wait(words: Sequence[str], timeout_s: float) -> str:
    """Run to the end; how it ended, for a message. Never leaves the process behind."""
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            _, stderr = await process.communicate()
    except TimeoutError:
        return f"didn't end within {timeout_s:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    tail = " | ".join(stderr.decode(errors="replace").strip().splitlines()[-TAIL_LINES:])
    code = process.returncode
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with status {code}"
    return f"{how}: {tail}" if tail else how


def _write_cache(cache: Path, value: Mapping[str, Any]) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    write_private(cache, json.dumps(value, separators=(",", ":")).encode())
