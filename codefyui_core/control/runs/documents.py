"""The documents of runs: read and judged at submit, made complete again when a run is sent. No I/O but
looking for files.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any

from codefyui_core.engine.job import Places
from codefyui_core.engine.paths import meant
from codefyui_core.errors import CodefyError
from codefyui_core.files import Family, spelled_below
from codefyui_core.graph import (
    Definitions,
    Document,
    GraphInvalid,
    embed_presets,
    expand,
    node_types,
    plan,
    validate,
)
from codefyui_core.graph.files_used import Seen, files_used
from codefyui_core.graph.secrets import SecretValues, blank_secrets, fill_secrets
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import FileSource, RunFiles
from codefyui_core.settings import RUN_FILES, Install

MAX_SENT_BYTES = 16 << 20
"""Of a document that is sent to a worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A document that may run."""

    stored: JsonObject
    """SECRET values blank."""
    secrets: JsonObject | None
    """The values, for memory alone; None when there are none."""
    node_types: frozenset[str]
    files: RunFiles
    name: str
    device: str | None
    sent_bytes: int
    """Of the document as it would be sent."""
    graph_hash: str
    """Equal for documents that execute the same, wherever their nodes stand and whatever they are called."""


def prepare(
    graph: JsonObject | bytes, definitions: Definitions, look: "DiskLook", *, limit_bytes: int
) -> Prepared:
    """Parse and judge a submitted document.

    Raises: GraphInvalid with all issues.
    """
    document = Document.parse(graph)
    issues = validate(document, definitions)
    if issues:
        raise GraphInvalid(issues)
    plan(expand(document, definitions), definitions)
    blank, secrets = blank_secrets(document, definitions)
    return Prepared(
        stored=blank.raw,
        secrets=secrets.to_json() if secrets else None,
        node_types=node_types(document, definitions),
        files=files_used(document, definitions, look, limit_bytes=limit_bytes),
        name=document.name or "",
        device=document.settings_device,
        sent_bytes=len(embed_presets(document, definitions).dump().encode()),
        graph_hash=graph_hash(blank.raw),
    )


def graph_hash(document: JsonObject) -> str:
    """SHA-256 of what of a document decides how it executes: not its name, nor where its nodes stand. SECRET
    values count as they are stored, blank.
    """
    executed: dict[str, Any] = {key: value for key, value in document.items() if key not in _ONLY_SHOWN}
    nodes: Any = document.get("nodes") or []
    executed["nodes"] = [{key: node.get(key) for key in ("id", "type", "data")} for node in nodes]
    text = json.dumps(executed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


_ONLY_SHOWN = frozenset({"name", "description", "viewport"})


def complete(stored: JsonObject, secrets: JsonObject | None, definitions: Definitions) -> JsonObject:
    """The document as it is sent: SECRET values filled in, the presets that it needs embedded."""
    document = Document.parse(stored)
    if secrets:
        document = fill_secrets(document, SecretValues.from_json(secrets))
    return embed_presets(document, definitions).raw


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskLook:
    """What lies on the server's disk, for the rules about files."""

    places: Places
    data: Path
    samples: Path
    run_files: Path
    """What runs on workers left here is below it."""

    @classmethod
    def of(cls, install: Install) -> "DiskLook":
        folders = install.folders()
        places = Places(
            base=install.base,
            folders=folders,
            downloads=folders.of(Family.CACHE),
            samples=install.samples,
        )
        return cls(
            places=places, data=install.data, samples=install.samples, run_files=folders.root / RUN_FILES
        )

    def below(self, family: Family, name: str) -> Seen:
        """What lies below a family's folder."""
        return _seen(spelled_below(self.places.folders.of(family), PurePosixPath(name)), FileSource.UPLOAD)

    def at(self, value: str) -> Seen:
        """What lies at a plain path, as a run here would find it, judged by where it resolves to."""
        try:
            path = meant(self.places, value)
            resolved = path.resolve()
        except (OSError, RuntimeError, ValueError):
            return Seen()
        seen = _seen(resolved, self._source(path, resolved))
        if seen.source is FileSource.ARTIFACT and (seen.size_bytes is None or not _names_a_run(value)):
            return replace(seen, source=FileSource.DATA_PATH)
        return seen

    def _source(self, path: Path, resolved: Path) -> FileSource:
        if resolved.is_relative_to(self.samples.resolve()):
            return FileSource.BUNDLED
        if resolved.is_relative_to(self.run_files.resolve()):
            return FileSource.ARTIFACT
        below = (self.data, self.places.folders.root)
        if self.places.folders.relative(path) or any(resolved.is_relative_to(one.resolve()) for one in below):
            return FileSource.DATA_PATH
        return FileSource.OTHER_PATH


def _names_a_run(value: str) -> bool:
    """The same text finds the file wherever a run has its data folder."""
    parts = PurePosixPath(value).parts
    return parts[:2] == ("data", RUN_FILES) and ".." not in parts


def _seen(path: Path, source: FileSource) -> Seen:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return Seen(source=source)
    return Seen(present=True, size_bytes=status.st_size if S_ISREG(status.st_mode) else None, source=source)


def too_large(size: int) -> CodefyError:
    return CodefyError(
        f"This graph has {size} bytes with the presets it needs; a worker takes {MAX_SENT_BYTES} at most. "
        "Run it on the server, or make it smaller.",
        code="request.too_large",
    )
