"""What a change of one table reaches besides it, as the source's catalog says: triggers, cascades
of foreign keys, views.

Answers are of now; who asks sees to it that nothing changed since the time that is meant. The
catalog shows an account only what it has rights on, so what it does not show is not taken for
absent: a table must be visible, and so must the right to see its triggers. Tables of the schema
`mysql` have no triggers on either server. A statement in doubt may be about temporary tables, on
which nothing hangs: such is a table that an account with SELECT on it does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.lock_budget import LockBudget
from cdcsync_mysql.sessions.connection import Connection, fetch
from cdcsync_mysql.sessions.failures import of_table
from cdcsync_mysql.sessions.version import flavor_of

_ENGINES = ("innodb", "myisam", "aria", "memory")
_SYSTEM_SCHEMA = "mysql"
#: a child and the parent whose changes cascade to it
_CASCADES = (
    "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME"
    " FROM information_schema.REFERENTIAL_CONSTRAINTS"
    " WHERE (DELETE_RULE NOT IN ('RESTRICT', 'NO ACTION') OR UPDATE_RULE NOT IN ('RESTRICT', 'NO ACTION'))"
)
#: MariaDB waits for each locked table of the catalog
_WITHOUT_WAITING = "SET STATEMENT lock_wait_timeout = 0 FOR "
#: schema and table, in lower case
_Name: TypeAlias = tuple[str, str]
#: the tables whose changes cascade to one
_ParentsOf: TypeAlias = Callable[[_Name], set[_Name]]


@dataclass(frozen=True)
class Cascades:
    """The `parents` (names in lower case) whose changes cascade to captured tables, directly or by
    others, and the captured tables of which that is not known, because other sessions lock them or
    such a parent."""

    parents: frozenset[_Name] = frozenset()
    locked: Mapping[TableId, CdcError] = field(default_factory=dict)


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
        doing=_asking(table),
    )
    if not rows:
        return f"{table.quoted} cannot be seen (GRANT SELECT ON {table.quoted})"
    kind, engine = str(rows[0][0]), str(rows[0][1]).lower()
    if kind != "BASE TABLE" or engine not in _ENGINES:
        return f"{table.quoted} is a {kind} of the engine {engine}"
    return ""


def _asking(table: TableId) -> str:
    """What the user reads where the table is locked."""
    return f"asking what a change in statement format of {table.quoted}, or with its data, reaches"


def fault_of_writing(connection: Connection, table: TableId, cascades: Cascades, *, in_doubt: bool = False) -> str:
    """Why a change of the table might reach a captured one besides it; empty where it cannot. What
    of `cascades` is locked is left out."""
    if in_doubt and _is_temporary(connection, table):
        return ""
    return (
        _fault_of_kind(connection, table)
        or _fault_of_triggers(connection, table)
        or _fault_of_cascades(connection, table, cascades)
    )


def _fault_of_triggers(connection: Connection, table: TableId) -> str:
    if table.database.lower() == _SYSTEM_SCHEMA:
        return ""
    rows = fetch(
        connection,
        "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS"
        " WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s",
        (table.database, table.name),
        doing=_asking(table),
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


def _fault_of_cascades(connection: Connection, table: TableId, cascades: Cascades) -> str:
    """Every table whose changes cascade to a captured one must be visible, and not be this one."""
    parents = cascades.parents
    if not parents:
        return ""
    if _folded(table.database, table.name) in parents:
        return f"a foreign key cascades from {table.quoted} to a captured table"
    unseen = sorted(parents - _visible(connection).keys())
    return f"{'.'.join(unseen[0])}, from which a foreign key cascades, cannot be seen" if unseen else ""


def _visible(connection: Connection) -> dict[_Name, list[TableId]]:
    """The tables that the account sees, by their name in lower case; waits for no lock."""
    tables: dict[_Name, list[TableId]] = {}
    for schema, name in fetch(connection, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"):
        tables.setdefault(_folded(schema, name), []).append(TableId(str(schema), str(name)))
    return tables


def cascades_to(connection: Connection, captured: Iterable[TableId], locks: LockBudget) -> Cascades:
    """Goes from each captured table to its parents; one is left out where it, or one of these, is
    locked."""
    parents_of = _parents(connection, locks)
    parents, locked = set[_Name](), dict[TableId, CdcError]()
    for table in captured:
        try:
            parents |= _ancestors(parents_of, _folded(table.database, table.name))
        except CdcError as e:
            if e.reason is not Reason.TABLE_BUSY:
                raise
            locked[table] = of_table(e, table)
    return Cascades(frozenset(parents), locked)


def _ancestors(parents_of: _ParentsOf, table: _Name) -> set[_Name]:
    reached, ancestors = {table}, set[_Name]()
    while reached:
        reached = {parent for child in reached for parent in parents_of(child)} - ancestors
        ancestors |= reached
    return ancestors


def _parents(connection: Connection, locks: LockBudget) -> _ParentsOf:
    """Where sessions lock tables, whichever these are, each table is asked alone."""
    is_mariadb = flavor_of(str(connection.get_server_info())) == "mariadb"
    try:
        rows = fetch(connection, f"{_WITHOUT_WAITING if is_mariadb else ''}{_CASCADES}")
    except CdcError as e:
        if e.reason is not Reason.TABLE_BUSY:
            raise
        return _AskedAlone(connection, locks, _visible(connection)).parents
    parents: dict[_Name, set[_Name]] = {}
    for child_schema, child, schema, name in rows:
        parents.setdefault(_folded(child_schema, child), set()).add(_folded(schema, name))
    return lambda child: parents.get(child, set())


@dataclass(frozen=True)
class _AskedAlone:
    """What was asked of tables one by one, each once."""

    connection: Connection
    locks: LockBudget
    visible: dict[_Name, list[TableId]]
    _answers: dict[_Name, set[_Name] | CdcError] = field(default_factory=dict)

    def parents(self, child: _Name) -> set[_Name]:
        """Raises TableBusy."""
        if child not in self._answers:
            try:
                self._answers[child] = {p for table in self.visible.get(child, ()) for p in self._ask(table)}
            except CdcError as e:
                if e.reason is not Reason.TABLE_BUSY:
                    raise
                self._answers[child] = e
        answer = self._answers[child]
        if isinstance(answer, CdcError):
            raise answer
        return answer

    def _ask(self, table: TableId) -> set[_Name]:
        alone = f"{_CASCADES} AND CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s"
        with self.locks.asking(self.connection, table):
            rows = fetch(
                self.connection, alone, (table.database, table.name), doing=f"asking what {table.quoted} refers to"
            )
        return {_folded(schema, name) for _, _, schema, name in rows}


def _folded(schema: object, name: object) -> _Name:
    return str(schema).lower(), str(name).lower()
