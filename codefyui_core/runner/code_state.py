"""Which code is installed here: commits, versions and file times, read from disk without importing anything."""

import hashlib
import importlib.util
import json
import platform
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import Distribution, EntryPoint, distributions, entry_points
from pathlib import Path

from codefyui_core._version import __version__
from codefyui_core.plugin.markers import PROJECT
from codefyui_core.plugin.values import JsonObject

CORE = Path(__file__).parent.parent
_ROOMS_OF_RUNS = ("plugin", "graph", "runs", "loading", "engine", "runner", "builtin")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def commit_of(folder: Path) -> str:
    """The commit that a git checkout around ``folder`` stands at; empty when it is in none."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        with suppress(OSError):
            if git.is_file():
                git = parent / git.read_text(encoding="utf-8").partition("gitdir:")[2].strip()
            if git.is_dir():
                return _head(git)
    return ""


def _head(git: Path) -> str:
    """``git rev-parse HEAD``, from loose and packed refs (gitrepository-layout(5))."""
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return head if _COMMIT.fullmatch(head) else ""
    name = head.partition(":")[2].strip()
    common = git
    with suppress(OSError):
        common = (git / (git / "commondir").read_text(encoding="utf-8").strip()).resolve()
    for place in (git, common):
        with suppress(OSError):
            return (place / name).read_text(encoding="utf-8").strip()
    with suppress(OSError):
        for line in (common / "packed-refs").read_text(encoding="utf-8").splitlines():
            commit, _, ref = line.partition(" ")
            if ref == name:
                return commit
    return ""


def revision_of(distribution: str) -> str:
    """The commit of a plugin: as its installer recorded it, or of the checkout that it is installed from."""
    for found in distributions(name=distribution):
        recorded: JsonObject = {}
        with suppress(ValueError, OSError):
            recorded = json.loads(found.read_text("direct_url.json") or "{}")
        match recorded:
            case {"vcs_info": {"commit_id": str(commit)}}:
                return commit
            case {"dir_info": {"editable": True}, "url": str(url)} if url.startswith("file://"):
                return commit_of(Path(url.removeprefix("file://")))
    return ""


def torch_build() -> JsonObject | None:
    """What torch says of itself in its small version module; None when it isn't installed."""
    try:
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            return None
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except (ImportError, ValueError, OSError):
        return None
    found = {}
    for name in ("__version__", "git_version", "cuda", "hip"):
        match = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]*)['\"]", text, re.MULTILINE)
        found[name.strip("_")] = match[1] if match else None
    return dict(found)


def file_digests(folders: Iterable[Path]) -> JsonObject:
    """SHA-256 of each Python file in folders with people's own nodes."""
    digests: JsonObject = {}
    for folder in folders:
        with suppress(OSError):
            for path in sorted(folder.glob("*.py")):
                digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests


def stamp(watch: Iterable[Path] = ()) -> str:
    """Changes when the core, a plugin or a watched file does: versions, and times and sizes of their files."""
    points = sorted(entry_points(group=PROJECT), key=lambda point: point.name)
    document = [
        __version__,
        platform.python_version(),
        [[point.name, point.value, *_identity(point.dist)] for point in points],
        [_times(folder) for folder in sorted({CORE, *_packages(points)})],
        [_times(folder) for folder in sorted(watch)],
    ]
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


class PreloadedCode:
    """The files of ours that a zygote with some modules holds in memory, and whether they have changed since.

    Libraries are left out: what plugins bring is edited and updated under a running agent, torch is not.
    """

    def __init__(self, modules: Iterable[str]) -> None:
        wanted = {module.partition(".")[0] for module in modules} - {"codefyui_core"}
        points = [one for one in entry_points(group=PROJECT) if one.module.partition(".")[0] in wanted]
        self._folders = sorted({*(CORE / room for room in _ROOMS_OF_RUNS), *_packages(points)})
        self._times = self._now()

    def changed(self) -> bool:
        """Reads no file, only their times: some milliseconds; call it in a thread."""
        return self._now() != self._times

    def _now(self) -> list[list[str]]:
        return [_times(folder) for folder in self._folders]


def _identity(distribution: Distribution | None) -> list[str]:
    return [] if distribution is None else [distribution.name, distribution.version]


def _packages(points: Iterable[EntryPoint]) -> Iterator[Path]:
    for point in points:
        with suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(point.module.partition(".")[0])
            for place in (spec.submodule_search_locations or ()) if spec is not None else ():
                yield Path(place)


def _times(folder: Path) -> list[str]:
    found = []
    with suppress(OSError):
        for path in sorted(folder.rglob("*.py")):
            with suppress(OSError):
                status = path.stat()
                found.append(f"{path} {status.st_mtime_ns} {status.st_size}")
    return found
