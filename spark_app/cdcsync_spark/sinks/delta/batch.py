"""Changes of files as actions of a Delta log, with the file of deletion vectors that they name.

Why it is right: which rows go and which files come is `lake.file_changes`'s. Data and deletion
vectors are written at the same time, because neither names the other; both are durable before the
entry that names them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from cdcsync_core.gates import gate
from cdcsync_core.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import Action, TableView, new_file
from cdcsync_spark.sinks.lake.deletion_vectors import VectorFile
from cdcsync_spark.sinks.lake.file_changes import AddedFile, FileChanges, added_files, checked, find_deletions
from cdcsync_spark.sinks.lake.key_index import KeyIndex
from cdcsync_spark.sinks.lake.staging import stage


@dataclass(frozen=True)
class Batch:
    """What a commit changes in the table: `actions` for the Delta log, the changes of files that
    they state, the id of each deletion vector by its file's path, and the paths of the files that
    were written for it, which no reader sees yet."""

    actions: list[Action] = field(default_factory=list)
    changes: FileChanges = field(default_factory=FileChanges)
    vector_ids: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Of the new files, and of the deletion vectors as they are in theirs."""
        vectors = (a["add"]["deletionVector"]["sizeInBytes"] for a in self.actions if _has_vector(a))
        return sum(new.file.size for new in self.changes.added) + sum(map(int, vectors))

    def apply_to(self, index: KeyIndex) -> None:
        """The Delta log has the actions."""
        self.changes.apply_to(index, self.vector_ids)


def _has_vector(action: Action) -> bool:
    return "deletionVector" in action.get("add", ())


def write_batch(
    table_path: TablePath, schema: TargetSchema, view: TableView, index: KeyIndex, change: Upsert, now: int
) -> Batch:
    """Writes the files of `change` on top of `view`, which `index` knows; `now` in milliseconds."""
    upserts, deletes = checked(schema, change)
    with ThreadPoolExecutor(1) as concurrently:
        writing = concurrently.submit(_data_files, table_path, schema, upserts)
        gone = find_deletions(index, pa.concat_tables([upserts.select(list(schema.key)), deletes]))
        batch = write_deletions(table_path, view, gone, index.rows, now, data_change=True)
        gate("vectors-written")
        return with_files(batch, writing.result(), now, data_change=True)


def write_deletions(
    table_path: TablePath,
    view: TableView,
    gone: FileChanges,
    rows_of: Callable[[str], int],
    now: int,
    *,
    data_change: bool,
) -> Batch:
    """Writes the deletion vectors of `gone`, if there are any; `rows_of` gives a file's rows."""
    vectors, ids = VectorFile(uuid.uuid4()), dict[str, str]()
    actions = [view.files[path].removed(now, data_change=data_change) for path in (*gone.removed, *gone.deleted_rows)]
    for path, rows in gone.deleted_rows.items():
        vector = vectors.add(rows)
        ids[path] = vector.id
        kept = view.files[path].with_vector(vector, rows_of(path), data_change=data_change)
        actions.append({"add": dict(kept.add)})
    if vectors.content:
        with table_path.store.new_file(vectors.path) as local:
            local.write_bytes(vectors.content)
    return Batch(actions, gone, ids, (vectors.path,) if vectors.content else ())


def with_files(batch: Batch, added: tuple[AddedFile, ...], now: int, *, data_change: bool) -> Batch:
    """`batch`, which adds no file yet, with the files `added`."""
    files = [new_file(a.path, a.file.size, a.file.stats, now, data_change=data_change) for a in added]
    changes = FileChanges(added, batch.changes.removed, batch.changes.deleted_rows)
    actions = [*batch.actions, *({"add": dict(f.add)} for f in files)]
    return Batch(actions, changes, batch.vector_ids, (*batch.paths, *(a.path for a in added)))


def _data_files(table_path: TablePath, schema: TargetSchema, rows: pa.Table) -> tuple[AddedFile, ...]:
    """Writes the files with `rows`."""
    write = partial(stage, table_path.lake.below(table_path.root), table_path.staged, schema, stamp=table_path.stamp)
    added = added_files(rows, schema.key, lambda batches: write(batches, name="stream"), table_path.prefix)
    gate("data-written")
    return added
