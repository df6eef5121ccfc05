"""From a column's raw values to an Arrow array: one converter per family of types, a flat registry
at the end.

A converter is made from the column as planned and the column as the event maps it; the planned type
decides the target's type, the event decides how bytes are read. The value must equal what SELECT
gives (types.md), byte for byte.
"""

from __future__ import annotations

import ipaddress
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from cdcsync_core.errors import DecodeError
from cdcsync_core.tables.logical_type import MAX_DECIMAL_PRECISION
from cdcsync_core.tables.source_table import BINARIES, GEOMETRIES, INTEGERS, TEXTS, Column, SourceType
from cdcsync_spark.rows.arrow_types import arrow_type
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog import temporal
from cdcsync_spark.wire.binlog.event.compression import unpack_values
from cdcsync_spark.wire.binlog.facts import MappedColumn
from cdcsync_spark.wire.binlog.images.image import Raw
from cdcsync_spark.wire.binlog.json.json_binary import json_text
from cdcsync_spark.wire.binlog.members import members, text_charset
from cdcsync_spark.wire.binlog.number import decimal_text
from cdcsync_spark.wire.columns.replacement import checked, first_refused

Convert = Callable[[bytes], Any]


class ConvertedValues(NamedTuple):
    """`nulled[i]` says that row i had a value that became NULL (zero and partial dates); `unpacked`
    are the bytes of a COMPRESSED column's values."""

    values: pa.Array
    nulled: list[int]
    unpacked: int = 0


def convert(column: Column, mapped: MappedColumn, raw: Raw) -> ConvertedValues:
    """The Arrow array of one column's raw values; raises DecodeError, without table and column."""
    unpacked = 0
    try:
        read = reader(column.type, mapped)
        if mapped.code in types.COMPRESSED:
            raw = unpack_values(raw)
            unpacked = sum(len(value or b"") for value in raw)
        values = _values(read, raw)
        converted = array(values, arrow_type(column.type))
    except (ValueError, ArithmeticError, LookupError, TypeError, struct.error, pa.ArrowException) as e:
        raise DecodeError(f"a value that is not a {column.type.declared}: {e}") from None
    nulled = (
        [i for i, (r, v) in enumerate(zip(raw, values, strict=True)) if v is None and r is not None]
        if None in values
        else []
    )
    return ConvertedValues(converted, nulled, unpacked)


def _values(read: Convert, raw: Raw) -> list[Any]:
    """Raises DecodeError with the first bad value's row."""
    try:
        return [None if r is None else read(r) for r in raw]
    except DecodeError:
        first_refused(raw, read)
        raise


