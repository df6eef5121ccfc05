"""Rows of a binary result to Arrow: all rows are walked together, column by column.

A row is a zero byte, the NULL bitmap, which begins with two unused bits, then the values that are
not NULL. Per column there is one cursor a row; a fixed width moves all of them alike, else each
value's length does. Nothing is made of the values until every cursor has arrived at its row's end
exactly: so no value can reach into another row, whatever the bytes are. Source: MySQL source
documentation, "Binary Protocol Resultset Row".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cdcsync_core.errors import CdcError, DecodeError, Reason, fail
from cdcsync_core.remedies import resnapshot
from cdcsync_core.stops import RESULT_HAS
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import INTEGERS, LABELLED, Column
from cdcsync_spark.rows.arrow_types import arrow_type, captured_schema
from cdcsync_spark.wire.columns.charset import charset_of, same_charset
from cdcsync_spark.wire.columns.gather import Cursors, Flags, Lanes, Numbers
from cdcsync_spark.wire.columns.key_text import key_text
from cdcsync_spark.wire.resultset.binary_value import CODECS, ResultCells, Values, convert
from cdcsync_spark.wire.resultset.packets import Payloads
from cdcsync_spark.wire.resultset.response import Definition

#: values that are decoded at once: what bounds memory where rows are many NULLs
MAX_VALUES = 1 << 20
_UNSIGNED = 0x20
_LENENC = {252: 2, 253: 3, 254: 8}
_BEYOND_FIRST = 251


class DecodedResult(NamedTuple):
    """`nulled` counts the dates that became NULL because they were zero, partial or impossible;
    `size` is in bytes, of the rows as the server sent them."""

    batch: pa.RecordBatch
    nulled: int
    size: int


class RowDecoder:
    """Decodes the rows of one result of `table`'s captured columns, in their order; raises CdcError
    for another definition."""

    def __init__(self, table: Capture, definitions: Sequence[Definition]) -> None:
        self._table = table
        self._schema = captured_schema(table)
        self._rows = 0
        self.pieces = max(MAX_VALUES // len(table.captured), 1)
        if len(definitions) != len(table.captured):
            raise _changed(table, f"{len(definitions)} columns")
        for column, definition in zip(table.captured, definitions, strict=True):
            _check_definition(table, column, definition)

    def decode(self, payloads: Payloads) -> list[DecodedResult]:
        """Batches of `typemap.arrow_schema(table)` with all of the rows, in order; raises
        DecodeError."""
        parts = [payloads.part(i, i + self.pieces) for i in range(0, len(payloads), self.pieces)]
        return [self._decode(part) for part in parts]

    def _decode(self, payloads: Payloads) -> DecodedResult:
        position = f"row {self._rows + 1} to {self._rows + len(payloads)} of the result"
        cells = self._cells(payloads, position)
        arrays, nulled = [], 0
        by_name = dict(zip((c.name for c in self._table.captured), cells, strict=True))

        def read(column: Column) -> Values:
            return self._column(column, by_name[column.name], len(payloads), position)

        for column in self._table.captured:
            try:
                array, lost = read(column)
            except DecodeError as e:
                raise e.placed(key=key_text(self._table, e.row, lambda c: read(c).array)) from None
            arrays.append(array)
            nulled += lost
        self._rows += len(payloads)
        size = int((payloads.ends - payloads.starts).sum())
        return DecodedResult(pa.RecordBatch.from_arrays(arrays, schema=self._schema), nulled, size)

    def _cells(self, payloads: Payloads, position: str) -> list[ResultCells | None]:
        """Per column where its values are; None where all are NULL."""
        columns = self._table.captured
        lanes = Lanes.over(payloads.data, int(payloads.ends[-1]), lasting=payloads.lasting)
        try:
            nulls = _Nulls(lanes, payloads.starts + 1, len(columns))
            at, cells = payloads.starts + 1 + nulls.size, []
            for i, column in enumerate(columns):
                step_cells, at = _step(lanes, at, nulls.of(i), CODECS[column.type.base].width)
                cells.append(step_cells)
        except DecodeError as e:
            raise DecodeError(e.found, table=str(self._table.id), position=position) from None
        if not np.array_equal(at, payloads.ends):
            row = int(np.flatnonzero(at != payloads.ends)[0])
            raise DecodeError(
                f"a row of {payloads.ends[row] - payloads.starts[row]} bytes whose values need {at[row] - payloads.starts[row]}",
                table=str(self._table.id),
                position=f"row {self._rows + row + 1} of the result",
            )
        return cells

    def _column(self, column: Column, cells: ResultCells | None, rows: int, position: str) -> Values:
        arrow = arrow_type(column.type)
        if cells is None:
            return Values(pa.nulls(rows, arrow))
        try:
            values = convert(column.type, cells)
            if values.nulled and column.name in self._table.key:
                # as NULL it would match no row of the target, and all such keys would be one
                raise DecodeError("a zero or partial date in the key")
            return values
        except (pa.ArrowException, ValueError, DecodeError) as e:
            fault = e if isinstance(e, DecodeError) else DecodeError(str(e).splitlines()[0][:200])
            raise DecodeError(
                f"a {column.type.declared} value that does not fit {arrow}: {fault.what}",
                needed=fault.needed,
                table=str(self._table.id),
                column=column.name,
                position=position,
                remedy=fault.remedy,
                row=fault.row,
            ) from None


class _Nulls:
    """The NULL bitmaps of all rows."""

    def __init__(self, lanes: Lanes, at: Cursors, columns: int) -> None:
        self.size = (columns + 2 + 7) // 8
        self._bytes = [lanes.byte(at, i) for i in range(self.size)]
        self._some = [int(np.bitwise_or.reduce(b)) for b in self._bytes]
        self._all = [int(np.bitwise_and.reduce(b)) for b in self._bytes]

    def of(self, column: int) -> Flags | bool:
        """Which rows have a NULL: True for all, False for none."""
        byte, bit = divmod(column + 2, 8)
        if not self._some[byte] >> bit & 1:
            return False
        if self._all[byte] >> bit & 1:
            return True
        return (self._bytes[byte] >> np.uint8(bit) & np.uint8(1)).view(np.bool_)


def _step(lanes: Lanes, at: Cursors, nulls: Flags | bool, width: int) -> tuple[ResultCells | None, Cursors]:
    """One column's values, and the cursors behind them."""
    if nulls is True:
        return None, at
    if nulls is False:
        if width:
            return ResultCells(lanes, at), at + width
        sizes, first = _sizes(lanes, at, lanes.byte(at), at + 1)
        return ResultCells(lanes, first, sizes), first + sizes
    valid = ~nulls
    present = valid.view(np.uint8)
    if width:
        return ResultCells(lanes, at, None, valid), at + present * np.uint8(width)
    sizes, first = _sizes(lanes, at, lanes.byte(at) * present, at + present)
    return ResultCells(lanes, first, sizes, valid), first + sizes


