"""What Alembic runs: on the connection that it is handed, in the transaction that is open there."""

from alembic import context

from codefyui_core.control.db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,
    render_as_batch=True,
)
context.run_migrations()
