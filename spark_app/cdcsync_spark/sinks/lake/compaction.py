"""Which rows of a table are moved to a new file, so that few files hold them and few of their
rows are deleted.

A stream leaves a small file per commit, and deleted rows in all files. Two kinds of
compaction keep that in bounds, each of limited size (`MaintenancePolicy`), so that none takes long
or needs much memory:

- *gather*: some files of one size class become one, sorted by key. A row is moved once or twice per
  class, so what a row costs grows with the logarithm of the table;
- *peel*: of a file with many deleted rows the first live ones go to a file of their own, and are
  deleted here; when none is left the file is gone. So a file of any size is rewritten in pieces,
  each in its range of keys.

A compaction changes no row. It is committed like a batch, with the state as it was found, and loses
every race. The metadata's counts of rows decide only when it is due: a file that another program
wrote may have more rows than they say, and one of which all rows are moved is removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyroaring import BitMap

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.lake.files.file_changes import added_files, deletions
from cdcsync_spark.sinks.lake.files.live_file import LiveFile, deleted_count
from cdcsync_spark.sinks.lake.files.row_lineage import NO_LINEAGE, RowLineage
from cdcsync_spark.sinks.lake.files.snapshot import StoredRows
from cdcsync_spark.sinks.lake.files.staging import Stamp, stage
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit, TableVersion
from cdcsync_spark.sinks.lake.keys.scratch import Scratch
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.table_folder import TableFolder

#: rows of so many bytes are sorted in memory
_IN_MEMORY_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Compaction:
    """Live rows of the files `names`, up to `rows` of each."""

    names: tuple[str, ...]
    rows: int


#: a file by the name that the table's metadata gives it
_Named = tuple[str, LiveFile]


def next_compaction(files: Mapping[str, LiveFile], policy: MaintenancePolicy) -> Compaction | None:
    """The compaction that is due; None where none is. Files whose rows the metadata does not count
    are left alone."""
    counted = [(name, file) for name, file in files.items() if file.rows]
    return _gather(counted, policy) or _peel(counted, policy)


def uncompacted(table: str, column: str, needed: str) -> CdcError:
    """Why files of a table are not compacted that has a column beside the source's; `needed` are
    columns with which they are."""
    return fail(
        Reason.SINK_CONFLICT,
        f"the files are not compacted, which would forget the values of the target's column {column!r}",
        needed=f"{needed}: each batch leaves a file until then",
        remedy=f"drop the column {column!r} there, and keep its values in a table of their own",
        table=table,
    )


def _gather(files: list[_Named], policy: MaintenancePolicy) -> Compaction | None:
    classes: dict[int, list[_Named]] = {}
    for name, file in files:
        # two of these are within bounds, so that none holds up its class
        if _live_bytes(file) < policy.most_bytes // 2 and _live_rows(file) < policy.most_rows // 2:
            classes.setdefault(_size_class(file, policy), []).append((name, file))
    for size in sorted(classes):
        if len(classes[size]) >= policy.gathered_files:
            chosen = tuple(_within_bounds(classes[size], policy))
            if len(chosen) > 1:
                return Compaction(chosen, policy.most_rows)
    return None


def _within_bounds(files: list[_Named], policy: MaintenancePolicy) -> Iterator[str]:
    size = rows = 0
    for name, file in files:
        size, rows = size + _live_bytes(file), rows + _live_rows(file)
        if size > policy.most_bytes or rows > policy.most_rows:
            return
        yield name


def _peel(files: list[_Named], policy: MaintenancePolicy) -> Compaction | None:
    emptied = [
        (name, file)
        for name, file in files
        if file.size >= policy.peeled_bytes and deleted_count(file) >= policy.deleted_share * (file.rows or 0)
    ]
    if not emptied:
        return None
    name, file = max(emptied, key=lambda named: deleted_count(named[1]) / (named[1].rows or 1))
    return Compaction((name,), max(1, min(policy.most_rows, policy.most_bytes * (file.rows or 0) // file.size)))


def _live_rows(file: LiveFile) -> int:
    return (file.rows or 0) - deleted_count(file)


def _live_bytes(file: LiveFile) -> int:
    return file.size * _live_rows(file) // (file.rows or 1)


def _size_class(file: LiveFile, policy: MaintenancePolicy) -> int:
    size, bound = 0, policy.smallest_class_bytes
    while file.size > bound:
        size, bound = size + 1, bound * policy.class_factor
    return size


def write_compaction(
    folder: TableFolder,
    version: TableVersion,
    due: Compaction,
    scratch: Scratch,
    stamp: Stamp | None,
    lineage: RowLineage = NO_LINEAGE,
    beside: Sequence[pa.Field] = (),
) -> FileCommit:
    """Writes the files of `due`, in the form that `stamp` gives them, with the columns `beside` the
    source's. Rows that are many bytes, however few they are in the files, are sorted in
    `scratch`."""
    state, gone, counts = version.state, dict[str, BitMap](), dict[str, int]()
    assert state is not None
    schema = pa.schema([*arrow_schema(state.schema), *beside, *lineage.fields])
    ids, store = lineage.field_ids(version.field_ids), folder.lake.below(folder.root)

    def moved() -> Iterator[pa.RecordBatch]:
        for name in due.names:
            file = version.files[name]
            before = folder.deleted(file)
            stored = StoredRows.of(folder.lake.files(), f"{folder.folder}/{file.path}", before, ids)
            first, end = _first_rows(before, stored.count, due.rows)
            yield from stored.live(schema, first, end, partial(lineage.inherited, file))
            gone[name], counts[name] = before | BitMap(range(first, end)), stored.count

    rows = scratch.table(schema, moved(), _IN_MEMORY_BYTES)
    write = partial(stage, store, folder.staged, state.schema, name="compacted", stamp=stamp, beside=beside)
    added = added_files(rows, state.schema.key, write, folder.prefix)
    changes = deletions(gone, counts.__getitem__)
    return FileCommit(state, CommitOperation.COMPACT, changes, lambda: added, data_change=False)


def _first_rows(gone: BitMap, count: int, most: int) -> tuple[int, int]:
    """The range with the first `most` live rows of `count`."""
    return _live_before(gone, count, 0), _live_before(gone, count, most)


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
