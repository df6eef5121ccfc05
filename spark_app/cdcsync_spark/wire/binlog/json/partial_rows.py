"""Images of a PARTIAL_UPDATE_ROWS event to those of an UPDATE_ROWS event: JSON columns that are
differences become whole values.

Why it is right: with `binlog_row_image=FULL` the before image has every column whole, so what the
differences apply to is in the event itself; nothing is remembered between events. The images that
come out are read like any others. Source: MySQL `sql/rpl_record.cc` (unpack_row),
`libs/mysql/binlog/event/rows_event.h` (Rows_event).
"""

from __future__ import annotations

from collections.abc import Sequence

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.facts import TableMap
from cdcsync_spark.wire.binlog.images.image import Layout, layout
from cdcsync_spark.wire.binlog.json.json_diff import apply_diffs
from cdcsync_spark.wire.columns.cursor import Cursor

#: of an after image's options: differences of JSON documents may follow
_PARTIAL_JSON = 1
_Values = list[bytes | None]


def whole_images(table_map: TableMap, body: bytes) -> bytes:
    """`body` are pairs of images of all columns; raises DecodeError."""
    layouts = [layout(c) for c in table_map.columns]
    documents = [i for i, c in enumerate(table_map.columns) if c.code == types.JSON]
    cursor, parts = Cursor(body), list[bytes]()
    while cursor:
        begin = cursor.at
        _, before = _image(cursor, layouts)
        parts.append(body[begin : cursor.at])
        partial = _partial_columns(cursor, documents)
        nulls, after = _image(cursor, layouts)
        for i in partial:
            after[i] = _applied(before[i], after[i])
        parts += [nulls, *_values(after, layouts)]
    return b"".join(parts)


def _image(cursor: Cursor, layouts: Sequence[Layout]) -> tuple[bytes, _Values]:
    """The bitmap of the NULLs and the values, without their lengths."""
    nulls = bytes(cursor.take((len(layouts) + 7) // 8))
    bits = int.from_bytes(nulls, "little")
    values: _Values = []
    for i, (width, prefix) in enumerate(layouts):
        if bits >> i & 1:
            values.append(None)
        else:
            values.append(bytes(cursor.take(cursor.uint(prefix) if prefix else width)))
    return nulls, values


def _partial_columns(cursor: Cursor, documents: Sequence[int]) -> list[int]:
    """The columns whose values are differences: a bit for each JSON column of the table."""
    options = cursor.lenenc()
    if options & ~_PARTIAL_JSON:
        raise DecodeError(f"the options {options:#x} of a row image", needed="PARTIAL_JSON or none")
    if not options:
        return []
    bits = int.from_bytes(cursor.take((len(documents) + 7) // 8), "little")
    return [column for i, column in enumerate(documents) if bits >> i & 1]


def _applied(before: bytes | None, diffs: bytes | None) -> bytes:
    if before is None or diffs is None:
        raise DecodeError("a JSON difference from or to NULL", needed="a document before and after it")
    return apply_diffs(before, diffs)


def _values(values: _Values, layouts: Sequence[Layout]) -> list[bytes]:
    """The values that are not NULL, with their lengths."""
    return [
        len(value).to_bytes(prefix, "little") + value if prefix else value
        for value, (_, prefix) in zip(values, layouts, strict=True)
        if value is not None
    ]
