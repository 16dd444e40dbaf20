"""Bring a database to the newest layout.

Alembic takes as long to import as all the rest of a start takes to run, so it is left alone where nothing is to be
migrated: on a database that is up to date, and on an empty one, which gets its tables at once.
"""

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, select
from sqlalchemy.ext.asyncio import AsyncEngine

from .tables import metadata

FOLDER = Path(__file__).parent / "migrations"
_VERSION = Table(
    "alembic_version",
    MetaData(naming_convention={"pk": "alembic_version_pkc"}),
    Column("version_num", String(32), primary_key=True),
)
"""As Alembic makes it (https://alembic.sqlalchemy.org/en/latest/cookbook.html)."""


async def migrate(engine: AsyncEngine) -> None:
    """Run what is missing, in one transaction.

    Raises: StartProblem for a database that a newer version has written.
    """
    async with engine.begin() as connection:
        await connection.run_sync(_bring_up)


def newest() -> str:
    """The revision that the last migration leads to; its file is named after it."""
    return max(file.stem.partition("_")[0] for file in (FOLDER / "versions").glob("[0-9]*_*.py"))


def _bring_up(connection: Connection) -> None:
    there = set(inspect(connection).get_table_names())
    if not there:
        metadata.create_all(connection)
        _VERSION.create(connection)
        connection.execute(insert(_VERSION).values(version_num=newest()))
    elif _VERSION.name not in there or connection.scalars(select(_VERSION.c.version_num)).all() != [newest()]:
        from .upgrade import upgrade

        upgrade(connection)
