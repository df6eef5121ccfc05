"""The chunk plan of a table: splits in key order, lazily, each of bounded size.

Why every possible key is in exactly one split: each split starts where the one before it ended, the
first is open below, the last open above; bounds are values that the server gave, or for integers a
sum.

Why splits stay small, whatever the statistics say: an *even* plan cuts an integer key by
arithmetic, which costs nothing; it is made only where the keys are so dense that a stride cannot
hold more than three times `chunk_size` different keys. An *uneven* plan asks for the key at offset
`chunk_size` from the start, over the whole unique key, so that many equal leading values do not
matter. The optimizer's estimate of a range is not used: InnoDB cuts it off at half of the recorded
row count and extrapolates from the first pages. Nothing is held but the current bound, and the
server reads each part of the index once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cdcsync_core.errors import Reason, fail
from cdcsync_core.positions.chunk import WHOLE, Bound, KeyValue, Split
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import INTEGERS, TableId, quote
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.reading.splitquery import order_by, select_key, where
from cdcsync_mysql.reading.unique_indexes import read_indexes
from cdcsync_mysql.sessions.connection import Connection, fetch

#: the spread of keys, (max - min + 1) / rows, within which an even plan is made: below, the row
#: count is wrong and there would be far too many splits; above, a split could hold more than so
#: many chunk sizes
_EVEN_FACTORS = (0.05, 3.0)
_ZERO_DATE = re.compile(r"0000-|\d{4}-00|\d{4}-\d\d-00")


def plan(connection: Connection, table: Capture, chunk_size: int, frontier: Bound = None) -> Iterator[Split]:
    """The splits of about `chunk_size` rows from `frontier` (None: from the beginning) to the open
    end, in key order.

    The connection is in use until the iterator is done. Raises CdcError; TypeUnsupported for a zero
    date in the key. A table without a chunk key is one split.
    """
    if table.chunk_key is None:
        yield WHOLE
        return
    space = _KeySpace(connection, table, _index_name(connection, table))
    stride = _even_stride(space, chunk_size, frontier)
    yield from _uneven(space, frontier, chunk_size) if stride is None else _even(stride, frontier)


def estimate_rows(connection: Connection, table_id: TableId) -> int:
    """The statistics' row count, often wrong by half; 0 where there is none."""
    rows = fetch(
        connection,
        "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (table_id.database, table_id.name),
    )
    return int(rows[0][0] or 0) if rows else 0


@dataclass(frozen=True)
class _KeySpace:
    """The table's keys as the server knows them, through the index that orders them."""

    connection: Connection
    table: Capture
    index: str

    @property
    def _from(self) -> str:
        return f"FROM {self.table.id.quoted} FORCE INDEX ({quote(self.index)})"

    def key_at(self, start: Bound, offset: int) -> Bound:
        """The key of the row `offset` rows after the first from `start` on; None if there are not
        so many."""
        rows = self._ask(
            f"SELECT {select_key(self.table)} {self._from} WHERE {where(self.table, Split(start))}"
            f" ORDER BY {order_by(self.table)} LIMIT 1 OFFSET {offset}"
        )
        return self._checked(rows[0]) if rows else None

    def key_range(self) -> tuple[int, int] | None:
        """The least and the greatest key of a one-column integer key; None for an empty table."""
        name = quote(self.table.key[0])
        low, high = self._ask(f"SELECT MIN({name}), MAX({name}) {self._from}")[0]
        return None if low is None else (int(low), int(high))

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return fetch(self.connection, sql, doing=f"planning {self.table.id}")

    def _checked(self, key: tuple[KeyValue, ...]) -> Bound:
        for column, value in zip(self.table.key_columns, key, strict=True):
            if column.type.base in ("date", "datetime", "timestamp") and _ZERO_DATE.match(str(value)):
                raise fail(
                    Reason.TYPE_UNSUPPORTED,
                    f"the key column {column.name} holds {value}",
                    needed="no zero or partial date in a key",
                    remedy="correct the row, or use another key",
                    table=str(self.table.id),
                )
        return tuple(key)


@dataclass(frozen=True)
class _Stride:
    low: int
    high: int
    size: int


def _index_name(connection: Connection, table: Capture) -> str:
    """Raises what stands in the way of a table that is gone, or no longer as it was."""
    for index in read_indexes(connection, table.id):
        if tuple(index.columns) == table.key and index.usable:
            return index.name
    read_table(connection, table.id, table.excluded)
    raise fail(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"no unique index over {', '.join(table.key)} any more",
        needed="the definition of the plan",
        remedy=RESNAPSHOT,
        table=str(table.id),
    )


def _even_stride(space: _KeySpace, chunk_size: int, frontier: Bound) -> _Stride | None:
    """None where the keys are not spread evenly enough, or how far is unknown."""
    if len(space.table.key) != 1 or space.table.key_columns[0].type.base not in INTEGERS:
        return None
    key_range, rows = space.key_range(), estimate_rows(space.connection, space.table.id)
    if key_range is None or rows == 0:
        return None
    factor = (key_range[1] - key_range[0] + 1) / rows
    if not _EVEN_FACTORS[0] <= factor <= _EVEN_FACTORS[1]:
        return None
    low = key_range[0] if frontier is None else max(key_range[0], int(frontier[0]))
    return _Stride(low, key_range[1], max(1, int(factor * chunk_size)))


def _even(stride: _Stride, frontier: Bound) -> Iterator[Split]:
    start = frontier
    for bound in range(stride.low + stride.size, stride.high + 1, stride.size):
        yield Split(start, (bound,))
        start = (bound,)
    yield Split(start, None)


def _uneven(space: _KeySpace, frontier: Bound, chunk_size: int) -> Iterator[Split]:
    start = frontier
    while (bound := space.key_at(start, chunk_size)) is not None:
        yield Split(start, bound)
        start = bound
    yield Split(start, None)