def reader(source: SourceType, mapped: MappedColumn) -> Convert:
    """What reads one value's bytes, unpacked where the column is COMPRESSED."""
    return _CONVERTERS[source.base](source, mapped)


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow array of what `reader` returned."""
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


def _integer(source: SourceType, _: MappedColumn) -> Convert:
    signed = not source.unsigned
    if source.unsigned and source.base == "bigint":
        return lambda raw: Decimal(int.from_bytes(raw, "little"))
    return lambda raw: int.from_bytes(raw, "little", signed=signed)


def _float(_: SourceType, mapped: MappedColumn) -> Convert:
    read = struct.Struct("<f" if mapped.code == types.FLOAT else "<d").unpack
    return lambda raw: read(raw)[0]


def _decimal(source: SourceType, mapped: MappedColumn) -> Convert:
    precision, scale = mapped.meta & 0xFF, mapped.meta >> 8
    if precision <= MAX_DECIMAL_PRECISION:
        return lambda raw: Decimal(decimal_text(raw, precision, scale))
    # the server prints ZEROFILL, which has no sign, with all its digits; the length counts the
    # point, too
    width = precision + bool(scale) if "zerofill" in source.declared.lower() else 0
    return lambda raw: decimal_text(raw, precision, scale).zfill(width)


def _bit(_: SourceType, mapped: MappedColumn) -> Convert:
    return (lambda raw: raw != b"\0") if mapped.meta == 1 else _as_is


def _as_is(raw: bytes) -> bytes:
    return raw


def _year(_: SourceType, __: MappedColumn) -> Convert:
    return lambda raw: 1900 + raw[0] if raw[0] else 0


def _date(_: SourceType, __: MappedColumn) -> Convert:
    return temporal.date_days


def _datetime(_: SourceType, mapped: MappedColumn) -> Convert:
    if mapped.code == types.DATETIME2:
        return temporal.datetime2_micros
    digits = mapped.meta
    return (lambda raw: temporal.datetime_digits_micros(raw, digits)) if digits else temporal.datetime_micros


def _timestamp(_: SourceType, mapped: MappedColumn) -> Convert:
    if mapped.code == types.TIMESTAMP2:
        return temporal.timestamp2_micros
    digits = mapped.meta
    return (lambda raw: temporal.timestamp_digits_micros(raw, digits)) if digits else temporal.timestamp_micros


def _time(_: SourceType, mapped: MappedColumn) -> Convert:
    digits = mapped.meta
    if mapped.code == types.TIME2:
        return lambda raw: temporal.time2_text(raw, digits)
    return (lambda raw: temporal.time_digits_text(raw, digits)) if digits else temporal.time_text


def _text(source: SourceType, mapped: MappedColumn) -> Convert:
    decode = checked(text_charset(mapped), replaced=source.replaced)
    if source.base == "char":
        return lambda raw: decode(raw).rstrip(" ")
    return decode


def _binary(source: SourceType, mapped: MappedColumn) -> Convert:
    if source.base == "binary":
        # the binlog leaves trailing zero bytes out
        return lambda raw: raw.ljust(mapped.meta, b"\0")
    return _as_is


def _enum(source: SourceType, mapped: MappedColumn) -> Convert:
    text = members(mapped, replaced=source.replaced).enum_text
    return lambda raw: text(int.from_bytes(raw, "little"))


def _set(source: SourceType, mapped: MappedColumn) -> Convert:
    text = members(mapped, replaced=source.replaced).set_text
    return lambda raw: text(int.from_bytes(raw, "little"))


def _json(source: SourceType, mapped: MappedColumn) -> Convert:
    return json_text if mapped.code == types.JSON else _text(source, mapped)


def _vector(_: SourceType, __: MappedColumn) -> Convert:
    return lambda raw: list(struct.unpack(f"<{len(raw) // 4}f", raw))


def _uuid(_: SourceType, __: MappedColumn) -> Convert:
    return mariadb_uuid_text


def mariadb_uuid_text(raw: bytes) -> str:
    """The binlog has a UUID's bytes in the order in which it is written, whatever the order in
    which the server stores them [measured on 10.11 and 11.4], without zeros at the end."""
    return str(uuid.UUID(bytes=raw.ljust(16, b"\0")))


def _inet4(_: SourceType, __: MappedColumn) -> Convert:
    return lambda raw: str(ipaddress.IPv4Address(raw.ljust(4, b"\0")))


def _inet6(_: SourceType, __: MappedColumn) -> Convert:
    return mariadb_inet6_text


def mariadb_inet6_text(raw: bytes) -> str:
    """The first longest run of zeros becomes `::`, also a single zero; what is compatible with or
    mapped from IPv4 ends like one."""
    words = struct.unpack(">8H", raw.ljust(16, b"\0"))
    start, length = _longest_zeros(words)
    tail = [f"{w:x}" for w in words[start + length :]]
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        tail = [*tail[:-2], str(ipaddress.IPv4Address(raw[12:].ljust(4, b"\0")))]
    head = [f"{w:x}" for w in words[:start]]
    return f"{':'.join(head)}::{':'.join(tail)}" if length else ":".join(tail)


def _longest_zeros(words: tuple[int, ...]) -> tuple[int, int]:
    """Where the first longest run of zeros begins, and its length."""
    best, at = (0, 0), 0
    for zero, run in groupby(words, lambda w: w == 0):
        length = len(list(run))
        if zero and length > best[1]:
            best = (at, length)
        at += length
    return best


_Make = Callable[[SourceType, MappedColumn], Convert]
_CONVERTERS: dict[str, _Make] = {
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
    **dict.fromkeys(GEOMETRIES, lambda _, __: _as_is),
    "enum": _enum,
    "set": _set,
    "json": _json,
    "vector": _vector,
    "uuid": _uuid,
    "inet4": _inet4,
    "inet6": _inet6,
}
