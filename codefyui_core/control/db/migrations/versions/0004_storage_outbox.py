"""What storage backends are still to be told of attempts."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "storage_outbox",
        sa.Column("run_id", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("call", sa.String(length=16), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_storage_outbox_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", "seq", name=op.f("pk_storage_outbox")),
    )


def downgrade() -> None:
    op.drop_table("storage_outbox")
