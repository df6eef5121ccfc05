"""A folded batch as files and actions: one small data file, one file of deletion vectors, and what
the log says of both.

Why it is right. The index says where each key of the batch is live. Those rows are deleted, whether
their key ends updated or deleted; the upserts are appended. A file whose rows are all deleted is
removed. The index is told only after the log has it: until then files and vectors are orphans that
nobody sees. Data and vectors are written at the same time, because neither names the other; both
are durable before the entry that names them.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from pyroaring import BitMap

from cdcsync_core.errors import Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.table import Table
from cdcsync_core.typemap import arrow_schema
from cdcsync_spark.sinks.base import Upsert
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import Action, LiveFile, TableView, new_file
from cdcsync_spark.sinks.lake.deletion_vectors import Descriptor, VectorFile
from cdcsync_spark.sinks.lake.key_index import KeyIndex, row_set
from cdcsync_spark.sinks.lake.staging import stage

#: upserts that are sorted by key first, in bytes: a column of more could not be one array
_SORTED_BYTES = 256 * 2**20


@dataclass
class Batch:
    """What a MERGE changes in the table: `actions` for the log, and what the index is told
    afterwards."""

    actions: list[Action] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    vectors: dict[str, tuple[str, BitMap]] = field(default_factory=dict)
    added: list[tuple[str, pa.Table]] = field(default_factory=list)

    def add(self, file: LiveFile, keys: pa.Table) -> None:
        """A new file and the keys of its rows."""
        self.actions.append({"add": dict(file.add)})
        self.added.append((file.log_path, keys))

    @property
    def bytes(self) -> int:
        """Of the new files, and of the vectors as they are in theirs."""
        adds = [a["add"] for a in self.actions if "add" in a]
        new = {path for path, _ in self.added}
        data = sum(int(add["size"]) for add in adds if add["path"] in new)
        return data + sum(int(add["deletionVector"]["sizeInBytes"]) for add in adds if "deletionVector" in add)

    @property
    def paths(self) -> list[str]:
        """The files that were written for it and nobody sees yet."""
        vectors = {
            Descriptor.from_dict(a["add"]["deletionVector"]).path
            for a in self.actions
            if "deletionVector" in a.get("add", ())
        }
        return [path for path, _ in self.added] + sorted(vectors)

    def apply_to(self, index: KeyIndex) -> None:
        """The log has the actions."""
        for path in self.removed:
            index.remove(path)
        for path, (vector, deleted) in self.vectors.items():
            index.delete(path, vector, deleted)
        for path, keys in self.added:
            index.add(path, keys.to_batches())


def write_batch(
    table_path: TablePath, table: Table, view: TableView, index: KeyIndex, change: Upsert, now: int
) -> Batch:
    """Writes the files of `change` on top of `view`, which `index` knows; `now` in milliseconds."""
    upserts, deletes = checked(table, change)
    batch, vectors = Batch(), VectorFile(uuid.uuid4())
    with ThreadPoolExecutor(1) as beside:
        writing = beside.submit(_data_files, table_path, table, upserts, now)
        for path, found in index.locate(pa.concat_tables([upserts.select(list(table.key)), deletes])).items():
            deleted = index.deleted(path) | row_set(found)
            delete_rows(batch, view.files[path], index.rows(path), deleted, vectors, now, data_change=True)
        write_vectors(table_path, vectors)
        gate("vectors-written")
        for file, keys in writing.result():
            batch.add(file, keys)
    return batch


def delete_rows(
    batch: Batch, file: LiveFile, rows: int, deleted: BitMap, vectors: VectorFile, now: int, *, data_change: bool
) -> None:
    """`deleted` are all deleted rows of the file's `rows`, those of before included."""
    batch.actions.append(file.removed(now, data_change=data_change))
    if len(deleted) == rows:
        batch.removed.append(file.log_path)
        return
    vector = vectors.add(deleted)
    batch.actions.append({"add": dict(file.with_vector(vector, rows, data_change=data_change).add)})
    batch.vectors[file.log_path] = (vector.id, deleted)


def write_vectors(table_path: TablePath, vectors: VectorFile) -> None:
    if vectors.content:
        with table_path.store.new_file(vectors.path) as local:
            local.write_bytes(vectors.content)


def _data_files(table_path: TablePath, table: Table, rows: pa.Table, now: int) -> list[tuple[LiveFile, pa.Table]]:
    """Writes the files with `rows`; each with its keys in the order of its rows."""
    if rows.nbytes <= _SORTED_BYTES:
        rows = rows.sort_by([(name, "ascending") for name in table.key])
    keys, first, files = rows.select(list(table.key)), 0, []
    for staged in stage(table_path.lake.below(table_path.root), table_path.staged, table, rows.to_batches(), "stream"):
        path = staged.path.removeprefix(table_path.prefix)
        file = new_file(path, staged.size, staged.stats, now, data_change=True)
        files.append((file, keys.slice(first, staged.rows)))
        first += staged.rows
    gate("data-written")
    return files


def checked(table: Table, change: Upsert) -> tuple[pa.Table, pa.Table]:
    """Upserts in the table's schema and deleted keys in the key's; raises `InternalError` for other
    columns or a NULL key."""
    schema = arrow_schema(table)
    key_schema = pa.schema([schema.field(k) for k in table.key])
    for rows, needed in ((change.upserts, schema), (change.deletes, key_schema)):
        if set(rows.schema.names) != set(needed.names) or any(rows.schema.field(f.name).type != f.type for f in needed):
            raise _internal(
                f"a batch with the columns {rows.schema.names} of types {[str(t) for t in rows.schema.types]}"
            )
        if any(rows[k].null_count for k in table.key):
            raise _internal("a change with a NULL in its key")
    return (
        change.upserts.select(schema.names).cast(schema),
        change.deletes.select(key_schema.names).cast(key_schema),
    )


def _internal(found: str) -> Exception:
    return fail(Reason.INTERNAL_ERROR, found, remedy="report this with the log")
