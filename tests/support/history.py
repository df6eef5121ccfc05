"""A history table as a consumer reads it: version by version, the new rows of each in the order of
their ordinals. A version that removes rows begins again, as a resnapshot does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_spark.sinks.delta.table.table_path import TablePath
from cdcsync_spark.sinks.delta.table.view import Action, DeltaFile, actions_of
from cdcsync_spark.sinks.history.rows import history_schema
from cdcsync_spark.sinks.iceberg.history.target import IcebergHistory
from cdcsync_spark.sinks.iceberg.table.manifests import ListedManifest
from cdcsync_spark.sinks.lake.files.snapshot import LakeSnapshot
from support.event_consumer import Event


def history_events(path: TablePath) -> list[Event]:
    """The events of a Delta table since the last version that removed rows."""
    columns = path.events
    assert columns is not None
    events: list[Event] = []
    for actions in _versions(path):
        if any(a.get("remove", {}).get("dataChange") for a in actions):
            events = []
        rows = _new_rows(path, [DeltaFile(a["add"]) for a in actions if a.get("add", {}).get("dataChange")])
        events += _in_order(rows, columns)
    return events


def _in_order(rows: list[dict[str, Any]], columns: EventColumns) -> Iterator[Event]:
    for row in sorted(rows, key=lambda row: row[columns.seq]):
        data = {k: v for k, v in row.items() if k not in columns.names}
        yield Event(row[columns.op], data, row[columns.seq])


def iceberg_history_events(history: IcebergHistory) -> list[Event]:
    """The events of an Iceberg table since its last snapshot that is no append, which begins with
    all rows; the files of an append are new, and have no deleted rows."""
    place, events = history.place, list[Event]()
    loaded, version = place.load(), history.table.version()
    assert loaded is not None
    assert version is not None
    metadata, reader, known = loaded.metadata, place.folder(loaded).reader, dict[str, ListedManifest]()
    for snapshot in reversed(list(metadata.ancestors(metadata.head("main")))):
        manifests = reader.manifests(metadata, snapshot, known)
        known = {manifest.path: manifest for manifest in manifests}
        files = reader.files(metadata, manifests)
        if snapshot.operation == "append":
            new = {name: file for name, file in files.items() if file.entry.snapshot_id == snapshot.id}
            assert not any(file.deleted for file in new.values())
            rows = history.rows(replace(version, files=new)).scan().read_all().to_pylist()
            events += _in_order(rows, history.events)
        elif snapshot.operation == "overwrite":
            rows = history.rows(replace(version, files=files)).scan().read_all().to_pylist()
            events = list(_in_order(rows, history.events))
        else:
            assert snapshot.operation == "replace"
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


METADATA = ["_cdc_op", "_cdc_ts", "_cdc_seq", "_cdc_position", "_cdc_gtid"]


def events_of(history: pa.Table) -> Iterator[Event]:
    """In the order of the ordinals."""
    for row in history.sort_by("_cdc_seq").to_pylist():
        yield Event(row["_cdc_op"], {k: v for k, v in row.items() if k not in METADATA}, row["_cdc_seq"])
