"""Executes a graph in the process of its run: its code is loaded, its facts are told, the engine does the rest."""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from codefyui_core.engine import Job, Limits, NodeSet, Places, Recorder, deterministic, run
from codefyui_core.engine.speaker import Emit, Speaker
from codefyui_core.errors import CodefyError
from codefyui_core.files import Family, Folders
from codefyui_core.graph import Document, node_types
from codefyui_core.loading import Registry, load, load_nodes
from codefyui_core.outputs import OutputStore
from codefyui_core.plugin.node import Preset
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.options import RunOptions
from codefyui_core.runs.status import Cause, Outcome

from .api import Finished, FolderSpec, Go
from .catalogs import data_types, presets
from .fingerprint import digest, fingerprint, numerics
from .requests import KeeperRequest

CORE_DISTRIBUTION = "codefyui-core"


def execute(
    go: Go, request: KeeperRequest, emit: Emit, should_stop: Callable[[], bool]
) -> JsonObject | Finished:
    """The payload of the outcome line; and what writes the recorded outputs, when there are any."""
    limits = limits_of(os.environ)
    speaker = Speaker(emit, limits.payload_bytes)
    try:
        registry = load(plane=None, block=go.plugins_block, only=go.plugins_only)
        job = _job(go, limits)
        nodes = node_set(registry, go.document)
    except (CodefyError, ValidationError) as error:
        speaker.event("execution_start", {"run_id": go.run_id})
        return {"outcome": Outcome.FAILED.value, "error": str(error), "cause": Cause.REFUSED.value}
    facts = threading.Thread(
        target=_tell_facts, args=(speaker, registry, request, job, go), name="facts", daemon=True
    )
    recorder = _recorder(go, limits)
    with deterministic(on=job.options.deterministic):
        facts.start()
        outcome = run(job, nodes, emit, should_stop, recorder=recorder)
        facts.join()
    speaker.environment({"peak_memory": _peaks()})
    return outcome if recorder is None else Finished(outcome=outcome, afterwards=recorder.write)


def _recorder(go: Go, limits: Limits) -> Recorder | None:
    if go.record is None:
        return None
    store = OutputStore(
        Path(go.record.folder), limit_bytes=go.record.limit_bytes, keep_runs=go.record.keep_runs
    )
    return Recorder(store, go.run_id, limits)


def node_set(registry: Registry, document: JsonObject) -> NodeSet:
    """The node types that ``document`` may need: the core's own, which import at once; else those of all packs;
    else people's own files too, which give way to all others, so that a file that doesn't import costs nobody
    else's run.

    Raises: PluginConflict; GraphInvalid.
    """
    documents = [one.document for one in presets(registry) if isinstance(one, Preset)]
    types, parsed = data_types(registry), Document.parse(document)
    standing = [catalog.name for catalog in registry.catalogs if not catalog.gives_way]
    own = [name for name in standing if registry.provider_of(name) == CORE_DISTRIBUTION]
    for catalogs in (own, standing):
        nodes = NodeSet.of(load_nodes(registry, catalogs), documents, types)
        if node_types(parsed, nodes.definitions) <= nodes.definitions.nodes.keys():
            return nodes
    return NodeSet.of(load_nodes(registry), documents, types)


def _job(go: Go, limits: Limits) -> Job:
    return Job(
        run_id=go.run_id,
        document=go.document,
        options=RunOptions.model_validate(go.options),
        device=go.device,
        places=places(go.folders),
        records=go.records,
        limits=limits,
    )


def places(spec: FolderSpec) -> Places:
    """The folders of ``Go``, as paths."""
    folders = Folders(
        root=Path(spec.data), moved=tuple((Family(name), Path(path)) for name, path in spec.moved.items())
    )
    return Places(
        base=Path(spec.base),
        folders=folders,
        downloads=Path(spec.downloads) if spec.downloads else folders.of(Family.CACHE),
        samples=Path(spec.samples) if spec.samples else None,
        extra=tuple(Path(path) for path in spec.extra),
        known_as=Path(spec.known_as) if spec.known_as else None,
        kept=Path(spec.kept) if spec.kept else None,
    )


def limits_of(environ: "os._Environ[str] | dict[str, str]") -> Limits:
    """As the planes' settings are handed on; what isn't a number leaves the default."""
    given = {
        name: number
        for name, variable in _VARIABLES.items()
        if (number := _number(environ.get(f"CODEFYUI_{variable}"))) is not None
    }
    if "cache_bytes" in given:
        given["cache_bytes"] <<= 20
    return Limits(**given)


_VARIABLES = {
    "parallel_nodes": "MAX_PARALLEL_NODES",
    "payload_bytes": "RUN_EVENT_PAYLOAD_CAP_BYTES",
    "described_bytes": "RUN_IO_CAP_BYTES",
    "cache_bytes": "EXECUTION_CACHE_MAX_MB",
    "sample_from": "STATS_SAMPLE_THRESHOLD",
    "sample_size": "STATS_SAMPLE_SIZE",
}


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _tell_facts(speaker: Speaker, registry: Registry, request: KeeperRequest, job: Job, go: Go) -> None:
    """Beside the first nodes: asking the driver for its cards may take a moment."""
    document = fingerprint(registry, request.origin)
    speaker.environment(
        {
            "fingerprint": document,
            "digest": digest(document),
            "resolved": {
                "device": job.device,
                "devices": list(go.devices),
                "deterministic": job.options.deterministic,
                "numerics": numerics(),
            },
        }
    )


def _peaks() -> JsonObject:
    """Bytes, at most held at once: by the process, and by torch on each card that it used."""
    peaks: JsonObject = {}
    try:
        import resource
    except ImportError:
        pass
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        peaks["host_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            peaks[f"cuda:{index}_bytes"] = torch.cuda.max_memory_allocated(index)
    return peaks
