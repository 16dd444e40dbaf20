"""Saved graphs: JSON documents in the graphs folder, by a sanitised name. Blocking; call it in a thread."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.errors import CodefyError
from codefyui_core.files import SafeFolder
from codefyui_core.graph import json_text
from codefyui_core.plugin.values import JsonObject

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
SUFFIX = ".json"


def file_stem(name: str) -> str:
    """The reference's rule: any character but letters, digits, ``-`` and ``_`` becomes ``_``.

    Raises: CodefyError ``graph.bad_name`` for a name that leaves nothing or is too long.
    """
    stem = _OTHER.sub("_", name.strip())
    if not stem.strip("_") or len(stem) > 200:
        raise CodefyError(
            "A graph's name needs at least one letter or digit and at most 200 characters.",
            code="graph.bad_name",
        )
    return stem


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFiles:
    """The graphs folder."""

    folder: Path

    def list(self) -> list[JsonObject]:
        """``{name, file, modified}`` (seconds since 1970), newest first."""
        if not self.folder.is_dir():
            return []
        rows: list[JsonObject] = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            try:
                modified = path.stat().st_mtime
            except FileNotFoundError:
                continue  # deleted meanwhile
            rows.append({"name": self._shown_name(path), "file": path.stem, "modified": modified})
        return sorted(rows, key=lambda row: (-float(str(row["modified"])), str(row["file"])))

    def load(self, name: str) -> JsonObject:
        """Raises: CodefyError ``graph.not_found``, ``graph.invalid``."""
        stem = file_stem(name)
        try:
            with SafeFolder(self.folder) as folder, folder.read(stem + SUFFIX) as file:
                value = json_text.loads(file.read())
        except FileNotFoundError:
            raise self._missing(name) from None
        except json_text.NotJson as error:
            message = f"{stem}{SUFFIX} isn't a graph document: {error.message} Restore it, or save over it."
            raise CodefyError(message, code="graph.invalid") from None
        if not isinstance(value, dict):
            message = f"{stem}{SUFFIX} isn't a graph document. Restore it, or save over it."
            raise CodefyError(message, code="graph.invalid")
        return value

    def save(self, document: JsonObject, name: str, *, file: str | None, overwrite: bool) -> str:
        """Write the document whole; answers its file stem.

        Raises: CodefyError ``graph.exists`` when it is there and ``overwrite`` is false.
        """
        stem = file_stem(file or name)
        if not overwrite and file is None and (self.folder / (stem + SUFFIX)).exists():
            raise CodefyError(
                f"A graph named {stem} is saved already. Choose another name, or overwrite it.",
                code="graph.exists",
            )
        with SafeFolder(self.folder, create=True) as folder, folder.write(stem + SUFFIX) as out:
            out.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode())
        return stem

    def rename(self, source: str, target: str) -> str:
        """Raises: CodefyError ``graph.not_found`` or ``graph.exists``."""
        document = self.load(source)
        document["name"] = target
        before, after = file_stem(source), file_stem(target)
        if before != after and (self.folder / (after + SUFFIX)).exists():
            raise CodefyError(f"A graph named {after} is saved already.", code="graph.exists")
        self.save(document, target, file=after, overwrite=True)
        if before != after:
            (self.folder / (before + SUFFIX)).unlink(missing_ok=True)
        return after

    def delete(self, name: str) -> str:
        """Raises: CodefyError ``graph.not_found``."""
        stem = file_stem(name)
        try:
            (self.folder / (stem + SUFFIX)).unlink()
        except FileNotFoundError:
            raise self._missing(name) from None
        return stem + SUFFIX

    def _missing(self, name: str) -> CodefyError:
        return CodefyError(
            f"There is no saved graph named {name}. GET /api/graph/list shows what is there.",
            code="graph.not_found",
        )

    def _shown_name(self, path: Path) -> str:
        try:
            value = json_text.loads(path.read_bytes())
        except (OSError, ValueError, CodefyError):
            return path.stem
        name = value.get("name") if isinstance(value, dict) else None
        return name if isinstance(name, str) and name else path.stem
