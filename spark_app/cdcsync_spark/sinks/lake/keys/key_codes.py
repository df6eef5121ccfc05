"""Keys as 64-bit numbers, column-wise. Pure.

One integer, date or time, or several that fit 64 bits together, are their own code: *exact*, equal
codes are equal keys, and codes are ordered as the keys are. Every other key is hashed; then equal
codes mean nothing until the keys themselves were compared (see `key_index`), so the hash has to be
fast and well spread, no more. Its seed is drawn for each index, so that no one can make keys that
meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import STOP_OTHER_WRITER
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column
from cdcsync_spark.rows.arrow_types import arrow_type

Codes = npt.NDArray[np.uint64]

_WORD = 8
#: odd constants with well mixed bits (the golden ratio and the multipliers of SplitMix64)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_WIDTHS: tuple[tuple[Callable[[pa.DataType], bool], int], ...] = (
    (pa.types.is_boolean, 1),
    (pa.types.is_int8, 1),
    (pa.types.is_int16, 2),
    (pa.types.is_int32, 4),
    (pa.types.is_date32, 4),
    (pa.types.is_int64, 8),
    (pa.types.is_timestamp, 8),
)


@dataclass(frozen=True)
class KeyCodec:
    """Codes of the key columns `names`; `widths` are their bytes in an exact code, empty where keys
    are hashed."""

    table: str
    names: tuple[str, ...]
    widths: tuple[int, ...]
    seed: int

    @classmethod
    def of(cls, table: Capture, seed: int) -> KeyCodec:
        widths = tuple(_width(c) for c in table.key_columns)
        exact = all(widths) and sum(widths) <= _WORD
        return cls(str(table.id), table.key, widths if exact else (), seed)

    @property
    def exact(self) -> bool:
        return bool(self.widths)

    def codes(self, keys: pa.RecordBatch) -> Codes:
        """One code a row. Raises `SinkConflict` for a key that the source cannot have: NULL, or out
        of its range."""
        columns = [keys.column(name) for name in self.names]
        if any(c.null_count for c in columns):
            raise self._impossible("a row with a NULL in its key")
        with np.errstate(over="ignore"):
            return self._packed(columns) if self.exact else self._hashed(columns)

    def _packed(self, columns: Sequence[pa.Array]) -> Codes:
        packed = np.zeros(len(columns[0]), np.uint64)
        for column, width in zip(columns, self.widths, strict=True):
            if width == _WORD:
                packed = self._unsigned(column) if pa.types.is_decimal(column.type) else _biased(column, width)
            else:
                packed = packed << np.uint64(8 * width) | _biased(column, width)
        return packed

    def _unsigned(self, column: pa.Array) -> Codes:
        """BIGINT UNSIGNED, which is a decimal in the target."""
        words = _decimal_words(column)
        if words[:, 1].any():
            raise self._impossible("a row whose BIGINT UNSIGNED key is out of range")
        return words[:, 0].copy()

    def _hashed(self, columns: Sequence[pa.Array]) -> Codes:
        hashed = np.full(len(columns[0]), np.uint64(self.seed), np.uint64)
        for column in columns:
            if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                hashed = _absorb_bytes(hashed, column)
            elif pa.types.is_decimal(column.type):
                words = _decimal_words(column)
                hashed = _mixed(_mixed(hashed ^ words[:, 0]) ^ words[:, 1])
            else:
                hashed = _mixed(hashed ^ _signed(column).view(np.uint64))
        return hashed

    def _impossible(self, found: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            f"the target holds {found}",
            needed="rows of the source only: no other program writes there",
            remedy=STOP_OTHER_WRITER,
            table=self.table,
        )


def _width(column: Column) -> int:
    """Bytes in an exact code; 0 where there is none."""
    if column.type.base == "bigint" and column.type.unsigned:
        return _WORD
    kind = arrow_type(column.type)
    return next((width for matches, width in _WIDTHS if matches(kind)), 0)


def _signed(column: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return np.asarray(column.to_numpy(zero_copy_only=False).astype(np.int64))


def _biased(column: pa.Array, width: int) -> Codes:
    """Signed numbers of `width` bytes moved to begin at 0, which keeps their order."""
    return _signed(column).view(np.uint64) + np.uint64(1 << (8 * width - 1)) & np.uint64((1 << 8 * width) - 1)


def _decimal_words(column: pa.Array) -> Codes:
    """Shape (rows, 2): the low and the high half of each 128-bit number."""
    data = column.buffers()[1]
    return np.frombuffer(data, np.uint64)[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)


def _absorb_bytes(hashed: Codes, column: pa.Array) -> Codes:
    """Length, then the contents in words of 8 bytes, the last one filled with zeros: of a row's own
    bytes alone, whatever batch it is in."""
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1].astype(
        np.int64
    )
    starts, lengths = ends[:-1], ends[1:] - ends[:-1]
    hashed = _mixed(hashed ^ lengths.view(np.uint64))
    words = _words_at_every_byte(column.buffers()[2], int(ends[0]), int(ends[-1]))
    longest = int(lengths.max(initial=0))
    for at in range(0, longest, _WORD):
        rows = np.flatnonzero(lengths > at)
        beyond = np.uint64(8) * (np.uint64(_WORD) - np.minimum(lengths[rows] - at, _WORD).astype(np.uint64))
        word = words[starts[rows] + at - ends[0]] & (np.uint64(0xFFFFFFFFFFFFFFFF) >> beyond)
        hashed[rows] = _mixed(hashed[rows] ^ word)
    return hashed


def _words_at_every_byte(data: pa.Buffer | None, start: int, end: int) -> Codes:
    """Word i is the 8 bytes from byte i on."""
    padded = np.zeros(end - start + _WORD, np.uint8)
    if data is not None:
        padded[: end - start] = np.frombuffer(data, np.uint8)[start:end]
    return np.ndarray((end - start + 1,), np.uint64, padded.data, strides=(1,))


def _mixed(words: Codes) -> Codes:
    """SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators",
    2014)."""
    words = words + _GOLDEN
    words = (words ^ words >> _SHIFTS[0]) * _MIX_1
    words = (words ^ words >> _SHIFTS[1]) * _MIX_2
    return words ^ words >> _SHIFTS[2]


def same_keys(one: pa.RecordBatch, other: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Row by row: whether all columns are equal, byte for byte."""
    same = np.ones(one.num_rows, bool)
    for left, right in zip(one.columns, other.columns, strict=True):
        same &= pc.equal(left, right).to_numpy(zero_copy_only=False)
    return same
