"""Rows of a history table: the source's columns, then the columns that say what happened.

A row of the snapshot is an insert without a time and a place, with the ordinal 0: it says that the
row was there, not since when. It is written so when it is staged, so that the publication of a
snapshot copies nothing.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import RUN_AGAIN, Reason, fail
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind
from cdcsync_spark.rows.events import Events

#: the property that marks a history table, with the names of its metadata columns
HISTORY = "cdcsync.history"
_TYPES = (pa.string(), pa.timestamp("us", "UTC"), pa.int64(), pa.string(), pa.string())
_OPERATIONS = {
    ChangeKind.INSERT: "+I",
    ChangeKind.UPDATE_BEFORE: "-U",
    ChangeKind.UPDATE_AFTER: "+U",
    ChangeKind.DELETE: "-D",
}
INSERTED = _OPERATIONS[ChangeKind.INSERT]
#: the operations whose row is there afterwards
PRESENT = (INSERTED, _OPERATIONS[ChangeKind.UPDATE_AFTER])


def mark(columns: EventColumns) -> str:
    """The value of `HISTORY`."""
    return json.dumps(columns.names)


def refuse_other_mode(marked: str | None, columns: EventColumns | None, place: str, table: str) -> None:
    """A replica is not continued as a history, nor the other way round, nor a history under other
    names: the rows that are there would mean something else. `marked` is the mark of the table at
    `place`."""
    needed = mark(columns) if columns else None
    if marked == needed:
        return
    raise fail(
        Reason.SINK_CONFLICT,
        f"{place} holds {_mode(marked)}, and the resource asks for {_mode(needed)}",
        needed="the mode and the names of metadata columns with which the table was made",
        remedy=f"undo the change of the sink's mode or historyColumns, {RUN_AGAIN}; or create the sync again with "
        "another sink path or namespace",
        table=table,
    )


def _mode(mark: str | None) -> str:
    return "a replica" if mark is None else f"a history with the columns {mark[:200]}"


def with_event_columns(schema: pa.Schema, columns: EventColumns) -> pa.Schema:
    """The schema of a history table over the source's columns."""
    return pa.schema([*schema, *map(pa.field, columns.names, _TYPES)])


def history_schema(schema: TargetSchema, columns: EventColumns) -> pa.Schema:
    """The same over a target's columns, of which files from before or after a change of the
    definition may lack some."""
    return with_event_columns(arrow_schema(schema), columns)


def snapshot_rows(rows: pa.Table, columns: EventColumns) -> pa.Table:
    """Rows of a snapshot as a history table has them."""
    values = (INSERTED, None, 0, None, None)
    return _extended(
        rows, columns, [pa.repeat(pa.scalar(v, t), len(rows)) for v, t in zip(values, _TYPES, strict=True)]
    )


def event_rows(events: Events, columns: EventColumns) -> pa.Table:
    """Events as a history table has them, in their order."""
    _, instant, _, text, _ = _TYPES
    operations = pa.array([_OPERATIONS[kind] for kind in sorted(ChangeKind)])
    added = [
        pa.chunked_array([operations.take(part) for part in events.images[KIND].chunks], text),
        events.of_transactions([_microseconds(t) for t in events.committed_at], instant),
        pa.array(range(events.first, events.first + events.num_rows), pa.int64()),
        events.of_transactions([str(t.end) for t in events.transactions], text),
        events.of_transactions([t.gtid_text for t in events.transactions], text),
    ]
    return _extended(events.images.drop_columns([KIND, TRANSACTION]), columns, added)


def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)


def _extended(rows: pa.Table, columns: EventColumns, added: list[pa.Array | pa.ChunkedArray]) -> pa.Table:
    schema = with_event_columns(rows.schema, columns)
    return pa.Table.from_arrays([*rows.columns, *added], schema=schema)


def present(operations: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Whether the row is there after the event."""
    return pc.is_in(operations, pa.array(PRESENT))
