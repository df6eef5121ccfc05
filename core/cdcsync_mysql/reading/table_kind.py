"""Whether a table is one whose changes are all in the binlog, under the name that it has here.

What has no complete row events (views, sequences, other engines, system versioning) is refused
(rule R10), and so is a name that the binlog spells differently: its changes would pass by unseen.
"""

from __future__ import annotations

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.sessions.connection import Connection, fetch

READING_DEFINITION = "reading the table's definition"


def check_kind(connection: Connection, table_id: TableId) -> str:
    """The default character set of the table's new text columns, found with the kind. Raises
    NoSuchTable, EngineUnsupported, LogIncomplete (as `read_table`)."""
    rows = fetch(
        connection,
        "SELECT TABLE_TYPE, ENGINE, @@lower_case_table_names, TABLE_COLLATION, TABLE_SCHEMA, TABLE_NAME"
        " FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (table_id.database, table_id.name),
        doing=READING_DEFINITION,
    )
    if not rows:
        raise fail(
            Reason.NO_SUCH_TABLE,
            "no such table, or none that the account may read",
            remedy=f"create it, or GRANT SELECT ON {table_id.quoted}",
            table=str(table_id),
        )
    kind, engine, spelling, collation, *names = ("" if value is None else str(value) for value in rows[0])
    if not engine:
        open_table(connection, table_id)
    if kind != "BASE TABLE":
        raise _unsupported(
            table_id, kind.lower(), "a BASE TABLE without system versioning", "leave it out by spec.tables.exclude"
        )
    if engine.lower() != "innodb":
        raise _unsupported(
            table_id, f"ENGINE={engine}", "ENGINE=InnoDB", f"ALTER TABLE {table_id.quoted} ENGINE=InnoDB"
        )
    check_spelling(table_id, int(spelling), TableId(*names))
    return collation.partition("_")[0]


def open_table(connection: Connection, table_id: TableId) -> None:
    """Raises what keeps the server from opening the table: then the catalog shows it without an
    engine, or without its indexes."""
    try:
        fetch(connection, f"SELECT 1 FROM {table_id.quoted} LIMIT 0", doing="opening the table")
    except CdcError as e:
        raise fail(e.reason, e.found, needed=e.needed, remedy=e.remedy, table=str(table_id)) from e


def check_spelling(table_id: TableId, lower_case_table_names: int, shown: TableId) -> None:
    """Raises LogIncomplete where the binlog spells the name in another way: the server has the
    table as `shown`, or lower_case_table_names is 2, with which it keeps a name with capitals as it
    was given and writes it to the binlog in lower case."""
    logged = TableId(shown.database.lower(), shown.name.lower()) if lower_case_table_names == 2 else shown
    if logged != table_id:
        raise fail(
            Reason.LOG_INCOMPLETE,
            f"lower_case_table_names={lower_case_table_names}, with which the binlog spells the table {logged}",
            needed="lower_case_table_names=1 or 0, as when the table was captured, or a database and a table whose names are in lower case",
            remedy="set up the server with lower_case_table_names=1 (0 where files have case), or name database and table in lower case",
            table=str(table_id),
        )


def _unsupported(table_id: TableId, found: str, needed: str, remedy: str) -> CdcError:
    return fail(Reason.ENGINE_UNSUPPORTED, found, needed=needed, remedy=remedy, table=str(table_id))
