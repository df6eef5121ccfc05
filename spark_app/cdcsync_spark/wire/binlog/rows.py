"""Row events of one table to Arrow batches of changes.

Why it is right: what every TABLE_MAP carries of the definition is compared with the planned one
before a byte is read, the images are cut by the event's own metadata and must end exactly with the
event, and a value that cannot be read stops the table. Two decoders fill the columns: `plain`,
value by value, is the oracle of `lockstep`, which does the same to all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_core.errors import DecodeError
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.wire.binlog import columns, value
from cdcsync_spark.wire.binlog.definition import described, planned
from cdcsync_spark.wire.binlog.event.compression import BOUND, stated_length
from cdcsync_spark.wire.binlog.facts import MappedColumn, Operation, RowsEvent
from cdcsync_spark.wire.binlog.images import lockstep
from cdcsync_spark.wire.binlog.images.befores import needed, needed_values
from cdcsync_spark.wire.binlog.images.cut_images import as_captured
from cdcsync_spark.wire.binlog.images.image import Layout, Raw, layout, split
from cdcsync_spark.wire.binlog.predicted_map import check_rows
from cdcsync_spark.wire.binlog.rows_block import RowsBlock, blocks_of, joined
from cdcsync_spark.wire.binlog.table_map import COMPRESSED
from cdcsync_spark.wire.binlog.undescribed import completed
from cdcsync_spark.wire.columns.cells import Cells
from cdcsync_spark.wire.columns.gather import Lanes
from cdcsync_spark.wire.columns.gather import numbers as as_array
from cdcsync_spark.wire.columns.key_text import key_text

_Counts = npt.NDArray[np.int64]
_T = TypeVar("_T")

#: the first image's kind; an update's second one is the next
_FIRST = np.zeros(len(Operation), np.int8)
_FIRST[Operation.WRITE], _FIRST[Operation.UPDATE] = ChangeKind.INSERT, ChangeKind.UPDATE_BEFORE
_FIRST[Operation.DELETE] = ChangeKind.DELETE
_STAYING = (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)


class DecodedRows(NamedTuple):
    """`batch` has the schema `changes_schema(arrow_schema(table))`; `nulled` counts the dates of
    inserted rows and after images that became NULL; `images` were read for it, one a row, and those
    that were left out."""

    batch: pa.RecordBatch
    nulled: int
    images: int


def decode(
    table: Capture,
    events: Sequence[RowsEvent],
    transactions: Sequence[int],
    decoder: Decoder = Decoder.VECTORIZED,
    *,
    befores: bool = True,
) -> DecodedRows:
    """The changes of `events` in their order as one batch; see `batches`."""
    parts = list(batches(table, events, transactions, decoder, befores=befores))
    if not parts:
        return DecodedRows(pa.RecordBatch.from_pylist([], changes_schema(captured_schema(table))), 0, 0)
    batch = parts[0].batch if len(parts) == 1 else pa.concat_batches([p.batch for p in parts])
    return DecodedRows(batch, sum(p.nulled for p in parts), sum(p.images for p in parts))


def batches(
    table: Capture,
    events: Sequence[RowsEvent],
    transactions: Sequence[int],
    decoder: Decoder = Decoder.VECTORIZED,
    *,
    befores: bool = True,
) -> Iterator[DecodedRows]:
    """The changes of `events` in their order; `transactions[i]` is the transaction index of
    `events[i]`. Without `befores` the before images of updates are left out that a fold by key does
    without.

    Raises the first event's `defect`, RowMetadataNotFull, SchemaChangeRefused or DecodeError,
    always with the table's name.
    """
    events = [as_captured(event, table) for event in events]
    for event in events:
        if event.defect:
            raise event.defect
    yield from block_batches(table, list(blocks_of(events, transactions)), decoder, befores=befores)


def block_batches(
    table: Capture, blocks: Sequence[RowsBlock], decoder: Decoder = Decoder.VECTORIZED, *, befores: bool = True
) -> Iterator[DecodedRows]:
    """As `batches`, of events as columns."""
    read = _plain if decoder is Decoder.REFERENCE else _lockstep
    for block in joined(blocks):
        with _naming(table):
            check_rows(table, block.map)
            table_map = completed(block.map, table)
            yield from read(_EventRun(table, block, befores, planned(table_map, table), described(table_map, table)))


class _EventRun(NamedTuple):
    """Events of one TABLE_MAP, one after the other; `columns` are the table's, for each column of
    the TABLE_MAP, of which all is known in `mapped`."""

    table: Capture
    block: RowsBlock
    befores: bool
    columns: list[Column | None]
    mapped: list[MappedColumn]

    @property
    def key(self) -> list[int]:
        """The places of the key's columns."""
        return [i for i, column in enumerate(self.columns) if column and column.name in self.table.key]

    def by_name(self, values: Iterable[_T]) -> dict[str, tuple[MappedColumn, _T]]:
        """What was found for each column of the TABLE_MAP, by the names of the table's columns."""
        parts = zip(self.columns, self.mapped, values, strict=True)
        return {column.name: (mapped, item) for column, mapped, item in parts if column}


def _plain(run: _EventRun) -> Iterator[DecodedRows]:
    captured = {c.name for c in run.table.captured}
    raw: list[Raw | None] = [[] if c and c.name in captured else None for c in run.columns]
    layouts = [layout(m) for m in run.mapped]
    counts = np.array([split(event.body, layouts, raw) for event in run.block.events()], np.int64)
    kinds, numbers = _kinds(run.block, counts), np.repeat(run.block.transactions, counts)
    plain = np.ones(len(kinds), bool)
    if not run.befores:
        plain = needed_values(kinds == ChangeKind.UPDATE_BEFORE, [raw[i] or [] for i in run.key])
    yield from _plain_pieces(run, raw, kinds, numbers, np.flatnonzero(plain))


