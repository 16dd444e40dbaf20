"""What a run is given to execute, and by what."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from codefyui_core.files import Folders
from codefyui_core.graph import Definitions
from codefyui_core.loading import LoadedNodes
from codefyui_core.plugin.node import Node
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.options import RunOptions

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where nodes find and leave files."""

    base: Path
    """Relative paths are below it."""
    folders: Folders
    downloads: Path
    samples: Path | None = None
    """Read where ``data/samples/...`` is named."""
    extra: tuple[Path, ...] = ()
    """More that plain paths may be read from."""
    known_as: Path | None = None
    """The server's path of the data folder, where that is another one."""
    kept: Path | None = None
    """Where recorded files get a second name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of everything."""

    parallel_nodes: int = 4
    payload_bytes: int = 128 * KIB
    described_bytes: int = 64 * KIB
    """Of one node's outputs."""
    cache_entries: int = 256
    cache_bytes: int = 1024 * MIB
    """0: bounded by entries only."""
    sample_from: int = 4_000_000
    """Statistics of a tensor with more elements come from a sample."""
    sample_size: int = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run."""

    run_id: str
    document: JsonObject
    options: RunOptions
    device: str
    """cpu, cuda:N or mps:0; already resolved."""
    places: Places
    records: bool = True
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSet:
    """The node types of this process."""

    classes: Mapping[str, type[Node]]
    definitions: Definitions

    @classmethod
    def of(
        cls, loaded: LoadedNodes, presets: Iterable[JsonObject] = (), data_types: Iterable[str] = ()
    ) -> Self:
        return cls(
            classes={name: one.node for name, one in loaded.nodes.items()},
            definitions=Definitions.of(
                (one.definition for one in loaded.nodes.values()), presets, data_types
            ),
        )
