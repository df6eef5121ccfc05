"""A Delta history table as a consumer reads it: version by version, the new rows of each in the
order of their ordinals. A version that removes rows begins again, as a resnapshot does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_spark.sinks.delta.table.table_path import TablePath
from cdcsync_spark.sinks.delta.table.view import Action, DeltaFile, actions_of
from cdcsync_spark.sinks.history.rows import history_schema
from cdcsync_spark.sinks.lake.snapshot import LakeSnapshot
from support.event_consumer import Event


def history_events(path: TablePath) -> list[Event]:
    """The events since the last version that removed rows."""
    columns = path.events
    assert columns is not None
    events: list[Event] = []
    for actions in _versions(path):
        if any(a.get("remove", {}).get("dataChange") for a in actions):
            events = []
        rows = _new_rows(path, [DeltaFile(a["add"]) for a in actions if a.get("add", {}).get("dataChange")])
        for row in sorted(rows, key=lambda row: row[columns.seq]):
            data = {k: v for k, v in row.items() if k not in columns.names}
            events.append(Event(row[columns.op], data, row[columns.seq]))
    return events


def _versions(path: TablePath) -> Iterator[list[Action]]:
    log = path.log()
    for version in range(10**6):
        text = log.entry(version)
        if text is None:
            return
        yield list(actions_of(text))


def _new_rows(path: TablePath, files: list[DeltaFile]) -> list[dict[str, Any]]:
    view = path.view()
    assert view is not None
    assert view.state is not None
    assert isinstance(path.events, EventColumns)
    schema = history_schema(view.state.schema, path.events)
    found = tuple((f.path, f.deleted) for f in files)
    rows: list[dict[str, Any]] = LakeSnapshot(path.store, 0, view.state, found, schema).scan().read_all().to_pylist()
    return rows
