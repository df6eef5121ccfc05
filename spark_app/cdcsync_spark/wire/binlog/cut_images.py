"""Row images that lack columns: whole ones to a table that does not capture what is missing.

MariaDB since 11.8 leaves generated columns out of what UPDATE, DELETE and REPLACE write, in spite
of `binlog_row_image=FULL`, and the hidden columns of its long unique keys with them.

Why it is right: the parser marks an event whose images lack a column as unusable (`defect`) and
names what is missing (`left_out`). Only `as_captured`, which has the table's definition, takes the
mark away, and only if none of these columns is captured. In the images they are NULL, so that the
images of all events of a TABLE_MAP have one form; nothing reads these NULLs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cdcsync_core.capture import Capture, generated_left_out
from cdcsync_core.errors import CdcError, DecodeError, Reason, fail
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_core.source_table import TableId
from cdcsync_spark.wire.binlog.facts import RowsEvent, TableMap
from cdcsync_spark.wire.binlog.image import OLD_TEMPORALS, layout
from cdcsync_spark.wire.binlog.lockstep import rows
from cdcsync_spark.wire.columns.gather import Lanes


def filled(table_map: TableMap, present: Sequence[bool], body: bytes) -> bytes:
    """Images of the `present` columns as images of all, NULL in the others; raises DecodeError."""
    columns = [column for column, there in zip(table_map.columns, present, strict=True) if there]
    if any(column.code in OLD_TEMPORALS for column in columns):
        raise _old_temporals(table_map.table)
    layouts = [layout(column) for column in columns]
    width = (len(layouts) + 7) // 8
    starts = rows(Lanes((body,)), [len(body)], layouts).starts.tolist()
    bitmaps: dict[bytes, bytes] = {}
    parts = []
    for start, end in pairwise(starts):
        nulls = body[start : start + width]
        if nulls not in bitmaps:
            bitmaps[nulls] = _whole_bitmap(nulls, present)
        parts += [bitmaps[nulls], body[start + width : end]]
    return b"".join(parts)


def _whole_bitmap(nulls: bytes, present: Sequence[bool]) -> bytes:
    bits, found, place = int.from_bytes(nulls, "little"), 0, 0
    for i, there in enumerate(present):
        found |= (bits >> place & 1 if there else 1) << i
        place += there
    return found.to_bytes((len(present) + 7) // 8, "little")


def as_captured(event: RowsEvent, table: Capture) -> RowsEvent:
    """The event as the table reads it: without its defect, if what its images lack is not
    captured."""
    if not event.left_out:
        return event
    missing = [c.name for c in table.captured if c.name in event.left_out]
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
        remedy=f"SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE {table.quoted} FORCE; then {RESNAPSHOT}",
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
