"""Which rows of a Delta table are moved to a new file, so that few files hold them and few of their
rows are deleted.

A stream leaves a small file per commit, and deleted rows in all files. Two kinds of
compaction keep that in bounds, each of limited size (`MaintenancePolicy`), so that none takes long
or needs much memory:

- *gather*: some files of one size class become one, sorted by key. A row is moved once or twice per
  class, so what a row costs grows with the logarithm of the table;
- *peel*: of a file with many deleted rows the first live ones go to a file of their own, and are
  deleted here; when none is left the file is gone. So a file of any size is rewritten in pieces,
  each in its range of keys.

A compaction changes no row (`dataChange` false). It is committed like a batch, with the state as it
was found, and loses every race.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyroaring import BitMap

from cdcsync_core.target_schema import TargetSchema
from cdcsync_spark.sinks.delta.batch import Batch, with_files, write_deletions
from cdcsync_spark.sinks.delta.policy import MaintenancePolicy
from cdcsync_spark.sinks.delta.snapshot import live_rows
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import LiveFile, TableView
from cdcsync_spark.sinks.lake.file_changes import added_files, deletions
from cdcsync_spark.sinks.lake.scratch import Scratch
from cdcsync_spark.sinks.lake.staging import stage
from cdcsync_spark.wire.columns.typemap import arrow_schema

#: rows of so many bytes are sorted in memory
_IN_MEMORY_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Compaction:
    """Live rows of `paths` (as the Delta log writes them), up to `rows` of each."""

    paths: tuple[str, ...]
    rows: int


def next_compaction(files: Iterable[LiveFile], policy: MaintenancePolicy) -> Compaction | None:
    """The compaction that is due; None where none is. Files whose rows the Delta log does not count
    are left alone."""
    counted = [f for f in files if f.rows]
    return _gather(counted, policy) or _peel(counted, policy)


def _gather(files: list[LiveFile], policy: MaintenancePolicy) -> Compaction | None:
    classes: dict[int, list[LiveFile]] = {}
    for file in files:
        if _live_bytes(file) < policy.most_bytes // 2:
            classes.setdefault(_size_class(file, policy), []).append(file)
    for size in sorted(classes):
        if len(classes[size]) >= policy.gathered_files:
            chosen = tuple(_within_bounds(classes[size], policy))
            if len(chosen) > 1:
                return Compaction(chosen, policy.most_rows)
    return None


def _within_bounds(files: list[LiveFile], policy: MaintenancePolicy) -> Iterator[str]:
    size = rows = 0
    for file in files:
        size, rows = size + _live_bytes(file), rows + (file.rows or 0) - file.deleted_rows
        if size > policy.most_bytes or rows > policy.most_rows:
            return
        yield file.log_path


def _peel(files: list[LiveFile], policy: MaintenancePolicy) -> Compaction | None:
    emptied = [
        f for f in files if f.size >= policy.peeled_bytes and f.deleted_rows >= policy.deleted_share * (f.rows or 0)
    ]
    if not emptied:
        return None
    file = max(emptied, key=lambda f: f.deleted_rows / (f.rows or 1))
    return Compaction(
        (file.log_path,), max(1, min(policy.most_rows, policy.most_bytes * (file.rows or 0) // file.size))
    )


def _live_bytes(file: LiveFile) -> int:
    return file.size * ((file.rows or 0) - file.deleted_rows) // (file.rows or 1)


def _size_class(file: LiveFile, policy: MaintenancePolicy) -> int:
    size, bound = 0, policy.smallest_class_bytes
    while file.size > bound:
        size, bound = size + 1, bound * policy.class_factor
    return size


def write_compaction(
    table_path: TablePath,
    schema: TargetSchema,
    view: TableView,
    deleted: Callable[[LiveFile], BitMap],
    compaction: Compaction,
    now: int,
    scratch: Scratch,
) -> Batch:
    """Writes the files of `compaction`; `deleted` gives a file's deleted rows. Rows that are many
    bytes, however few they are in the files, are sorted in `scratch`."""
    files, gone = table_path.lake.files(), dict[str, BitMap]()

    def moved() -> Iterator[pa.RecordBatch]:
        for path in compaction.paths:
            file = view.files[path]
            before, count = deleted(file), file.rows or 0
            first, end = _first_rows(before, count, compaction.rows)
            yield from live_rows(files, f"{table_path.folder}/{file.path}", arrow_schema(schema), before, first, end)
            gone[path] = before | BitMap(range(first, end))

    write = partial(stage, table_path.lake.below(table_path.root), table_path.staged, schema)
    rows = scratch.table(arrow_schema(schema), moved(), _IN_MEMORY_BYTES)
    added = added_files(rows, schema.key, lambda batches: write(batches, "compacted"), table_path.prefix)

    def rows_of(path: str) -> int:
        return view.files[path].rows or 0

    batch = write_deletions(table_path, view, deletions(gone, rows_of), rows_of, now, data_change=False)
    return with_files(batch, added, now, data_change=False)


def _first_rows(gone: BitMap, count: int, wanted: int) -> tuple[int, int]:
    """The range with the first `wanted` live rows of `count`."""
    return _live_before(gone, count, 0), _live_before(gone, count, wanted)


def _live_before(gone: BitMap, count: int, live: int) -> int:
    """The least row that has `live` live rows before it and is live itself; `count` where there is
    none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if middle + 1 - gone.rank(middle) > live:
            high = middle
        else:
            low = middle + 1
    return low
