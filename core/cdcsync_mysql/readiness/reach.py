"""What a change of one table reaches besides it, as the source's catalog says: triggers, cascades
of foreign keys, views.

Answers are of now; who asks sees to it that nothing changed since the time that is meant. The
catalog shows an account only what it has rights on, so what it does not show is not taken for
absent: a table must be visible, and so must the right to see its triggers. Tables of the schema
`mysql` have no triggers on either server. A statement in doubt may be about temporary tables, on
which nothing hangs: such is a table that an account with SELECT on it does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.sessions.connection import Connection, fetch

_ENGINES = ("innodb", "myisam", "aria", "memory")
_SYSTEM_SCHEMA = "mysql"
#: a child and the parent whose changes cascade to it
_CASCADES = (
    "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME"
    " FROM information_schema.REFERENTIAL_CONSTRAINTS"
    " WHERE (DELETE_RULE NOT IN ('RESTRICT', 'NO ACTION') OR UPDATE_RULE NOT IN ('RESTRICT', 'NO ACTION'))"
)
#: schema and table, in lower case
_Name: TypeAlias = tuple[str, str]


def fault_of_reading(connection: Connection, table: TableId, *, in_doubt: bool = False) -> str:
    """Why reading the table might run something; empty where it cannot."""
    return "" if in_doubt and _is_temporary(connection, table) else _fault_of_kind(connection, table)


def _is_temporary(connection: Connection, table: TableId) -> bool:
    rows = fetch(
        connection,
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (table.database, table.name),
    )
    return not rows and _has(connection, "SELECT", table)


def _fault_of_kind(connection: Connection, table: TableId) -> str:
    rows = fetch(
        connection,
        "SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (table.database, table.name),
    )
    if not rows:
        return f"{table.quoted} cannot be seen (GRANT SELECT ON {table.quoted})"
    kind, engine = str(rows[0][0]), str(rows[0][1]).lower()
    if kind != "BASE TABLE" or engine not in _ENGINES:
        return f"{table.quoted} is a {kind} of the engine {engine}"
    return ""


def fault_of_writing(
    connection: Connection, table: TableId, captured: Iterable[TableId], *, in_doubt: bool = False
) -> str:
    """Why a change of the table might reach another one of the `captured`; empty where it
    cannot."""
    if in_doubt and _is_temporary(connection, table):
        return ""
    return (
        _fault_of_kind(connection, table)
        or _fault_of_triggers(connection, table)
        or _fault_of_cascades(connection, table, set(captured))
    )


def _fault_of_triggers(connection: Connection, table: TableId) -> str:
    if table.database.lower() == _SYSTEM_SCHEMA:
        return ""
    rows = fetch(
        connection,
        "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS"
        " WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s",
        (table.database, table.name),
    )
    if rows:
        return f"{table.quoted} has the trigger {rows[0][0]}"
    if not _has(connection, "TRIGGER", table):
        return f"the triggers of {table.quoted} cannot be seen (GRANT TRIGGER ON {table.quoted})"
    return ""


def _has(connection: Connection, privilege: str, table: TableId) -> bool:
    """Whether the account itself has it on the schema or on the table, or on everything; not the
    last where MySQL lets a schema be revoked from it (partial_revokes), which no catalog table
    shows."""
    user, _, host = str(fetch(connection, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
    whose = (f"'{user}'@'{host}'", privilege)
    rows = fetch(
        connection,
        "SELECT 0 FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = %s AND PRIVILEGE_TYPE = %s"
        " UNION SELECT 1 FROM information_schema.SCHEMA_PRIVILEGES"
        " WHERE GRANTEE = %s AND PRIVILEGE_TYPE = %s AND TABLE_SCHEMA = %s"
        " UNION SELECT 1 FROM information_schema.TABLE_PRIVILEGES"
        " WHERE GRANTEE = %s AND PRIVILEGE_TYPE = %s AND TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (*whose, *whose, table.database, *whose, table.database, table.name),
    )
    levels = {int(row[0]) for row in rows}
    return 1 in levels or (0 in levels and not _are_partial(connection))


def _are_partial(connection: Connection) -> bool:
    """Whether a right on everything may lack schemas; MariaDB has no such variable."""
    rows = fetch(connection, "SHOW GLOBAL VARIABLES LIKE 'partial_revokes'")
    return any(str(value).upper() not in ("OFF", "0") for _, value in rows)


def _fault_of_cascades(connection: Connection, table: TableId, captured: set[TableId]) -> str:
    """Every table whose changes cascade to a captured one must be visible, and not be this one."""
    found = _cascading(connection, captured)
    if not found:
        return ""
    if _folded(table.database, table.name) in found:
        return f"a foreign key cascades from {table.quoted} to a captured table"
    unseen = sorted(found - _visible(connection).keys())
    return f"{'.'.join(unseen[0])}, from which a foreign key cascades, cannot be seen" if unseen else ""


def _visible(connection: Connection) -> dict[_Name, list[TableId]]:
    """The tables that the account sees, by their name in lower case; waits for no lock."""
    tables: dict[_Name, list[TableId]] = {}
    for schema, name in fetch(connection, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"):
        tables.setdefault(_folded(schema, name), []).append(TableId(str(schema), str(name)))
    return tables


def cascading_to(connection: Connection, captured: Iterable[TableId]) -> set[TableId]:
    """The tables whose changes cascade to one of the `captured`, directly or by others; names in
    lower case."""
    return {TableId(*name) for name in _cascading(connection, captured)}


def _cascading(connection: Connection, captured: Iterable[TableId]) -> set[_Name]:
    """Goes from the captured tables to their parents."""
    parents = _parents(connection)
    reached, ancestors = {_folded(c.database, c.name) for c in captured}, set[_Name]()
    while reached:
        reached = {p for child in reached for p in parents(child)} - ancestors
        ancestors |= reached
    return ancestors


def _parents(connection: Connection) -> Callable[[_Name], set[_Name]]:
    """The tables whose changes cascade to one, by its name. Where sessions lock tables, whichever
    these are, each table is asked alone."""
    try:
        rows = fetch(connection, _CASCADES)
    except CdcError as e:
        if e.reason is not Reason.TABLE_BUSY:
            raise
        return partial(_parents_alone, connection, _visible(connection))
    parents: dict[_Name, set[_Name]] = {}
    for child_schema, child, schema, name in rows:
        parents.setdefault(_folded(child_schema, child), set()).add(_folded(schema, name))
    return lambda child: parents.get(child, set())


def _parents_alone(connection: Connection, visible: dict[_Name, list[TableId]], child: _Name) -> set[_Name]:
    alone = f"{_CASCADES} AND CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s"
    rows = [row for t in visible.get(child, ()) for row in fetch(connection, alone, (t.database, t.name))]
    return {_folded(schema, name) for _, _, schema, name in rows}


def _folded(schema: object, name: object) -> _Name:
    return str(schema).lower(), str(name).lower()
