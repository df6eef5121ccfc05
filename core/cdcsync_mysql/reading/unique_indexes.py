"""The unique indexes of a table, and which of them is its key.

The key is the primary key or a unique index over NOT NULL columns: a row with NULL would be in no
range (rule R3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.tables.source_table import Column, TableId
from cdcsync_mysql.reading.splitquery import unsupported_key_reason
from cdcsync_mysql.reading.table_kind import READING_DEFINITION
from cdcsync_mysql.sessions.connection import Connection, fetch_dicts


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
        doing=READING_DEFINITION,
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


def key_index(
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


def no_key(table_id: TableId, columns: dict[str, Column], indexes: list[Index]) -> CdcError:
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
