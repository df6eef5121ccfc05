"""What a table's topic is sent: events, or the rows of a snapshot, in the sync's format."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from cdcsync_core.state import TableState
from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind, changes_schema
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.json_records import Form, Origin, Records, slices

#: of images that are made records at once
_SLICE_BYTES = 2 << 20


class SourceLabel(NamedTuple):
    """What records say of their source: the topics' prefix, and its server id (0: as the lineage of
    a table has it)."""

    prefix: str
    server_id: int = 0


def event_records(form: Form, label: SourceLabel, state: TableState, events: Events) -> Iterator[Records]:
    """In their order, a slice at a time."""
    origin = origin_of(label, state, snapshot=False)
    for piece in slices(events, _SLICE_BYTES):
        yield form(piece, origin)


def snapshot_records(form: Form, label: SourceLabel, state: TableState, rows: pa.Table) -> Iterator[Records]:
    """Each row is the table's as of the snapshot's position; columns that it had before are left
    out."""
    rows = rows.select([c.name for c in state.capture.captured])
    origin = origin_of(label, state, snapshot=True)
    added = {KIND: ChangeKind.INSERT, TRANSACTION: 0}
    schema = changes_schema(rows.schema)
    columns = [
        pa.repeat(pa.scalar(added[f.name], f.type), rows.num_rows) if f.name in added else rows[f.name] for f in schema
    ]
    events = Events(pa.Table.from_arrays(columns, schema=schema), (), (), 0)
    for piece in slices(events, _SLICE_BYTES):
        yield form(piece, origin)


def origin_of(label: SourceLabel, state: TableState, *, snapshot: bool) -> Origin:
    """The metadata of the table that its records carry."""
    flavour, _, server = state.identity.lineage.newest.partition(":")
    number = label.server_id or (int(server) if server.isdecimal() else 0)
    sent = time.time_ns() // 1_000_000
    capture, position = state.capture, state.position
    place = position.at if position is not None else None
    return Origin(capture.id, capture.key, flavour, number, label.prefix, sent, snapshot, capture.captured, place)
