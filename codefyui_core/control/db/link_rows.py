"""Rows of links: what a connector keeps of each, sealed at rest."""

import orjson
from sqlalchemy import delete, select, update

from codefyui_core.control.seal import Seal
from codefyui_core.errors import CodefyError
from codefyui_core.ids import LinkId
from codefyui_core.plugin.connector import LinkMemo

from .database import Database
from .tables import links


class LinkRows:
    """Changes of links that already exist."""

    def __init__(self, db: Database, seal: Seal) -> None:
        self._db = db
        self._seal = seal

    async def save_memo(self, link: LinkId, memo: LinkMemo) -> None:
        """Replace the memo. Raises: CodefyError when there is no such link."""
        data = orjson.dumps(memo.model_dump(mode="json", context={"reveal": True}))
        async with self._db.begin() as connection:
            changed = await connection.execute(
                update(links).where(links.c.id == link).values(memo=self._seal.close(data))
            )
        if changed.rowcount == 0:
            raise CodefyError(f"There is no link {link}.", code="not_found")

    async def worker_of(self, link: LinkId) -> tuple[str, str | None]:
        """The name of the link's worker, and its id once it is enrolled.

        Raises: CodefyError when there is no such link.
        """
        async with self._db.read() as connection:
            row = (
                await connection.execute(
                    select(links.c.worker_name, links.c.worker_id).where(links.c.id == link)
                )
            ).first()
        if row is None:
            raise CodefyError(f"There is no link {link}.", code="not_found")
        return row.worker_name, row.worker_id

    async def forget(self, link: LinkId) -> None:
        """A link that has left for good."""
        async with self._db.begin() as connection:
            await connection.execute(delete(links).where(links.c.id == link))
