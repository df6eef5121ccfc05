"""Maintenance of a history table: its small files are gathered, nothing is ever deleted from it.

A stream leaves a small file per commit. Gathering writes the same rows again, ordered by their
ordinal, and is no change of data for readers that follow the table. Files of the snapshot with
deletion vectors take part by their size class as they do in every table.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from cdcsync_spark.sinks.delta.table.history_rows import history_schema
from cdcsync_spark.sinks.delta.table.table_path import TablePath
from cdcsync_spark.sinks.delta.table.view import TableView
from cdcsync_spark.sinks.lake.compaction import next_compaction
from cdcsync_spark.sinks.lake.file_changes import AddedFile, FileChanges
from cdcsync_spark.sinks.lake.format import FileCommit, Operation
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.snapshot import live_rows
from cdcsync_spark.sinks.lake.staging import stage_groups

#: no file is rewritten because of deleted rows
_NEVER = 2**62


def gathered(table_path: TablePath, view: TableView, policy: MaintenancePolicy) -> FileCommit | None:
    """Writes the live rows of the files that are due to new ones, in the order of the binlog; None
    where none are."""
    columns, state = table_path.events, view.state
    due = next_compaction(view.files, replace(policy, peeled_bytes=_NEVER))
    if due is None or state is None or columns is None:
        return None
    schema, files = history_schema(state.schema, columns), table_path.lake.files()
    if view.fields.keys() != set(schema.names):
        # it would forget the values of columns that another program added
        return None
    parts: list[pa.RecordBatch] = []
    for file in map(view.files.__getitem__, due.names):
        path, deleted = f"{table_path.folder}/{file.path}", table_path.deleted(file)
        parts += live_rows(files, path, schema, deleted, 0, file.rows or 0)
    rows = pa.Table.from_batches(parts, schema).sort_by(columns.seq)
    store = table_path.lake.below(table_path.root)
    bounded = (*state.schema.key, columns.seq)
    written = stage_groups(store, "", iter([rows] if rows.num_rows else []), bounded, "compacted")
    added = tuple(AddedFile(f.path, f) for f in written)
    return FileCommit(state, Operation.COMPACT, FileChanges(due.names), lambda: added, data_change=False)
