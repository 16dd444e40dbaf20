"""The first layout."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "catalogs",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("types", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_catalogs")),
    )
    op.create_table(
        "control",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("db_id", sa.String(length=32), nullable=False),
        sa.Column("server_epoch", sa.BigInteger(), nullable=False),
        sa.Column("shutdown", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_control")),
    )
    op.create_table(
        "enrollment_tokens",
        sa.Column("id", sa.String(length=6), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.Column("uses_left", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked", sa.Boolean(), nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("link_id", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_enrollment_tokens")),
    )
    op.create_table(
        "enrollments",
        sa.Column("token_id", sa.String(length=6), nullable=False),
        sa.Column("nonce", sa.String(length=64), nullable=False),
        sa.Column("worker_id", sa.String(length=32), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("token_id", "nonce", name=op.f("pk_enrollments")),
    )
    op.create_table(
        "links",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("connector", sa.String(length=64), nullable=False),
        sa.Column("worker_name", sa.String(length=64), nullable=False),
        sa.Column("worker_id", sa.String(length=32), nullable=True),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("form", sa.LargeBinary(), nullable=False),
        sa.Column("memo", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_links")),
    )
    op.create_table(
        "plugin_state",
        sa.Column("plugin", sa.String(length=128), nullable=False),
        sa.Column("key", sa.String(length=256), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("sealed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("plugin", "key", name=op.f("pk_plugin_state")),
    )
    op.create_table(
        "revoked_credentials",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("why", sa.String(length=16), nullable=False),
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_revoked_credentials")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("queue_seq", sa.BigInteger(), nullable=False),
        sa.Column("submit_id", sa.String(length=64), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("has_secrets", sa.Boolean(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("device", sa.String(length=32), nullable=False),
        sa.Column("devices", sa.Text(), nullable=True),
        sa.Column("files", sa.Text(), nullable=True),
        sa.Column("node_types", sa.Text(), nullable=True),
        sa.Column("queue_key", sa.String(length=160), nullable=False),
        sa.Column("queue_reason", sa.Text(), nullable=True),
        sa.Column("queue_reason_code", sa.String(length=64), nullable=True),
        sa.Column("queued_wait_s", sa.Float(), nullable=False),
        sa.Column("worker_id", sa.String(length=32), nullable=True),
        sa.Column("worker_name", sa.String(length=128), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("cause", sa.String(length=32), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("peak_memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("stderr_tail", sa.Text(), nullable=True),
        sa.Column("stop_reason", sa.String(length=32), nullable=True),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("last_cursor", sa.BigInteger(), nullable=False),
        sa.Column("final_metrics", sa.Text(), nullable=True),
        sa.Column("execution_facts", sa.Text(), nullable=True),
        sa.Column("late_result", sa.Text(), nullable=True),
        sa.Column("git_commit", sa.String(length=64), nullable=True),
        sa.Column("git_dirty", sa.Boolean(), nullable=True),
        sa.Column("plugin_pins", sa.Text(), nullable=True),
        sa.Column("sweep_id", sa.String(length=32), nullable=True),
        sa.Column("sweep_variant", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=True),
        sa.Column("finished_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("queue_seq", name=op.f("uq_runs_queue_seq")),
        sa.UniqueConstraint("submit_id", name=op.f("uq_runs_submit_id")),
    )
    op.create_index(op.f("ix_runs_status_queue_seq"), "runs", ["status", "queue_seq"], unique=False)
    op.create_index(op.f("ix_runs_worker_id_status"), "runs", ["worker_id", "status"], unique=False)
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("name_key", sa.String(length=64), nullable=False),
        sa.Column("credential_hash", sa.String(length=64), nullable=False),
        sa.Column("machine_id", sa.String(length=128), nullable=True),
        sa.Column("home_id", sa.String(length=64), nullable=True),
        sa.Column("platform", sa.Text(), nullable=True),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("device_policies", sa.Text(), nullable=True),
        sa.Column("last_agent_one_shot", sa.Boolean(), nullable=False),
        sa.Column("last_one_shot_run", sa.String(length=32), nullable=True),
        sa.Column("devices", sa.Text(), nullable=True),
        sa.Column("version", sa.String(length=64), nullable=True),
        sa.Column("connector", sa.String(length=64), nullable=True),
        sa.Column("address", sa.Text(), nullable=True),
        sa.Column("plain_http", sa.Boolean(), nullable=False),
        sa.Column("trust", sa.Text(), nullable=True),
        sa.Column("catalog_hash", sa.String(length=64), nullable=True),
        sa.Column("fingerprint", sa.String(length=64), nullable=True),
        sa.Column("plugins", sa.Text(), nullable=True),
        sa.Column("facts", sa.Text(), nullable=True),
        sa.Column("link_id", sa.String(length=32), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("last_seen", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        sa.UniqueConstraint("credential_hash", name=op.f("uq_workers_credential_hash")),
        sa.UniqueConstraint("name_key", name=op.f("uq_workers_name_key")),
    )
    op.create_table(
        "artifacts",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("artifact_id", sa.String(length=128), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("backend", sa.String(length=64), nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("relative_path", sa.Text(), nullable=True),
        sa.Column("path", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("meta", sa.Text(), nullable=True),
        sa.Column("data", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_artifacts_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "artifact_id", name=op.f("pk_artifacts")),
    )
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.String(length=32), nullable=True),
        sa.Column("instance", sa.String(length=128), nullable=False),
        sa.Column("lease_hash", sa.String(length=64), nullable=True),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.String(length=32), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("was", sa.String(length=16), nullable=True),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("slots_released", sa.Boolean(), nullable=False),
        sa.Column("settled", sa.Boolean(), nullable=False),
        sa.Column("away_since", sa.BigInteger(), nullable=True),
        sa.Column("away_why", sa.Text(), nullable=True),
        sa.Column("backend", sa.String(length=64), nullable=True),
        sa.Column("ticket", sa.Text(), nullable=True),
        sa.Column("grant_version", sa.Integer(), nullable=False),
        sa.Column("server_epoch", sa.BigInteger(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_attempts_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "number", name=op.f("pk_attempts")),
    )
    op.create_index(op.f("ix_attempts_worker_id_state"), "attempts", ["worker_id", "state"], unique=False)
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column("type", sa.String(length=64), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("ts", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_run_events_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "cursor", name=op.f("pk_run_events")),
        sa.UniqueConstraint("run_id", "attempt", "seq", name=op.f("uq_run_events_run_id_attempt_seq")),
    )
    op.create_table(
        "run_metrics",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("i", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("special", sa.String(length=4), nullable=True),
        sa.Column("ts", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_run_metrics_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "cursor", "i", name=op.f("pk_run_metrics")),
    )
    op.create_table(
        "uploads",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("item_id", sa.String(length=128), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("relative_path", sa.Text(), nullable=False),
        sa.Column("final_path", sa.Text(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_uploads_run_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "item_id", name=op.f("pk_uploads")),
    )


def downgrade() -> None:
    op.drop_table("uploads")
    op.drop_table("run_metrics")
    op.drop_table("run_events")
    op.drop_index(op.f("ix_attempts_worker_id_state"), table_name="attempts")
    op.drop_table("attempts")
    op.drop_table("artifacts")
    op.drop_table("workers")
    op.drop_index(op.f("ix_runs_worker_id_status"), table_name="runs")
    op.drop_index(op.f("ix_runs_status_queue_seq"), table_name="runs")
    op.drop_table("runs")
    op.drop_table("revoked_credentials")
    op.drop_table("plugin_state")
    op.drop_table("links")
    op.drop_table("enrollments")
    op.drop_table("enrollment_tokens")
    op.drop_table("control")
    op.drop_table("catalogs")
