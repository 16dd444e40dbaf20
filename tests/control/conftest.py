"""Databases for the control plane's tests: SQLite in a folder, and PostgreSQL."""

import pytest

from codefyui_core.control.db.database import Database
from codefyui_core.testing.clock import ManualClock


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def database_url(request, tmp_path):
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'db' / 'codefyui.db'}"
    return request.getfixturevalue("postgresql").empty_database()


@pytest.fixture
async def database(database_url, tmp_path):
    """Open and migrated."""
    opened = await Database.open(database_url, user_data=tmp_path, clock=ManualClock())
    yield opened
    await opened.aclose()
