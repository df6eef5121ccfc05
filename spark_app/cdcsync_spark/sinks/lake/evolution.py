"""A followed change of the schema where it asks for other files: each live file is written again,
row by row in the same order, and keeps its deleted rows.

Why it is right: no row comes or goes, so the key index only renames files. The files are durable
before the commit that names them; without it they are orphans. Whether a change asks for it is the
format's (`TableFormat.rewrites`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_core.tables.schema_change import Filled
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.contract.changes import Evolve
from cdcsync_spark.sinks.lake.files.field_ids import FieldIds
from cdcsync_spark.sinks.lake.files.file_changes import AddedFile, FileChanges
from cdcsync_spark.sinks.lake.files.live_file import LiveFile
from cdcsync_spark.sinks.lake.files.rewrite import needed, rewritten
from cdcsync_spark.sinks.lake.files.row_lineage import NO_LINEAGE, RowLineage
from cdcsync_spark.sinks.lake.files.snapshot import file_batches
from cdcsync_spark.sinks.lake.files.staging import DataFile, Stamp, write_one
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit, TableVersion
from cdcsync_spark.sinks.lake.table_folder import TableFolder

#: files that are rewritten at the same time
_AT_ONCE = 2


def write_evolution(
    folder: TableFolder,
    version: TableVersion,
    after: TableState,
    change: Evolve,
    most_bytes: int,
    stamp: Stamp | None,
    lineage: RowLineage = NO_LINEAGE,
) -> FileCommit:
    """Writes each live file of `version` again, as `change` and `stamp` say; raises SchemaChanged
    where they are more than `most_bytes`, before it writes one; where that is 0, also where there
    is no file, because the schema would lose the columns that are not the source's."""
    before, files = version.state, version.files
    assert before is not None
    reading = _FileReading(folder, version.field_ids, lineage)
    size = sum(file.size for file in files.values())
    if size > most_bytes or not most_bytes:
        raise _too_large(before, size, most_bytes)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        written = list(pool.map(lambda file: _rewritten(reading, before, after, change, file, stamp), files.values()))
    named = dict(zip(files, written, strict=True))
    changes = FileChanges(
        removed=tuple(name for name, new in named.items() if new is None),
        rewritten={n: AddedFile(f.path.removeprefix(folder.prefix), f) for n, f in named.items() if f is not None},
    )
    filled = any(isinstance(o, Filled) for o in change.origins)
    return FileCommit(
        after, CommitOperation.EVOLVE, changes, origins=change.origins, rewritten=True, data_change=filled
    )


@dataclass(frozen=True)
class _FileReading:
    """How files are read: whole, with the identities of their rows."""

    folder: TableFolder
    ids: FieldIds | None
    lineage: RowLineage

    def batches(self, file: LiveFile, table: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        carried, first = self.lineage.fields, 0
        schema, names = pa.schema([*table, *carried]), [*columns, *(field.name for field in carried)]
        path, ids = f"{self.folder.folder}/{file.path}", self.lineage.field_ids(self.ids)
        for batch in file_batches(self.folder.lake.files(), path, schema, names, ids):
            yield self.lineage.inherited(file, batch, first)
            first += batch.num_rows


def _rewritten(
    reading: _FileReading, before: TableState, after: TableState, change: Evolve, file: LiveFile, stamp: Stamp | None
) -> DataFile | None:
    """None for a file without rows, which another program may leave."""
    folder = reading.folder
    read = reading.batches(file, arrow_schema(before.schema), needed(change.origins))
    written = write_one(
        folder.lake.below(folder.root),
        folder.staged,
        after.schema,
        rewritten(read, after.schema, change.origins, reading.lineage.fields),
        f"version-{after.commit_number}",
        stamp,
    )
    rows = written.rows if written else 0
    if file.rows is not None and rows != file.rows:
        raise OSError(f"{file.path} gave {rows} of {file.rows} rows")
    return written


def _too_large(state: TableState, size: int, most: int) -> CdcError:
    return fail(
        Reason.SCHEMA_CHANGE_REFUSED,
        f"a change of the definition that asks for {size // 2**20} MiB of files to be written again",
        needed=f"at most {most // 2**20} MiB"
        if most
        else "rows that stay as they are: a history table's are published",
        remedy=resnapshot(state.identity.table),
        table=state.identity.table,
    )
