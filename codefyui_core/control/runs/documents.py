"""The documents of runs: read and judged at submit, made complete again when a run is sent. No I/O but
looking for files.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

from codefyui_core.errors import CodefyError
from codefyui_core.files import Family, Folders
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
from codefyui_core.settings import Install

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

    base: Path
    data: Path
    samples: Path
    folders: Folders
    artifacts: frozenset[str] = frozenset()
    """Absolute paths that runs recorded."""

    @classmethod
    def of(cls, install: Install) -> "DiskLook":
        return cls(base=install.base, data=install.data, samples=install.samples, folders=install.folders())

    def below(self, family: Family, name: str) -> Seen:
        """What lies below a family's folder."""
        return _seen(self.folders.of(family) / name, FileSource.UPLOAD)

    def at(self, value: str) -> Seen:
        """What lies at a plain path, judged by where it resolves to."""
        path = self.base / value
        try:
            resolved = path.resolve()
        except (OSError, RuntimeError, ValueError):
            return Seen()
        return _seen(resolved, self._source(path, resolved))

    def _source(self, path: Path, resolved: Path) -> FileSource:
        if resolved.is_relative_to(self.samples.resolve()):
            return FileSource.BUNDLED
        if self.folders.relative(path) is not None or resolved.is_relative_to(self.data.resolve()):
            return FileSource.DATA_PATH
        return FileSource.OTHER_PATH


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
