"""Small JSON documents of plugins, in the table ``plugin_state``."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, delete, insert, select

from codefyui_core.control.seal import Seal
from codefyui_core.errors import CodefyError
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.events import read_text, stored_text

from .database import Database
from .tables import plugin_state

LIMIT_BYTES = 64 * 1024


class PluginDocuments:
    """One plugin's; implements ``codefyui_core.plugin.Documents``."""

    def __init__(self, db: Database, seal: Seal, plugin: str) -> None:
        self._db = db
        self._seal = seal
        self._plugin = plugin

    async def get(self, key: str) -> JsonObject | None:
        async with self._db.read() as connection:
            row = (
                await connection.execute(
                    select(plugin_state.c.value, plugin_state.c.sealed).where(*self._where(key))
                )
            ).first()
        if row is None:
            return None
        found: JsonObject = read_text(self._seal.open(row.value) if row.sealed else row.value)
        return found

    async def put(self, key: str, value: JsonObject, *, sealed: bool = False) -> None:
        """Raises: CodefyError for a document over 64 KiB or a key over 256 characters."""
        data = stored_text(value).encode()
        if len(data) > LIMIT_BYTES or not 0 < len(key) <= 256:
            raise CodefyError(
                f"A plugin's document has at most {LIMIT_BYTES} bytes under a key of 1 to 256 characters."
            )
        stored = self._seal.close(data) if sealed else data
        async with self._db.begin() as connection:
            await connection.execute(delete(plugin_state).where(*self._where(key)))
            await connection.execute(
                insert(plugin_state).values(plugin=self._plugin, key=key, value=stored, sealed=sealed)
            )

    async def delete(self, key: str) -> None:
        async with self._db.begin() as connection:
            await connection.execute(delete(plugin_state).where(*self._where(key)))

    async def keys(self, prefix: str = "") -> Sequence[str]:
        async with self._db.read() as connection:
            found = await connection.scalars(
                select(plugin_state.c.key)
                .where(plugin_state.c.plugin == self._plugin)
                .where(plugin_state.c.key.startswith(prefix, autoescape=True))
                .order_by(plugin_state.c.key)
            )
            return list(found)

    def _where(self, key: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
        return (plugin_state.c.plugin == self._plugin, plugin_state.c.key == key)
