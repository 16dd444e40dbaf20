"""The core's own settings. A field is named after its variable: ``port`` is ``CODEFYUI_PORT``.

Plugins bring theirs by ``codefyui_settings``; a variable has one owner. Sizes are bytes (MAX_MB: MiB), times
are seconds.
"""

from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from ..plugin.values import Plane
from .fields import Caps, CommaList, Folder, FolderList

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class LogLevel(StrEnum):
    """How much a log says."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class CoreSettings(BaseSettings):
    """Base: read by ``read_settings`` from layers."""

    planes: ClassVar[frozenset[Plane]] = frozenset(Plane)

    model_config = SettingsConfigDict(
        env_prefix="CODEFYUI_",
        env_file=None,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )


class FolderSettings(CoreSettings):
    """Where files lie. Unset ones follow from the installation; ``Install`` says what holds."""

    data_dir: Folder | None = None
    """The data folder as a whole."""
    data_files_dir: Folder | None = None
    """Uploaded data files."""
    images_dir: Folder | None = None
    """Uploaded images."""
    models_dir: Folder | None = None
    """Weights, uploaded or saved by nodes."""
    media_dir: Folder | None = None
    """Pictures and videos that runs recorded."""
    graphs_dir: Folder | None = None
    """Saved graphs."""
    presets_dir: Folder | None = None
    """Saved presets."""
    custom_nodes_dir: Folder | None = None
    """Python files with nodes of one's own; watched."""
    examples_dir: Folder | None = None
    """Example graphs."""
    project_dir: Folder | None = None
    """A project to work in (cdui start --project)."""
    extra_data_dirs: FolderList = ()
    """More folders that nodes may read plain paths from, separated by commas."""
    log_dir: Folder | None = None
    """Where log files are written; unset: logs/ in the user data."""


class PlaneSettings(CoreSettings):
    """What control plane and agent have in common: both execute runs and load plugins."""

    worker_resume_grace_s: NonNegativeFloat = 300
    """Seconds that a disconnected worker's runs wait for it; 0 ends them at once."""
    max_upload_size: PositiveInt = 500 * MIB
    """The largest file that a browser or a worker may upload."""
    run_retention_keep_last: int = 200
    """How many ended runs are kept; on a worker, the folders of how many. 0 none, negative: all."""
    run_zygote: bool = True
    """Start runs from a process that has their libraries loaded; 0: a fresh interpreter each."""
    run_output_store_max_mb: NonNegativeInt = 2048
    """How much recorded outputs may take; the oldest go first."""
    execution_cache_max_mb: NonNegativeInt = 1024
    """How much results kept between runs of one canvas may take; 0: bounded by their count only."""
    node_state_store_max_mb: NonNegativeInt = 1024
    """How much weights kept between runs of one canvas may take; 0: bounded by their count only."""
    max_parallel_nodes: PositiveInt = 4
    """How many nodes of one run compute at once."""
    max_image_pixels: PositiveInt = 25_000_000
    """The largest image that nodes decode, in pixels."""
    run_io_cap_bytes: PositiveInt = 64 * KIB
    """How much of one node's inputs and outputs is described for the editor."""
    stats_sample_threshold: PositiveInt = 4_000_000
    """From how many elements on statistics of a tensor come from a sample."""
    stats_sample_size: PositiveInt = 1_000_000
    """How many elements such a sample has."""
    stats_cache_max_bytes: NonNegativeInt = 8 * MIB
    """How much computed statistics may take."""
    plugins_block: CommaList = ()
    """Plugins that aren't loaded, by entry-point name, separated by commas."""
    plugins_only: CommaList = ()
    """When set, no other plugins are loaded."""
    log_level: LogLevel = LogLevel.INFO
    """DEBUG, INFO, WARNING or ERROR."""
    log_json: bool = False
    """One JSON object a log line."""
    debug: bool = False
    """Log everything, and answer internal errors with their traceback."""


class ControlSettings(PlaneSettings):
    """The control plane's."""

    planes: ClassVar[frozenset[Plane]] = frozenset({Plane.CONTROL})

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 for every interface."""
    port: int = Field(default=8000, ge=0, le=65535)
    """The port to listen on."""
    extra_allowed_hosts: CommaList = ()
    """Host names that workers and browsers dial besides the machine's own addresses, with the port when it
    isn't the default, separated by commas."""
    cors_origins: CommaList = ("http://localhost:5173", "http://localhost:5174", "http://localhost:3000")
    """Origins of development servers that may call the API, separated by commas."""
    database_url: SecretStr | None = None
    """A PostgreSQL or SQLite URL; unset: codefyui.db in the user data."""
    db_path: Path | None = None
    """A SQLite file; read when no database URL is set."""
    db_on_network: bool = False
    """Start also with a SQLite file on a network file system, where it may be damaged."""
    max_run_body_bytes: PositiveInt = 64 * MIB
    """The largest body of a submitted graph."""
    ws_max_message_bytes: PositiveInt | None = None
    """The largest frame of the editor's socket; unset: as the largest body."""
    worker_output_fetch_timeout_s: NonNegativeFloat = 60
    """Seconds that a read of a worker run's recorded outputs waits for the worker before it answers 504."""
    worker_one_shot_queue_timeout_s: NonNegativeFloat = 86400
    """Seconds that a run waits for a one-shot worker before it fails; 0 waits forever."""
    transfer_max_input_bytes: PositiveInt = 2 * GIB
    """The most that the inputs sent to a worker for one run may add up to."""
    run_queue_max_concurrent_gpu: PositiveInt = 1
    """Runs at once on each GPU."""
    run_queue_max_concurrent_cpu: PositiveInt = 2
    """Runs at once on each CPU."""
    run_queue_max_concurrent: Caps = Field(default_factory=dict)
    """Runs at once on single devices: <device>=<count> or <worker>/<device>=<count>, separated by commas."""
    run_queue_durable: bool = True
    """Keep waiting runs over a restart; 0 ends them interrupted."""
    run_interactive_max_concurrent: PositiveInt = 2
    """Runs at once that were started from open canvases."""
    runs_retention_days: NonNegativeInt = 0
    """Days until an ended run is removed; 0: never."""
    run_event_payload_cap_bytes: PositiveInt = 131_072
    """The largest payload of one event; a larger one is cut with its length."""
    run_events_response_cap_bytes: PositiveInt = 4 * MIB
    """The most events that one answer holds."""

    @property
    def frame_bytes(self) -> int:
        """The largest frame of the editor's socket."""
        return self.ws_max_message_bytes or self.max_run_body_bytes

    def database(self, user_data: Path) -> str:
        """The URL for SQLAlchemy, with an asynchronous driver."""
        if self.database_url is not None:
            return _with_driver(self.database_url.get_secret_value())
        path = user_data / "codefyui.db" if self.db_path is None else self.db_path.expanduser().absolute()
        return f"sqlite+aiosqlite:///{path}"


class AgentSettings(PlaneSettings):
    """An agent's."""

    planes: ClassVar[frozenset[Plane]] = frozenset({Plane.AGENT})

    agent_token: SecretStr | None = None
    """The enrollment token, when --token isn't given."""
    worker_outputs_write_timeout_s: NonNegativeFloat = 300
    """Seconds that a recorded run's process may take to write its outputs after the run has ended."""


_DRIVERS = {
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "sqlite": "sqlite+aiosqlite",
}


def _with_driver(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return _DRIVERS.get(scheme, scheme) + separator + rest
