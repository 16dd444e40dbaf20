"""The migrations that the package carries, by Alembic: imported only where one is due."""

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection

from codefyui_core.errors import StartProblem

from .migrate import FOLDER


def configuration(connection: Connection | None = None) -> Config:
    """Alembic's configuration; there is no ini file."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Run what is missing.

    Raises: StartProblem for a database that a newer version has written.
    """
    try:
        command.upgrade(configuration(connection), "head")
    except CommandError as error:
        raise StartProblem(
            f"This database was written by another version of CodefyUI ({error}). Start that version, or "
            "give this one a database of its own (CODEFYUI_DATABASE_URL)."
        ) from error
