"""Which tables a selection means, by the names in the server's catalog.

Why it is right: a pattern is matched with the names as the binlog spells them, and of two tables
that would have one name neither is taken on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.tables.source_table import TableId, quote
from cdcsync_core.tables.table_selection import TableSelection, literal_name, matches
from cdcsync_mysql.sessions.connection import Connection, fetch

_SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")
#: what holds rows that a binlog could carry; a pattern passes over views and sequences
_TABLE_TYPES = ("BASE TABLE", "SYSTEM VERSIONED")


@dataclass(frozen=True)
class Resolved:
    """What patterns match: `tables`, sorted.

    `absent` says, for each table that an include pattern names literally and that is not there,
    what is the matter (`CdcError.table`); `unmatched` says the same of the other patterns.
    """

    tables: tuple[TableId, ...]
    absent: tuple[CdcError, ...] = ()
    unmatched: tuple[CdcError, ...] = ()


def resolve(connection: Connection, selection: TableSelection) -> Resolved:
    """The tables that are selected.

    System schemas are never among them. Where no table is left, raises NoSuchTable, or
    EngineUnsupported for patterns that match views or sequences only.
    """
    kinds = _kinds(connection, selection)
    faults = [fault for p in selection.include if (fault := _fault(p, kinds)) and not selection.excludes(fault.table)]
    chosen = [table for table, kind in kinds.items() if kind in _TABLE_TYPES and selection.captures(str(table))]
    ambiguous = _of_one_name(chosen)
    chosen = [table for table in chosen if table not in ambiguous]
    faults += {error.table: error for error in ambiguous.values()}.values()
    if not chosen and not ambiguous:
        raise (
            faults[0]
            if faults
            else _no_match(f"every table of {list(selection.include)} is excluded by {list(selection.exclude)}")
        )
    absent, unmatched = [f for f in faults if f.table], [f for f in faults if not f.table]
    return Resolved(tuple(sorted(chosen)), tuple(absent), tuple(unmatched))


def _kinds(connection: Connection, selection: TableSelection) -> dict[TableId, str]:
    """The kind of each table that may be selected. Waits for no lock: `information_schema.TABLES`
    would, because MariaDB opens each table whose kind it is asked for."""
    rows = fetch(
        connection,
        "SELECT DISTINCT TABLE_SCHEMA FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN %s",
        (_SYSTEM,),
    )
    schemas = [str(s) for (s,) in rows if s.lower() not in _SYSTEM and selection.may_include_of(str(s))]
    return {TableId(schema, str(n)): str(kind) for schema in schemas for n, kind in _listed(connection, schema)}


def _listed(connection: Connection, schema: str) -> list[tuple[Any, ...]]:
    """Nothing of a schema that was dropped meanwhile, or that the account may not list."""
    try:
        return fetch(connection, f"SHOW FULL TABLES FROM {quote(schema)}")
    except CdcError as e:
        if e.reason not in (Reason.NO_SUCH_TABLE, Reason.PRIVILEGE_MISSING):
            raise
        return []


def _fault(pattern: str, objects: dict[TableId, str]) -> CdcError | None:
    """What is wrong with an include pattern among `objects`, which have their kinds; of a literal
    name it is that table's."""
    table = literal_name(pattern)
    matching = {kind for name, kind in objects.items() if matches(pattern, str(name))}
    if not matching:
        return _no_match(f"no table matches {pattern!r} of spec.tables.include{_but_for_case(pattern, objects)}", table)
    if not matching & set(_TABLE_TYPES):
        return fail(
            Reason.ENGINE_UNSUPPORTED,
            f"{pattern!r} of spec.tables.include matches only: {', '.join(sorted(matching))}",
            needed="a BASE TABLE",
            remedy="name tables in spec.tables.include",
            table=table,
        )
    return None


def _but_for_case(pattern: str, names: Iterable[TableId]) -> str:
    """A server with lower_case_table_names=1 has all names in lower case."""
    other = next((str(name) for name in names if matches(f"(?i:{pattern})", str(name))), "")
    return f"; {other} does but for its case, in which the server keeps it" if other else ""


def _no_match(found: str, table: str = "") -> CdcError:
    return fail(
        Reason.NO_SUCH_TABLE,
        found,
        needed="a table that the account may read",
        remedy="correct spec.tables, create the table, or GRANT SELECT on it",
        table=table,
    )


def _of_one_name(tables: list[TableId]) -> dict[TableId, CdcError]:
    """`a.b` + `c` and `a` + `b.c` would be one name everywhere. Which of them a sync has already is
    not known here, so none is taken on; one that streams goes on."""
    by_name: dict[str, list[TableId]] = {}
    for table in tables:
        by_name.setdefault(str(table), []).append(table)
    return {
        table: fail(
            Reason.SPEC_INVALID,
            " and ".join(t.quoted for t in meeting) + " have one name",
            needed="names that differ as database.table",
            remedy="rename one of them; tables.exclude leaves out both",
            table=name,
        )
        for name, meeting in by_name.items()
        for table in meeting
        if len(meeting) > 1
    }
