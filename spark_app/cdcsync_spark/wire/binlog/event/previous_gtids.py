"""MySQL's PREVIOUS_GTIDS event: what was executed before its file, as `Gtid_set::encode` writes it
(tagged sets since MySQL 8.3: a 1 in the first and last byte of the number of sources, and a tag
with each source)."""

from __future__ import annotations

import uuid

from cdcsync_core.errors import DecodeError
from cdcsync_core.positions.gtid import GtidSet, Interval
from cdcsync_spark.wire.columns.cursor import Buffer, Cursor

_MOST_SOURCES = 1 << 20


def parse_previous_gtids(body: Buffer) -> GtidSet:
    cursor = Cursor(body)
    number = cursor.uint(8)
    tagged = number >> 56 == 1
    count = (number >> 8) & (1 << 48) - 1 if tagged else number
    if count > _MOST_SOURCES:
        raise DecodeError(f"a set of GTIDs with {count} sources")
    sources: dict[str, list[Interval]] = {}
    for _ in range(count):
        source = str(uuid.UUID(bytes=bytes(cursor.take(16))))
        tag = cursor.text(cursor.byte() >> 1) if tagged else ""
        intervals = sources.setdefault(f"{source}:{tag}" if tag else source, [])
        for _ in range(cursor.uint(8)):
            first, end = cursor.uint(8), cursor.uint(8)
            intervals.append((first, end - 1))
    try:
        return GtidSet(sources)
    except ValueError as e:
        raise DecodeError(str(e)) from None
