"""Many rows of one table in one statement, handed to the driver as they are."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, insert
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.asyncio import AsyncConnection


class BulkInsert:
    """``INSERT`` of named columns. Its rows are tuples in the order of ``columns``, and hold what the driver
    takes: types of the columns that convert (``JsonText``, ``SafeText``) are not asked.
    """

    def __init__(self, table: Table, *columns: str) -> None:
        self._table = table
        self._columns = columns
        self._statements: dict[str, str] = {}

    async def into(self, connection: AsyncConnection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Nothing for no rows."""
        if rows:
            await connection.exec_driver_sql(self._statement(connection.dialect), list(rows))

    def _statement(self, dialect: Dialect) -> str:
        text = self._statements.get(dialect.name)
        if text is None:
            compiled = insert(self._table).compile(dialect=dialect, column_keys=list(self._columns))
            order = compiled.positiontup or ()
            assert tuple(order) == self._columns, "columns are named in the order of their table"
            text = self._statements[dialect.name] = str(compiled)
        return text
