"""Bring a database to the newest layout, with the migrations that the package carries."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from codefyui_core.errors import StartProblem

FOLDER = Path(__file__).parent / "migrations"


def configuration(connection: Connection | None = None) -> Config:
    """Alembic's configuration; there is no ini file."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


async def migrate(engine: AsyncEngine) -> None:
    """Run what is missing, in one transaction.

    Raises: StartProblem for a database that a newer version has written.
    """
    async with engine.begin() as connection:
        await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    try:
        command.upgrade(configuration(connection), "head")
    except CommandError as error:
        raise StartProblem(
            f"This database was written by another version of CodefyUI ({error}). Start that version, or "
            "give this one a database of its own (CODEFYUI_DATABASE_URL)."
        ) from error
