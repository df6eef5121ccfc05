"""Row events of one table to Arrow batches of changes.

Why it is right: the definition that every TABLE_MAP carries is compared with the planned one before a byte is read, the images are
cut by the event's own metadata and must end exactly with the event, and a value that cannot be read stops the table. Two decoders
fill the columns: `plain`, value by value, is the oracle of `lockstep`, which does the same to all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_core.change import ChangeKind, changes_schema
from cdcsync_core.errors import DecodeError
from cdcsync_core.run import Decoder
from cdcsync_core.table import Table
from cdcsync_core.typemap import arrow_schema
from cdcsync_spark.wire import columns, lockstep, value
from cdcsync_spark.wire.definition import check_table_map
from cdcsync_spark.wire.facts import Operation, RowsEvent, TableMap
from cdcsync_spark.wire.gather import Lanes
from cdcsync_spark.wire.gather import numbers as as_array
from cdcsync_spark.wire.image import Layout, Raw, layout, split

_Counts = npt.NDArray[np.int64]

#: the first image's kind; an update's second one is the next
_FIRST = {
    Operation.WRITE: ChangeKind.INSERT,
    Operation.UPDATE: ChangeKind.UPDATE_BEFORE,
    Operation.DELETE: ChangeKind.DELETE,
}
_STAYING = (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)


class Decoded(NamedTuple):
    """`batch` has the schema `changes_schema(arrow_schema(table))`; `nulled` counts the dates of inserted rows and after images that
    became NULL."""

    batch: pa.RecordBatch
    nulled: int


def decode(
    table: Table, events: Sequence[RowsEvent], transactions: Sequence[int], decoder: Decoder = Decoder.LOCKSTEP
) -> Decoded:
    """The changes of `events` in their order as one batch; see `batches`."""
    parts = list(batches(table, events, transactions, decoder))
    if not parts:
        return Decoded(pa.RecordBatch.from_pylist([], changes_schema(arrow_schema(table))), 0)
    batch = parts[0].batch if len(parts) == 1 else pa.concat_batches([p.batch for p in parts])
    return Decoded(batch, sum(p.nulled for p in parts))


def batches(
    table: Table, events: Sequence[RowsEvent], transactions: Sequence[int], decoder: Decoder = Decoder.LOCKSTEP
) -> Iterator[Decoded]:
    """The changes of `events` in their order; `transactions[i]` is the transaction index of `events[i]`.

    Raises the first event's `defect`, RowMetadataNotFull, SchemaChangeRefused or DecodeError, always with the table's name.
    """
    for event in events:
        if event.defect:
            raise event.defect
    read = _plain if decoder is Decoder.PLAIN else _lockstep
    for _, group in groupby(range(len(events)), lambda i: id(events[i].map)):
        run = list(group)
        table_map = events[run[0]].map
        with _naming(table):
            check_table_map(table_map, table)
            yield from read(table, table_map, [events[i] for i in run], [transactions[i] for i in run])


def _plain(table: Table, table_map: TableMap, events: list[RowsEvent], transactions: list[int]) -> Iterator[Decoded]:
    raw: list[Raw | None] = [None if c.name in table.excluded else [] for c in table.columns]
    layouts = [layout(m) for m in table_map.columns]
    counts = np.array([split(event.body, layouts, raw) for event in events], np.int64)
    frame = _Frame(table, _kinds(events, counts), _numbers(transactions, counts))
    for column, mapped, values in zip(table.columns, table_map.columns, raw, strict=True):
        if values is not None:
            with _naming(table, column.name):
                frame.add(value.convert(column, mapped, values))
    yield frame.decoded()


def _lockstep(table: Table, table_map: TableMap, events: list[RowsEvent], transactions: list[int]) -> Iterator[Decoded]:
    bodies = [event.body for event in events]
    layouts = [layout(m) for m in table_map.columns]
    lanes = Lanes(bodies)
    rows = lockstep.rows(lanes, [len(body) for body in bodies], layouts)
    kinds, numbers = _kinds(events, rows.counts), _numbers(transactions, rows.counts)
    for part in lockstep.slices(rows, lockstep.arrow_width(table_map.columns)):
        frame = _Frame(table, kinds[part], numbers[part])
        _fill(frame, table_map, lanes, rows.starts[part], layouts)
        yield frame.decoded()


def _fill(
    frame: _Frame, table_map: TableMap, lanes: Lanes, starts: npt.NDArray[np.int64], layouts: list[Layout]
) -> None:
    table = frame.table
    found = lockstep.columns(lanes, starts, layouts)
    for column, mapped, cells in zip(table.columns, table_map.columns, found, strict=True):
        if column.name not in table.excluded:
            with _naming(table, column.name):
                frame.add(columns.convert(column, mapped, cells))


class _Frame:
    """A batch that is filled column by column."""

    def __init__(self, table: Table, kinds: npt.NDArray[np.int8], numbers: npt.NDArray[np.int32]) -> None:
        self.table = table
        self._arrays = [as_array(kinds, pa.int8()), as_array(numbers, pa.int32())]
        self._staying = np.isin(kinds, _STAYING)
        self._nulled = 0

    def add(self, column: value.Converted) -> None:
        self._arrays.append(column.values)
        if column.nulled:
            self._nulled += int(self._staying[column.nulled].sum())

    def decoded(self) -> Decoded:
        schema = changes_schema(arrow_schema(self.table))
        return Decoded(pa.RecordBatch.from_arrays(self._arrays, schema=schema), self._nulled)


def _kinds(events: list[RowsEvent], counts: _Counts) -> npt.NDArray[np.int8]:
    """The kind of every image; an update's come in pairs."""
    first = np.array([_FIRST[e.operation] for e in events], np.int8)
    paired = first == ChangeKind.UPDATE_BEFORE
    if (counts[paired] & 1).any():
        raise DecodeError("an update without its after image")
    kinds = np.repeat(first, counts)
    # pairs begin at even places if counted within updates
    of_update = np.repeat(paired, counts)
    kinds[of_update] += (np.arange(int(of_update.sum())) & 1).astype(np.int8)
    return kinds


def _numbers(transactions: list[int], counts: _Counts) -> npt.NDArray[np.int32]:
    return np.repeat(np.array(transactions, np.int32), counts)


@contextmanager
def _naming(table: Table, column: str = "") -> Iterator[None]:
    """Gives a DecodeError the names that it lacks."""
    try:
        yield
    except DecodeError as e:
        raise DecodeError(e.found, needed=e.needed, table=e.table or str(table.id), column=e.column or column) from None
