"""Row images to one list of raw values per column.

An image is a bitmap of NULLs, lowest bit first, and the values of the other columns without gaps; a
value's length follows from its column's type and metadata, or from a length before it. Nothing is
interpreted here: that is done by column, in `value`. Source: MySQL `sql/rpl_record.cc`
(unpack_row), `libs/mysql/binlog/event/binary_log_funcs.cpp` (max_display_length, calc_field_size),
MariaDB `sql/sql_type.cc` (m_hires_bytes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.facts import MappedColumn

#: (fixed width, 0) or (0, width of the length before the value)
Layout = tuple[int, int]
_WIDEST, _WIDEST_LENGTH = 64, 4
Raw = list[bytes | None]
#: whose fraction's digits no TABLE_MAP event says
OLD_TEMPORALS = frozenset({types.TIME, types.DATETIME, types.TIMESTAMP})

DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_width(precision: int, scale: int) -> int:
    """Bytes of a DECIMAL: four for nine digits, on both sides of the point, fewer for the rest."""
    whole, part = precision - scale, scale
    return sum(digits // 9 * 4 + DIGIT_BYTES[digits % 9] for digits in (whole, part))


def _fixed(width: int) -> Callable[[int], Layout]:
    return lambda _: (width, 0)


def _fractional(width: int) -> Callable[[int], Layout]:
    return lambda digits: (width + (digits + 1) // 2, 0)


def _old(widths: tuple[int, ...]) -> Callable[[int], Layout]:
    """The layout of a form that TABLE_MAP events do not say the digits of
    (`definition.described`)."""
    return lambda digits: (widths[digits] if digits < len(widths) else 0, 0)


def _string(longest: int) -> Layout:
    return (0, 1 if longest < 256 else 2)


_LAYOUTS: dict[int, Callable[[int], Layout]] = {
    types.TINY: _fixed(1),
    types.SHORT: _fixed(2),
    types.INT24: _fixed(3),
    types.LONG: _fixed(4),
    types.LONGLONG: _fixed(8),
    types.FLOAT: _fixed(4),
    types.DOUBLE: _fixed(8),
    types.YEAR: _fixed(1),
    types.DATE: _fixed(3),
    types.NEWDATE: _fixed(3),
    types.TIME: _old((3, 4, 4, 5, 5, 5, 6)),
    types.DATETIME: _old((8, 6, 6, 7, 7, 7, 8)),
    types.TIMESTAMP: _old((4, 5, 5, 6, 6, 7, 7)),
    types.TIME2: _fractional(3),
    types.DATETIME2: _fractional(5),
    types.TIMESTAMP2: _fractional(4),
    types.BIT: lambda bits: ((bits + 7) // 8, 0),
    types.DECIMAL: lambda meta: (decimal_width(meta & 0xFF, meta >> 8), 0),
    types.ENUM: lambda meta: (meta, 0),
    types.SET: lambda meta: (meta, 0),
    types.STRING: _string,
    types.VARCHAR: _string,
    types.VAR_STRING: _string,
    types.VARCHAR_COMPRESSED: _string,
    **dict.fromkeys(
        (types.BLOB, types.BLOB_COMPRESSED, types.JSON, types.GEOMETRY, types.VECTOR),
        lambda width: (0, width),
    ),
}


def layout(column: MappedColumn) -> Layout:
    """How long a column's values are; raises DecodeError for a type that no server documents."""
    rule = _LAYOUTS.get(column.code)
    width, prefix = sizes = rule(column.meta) if rule else (0, 0)
    if not ((0 < width <= _WIDEST and not prefix) or (0 < prefix <= _WIDEST_LENGTH and not width)):
        raise DecodeError(f"the column type {column.code} with metadata {column.meta}", column=column.name or "")
    return sizes


def split(body: bytes, layouts: Sequence[Layout], columns: Sequence[Raw | None]) -> int:
    """Appends the values of every image in `body` to `columns` (None: a column that is not
    captured).

    Returns the number of images; raises DecodeError where the images do not end with the body.
    """
    bitmap = (len(layouts) + 7) // 8
    at, end, images = 0, len(body), 0
    plan = [
        (1 << i, width, prefix, column)
        for i, ((width, prefix), column) in enumerate(zip(layouts, columns, strict=True))
    ]
    while at < end:
        nulls = int.from_bytes(body[at : at + bitmap], "little")
        at += bitmap
        for bit, width, prefix, column in plan:
            if nulls & bit:
                if column is not None:
                    column.append(None)
                continue
            if prefix:
                width = int.from_bytes(body[at : at + prefix], "little")
                at += prefix
            if column is not None:
                column.append(body[at : at + width])
            at += width
        images += 1
    if at != end:
        raise DecodeError(f"{at - end} bytes of a row image are missing")
    return images
