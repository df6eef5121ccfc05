"""Row images that lack columns: whole ones to a table that does not capture what is missing.

MariaDB since 11.8 leaves generated columns out of what UPDATE, DELETE and REPLACE write, in spite
of `binlog_row_image=FULL`, and the hidden columns of its long unique keys with them.

Why it is right: the parser marks an event whose images lack a column as unusable (`defect`) and
gives the places of what is missing (`left_out`). Only `as_captured`, which has the table's
definition, takes the mark away, and only if none of these columns is captured. In the images they
are NULL, so that the images of all events of a TABLE_MAP have one form; nothing reads these NULLs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cdcsync_core.errors import CdcError, DecodeError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT, rebuild_times
from cdcsync_core.tables.capture import Capture, generated_left_out
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.binlog.facts import RowsEvent, TableMap
from cdcsync_spark.wire.binlog.images.image import OLD_TEMPORALS, layout

#: bitmaps of NULLs that are remembered; a table with more begins again
_KNOWN_BITMAPS = 10_000


class Filler:
    """Makes images of all columns of images of the `present` ones, with NULL in the others; raises
    DecodeError. What a bitmap of NULLs means is remembered, as rows hardly differ in it."""

    def __init__(self, table_map: TableMap, present: Sequence[bool]) -> None:
        columns = [column for column, there in zip(table_map.columns, present, strict=True) if there]
        if any(column.code in OLD_TEMPORALS for column in columns):
            raise _old_temporals(table_map.table)
        #: of every event that it fills
        self.defect = incomplete_image(str(table_map.table))
        self._present = present
        self._layouts = [layout(column) for column in columns]
        self._width = (len(columns) + 7) // 8
        self._known: dict[bytes, _Bitmap] = {}

    def filled(self, body: bytes) -> bytes:
        at, end, parts = 0, len(body), list[bytes]()
        while at < end:
            start = at + self._width
            nulls = body[at:start]
            bitmap = self._known.get(nulls) or self._learn(nulls)
            for gap, prefix in bitmap.lengths:
                at += gap
                at += int.from_bytes(body[at : at + prefix], "little")
            at += bitmap.last
            parts += [bitmap.whole, body[start:at]]
        if at != end:
            raise DecodeError(f"{at - end} bytes of a row image are missing")
        return b"".join(parts)

    def _learn(self, nulls: bytes) -> _Bitmap:
        bits, gap, lengths = int.from_bytes(nulls, "little"), self._width, list[tuple[int, int]]()
        for i, (width, prefix) in enumerate(self._layouts):
            if bits >> i & 1:
                continue
            if prefix:
                lengths.append((gap, prefix))
                gap = 0
            gap += prefix or width
        if len(self._known) >= _KNOWN_BITMAPS:
            self._known.clear()
        bitmap = self._known[nulls] = _Bitmap(_whole_bitmap(bits, self._present), tuple(lengths), gap)
        return bitmap


class _Bitmap(NamedTuple):
    """The bitmap of an image with certain NULLs: `whole` is the bitmap of all columns, `lengths`
    say how far it is to each length from the end of the value before it, and its width, and `last`
    how far it is to the end."""

    whole: bytes
    lengths: tuple[tuple[int, int], ...]
    last: int


def _whole_bitmap(bits: int, present: Sequence[bool]) -> bytes:
    whole = place = 0
    for i, there in enumerate(present):
        whole |= (bits >> place & 1 if there else 1) << i
        place += there
    return whole.to_bytes((len(present) + 7) // 8, "little")


def as_captured(event: RowsEvent, table: Capture) -> RowsEvent:
    """The event as the table reads it: without its defect, if what its images lack is not
    captured."""
    if not event.left_out:
        return event
    columns = event.map.columns if event.map.described else table.columns
    if len(columns) != len(event.map.columns):
        return event
    names = {columns[place].name for place in event.left_out}
    missing = [c.name for c in table.captured if c.name in names]
    if not missing:
        return event._replace(defect=None, left_out=())
    if table.source.generated is not None and table.source.generated.issuperset(missing):
        return event._replace(defect=generated_left_out(str(table.id), missing))
    return event


def _old_temporals(table: TableId) -> DecodeError:
    """Their digits are in the catalog only."""
    return DecodeError(
        "row images without all columns, of a table with times in the format of before MariaDB 10.1",
        needed="times in today's format",
        remedy=f"{rebuild_times(table.quoted)}; then {RESNAPSHOT}",
        table=str(table),
    )


def incomplete_image(table: str) -> CdcError:
    return fail(
        Reason.ROW_IMAGE_NOT_FULL,
        "a row image without all columns in the binlog",
        needed="binlog_row_image=FULL in every session that writes",
        remedy=f"SET GLOBAL binlog_row_image = 'FULL'; then {RESNAPSHOT}",
        table=table,
    )
