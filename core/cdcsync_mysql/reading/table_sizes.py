"""How large tables are, as the server's statistics estimate it."""

from __future__ import annotations

from collections.abc import Sequence

from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.sessions.connection import Connection, fetch

#: of tables in one question
_BATCH = 500


def table_sizes(connection: Connection, tables: Sequence[TableId]) -> dict[str, tuple[int, int]]:
    """Rows, and bytes of the clustered index, by `database.table`; a table that is gone has none.

    Source: information_schema.TABLES, whose figures InnoDB estimates.
    """
    sizes = {}
    for start in range(0, len(tables), _BATCH):
        names = [(t.database, t.name) for t in tables[start : start + _BATCH]]
        rows = fetch(
            connection,
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_ROWS, DATA_LENGTH FROM information_schema.TABLES"
            " WHERE (TABLE_SCHEMA, TABLE_NAME) IN %s",
            (names,),
        )
        sizes.update({f"{database}.{name}": (int(count or 0), int(size or 0)) for database, name, count, size in rows})
    return sizes
