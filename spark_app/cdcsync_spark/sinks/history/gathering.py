"""Maintenance of a history table: its small files are gathered, nothing is ever deleted from it.

A stream leaves a small file per commit. Gathering writes the same rows again, ordered by their
ordinal, and is no change of data for readers that follow the table. Files of the snapshot with
deletion vectors take part by their size class as they do in every table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_spark.sinks.history.rows import history_schema
from cdcsync_spark.sinks.lake.compaction import Compaction, next_compaction
from cdcsync_spark.sinks.lake.files.file_changes import AddedFile, FileChanges
from cdcsync_spark.sinks.lake.files.live_file import LiveFile
from cdcsync_spark.sinks.lake.files.row_lineage import NO_LINEAGE, RowLineage
from cdcsync_spark.sinks.lake.files.snapshot import StoredRows
from cdcsync_spark.sinks.lake.files.staging import Stamp, stage_groups
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit, TableVersion
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.table_folder import TableFolder

#: no file is rewritten because of deleted rows
_NEVER = 2**62


def next_gathering(files: Mapping[str, LiveFile], policy: MaintenancePolicy) -> Compaction | None:
    """The files that are due; None where none are."""
    return next_compaction(files, replace(policy, peeled_bytes=_NEVER))


def gathered(
    folder: TableFolder,
    version: TableVersion,
    due: Compaction,
    columns: EventColumns,
    stamp: Stamp | None,
    lineage: RowLineage = NO_LINEAGE,
    beside: Sequence[pa.Field] = (),
) -> FileCommit:
    """Writes the live rows of the files that are due to new ones, in the order of the binlog and in
    the form that `stamp` gives them, with the columns `beside` the history's."""
    state = version.state
    assert state is not None
    ours, files, ids = history_schema(state.schema, columns), folder.lake.files(), lineage.field_ids(version.field_ids)
    schema, parts = pa.schema([*ours, *beside, *lineage.fields]), list[pa.RecordBatch]()
    for file in map(version.files.__getitem__, due.names):
        stored = StoredRows.of(files, f"{folder.folder}/{file.path}", folder.deleted(file), ids)
        parts += stored.live(schema, 0, stored.count, partial(lineage.inherited, file))
    rows = pa.Table.from_batches(parts, schema).sort_by(columns.seq)
    written = write_rows(folder, stamp(rows) if stamp else rows, (*state.schema.key, columns.seq), "compacted")
    return FileCommit(state, CommitOperation.COMPACT, FileChanges(due.names), lambda: written, data_change=False)


def write_rows(
    folder: TableFolder, rows: pa.Table, bounded: tuple[str, ...], name: str, group_rows: int | None = None
) -> tuple[AddedFile, ...]:
    """Writes rows that have the form of the table's files, in their order."""
    size = group_rows or max(1, rows.num_rows)
    groups = (rows.slice(first, size) for first in range(0, rows.num_rows, size))
    files = stage_groups(folder.lake.below(folder.root), "", groups, bounded, name)
    return tuple(AddedFile(file.path, file) for file in files)
