"""Maintenance of a history table: its small files are gathered, nothing is ever deleted from it.

A stream leaves a small file per commit. Gathering writes the same rows again, ordered by their
ordinal, and is no change of data for readers that follow the table. Files of the snapshot with
deletion vectors take part by their size class as they do in every table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
from pyroaring import BitMap

from cdcsync_core.event_columns import EventColumns
from cdcsync_core.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.writer import Step
from cdcsync_spark.sinks.delta.batch import Batch, with_files, write_deletions
from cdcsync_spark.sinks.delta.compaction import Compaction, next_compaction
from cdcsync_spark.sinks.delta.features import unsupported_reason
from cdcsync_spark.sinks.delta.history_rows import history_schema
from cdcsync_spark.sinks.delta.maintenance import TableMaintenance, milliseconds
from cdcsync_spark.sinks.delta.snapshot import live_rows
from cdcsync_spark.sinks.delta.table_index import deleted_of
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import LiveFile, TableView
from cdcsync_spark.sinks.lake.file_changes import AddedFile, FileChanges
from cdcsync_spark.sinks.lake.staging import stage_groups

#: no file is rewritten because of deleted rows
_NEVER = 2**62


class HistoryMaintenance(TableMaintenance):
    def _has_written(self) -> bool:
        return True

    def _compact(self, view: TableView) -> Step | None:
        columns = self._path.events
        assert columns is not None, "a history table's path"
        policy = replace(self._policy, peeled_bytes=_NEVER)
        due = None if unsupported_reason(view) else next_compaction(view.files.values(), policy)
        if due is None or view.state is None:
            return None
        table = view.state.schema
        if view.fields.keys() != set(history_schema(table, columns).names):
            # it would forget the values of columns that another program added
            return None
        log, now = self._path.log(), milliseconds()
        batch = gathered(self._path, table, columns, view, lambda file: deleted_of(log, file), due, now)
        self._commits.enter_compaction(view, batch, now)
        return Step("compact", bytes_written=batch.bytes)


def gathered(
    table_path: TablePath,
    table: TargetSchema,
    columns: EventColumns,
    view: TableView,
    deleted: Callable[[LiveFile], BitMap],
    due: Compaction,
    now: int,
) -> Batch:
    """Writes the live rows of the files of `due` to new ones, in the order of the binlog."""
    schema, files = history_schema(table, columns), table_path.lake.files()
    parts: list[pa.RecordBatch] = []
    for path in due.paths:
        file = view.files[path]
        parts += live_rows(files, f"{table_path.folder}/{file.path}", schema, deleted(file), 0, file.rows or 0)
    rows = pa.Table.from_batches(parts, schema).sort_by(columns.seq)
    store = table_path.lake.below(table_path.root)
    written = stage_groups(store, "", iter([rows] if rows.num_rows else []), (*table.key, columns.seq), "compacted")
    gone = FileChanges(removed=due.paths)
    batch = write_deletions(table_path, view, gone, lambda path: view.files[path].rows or 0, now, data_change=False)
    added = tuple(AddedFile(f.path, f, rows.select([])) for f in written)
    return with_files(batch, added, now, data_change=False)
