"""From the cells of a column to an Arrow array, all rows at once: one converter per family of
types, a flat registry at the end.

The same values as `value` gives, byte for byte; that is the definition of right here. What is rare
is left to it: a converter may fetch the bytes of its cells and have them read one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.logical_type import MAX_DECIMAL_PRECISION
from cdcsync_core.tables.source_table import BINARIES, GEOMETRIES, INTEGERS, TEXTS, Column, SourceType
from cdcsync_spark.rows.arrow_types import arrow_type
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog import value
from cdcsync_spark.wire.binlog.decimals import decimal_texts, decimals128
from cdcsync_spark.wire.binlog.event.compression import stated_length, unpack_values
from cdcsync_spark.wire.binlog.facts import MappedColumn
from cdcsync_spark.wire.binlog.images.image import OLD_TEMPORALS
from cdcsync_spark.wire.binlog.json.json_column import json_texts
from cdcsync_spark.wire.binlog.members import Members, members, text_charset
from cdcsync_spark.wire.binlog.value import ConvertedValues
from cdcsync_spark.wire.columns import instants, texts
from cdcsync_spark.wire.columns.cells import Cells
from cdcsync_spark.wire.columns.gather import Lanes, Numbers, arrow_array, numbers, slices, strings

_HEX = np.frombuffer("".join(f"{i:02x}" for i in range(256)).encode(), "<u2")
#: bytes of the widest number
_NUMBER = 8
_UUID_GROUPS = (4, 2, 2, 2, 6)


def convert(column: Column, mapped: MappedColumn, cells: Cells) -> ConvertedValues:
    """The Arrow array of one column; raises DecodeError, without table and column."""
    unpacked = 0
    try:
        if mapped.code in types.COMPRESSED:
            cells = _unpacked(cells)
            unpacked = int(cells.sizes.sum())
        values = _CONVERTERS[column.type.base](column.type, mapped, cells)
    except (ValueError, ArithmeticError, LookupError, TypeError, struct.error, pa.ArrowException) as e:
        raise DecodeError(f"a value that is not a {column.type.declared}: {e}") from None
    if isinstance(values, instants.Instants):
        return ConvertedValues(values.values, np.flatnonzero(values.nulled).tolist())
    return ConvertedValues(values, [], unpacked)


def stated_lengths(cells: Cells) -> Numbers:
    """The bytes that each value of a COMPRESSED column says it unpacks to."""
    return np.array([stated_length(packed) for packed in _raw(cells).to_pylist()], np.int64)


def _raw(cells: Cells) -> pa.BinaryArray:
    """The bytes of every value."""
    return cells.lanes.slices(cells.starts, cells.sizes, cells.valid)


def _one_by_one(source: SourceType, mapped: MappedColumn, cells: Cells) -> pa.Array:
    """What the plain decoder makes of the bytes."""
    read = value.reader(source, mapped)
    return value.array([None if r is None else read(r) for r in _raw(cells).to_pylist()], arrow_type(source))


def _unpacked(cells: Cells) -> Cells:
    parts = [part or b"" for part in unpack_values(_raw(cells).to_pylist())]
    lengths = np.array([len(p) for p in parts], np.int64)
    return Cells(Lanes(parts), np.cumsum(lengths) - lengths, 0, 0, lengths, cells.valid)


def _integer(source: SourceType, _: MappedColumn, cells: Cells) -> pa.Array:
    kind = arrow_type(source)
    read = cells.lanes.little if source.unsigned else cells.lanes.signed
    integers = read(cells.at, cells.width, cells.shift)
    if pa.types.is_decimal(kind):
        words = np.zeros((len(integers), 2), np.uint64)
        words[:, 0] = integers
        return numbers(words, kind, cells.valid)
    return numbers(integers.astype(kind.to_pandas_dtype(), copy=False), kind, cells.valid)


def _float(source: SourceType, _: MappedColumn, cells: Cells) -> pa.Array:
    items = cells.lanes.items(cells.at, cells.width, cells.shift)
    return numbers(items.view(f"<f{cells.width}"), arrow_type(source), cells.valid)


def _decimal(source: SourceType, mapped: MappedColumn, cells: Cells) -> pa.Array:
    precision, scale = mapped.meta & 0xFF, mapped.meta >> 8
    if not 0 <= scale <= precision:
        return _one_by_one(source, mapped, cells)
    if precision <= MAX_DECIMAL_PRECISION:
        return decimals128(cells, precision, scale, arrow_type(source))
    width = precision + bool(scale) if "zerofill" in source.declared.lower() else 0
    return decimal_texts(cells, precision, scale, width)


def _bit(_: SourceType, mapped: MappedColumn, cells: Cells) -> pa.Array:
    if mapped.meta != 1:
        return _raw(cells)
    bits = np.packbits(cells.lanes.byte(cells.at, cells.shift) != 0, bitorder="little")
    return arrow_array(pa.bool_(), len(cells.at), [pa.py_buffer(bits)], cells.valid)


def _year(_: SourceType, __: MappedColumn, cells: Cells) -> pa.Array:
    year = cells.lanes.byte(cells.at, cells.shift).astype(np.int16)
    return numbers(np.where(year, year + np.int16(1900), np.int16(0)), pa.int16(), cells.valid)


def _date(source: SourceType, _: MappedColumn, cells: Cells) -> instants.Instants:
    return instants.dates(cells, arrow_type(source))


def _each_instant(source: SourceType, mapped: MappedColumn, cells: Cells) -> instants.Instants:
    """As `_one_by_one`."""
    moments = _one_by_one(source, mapped, cells)
    missing = moments.is_null().to_numpy(zero_copy_only=False)
    return instants.Instants(moments, missing if cells.valid is None else missing & cells.valid)


def _is_old_fraction(mapped: MappedColumn) -> bool:
    return mapped.code in OLD_TEMPORALS and mapped.meta > 0


def _datetime(source: SourceType, mapped: MappedColumn, cells: Cells) -> instants.Instants:
    if _is_old_fraction(mapped):
        return _each_instant(source, mapped, cells)
    read = instants.datetimes2 if mapped.code == types.DATETIME2 else instants.datetimes
    return read(cells, arrow_type(source))


def _timestamp(source: SourceType, mapped: MappedColumn, cells: Cells) -> instants.Instants:
    if _is_old_fraction(mapped):
        return _each_instant(source, mapped, cells)
    read = instants.timestamps2 if mapped.code == types.TIMESTAMP2 else instants.timestamps
    return read(cells, arrow_type(source))


def _time(source: SourceType, mapped: MappedColumn, cells: Cells) -> pa.Array:
    if _is_old_fraction(mapped):
        return _one_by_one(source, mapped, cells)
    return instants.times2(cells, mapped.meta) if mapped.code == types.TIME2 else instants.times(cells)


def _text(source: SourceType, mapped: MappedColumn, cells: Cells) -> pa.Array:
    decoded = texts.decoded(_raw(cells), text_charset(mapped), source)
    return texts.without_trailing_blanks(decoded) if source.base == "char" else decoded


def _binary(source: SourceType, mapped: MappedColumn, cells: Cells) -> pa.Array:
    if source.base != "binary" or not mapped.meta:
        return _raw(cells)
    if cells.sizes.max(initial=0) > mapped.meta:
        return _one_by_one(source, mapped, cells)
    filled = _filled(cells, mapped.meta)
    lengths = np.full(len(filled), mapped.meta, np.int64)
    if cells.valid is not None:
        lengths *= cells.valid
    starts = np.arange(len(filled), dtype=np.int64) * mapped.meta
    return slices(pa.py_buffer(filled), starts, lengths, cells.valid)


def _filled(cells: Cells, width: int) -> Numbers:
    """Every value with zero bytes behind it, `width` bytes a row: the binlog leaves trailing ones
    out."""
    items = cells.lanes.items(cells.starts, width).view(np.uint8).reshape(-1, width)
    return items * (np.arange(width) < cells.sizes[:, None])


def _fits(cells: Cells, width: int) -> Numbers:
    """`_filled`; raises DecodeError where a value is longer."""
    longest = cells.sizes.max(initial=0)
    if longest > width:
        raise DecodeError(f"{longest} bytes", needed=f"at most {width}")
    return _filled(cells, width)


def _members(listed: Members, index: Numbers, cells: Cells) -> pa.Array:
    """The member of every row by its index, from 1 on; 0 has no name."""
    if cells.valid is not None:
        index = np.where(cells.valid, index, 0)
    if int(index.max(initial=0)) > len(listed.names):
        raise DecodeError(f"the member {int(index.max())} of {len(listed.names)}")
    for number in listed.nameless:
        if rows := np.flatnonzero(index == number + 1).tolist():
            raise listed.refused(number).placed(row=rows[0])
    chosen = numbers(index.astype(np.int32), pa.int32(), cells.valid)
    return strings(["", *(name or "" for name in listed.names)]).take(chosen)


def _enum(source: SourceType, mapped: MappedColumn, cells: Cells) -> pa.Array:
    if cells.width > _NUMBER:
        return _one_by_one(source, mapped, cells)
    # the value 0 is what the server stored for an invalid one; it prints nothing
    index = cells.lanes.little(cells.at, cells.width, cells.shift)
    return _members(members(mapped, replaced=source.replaced), index, cells)


def _set(source: SourceType, mapped: MappedColumn, cells: Cells) -> pa.Array:
    if cells.width > _NUMBER:
        return _one_by_one(source, mapped, cells)
    listed = members(mapped, replaced=source.replaced)
    bits = cells.lanes.little(cells.at, cells.width, cells.shift).astype(np.uint64)
    if cells.valid is not None:
        bits = np.where(cells.valid, bits, np.uint64(0))
    for number in listed.nameless:
        if rows := np.flatnonzero(bits >> np.uint64(number) & np.uint64(1)).tolist():
            raise listed.refused(number).placed(row=rows[0])
    return texts.each_once(numbers(bits, pa.uint64(), cells.valid), listed.set_text)


def _json(source: SourceType, mapped: MappedColumn, cells: Cells) -> pa.Array:
    if mapped.code != types.JSON:
        return _text(source, mapped, cells)
    return json_texts(cells)


def _vector(source: SourceType, _: MappedColumn, cells: Cells) -> pa.Array:
    raw = _raw(cells)
    if (cells.sizes & 3).any():
        raise DecodeError("a vector with a part of a number")
    valid, offsets, data = raw.buffers()
    edges = np.frombuffer(offsets, np.int32)[: len(raw) + 1] >> 2
    items = pa.Array.from_buffers(pa.float32(), int(edges[-1]), [None, data])
    return pa.Array.from_buffers(arrow_type(source), len(raw), [valid, pa.py_buffer(edges)], children=[items])


def _uuid(_: SourceType, __: MappedColumn, cells: Cells) -> pa.Array:
    raw = _fits(cells, 16)
    digits = _HEX.take(raw).view(np.uint8)
    text = np.full((len(raw), 36), ord("-"), np.uint8)
    to = at = 0
    for count in _UUID_GROUPS:
        text[:, to : to + 2 * count] = digits[:, at : at + 2 * count]
        to, at = to + 2 * count + 1, at + 2 * count
    return _fixed_text(text, cells)


def _fixed_text(text: Numbers, cells: Cells) -> pa.Array:
    """Rows of as many characters."""
    rows, width = text.shape
    offsets = (np.arange(rows + 1) * width).astype(np.int32)
    return arrow_array(pa.string(), rows, [pa.py_buffer(offsets), pa.py_buffer(text)], cells.valid)


def _inet4(_: SourceType, __: MappedColumn, cells: Cells) -> pa.Array:
    raw = _fits(cells, 4)
    names = strings([str(i) for i in range(256)])
    octets = [names.take(numbers(raw[:, i].astype(np.int16), pa.int16(), cells.valid)) for i in range(4)]
    return pc.binary_join_element_wise(*octets, ".")


def _inet6(_: SourceType, __: MappedColumn, cells: Cells) -> pa.Array:
    return texts.each_once(_raw(cells), value.mariadb_inet6_text)


_Convert = Callable[[SourceType, MappedColumn, Cells], pa.Array | instants.Instants]
_CONVERTERS: dict[str, _Convert] = {
    **dict.fromkeys(INTEGERS, _integer),
    "float": _float,
    "double": _float,
    "decimal": _decimal,
    "bit": _bit,
    "year": _year,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    **dict.fromkeys(TEXTS, _text),
    **dict.fromkeys(BINARIES, _binary),
    **dict.fromkeys(GEOMETRIES, lambda _, __, cells: _raw(cells)),
    "enum": _enum,
    "set": _set,
    "json": _json,
    "vector": _vector,
    "uuid": _uuid,
    "inet4": _inet4,
    "inet6": _inet6,
}
