"""What decides the meaning of later DDL and is in no row event: the table's default character set,
its generated columns, its other unique indexes.

Why it is right: all of it is the server's own catalog, read for the definition that the caller has
just compared or planned; what cannot be read is left unknown, which leads to a resnapshot and never
to a guess.
"""

from __future__ import annotations

from cdcsync_core.schema_change import Definition
from cdcsync_core.table import Table
from cdcsync_mysql.catalog import read_indexes
from cdcsync_mysql.connection import Connection, fetch


def read_definition(connection: Connection, table: Table) -> Definition:
    """`table` with the rest of its definition of now."""
    names = (table.id.database, table.id.name)
    collations = fetch(
        connection,
        "SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        names,
    )
    columns = fetch(
        connection,
        "SELECT COLUMN_NAME, EXTRA, COALESCE(GENERATION_EXPRESSION, '') <> '' FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        names,
    )
    unique = {index.name for index in read_indexes(connection, table.id)}
    return Definition(
        table,
        str(collations[0][0] or "").partition("_")[0] if collations else "",
        frozenset(str(name) for name, _, generated in columns if generated),
        next((str(name) for name, extra, _ in columns if "auto_increment" in str(extra).lower()), ""),
        frozenset(unique - {table.key_index}),
    )
