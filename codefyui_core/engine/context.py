"""The run as a node sees it."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from codefyui_core.errors import CodefyError
from codefyui_core.files import Family, Folders

from . import paths, seeds
from .artifact_ids import artifact_id
from .failures import redacted
from .shared import Shared

RunPreset = Callable[[str, Mapping[str, Any], str], Mapping[str, Any]]


class RunContext:
    """One node's ``NodeContext``. Holds no state but what the node logged, so any thread may use it."""

    def __init__(
        self, shared: Shared, node_id: str, run_preset: RunPreset, hidden_seed: int | None = None
    ) -> None:
        """``hidden_seed``: for a node with weights that runs several times in an unseeded run (Map): it gets
        the same weights each time, although it is told of no seed.
        """
        self._shared = shared
        self._node_id = node_id
        self._run_preset = run_preset
        self._hidden_seed = hidden_seed
        self.lines: list[str] = []

    @property
    def run_id(self) -> str:
        return self._shared.job.run_id

    @property
    def node_id(self) -> str:
        return self._node_id

    @property
    def device(self) -> str:
        return self._shared.device

    @property
    def seed(self) -> int | None:
        return self._shared.seed

    @property
    def deterministic(self) -> bool:
        return self._shared.job.options.deterministic

    @property
    def verbose(self) -> bool:
        return self._shared.job.options.verbose

    @property
    def records(self) -> bool:
        return self._shared.job.records

    @property
    def folders(self) -> Folders:
        return self._shared.job.places.folders

    @property
    def downloads(self) -> Path:
        return self._shared.job.places.downloads

    def derive_seed(self, label: str) -> int | None:
        base = self._shared.seed if self._shared.seed is not None else self._hidden_seed
        return None if base is None else seeds.derive(base, self._node_id, label)

    def generator(self, label: str) -> Any:
        seed = self.derive_seed(label)
        if seed is None:
            return None
        import torch

        return torch.Generator(device=self.device).manual_seed(seed)

    def input_file(self, family: Family, value: str) -> Path:
        return paths.input_file(self._shared.job.places, family, value)

    def input_path(self, value: str) -> Path:
        return paths.input_path(self._shared.job.places, value)

    def output_file(self, family: Family, name: str) -> Path:
        return paths.output_file(self._shared.job.places, family, name)

    def run_preset(self, name: str, inputs: Mapping[str, Any], label: str) -> Mapping[str, Any]:
        """``inputs`` by exposed name; an empty name is the first one.

        Raises: CodefyError; the node that failed is named.
        """
        return self._run_preset(name, inputs, label)

    def metric(self, name: str, value: float, step: int | None = None) -> None:
        self._shared.reporter.metric(
            self._node_id, str(name), float(value), None if step is None else int(step)
        )

    def artifact(self, kind: str, path: Path, meta: Mapping[str, JsonValue] | None = None) -> None:
        """Raises: CodefyError ``files.not_found``."""
        path = Path(path).absolute()
        if not path.exists():
            raise CodefyError(f"{path} isn't there; record a file once it is written", code="files.not_found")
        key = artifact_id()
        self._keep(path, key)
        self._shared.reporter.artifact(
            self._node_id, key, kind, path, self.folders.relative(path), meta or {}
        )

    def _keep(self, path: Path, key: str) -> None:
        """A second name, at once: the next file of this name must not be taken for this one."""
        kept = self._shared.job.places.kept
        if kept is not None and path.is_file() and not path.is_symlink():
            # On file systems without links the agent copies what it finds.
            with suppress(OSError, NotImplementedError):
                kept.mkdir(mode=0o700, parents=True, exist_ok=True)
                (kept / key).hardlink_to(path)

    def progress(self, payload: Mapping[str, JsonValue]) -> None:
        self._shared.reporter.progress(self._node_id, payload)

    def log(self, text: str) -> None:
        lines = redacted(str(text), self._shared.secrets).splitlines() or [""]
        self.lines.extend(lines)
        self._shared.reporter.log(self._node_id, lines)

    def should_stop(self) -> bool:
        return self._shared.should_stop()