def _sizes(lanes: Lanes, at: Cursors, sizes: npt.NDArray[np.uint8], first: Cursors) -> tuple[Numbers, Cursors]:
    """Lengths, and where the values begin: a length from 251 on is in the 2, 3 or 8 bytes behind
    its first."""
    if len(sizes) == 0 or sizes.max() < _BEYOND_FIRST:
        return sizes, first
    wide, first = sizes.astype(np.int64), first.copy()
    for code in np.unique(sizes[sizes >= _BEYOND_FIRST]).tolist():
        if code not in _LENENC:
            raise DecodeError(f"a length that begins with the byte {code:#x}")
        rows = np.flatnonzero(sizes == code)
        stated = lanes.little(at[rows], _LENENC[code], 1).astype(np.uint64)
        # one that is beyond all rows stays beyond them, and no cursor can overflow
        wide[rows] = np.minimum(stated, np.uint64(lanes.size + 1))
        first[rows] += _LENENC[code]
    return wide, first


def _check_definition(table: Capture, column: Column, sent: Definition) -> None:
    codec = CODECS.get(column.type.base)
    unsigned = bool(sent.flags & _UNSIGNED)
    same_sign = column.type.base not in INTEGERS or unsigned == column.type.unsigned
    if codec is None or sent.code not in codec.codes or not same_sign or sent.name != column.name:
        sign = " unsigned" if unsigned else ""
        raise _changed(
            table, f"the column {sent.name} of wire type {sent.code}{sign} for {column.name} {column.type.declared}"
        )
    if column.type.base in LABELLED:
        charset = charset_of(sent.collation)
        if not same_charset(charset, column.type.charset):
            raise _changed(table, f"the column {sent.name} in {charset} for one in {column.type.charset}")


def _changed(table: Capture, sent: str) -> CdcError:
    return fail(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"{RESULT_HAS} {sent}",
        needed="the definition of the plan",
        remedy=resnapshot(table.id),
        table=str(table.id),
    )
