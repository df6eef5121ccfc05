"""Which tables there are, and how one is defined, from the server's catalog.

Everything comes from information_schema in the server's order, invisible and generated columns and
the generated primary key included, because the binlog carries them all. The key is the primary key
or a unique index over NOT NULL columns: a row with NULL would be in no range (rule R3). What has no
complete row events (views, sequences, other engines, system versioning) is refused (rule R10), and
so is a name that the binlog spells differently: its changes would pass by unseen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from cdcsync_core.errors import CdcError, PermanentError, Reason, fail
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId, quote
from cdcsync_core.tables.table_selection import TableSelection, literal_name, matches
from cdcsync_mysql.reading.declared import declare
from cdcsync_mysql.reading.generation import Generated, unproved
from cdcsync_mysql.reading.splitquery import unsupported_key_reason
from cdcsync_mysql.sessions.connection import Connection, fetch, fetch_dicts

_SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")
_DOING = "reading the table's definition"
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


def same_definition(connection: Connection, table: Capture) -> bool:
    """Whether the table's rows are read and told apart today as `table` says; raises as
    `read_table`."""
    return table.reads_as(read_again(connection, table))


def as_planned(connection: Connection, table: Capture) -> bool:
    """Whether that holds, and the server computes and numbers the columns that it did when `table`
    was read: what later statements do to rows follows from it, and no row shows it.

    The default character set and the unique indexes are not compared. Statements since LOW that
    change them are in the stream, which applies them again to the definition that was read. A
    default that was wrong meanwhile gives a text column another character set than the one that
    `TABLE_MAP` and the catalog show, and a difference there leads to a resnapshot. The indexes
    decide only by which reason a table stops when its key changes."""
    return _as_planned(table, read_again(connection, table))


def with_recomputed(connection: Connection, table: Capture) -> Capture:
    """The table with the columns that a rebuild may compute again, which older releases did not
    record; as it is, unless `as_planned`. Raises as `read_again`.

    No followed statement changes a generated column, or the types and collations that it is
    computed from: until the next one that is not followed, the expressions of now are those of
    every statement."""
    now = read_again(connection, table)
    return table.of(replace(table.source, recomputed=now.source.recomputed)) if _as_planned(table, now) else table


def _as_planned(table: Capture, now: Capture) -> bool:
    planned, shown = table.source, now.source
    same = (planned.generated, planned.auto_increment) == (shown.generated, shown.auto_increment)
    return table.reads_as(now) and (planned.generated is None or same)


def refuse_unlike(connection: Connection, table: Capture) -> None:
    """Raises SourceUnreachable where a replica has not the table's definition of its source, or not
    yet."""
    try:
        alike = as_planned(connection, table)
    except PermanentError:
        alike = False
    if not alike:
        raise fail(
            Reason.SOURCE_UNREACHABLE,
            "the replica of spec.source.snapshotHost has another definition of the table",
            needed="the source's, which it may have not applied yet",
            remedy="none while the replica is behind; else make the table there like the source's",
            table=str(table.id),
        )


def read_again(connection: Connection, table: Capture) -> Capture:
    """The definition of now of a table that is captured; raises as `read_table`, but for virtual
    columns, with which an older release may have captured it. A declared key stays the one, though
    the table may have got another."""
    needs_key = bool(table.key) and not table.declared
    key = () if table.declared else table.key
    now = read_table(connection, table.id, table.excluded, key, needs_key=needs_key, captured=True)
    return declare(now, table.key) if table.declared else now


def read_table(
    connection: Connection,
    table_id: TableId,
    excluded: frozenset[str] = frozenset(),
    key: tuple[str, ...] = (),
    *,
    needs_key: bool = True,
    captured: bool = False,
) -> Capture:
    """The table's definition of now; with the key `key`, if that is one still. Without
    `needs_key`, a table that has no key is one without. Where it is `captured` already, its
    generated columns are not judged.

    Raises NoSuchTable, EngineUnsupported, LogIncomplete (a name that the binlog spells in another
    way), NoPrimaryKey, TypeUnsupported (a key column that cannot be cut), SpecInvalid (an excluded
    column that is unknown or in the key).
    """
    charset = check_kind(connection, table_id)
    rows = _column_rows(connection, table_id)
    columns = tuple(_column(table_id, row) for row in rows)
    indexes = read_indexes(connection, table_id)
    if not indexes:
        _open(connection, table_id)
    _check_excluded(table_id, excluded, {c.name for c in columns})
    generated, reasons = _generated(columns, rows)
    if not captured:
        _check_generated(table_id, excluded, generated, reasons)
    by_name = {c.name: c for c in columns}
    index = _key_index(table_id, by_name, indexes, key)
    if index is None and needs_key:
        raise _no_key(table_id, by_name, indexes)
    index = index or Index("")
    _check_key_is_left(table_id, excluded, index)
    source = SourceTable(
        table_id,
        columns,
        charset,
        generated=frozenset(generated),
        auto_increment=next((str(row[0]) for row in rows if "auto_increment" in str(row[5]).lower()), ""),
        unique=frozenset(i.name for i in indexes) - {index.name},
        recomputed=frozenset(reasons) - excluded,
    )
    return Capture(source, tuple(index.columns), excluded, index.name)


def check_kind(connection: Connection, table_id: TableId) -> str:
    """The default character set of the table's new text columns, found with the kind. Raises
    NoSuchTable, EngineUnsupported, LogIncomplete (as `read_table`)."""
    rows = fetch(
        connection,
        "SELECT TABLE_TYPE, ENGINE, @@lower_case_table_names, TABLE_COLLATION, TABLE_SCHEMA, TABLE_NAME"
        " FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (table_id.database, table_id.name),
        doing=_DOING,
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
        _open(connection, table_id)
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


def _open(connection: Connection, table_id: TableId) -> None:
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


def _column_rows(connection: Connection, table_id: TableId) -> list[tuple[Any, ...]]:
    """What `_column` needs, then EXTRA, and the expression of a generated column (else empty)."""
    return fetch(
        connection,
        "SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, IS_NULLABLE, COLLATION_NAME, EXTRA,"
        " COALESCE(GENERATION_EXPRESSION, '') FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (table_id.database, table_id.name),
        doing=_DOING,
    )


def read_defaults(connection: Connection, table_id: TableId) -> dict[str, tuple[str | None, str]]:
    """`COLUMN_DEFAULT` and `EXTRA` by column."""
    rows = fetch(
        connection,
        "SELECT COLUMN_NAME, COLUMN_DEFAULT, EXTRA FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (table_id.database, table_id.name),
    )
    return {str(name): (None if default is None else _text(default), str(extra)) for name, default, extra in rows}


def _column(table_id: TableId, row: tuple[Any, ...]) -> Column:
    name, declared, charset, nullable, collation, *_ = row
    text = _text(declared)
    if not _is_text(text):
        raise fail(
            Reason.TYPE_UNSUPPORTED,
            f"the type of column {name} holds bytes that are no character: {text}",
            needed="members of ENUM and SET that are text",
            remedy="define the column again, or leave the table out by spec.tables.exclude",
            table=str(table_id),
        )
    return Column(str(name), SourceType.parse(text, charset), str(nullable) == "YES", collation or "")


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _is_text(value: str) -> bool:
    """Whether all bytes of it were (see `connection`)."""
    return not any("\ud800" <= c <= "\udfff" for c in value)


def _check_excluded(table_id: TableId, excluded: frozenset[str], columns: set[str]) -> None:
    unknown = sorted(excluded - columns)
    if unknown:
        raise fail(
            Reason.SPEC_INVALID,
            f"columns.exclude names {', '.join(unknown)}",
            needed=f"columns of the table: {', '.join(sorted(columns))}",
            table=str(table_id),
        )


def _generated(columns: tuple[Column, ...], rows: list[tuple[Any, ...]]) -> tuple[dict[str, Generated], dict[str, str]]:
    """The generated columns, and why some may have two values for one row."""
    generated = {
        column.name: Generated(column, _text(row[6]), "STORED" in str(row[5]).upper())
        for column, row in zip(columns, rows, strict=True)
        if row[6]
    }
    return generated, unproved(generated, {c.name: c for c in columns})


def _check_generated(
    table_id: TableId, excluded: frozenset[str], generated: dict[str, Generated], reasons: dict[str, str]
) -> None:
    """Refuses virtual columns whose value in the binlog, which is the writer's, may not be the one
    that a SELECT computes."""
    names = [name for name in reasons if name not in excluded and not generated[name].stored]
    if names:
        named = ", ".join(f"{name} ({reasons[name]})" for name in names)
        raise fail(
            Reason.TYPE_UNSUPPORTED,
            f"virtual columns that may have another value in another session: {named}",
            needed="generated columns whose value the row alone decides, or STORED ones",
            remedy=f"leave them out: tables.overrides: [{{table: {table_id}, columns: {{exclude: [{', '.join(names)}]}}}}];"
            " or define them as STORED",
            table=str(table_id),
        )


def _check_key_is_left(table_id: TableId, excluded: frozenset[str], index: Index) -> None:
    in_key = sorted(excluded & set(index.columns))
    if in_key:
        raise fail(
            Reason.SPEC_INVALID,
            f"columns.exclude names {', '.join(in_key)}",
            needed="no column of the key",
            remedy="leave the key's columns in",
            table=str(table_id),
        )


@dataclass
class Index:
    """A unique index; `faults` are why it cannot order a plan: a prefix, an expression, a hash, or
    hidden from the optimizer."""

    name: str
    columns: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        return not self.faults


def read_indexes(connection: Connection, table_id: TableId) -> list[Index]:
    """The unique indexes, the primary key first."""
    rows = fetch_dicts(
        connection,
        "SELECT * FROM information_schema.STATISTICS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX",
        (table_id.database, table_id.name),
        doing=_DOING,
    )
    indexes: dict[str, Index] = {}
    for row in rows:
        index = indexes.setdefault(str(row["INDEX_NAME"]), Index(str(row["INDEX_NAME"])))
        index.columns.append(str(row["COLUMN_NAME"] or ""))
        index.faults += _faults(row)
    return sorted(indexes.values(), key=lambda i: i.name != "PRIMARY")


def _faults(part: dict[str, Any]) -> list[str]:
    """Why this part of an index does not sort by the column itself, or is not seen by the
    optimizer."""
    name = part["COLUMN_NAME"]
    conditions = {
        "is over an expression": name is None,
        f"holds only the first {part['SUB_PART']} of {name}": part["SUB_PART"] is not None,
        f"is of the kind {part['INDEX_TYPE']}": part["INDEX_TYPE"] != "BTREE",
        "is hidden from the optimizer": part.get("IS_VISIBLE") == "NO" or part.get("IGNORED") == "YES",
        f"does not sort by {name}": part["COLLATION"] is None and part["INDEX_TYPE"] == "BTREE",
    }
    return [fault for fault, is_so in conditions.items() if is_so]


def _key_index(
    table_id: TableId, columns: dict[str, Column], indexes: list[Index], key: tuple[str, ...] = ()
) -> Index | None:
    """That of the columns `key`, else the primary key, else the shortest unique index without
    NULLs, of types that can be cut. None where no index is unique over whole NOT NULL columns."""
    complete = [i for i in indexes if i.usable and not any(columns[c].nullable for c in i.columns if c in columns)]
    captured = [i for i in complete if all(c in columns for c in i.columns)]
    cuttable = [i for i in captured if not any(unsupported_key_reason(columns[c]) for c in i.columns)]
    if cuttable:
        return min(cuttable, key=lambda i: (tuple(i.columns) != key, i.name != "PRIMARY", len(i.columns)))
    if captured:
        bad = next(columns[c] for c in captured[0].columns if unsupported_key_reason(columns[c]))
        raise fail(
            Reason.TYPE_UNSUPPORTED,
            f"the key column {bad.name} {unsupported_key_reason(bad)}",
            needed="a key of exact types (no FLOAT, DOUBLE), with texts in a character set that UTF-8 maps one to one",
            remedy="add a unique index over NOT NULL columns of other types",
            table=str(table_id),
        )
    return None


def _no_key(table_id: TableId, columns: dict[str, Column], indexes: list[Index]) -> CdcError:
    """Names each unique index that there is, with why it will not do."""
    unusable = [f"{_named(i)} {', '.join(dict.fromkeys(_why_unusable(i, columns)))}" for i in indexes]
    primary = any(i.name == "PRIMARY" for i in indexes)
    return fail(
        Reason.NO_PRIMARY_KEY,
        "; ".join(unusable) or "no primary key and no unique index",
        needed="a primary key, or a unique index, over whole NOT NULL columns",
        remedy=f"ALTER TABLE {table_id.quoted} ADD {'UNIQUE' if primary else 'PRIMARY KEY'} (...)",
        table=str(table_id),
    )


def _named(index: Index) -> str:
    return "the primary key" if index.name == "PRIMARY" else f"the unique index {index.name}"


def _why_unusable(index: Index, columns: dict[str, Column]) -> list[str]:
    nullable = [c for c in index.columns if c in columns and columns[c].nullable]
    unknown = [c for c in index.columns if c and c not in columns]
    return [
        *index.faults,
        *(f"may hold NULL in {c}" for c in nullable),
        *(f"is over {c}, which the account may not see" for c in unknown),
    ]
