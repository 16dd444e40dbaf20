"""Cards that are shared by memory: their policies, and graphs by what they execute."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("control", sa.Column("device_policies", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("graph_hash", sa.String(length=64), nullable=True))
    op.create_index(op.f("ix_runs_graph_hash_queue_seq"), "runs", ["graph_hash", "queue_seq"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_runs_graph_hash_queue_seq"), table_name="runs")
    with op.batch_alter_table("runs") as batch:
        batch.drop_column("graph_hash")
    with op.batch_alter_table("control") as batch:
        batch.drop_column("device_policies")