def _plain_pieces(
    run: _EventRun,
    raw: Sequence[Raw | None],
    kinds: npt.NDArray[np.int8],
    numbers: npt.NDArray[np.int32],
    needed_images: _Counts,
) -> Iterator[DecodedRows]:
    by_name = run.by_name(raw)
    weights = np.zeros(len(needed_images), np.int64)
    for mapped, values in by_name.values():
        size = stated_length if mapped.code in COMPRESSED else _length
        weights += np.array([size(values[i]) for i in needed_images.tolist()] if values else 0, np.int64)
    left = len(kinds)
    for piece in lockstep.pieces(weights, lockstep.arrow_width(run.mapped)):
        images = needed_images[piece]
        frame = _Frame(run.table, kinds[images], numbers[images])
        frame.fill(partial(_converted, by_name, images.tolist()))
        count = left if piece.stop == len(needed_images) else len(images)
        left -= count
        yield frame.decoded(count)


def _converted(
    by_name: dict[str, tuple[MappedColumn, Raw | None]], images: list[int], column: Column
) -> value.ConvertedValues:
    mapped, values = by_name[column.name]
    return value.convert(column, mapped, [(values or [])[i] for i in images])


def _length(raw: bytes | None) -> int:
    return len(raw or b"")


def _lockstep(run: _EventRun) -> Iterator[DecodedRows]:
    layouts = [layout(m) for m in run.mapped]
    lanes = Lanes(run.block.images)
    rows = lockstep.rows(lanes, run.block.sizes, layouts)
    kinds, numbers = _kinds(run.block, rows.counts), np.repeat(run.block.transactions, rows.counts)
    befores = kinds == ChangeKind.UPDATE_BEFORE
    together = befores & (not run.befores)
    for part in lockstep.slices(rows, lockstep.arrow_width(run.mapped), together):
        images = np.arange(part.start, part.stop)
        if not run.befores:
            images = images[needed(lanes, rows.starts[part], befores[part], layouts, run.key)]
        left = part.stop - part.start
        for piece in _unpacked_pieces(run, lanes, rows.starts[images], layouts):
            some = images[piece]
            frame = _Frame(run.table, kinds[some], numbers[some])
            _fill(frame, run.by_name(lockstep.columns(lanes, rows.starts[some], layouts)))
            count = left if piece.stop == len(images) else len(some)
            left -= count
            yield frame.decoded(count)


def _unpacked_pieces(run: _EventRun, lanes: Lanes, starts: _Counts, layouts: Sequence[Layout]) -> Iterator[slice]:
    """Rows of a slice whose COMPRESSED columns are unpacked together."""
    if not any(m.code in COMPRESSED for m in run.mapped):
        yield slice(0, len(starts))
        return
    weights = np.zeros(len(starts), np.int64)
    for mapped, cells in run.by_name(lockstep.columns(lanes, starts, layouts)).values():
        if mapped.code in COMPRESSED:
            weights += columns.stated_lengths(cells)
    yield from lockstep.pieces(weights, lockstep.arrow_width(run.mapped))


def _fill(frame: _Frame, by_name: dict[str, tuple[MappedColumn, Cells]]) -> None:
    frame.fill(lambda column: columns.convert(column, *by_name[column.name]))


class _Frame:
    """A batch that is filled column by column."""

    def __init__(self, table: Capture, kinds: npt.NDArray[np.int8], numbers: npt.NDArray[np.int32]) -> None:
        self.table = table
        self._arrays = [as_array(kinds, pa.int8()), as_array(numbers, pa.int32())]
        self._staying = np.isin(kinds, _STAYING)
        self._nulled = self._unpacked = 0

    def fill(self, convert: Callable[[Column], value.ConvertedValues]) -> None:
        """Adds all captured columns. Raises DecodeError with table, column and, where a row is to
        blame, its key."""
        for column in self.table.captured:
            try:
                self._add(convert(column))
            except DecodeError as e:
                key = key_text(self.table, e.row, lambda c: convert(c).values)
                raise e.placed(table=str(self.table.id), column=column.name, key=key) from None

    def _add(self, column: value.ConvertedValues) -> None:
        """Raises DecodeError where the COMPRESSED columns of a batch are together beyond the
        bound of one."""
        self._unpacked += column.unpacked
        BOUND.refuse(self._unpacked)
        self._arrays.append(column.values)
        if column.nulled:
            self._nulled += int(self._staying[column.nulled].sum())

    def decoded(self, images: int) -> DecodedRows:
        schema = changes_schema(captured_schema(self.table))
        return DecodedRows(pa.RecordBatch.from_arrays(self._arrays, schema=schema), self._nulled, images)


def _kinds(block: RowsBlock, counts: _Counts) -> npt.NDArray[np.int8]:
    """The kind of every image; an update's come in pairs."""
    first = _FIRST[block.operations]
    paired = first == ChangeKind.UPDATE_BEFORE
    if (counts[paired] & 1).any():
        raise DecodeError("an update without its after image")
    kinds = np.repeat(first, counts)
    # pairs begin at even places if counted within updates
    of_update = np.repeat(paired, counts)
    kinds[of_update] += (np.arange(int(of_update.sum())) & 1).astype(np.int8)
    return kinds


@contextmanager
def _naming(table: Capture) -> Iterator[None]:
    """Gives a DecodeError the table's name."""
    try:
        yield
    except DecodeError as e:
        raise e.placed(table=str(table.id)) from None
