"""The rows that the API answers with, for its description; the rooms that make them know no pydantic.

Further fields may be added to any row: clients ignore those that they don't know.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, RootModel

from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import PluginState, RunStatus


class Row(BaseModel):
    """Open for new fields."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)


# ---------------------------------------------------------------- runs


class WorkerStatus(Row):
    """Is the worker that executes the run there?"""

    state: Literal["online", "away"]
    since: str | None
    name: str | None


class LateResult(Row):
    """What a worker reported after its run was given up; it changes nothing."""

    status: RunStatus
    error: str | None
    worker_id: str | None
    at: str


class RunRow(Row):
    """A run, as lists have it."""

    id: str
    name: str
    options: JsonObject
    target: JsonObject
    status: RunStatus
    active: bool
    error: str | None
    cause: str | None
    exit_code: int | None
    signal: int | None
    peak_memory_bytes: int | None
    device: str
    devices: list[str]
    worker_id: str | None
    worker: str | None
    worker_status: WorkerStatus | None
    attempt: int
    queue_key: str
    queue_position: int | None
    """From 1, in its line."""
    queue_reason: str | None
    queue_reason_code: str | None
    stop_requested: bool
    created_at: str
    started_at: str | None
    finished_at: str | None
    git_commit: str | None
    git_dirty: bool | None
    plugin_pins: JsonObject | None
    sweep_id: str | None
    sweep_variant: int | None
    final_metrics: JsonObject
    late_result: LateResult | None
    last_cursor: int


class Run(RunRow):
    """One run, with what lists leave out."""

    stderr_tail: list[str]
    execution_facts: JsonObject | None


class Runs(BaseModel):
    """A page of runs."""

    runs: list[RunRow]
    total: int
    limit: int
    offset: int


class EventRow(Row):
    """One event of a run."""

    cursor: int
    """From 1 without gaps."""
    type: str
    payload: JsonObject
    ts: str


class Events(BaseModel):
    """A page of a run's events."""

    run_id: str
    status: RunStatus
    active: bool
    events: list[EventRow]
    cursor: int
    """Where the next page begins."""


class MetricPoint(Row):
    """One value of one metric."""

    node_id: str | None
    name: str
    step: int | None
    value: float | None
    """Null for what isn't finite; then ``special`` says which it was."""
    special: Literal["nan", "inf", "-inf"] | None = None
    ts: str


class Metrics(BaseModel):
    """A run's metrics in the order in which they were reported."""

    run_id: str
    names: list[str]
    metrics: list[MetricPoint]


class ArtifactRow(Row):
    """One file or folder that a run recorded."""

    id: str
    kind: str
    name: str
    backend: str
    label: str | None
    relative_path: str | None
    path: str | None
    size_bytes: int | None
    sha256: str | None
    state: Literal["stored", "arriving", "on_worker", "missing"]
    downloadable: bool
    node_id: str | None
    meta: JsonObject
    created_at: str


class Artifacts(RootModel[list[ArtifactRow]]):
    """What a run recorded, oldest first."""


# ---------------------------------------------------------------- workers


class WorkerDevice(Row):
    """One device that a worker offers."""

    device: str
    name: str
    slots: int
    used: int
    policy: str
    memory_total_bytes: int | None
    memory_free_bytes: int | None


class WorkerCatalog(Row):
    """A worker's node types against the server's."""

    hash: str
    missing: list[str]
    extra: list[str]


class WorkerRow(Row):
    """A worker."""

    id: str
    name: str
    status: Literal["online", "degraded", "offline", "disabled"]
    status_reason: str
    """Why a connected worker gets no runs at all; mostly empty."""
    connected: bool
    last_seen: str | None
    version: str | None
    connector: str | None
    address: str | None
    plain_http: bool
    trust: JsonObject | None
    same_host: bool
    one_shot: bool
    one_shot_run: str | None
    drained: bool
    accepting: bool
    platform: str | None
    devices: list[WorkerDevice]
    mounts: JsonObject
    catalog: WorkerCatalog | None
    fingerprint: str | None
    plugins: dict[str, str]
    running: int
    queued: int


class RefusedRow(Row):
    """A connection that was refused."""

    name: str
    address: str
    code: str
    reason: str
    at: str
    count: int


class Workers(BaseModel):
    """All workers, and the connections that were refused."""

    workers: list[WorkerRow]
    refused: list[RefusedRow]


class TokenRow(Row):
    """An enrollment token without its secret."""

    id: str
    uses: int
    uses_left: int
    worker: str | None
    created_at: str
    expires_at: str
    revoked: bool
    state: Literal["valid", "expired", "revoked", "used_up"]


class Tokens(RootModel[list[TokenRow]]):
    """Newest first."""


class TokenNote(Row):
    """Something to know beside the command."""

    text: str
    command: str
    value: str


class NewToken(TokenRow):
    """A token, shown this once."""

    token: str
    command: str
    notes: list[TokenNote]


class Invitation(Row):
    """What the command for an agent gets beside address and token."""

    address: str
    options: list[str]
    notes: list[TokenNote]


# ---------------------------------------------------------------- nodes, graphs, files


class PortRow(Row):
    """A port of a node."""

    name: str
    data_type: str
    description: str
    optional: bool


class ParamRow(Row):
    """A parameter of a node."""

    name: str
    param_type: str
    default: Any
    description: str
    options: list[Any]
    min_value: float | None
    max_value: float | None
    visible_when: JsonObject
    advanced: bool


class NodeRow(Row):
    """A node type."""

    name: str
    category: str
    description: str
    inputs: list[PortRow]
    outputs: list[PortRow]
    params: list[ParamRow]
    provider: str
    """builtin, custom or plugin:<distribution>."""
    cacheable: bool
    stateful: bool


class Nodes(RootModel[list[NodeRow]]):
    """All node types."""


class PresetRow(RootModel[JsonObject]):
    """A preset: a document of its own."""


class Presets(RootModel[list[JsonObject]]):
    """All presets."""


class Graph(RootModel[JsonObject]):
    """A graph document."""


class GraphFile(Row):
    """A saved graph."""

    name: str
    file: str
    modified: float
    """Seconds since 1970."""


class GraphFiles(RootModel[list[GraphFile]]):
    """Newest first."""


class ExampleRow(Row):
    """An example graph."""

    name: str
    description: str
    category: str
    path: str
    source: str
    node_count: int
    edge_count: int
    section: str
    family: str
    order: int


class Examples(RootModel[list[ExampleRow]]):
    """By path."""


class FileRow(Row):
    """An uploaded file."""

    name: str
    size_bytes: int
    modified: float
    """Seconds since 1970."""


class Files(RootModel[list[FileRow]]):
    """By name."""


# ---------------------------------------------------------------- plugins and settings


class PluginRow(Row):
    """An installed plugin."""

    entry_point: str
    distribution: str
    version: str
    revision: str
    state: PluginState
    brings: list[str]
    hooks: list[str]
    error: str


class ProblemRow(Row):
    """What gave no node, and why."""

    source: str
    message: str


class Plugins(BaseModel):
    """What is installed, and what became of it."""

    plugins: list[PluginRow]
    problems: list[ProblemRow]
    conditions: dict[str, str]
    """By connector or storage backend (``storage s3``): what it says of itself here."""


class SettingRow(Row):
    """A setting as it is now; secrets are stars."""

    name: str
    value: Any
    default: Any
    source: Literal["flag", "env", "file", "default"]
    plane: str
    owner: str
    description: str


class Settings(BaseModel):
    """All settings."""

    settings: list[SettingRow]
