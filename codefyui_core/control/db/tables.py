"""Every table. Times are milliseconds since 1970 (UTC) as 64-bit integers; ids are text."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from .types import JsonText, SafeText

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

control = Table(
    "control",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("db_id", String(32), nullable=False),
    Column("server_epoch", BigInteger, nullable=False),
    Column("shutdown", String(16), nullable=False),  # running, stop, keep, clean
    Column("device_policies", JsonText),  # of this server's own cards: device -> count, memory
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("queue_seq", BigInteger, nullable=False, unique=True),  # order of submission
    Column("submit_id", String(64), unique=True),
    Column("name", SafeText, nullable=False),
    Column("status", String(16), nullable=False),
    Column("document", JsonText, nullable=False),  # SECRET values blank
    Column("has_secrets", Boolean, nullable=False),
    Column("options", JsonText, nullable=False),
    Column("target", JsonText, nullable=False),
    Column("device", String(32), nullable=False),  # asked
    Column("devices", JsonText),  # given
    Column("files", JsonText),  # RunFiles, for offers
    Column("node_types", JsonText),
    Column("queue_key", String(160), nullable=False),
    Column("queue_reason", SafeText),
    Column("queue_reason_code", String(64)),
    Column("queued_wait_s", Float, nullable=False, default=0.0),
    Column("worker_id", String(32)),
    Column("worker_name", String(128)),
    Column("attempt", Integer, nullable=False, default=0),  # number of the newest
    Column("error", SafeText),
    Column("cause", String(32)),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("peak_memory_bytes", BigInteger),
    Column("stderr_tail", JsonText),
    Column("stop_reason", String(32)),
    Column("settled", Boolean, nullable=False, default=False),
    Column("last_cursor", BigInteger, nullable=False, default=0),
    Column("final_metrics", JsonText),
    Column("execution_facts", JsonText),
    Column("late_result", JsonText),
    Column("git_commit", String(64)),
    Column("git_dirty", Boolean),
    Column("plugin_pins", JsonText),
    Column("sweep_id", String(32)),
    Column("sweep_variant", Integer),
    Column("created_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("finished_at", BigInteger),
    Column("graph_hash", String(64)),  # of what executes; equal for graphs that need as much memory
    Index(None, "status", "queue_seq"),
    Index(None, "graph_hash", "queue_seq"),
    Index(None, "worker_id", "status"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("worker_id", String(32)),  # null: this server's own
    Column("instance", String(128), nullable=False, default=""),
    Column("lease_hash", String(64)),
    Column("devices", JsonText, nullable=False),
    Column("incarnation", String(32)),
    Column("state", String(16), nullable=False),
    Column("was", String(16)),
    Column("position", BigInteger, nullable=False, default=0),
    Column("slots_released", Boolean, nullable=False, default=False),
    Column("settled", Boolean, nullable=False, default=False),
    Column("away_since", BigInteger),
    Column("away_why", SafeText),
    Column("backend", String(64)),
    Column("ticket", JsonText),  # the public part; grants are never stored
    Column("grant_version", Integer, nullable=False, default=0),
    Column("server_epoch", BigInteger, nullable=False),
    Column("evidence", JsonText),  # the ``exited`` item, until the end is concluded
    Column("created_at", BigInteger, nullable=False),
    ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
    Index(None, "worker_id", "state"),
)

run_events = Table(
    "run_events",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("cursor", BigInteger, primary_key=True),  # given at commit, from 1 without gaps
    Column("attempt", Integer),
    Column("seq", BigInteger),  # null: made by the control plane
    Column("type", String(64), nullable=False),
    Column("payload", Text, nullable=False),  # JSON text, ASCII
    Column("ts", BigInteger, nullable=False),
    ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
    UniqueConstraint("run_id", "attempt", "seq"),
)

run_metrics = Table(
    "run_metrics",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("cursor", BigInteger, primary_key=True),
    Column("i", Integer, primary_key=True),
    Column("node_id", SafeText),
    Column("name", SafeText, nullable=False),
    Column("step", BigInteger),
    Column("value", Float),
    Column("special", String(4)),  # nan, inf, -inf: value is null then
    Column("ts", BigInteger, nullable=False),
    ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("artifact_id", String(128), primary_key=True),
    Column("cursor", BigInteger),
    Column("kind", SafeText, nullable=False),
    Column("name", SafeText, nullable=False),
    Column("backend", String(64), nullable=False),
    Column("label", SafeText),
    Column("relative_path", SafeText),
    Column("path", SafeText),
    Column("size_bytes", BigInteger),
    Column("sha256", String(64)),
    Column("state", String(16), nullable=False),
    Column("node_id", SafeText),
    Column("meta", JsonText),
    Column("data", JsonText),  # for the backend alone
    Column("created_at", BigInteger, nullable=False),
    ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
)

uploads = Table(
    "uploads",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("item_id", String(128), primary_key=True),
    Column("state", String(16), nullable=False),  # receiving, chosen, placed
    Column("folder", SafeText),
    Column("relative_path", SafeText, nullable=False),
    Column("final_path", SafeText),
    Column("size_bytes", BigInteger),
    Column("sha256", String(64)),
    Column("created_at", BigInteger, nullable=False),
    ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
)

storage_outbox = Table(
    "storage_outbox",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("seq", BigInteger, primary_key=True),  # of the item it is about; of the end, behind all items
    Column("call", String(16), nullable=False),  # told, accept, settled: what a backend hasn't answered yet
    Column("payload", JsonText, nullable=False),
    ForeignKeyConstraint(["run_id"], ["runs.id"], ondelete="CASCADE"),
)

workers = Table(
    "workers",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("name_key", String(64), nullable=False, unique=True),  # lower case
    Column("credential_hash", String(64), nullable=False, unique=True),
    Column("machine_id", String(128)),
    Column("home_id", String(64)),
    Column("platform", SafeText),
    Column("drained", Boolean, nullable=False, default=False),
    Column("disabled", Boolean, nullable=False, default=False),
    Column("device_policies", JsonText),
    Column("last_agent_one_shot", Boolean, nullable=False, default=False),
    Column("last_one_shot_run", String(32)),
    Column("devices", JsonText),  # as last reported
    Column("version", String(64)),
    Column("connector", String(64)),
    Column("address", SafeText),
    Column("plain_http", Boolean, nullable=False, default=False),
    Column("trust", JsonText),
    Column("catalog_hash", String(64)),
    Column("fingerprint", String(64)),
    Column("plugins", JsonText),
    Column("facts", JsonText),  # backend -> what its agent half last gave
    Column("link_id", String(32)),
    Column("created_at", BigInteger, nullable=False),
    Column("last_seen", BigInteger),
)

catalogs = Table(
    "catalogs",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("types", JsonText, nullable=False),  # type -> definition hash
    Column("seen_at", BigInteger, nullable=False),
)

revoked_credentials = Table(
    "revoked_credentials",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("why", String(16), nullable=False),  # removed, rekeyed
    Column("at", BigInteger, nullable=False),
)

enrollment_tokens = Table(
    "enrollment_tokens",
    metadata,
    Column("id", String(6), primary_key=True),
    Column("hash", String(64), nullable=False),
    Column("uses", Integer, nullable=False),
    Column("uses_left", Integer, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("revoked", Boolean, nullable=False, default=False),
    Column("hidden", Boolean, nullable=False, default=False),
    Column("worker", String(64)),  # bound to this worker's name: re-keys it
    Column("link_id", String(32)),
    Column("created_at", BigInteger, nullable=False),
)

enrollments = Table(
    "enrollments",
    metadata,
    Column("token_id", String(6), primary_key=True),
    Column("nonce", String(64), primary_key=True),
    Column("worker_id", String(32), nullable=False),
    Column("at", BigInteger, nullable=False),
)

links = Table(
    "links",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("connector", String(64), nullable=False),
    Column("worker_name", String(64), nullable=False),
    Column("worker_id", String(32)),
    Column("phase", String(16), nullable=False),
    Column("form", LargeBinary, nullable=False),  # sealed
    Column("memo", LargeBinary, nullable=False),  # sealed
    Column("created_at", BigInteger, nullable=False),
)

plugin_state = Table(
    "plugin_state",
    metadata,
    Column("plugin", String(128), primary_key=True),
    Column("key", String(256), primary_key=True),
    Column("value", LargeBinary, nullable=False),
    Column("sealed", Boolean, nullable=False, default=False),
)
