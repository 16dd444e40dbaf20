"""Example graphs: files named ``*.graph.json`` below folders that install and catalogs bring. Blocking."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from codefyui_core.errors import CodefyError
from codefyui_core.files import SafeFolder
from codefyui_core.graph import json_text
from codefyui_core.plugin.values import JsonObject

SUFFIX = ".graph.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Folders by source; the first that has a path wins."""

    folders: tuple[tuple[str, Path], ...]

    def list(self) -> list[dict[str, Any]]:
        """One row a readable example, by path."""
        rows: dict[str, dict[str, Any]] = {}
        for source, folder in self.folders:
            if not folder.is_dir():
                continue
            for path in sorted(folder.rglob(f"*{SUFFIX}")):
                relative = path.relative_to(folder).as_posix()
                row = _row(source, relative, path)
                if row is not None:
                    rows.setdefault(relative, row)
        return [rows[path] for path in sorted(rows)]

    def load(self, path: str) -> JsonObject:
        """Raises: CodefyError ``example.not_found``, ``graph.invalid`` or ``files.bad_name``."""
        for _, root in self.folders:
            if not root.is_dir() or not path.endswith(SUFFIX):
                continue
            try:
                with SafeFolder(root) as folder, folder.read(path) as file:
                    value = json_text.loads(file.read())
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                continue
            except json_text.NotJson as error:
                message = f"The example {path} can't be read: {error.message}"
                raise CodefyError(message, code="graph.invalid") from None
            if isinstance(value, dict):
                return value
        raise CodefyError(
            f"There is no example {path}. GET /api/examples/list shows them.", code="example.not_found"
        )


def _row(source: str, relative: str, path: Path) -> dict[str, Any] | None:
    try:
        value = json_text.loads(path.read_bytes())
    except (OSError, ValueError, CodefyError):
        return None
    if not isinstance(value, dict):
        return None
    parts = PurePosixPath(relative).parts
    stem = parts[-1].removesuffix(SUFFIX)
    nodes, edges = value.get("nodes"), value.get("edges")
    return {
        "name": value.get("name") or stem,
        "description": value.get("description") or "",
        "category": parts[0] if len(parts) > 1 else "Examples",
        "path": relative,
        "source": source,
        "node_count": len(nodes) if isinstance(nodes, list) else 0,
        "edge_count": len(edges) if isinstance(edges, list) else 0,
        "section": parts[0] if len(parts) > 1 else "",
        "family": parts[1] if len(parts) > 2 else "",
        "order": 0,
    }
