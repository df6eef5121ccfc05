"""A folded batch as changes of files, whatever the table format: which files come, which go, and
which rows of those that stay are deleted.

Why it is right. The index says where each key of the batch is live. Those rows are deleted, whether
their key ends updated or deleted; the upserts are appended. A file whose rows are all deleted is
removed. How a format writes this down (deletion vectors, entries of a log) is its own matter; the
index is changed only after the table has the commit: until then new files are orphans that no
reader sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from cdcsync_core.errors import Reason, fail
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.declared_key import inserted_twice
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.lake.files.row_ids import ROW_ID
from cdcsync_spark.sinks.lake.files.staging import DataFile
from cdcsync_spark.sinks.lake.keys.key_index import KeyIndex, Located, rows_of_files
from cdcsync_spark.sinks.lake.keys.ordered import in_order, order_of

#: bytes of keys, and of 8 for the place of each, by which rows are sorted in memory; more stay in
#: their order
_SORTED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class AddedFile:
    """A new file, by its path in the table's folder, and the keys of its rows in their order; None:
    they are read from it at the next lookup of keys. `row_ids` are those that its rows were
    given, None where they were given none."""

    path: str
    file: DataFile
    keys: pa.Table | None = None
    row_ids: pa.ChunkedArray | None = None


@dataclass(frozen=True)
class FileChanges:
    """What becomes of files that are there, by their names: `removed` ones go; `deleted_rows` has
    all deleted rows, previous ones included, of each file that stays and loses some, and `rows`
    their physical ones; `rewritten` has the new file for each one that is replaced by one with the
    same keys in the same order, the same of them deleted."""

    removed: tuple[str, ...] = ()
    deleted_rows: Mapping[str, BitMap] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    rewritten: Mapping[str, AddedFile] = field(default_factory=dict)

    def apply_to(self, index: KeyIndex, added: Iterable[AddedFile], versions: Mapping[str, str]) -> None:
        """The table has the commit, with the new files `added`; `versions` identifies the deletions
        of each file that stays."""
        for path in self.removed:
            index.remove(path)
        for path, now in self.rewritten.items():
            index.rename(path, now.path)
        for path, rows in self.deleted_rows.items():
            index.delete(path, versions[path], rows)
        for new in added:
            if new.keys is not None:
                index.add(new.path, new.keys.to_batches())


def refuse_keys_there(table: Capture, keys: pa.Table, new: npt.NDArray[np.bool_], located: Iterable[Located]) -> None:
    """`new` is whether each of `keys` must not be live. Raises KeyNotUnique."""
    for place in located:
        there = place.keys[new[place.keys]]
        if len(there):
            raise inserted_twice(table, [column[int(there[0])].as_py() for column in keys.columns])


def deletions_of(index: KeyIndex, located: Iterable[Located]) -> FileChanges:
    """What the deletion of the rows `located` changes."""
    deleted = {path: index.deleted(path) | rows for path, rows in rows_of_files(located).items()}
    return deletions(deleted, index.rows)


def deletions(deleted: Mapping[str, BitMap], rows_of: Callable[[str], int]) -> FileChanges:
    """`deleted` has all deleted rows of each file; `rows_of` a file's rows, deleted ones
    included."""
    removed = tuple(path for path, rows in deleted.items() if len(rows) == rows_of(path))
    left = {path: rows for path, rows in deleted.items() if path not in removed}
    return FileChanges(removed, left, {path: rows_of(path) for path in left})


def added_files(
    rows: pa.Table, key: Sequence[str], stage: Callable[[Iterable[pa.RecordBatch]], Iterable[DataFile]], prefix: str
) -> tuple[AddedFile, ...]:
    """The files that `stage` writes of `rows`, sorted by key where that is possible; `prefix` is
    what staged paths have more than those in the table's folder."""
    keys, batches, first, added = rows.select(list(key)), iter(rows.to_batches()), 0, []
    ids = rows[ROW_ID] if ROW_ID in rows.column_names else None
    if keys.nbytes + 8 * keys.num_rows <= _SORTED_BYTES:
        order = order_of(keys)
        keys, batches = keys.take(pa.array(order)), in_order(rows, order)
        ids = ids and ids.take(pa.array(order))
    for file in stage(batches):
        its_ids = None if ids is None else ids.slice(first, file.rows)
        added.append(AddedFile(file.path.removeprefix(prefix), file, keys.slice(first, file.rows), its_ids))
        first += file.rows
    return tuple(added)


def checked(target: TargetSchema, change: Upsert) -> tuple[pa.Table, pa.Table]:
    """Upserts in the table's schema and deleted keys in the key's; raises `InternalError` for other
    columns or a NULL key."""
    schema = arrow_schema(target)
    key_schema = pa.schema([schema.field(k) for k in target.key])
    for rows, needed in ((change.upserts, schema), (change.deletes, key_schema)):
        if set(rows.schema.names) != set(needed.names) or any(rows.schema.field(f.name).type != f.type for f in needed):
            raise _internal(
                f"a batch with the columns {rows.schema.names} of types {[str(t) for t in rows.schema.types]}"
            )
        if any(rows[k].null_count for k in target.key):
            raise _internal("a change with a NULL in its key")
    return (
        change.upserts.select(schema.names).cast(schema),
        change.deletes.select(key_schema.names).cast(key_schema),
    )


def _internal(found: str) -> Exception:
    return fail(Reason.INTERNAL_ERROR, found, remedy="report this with the driver log")
