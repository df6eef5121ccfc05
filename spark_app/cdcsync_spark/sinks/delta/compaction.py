"""Which rows of a Delta table are moved to a new file, so that few files hold them and few of their
rows are deleted.

A stream leaves a small file per commit, and deleted rows in all files. Two kinds of moves keep that
in bounds, each of at most `MOST_BYTES` and `MOST_ROWS`, so that none takes long or needs much
memory:

- *gather*: `GATHERED` files of one size class become one, sorted by key. A row is moved once or
  twice per class, so what a row costs grows with the logarithm of the table;
- *peel*: of a file with many deleted rows the first live ones go to a file of their own, and are
  deleted here; when none is left the file is gone. So a file of any size is rewritten in pieces,
  each in its range of keys.

A move changes no row (`dataChange` false). It is committed like a batch, with the state as it was
found, and loses every race.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs
from pyroaring import BitMap

from cdcsync_core.table import Table
from cdcsync_core.typemap import arrow_schema
from cdcsync_spark.sinks.delta.batch import Batch, delete_rows, write_vectors
from cdcsync_spark.sinks.delta.snapshot import live_rows
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import LiveFile, TableView, new_file
from cdcsync_spark.sinks.lake.deletion_vectors import VectorFile
from cdcsync_spark.sinks.lake.staging import stage

#: files of one size class that are gathered
GATHERED = 5
#: bytes of the smallest class, and the factor between classes
SMALLEST, FACTOR = 64 * 1024, 8
#: what one move handles at most
MOST_BYTES = 32 * 2**20
MOST_ROWS = 1_000_000
#: the share of deleted rows from which a file is peeled, if it has that many bytes
EMPTY_SHARE = 0.25
PEELED_BYTES = 2**20


@dataclass(frozen=True)
class Move:
    """Live rows of `paths` (as the log writes them), up to `rows` of each."""

    paths: tuple[str, ...]
    rows: int


def next_move(files: Iterable[LiveFile]) -> Move | None:
    """The move that is due; None where none is. Files whose rows the log does not count are left
    alone."""
    counted = [f for f in files if f.rows]
    return _gather(counted) or _peel(counted)


def _gather(files: list[LiveFile]) -> Move | None:
    classes: dict[int, list[LiveFile]] = {}
    for file in files:
        if _live_bytes(file) < MOST_BYTES // 2:
            classes.setdefault(_size_class(file), []).append(file)
    for size in sorted(classes):
        if len(classes[size]) >= GATHERED:
            chosen = tuple(_within_bounds(classes[size]))
            if len(chosen) > 1:
                return Move(chosen, MOST_ROWS)
    return None


def _within_bounds(files: list[LiveFile]) -> Iterator[str]:
    size = rows = 0
    for file in files:
        size, rows = size + _live_bytes(file), rows + (file.rows or 0) - file.deleted_rows
        if size > MOST_BYTES or rows > MOST_ROWS:
            return
        yield file.log_path


def _peel(files: list[LiveFile]) -> Move | None:
    emptied = [f for f in files if f.size >= PEELED_BYTES and f.deleted_rows >= EMPTY_SHARE * (f.rows or 0)]
    if not emptied:
        return None
    file = max(emptied, key=lambda f: f.deleted_rows / (f.rows or 1))
    return Move((file.log_path,), max(1, min(MOST_ROWS, MOST_BYTES * (file.rows or 0) // file.size)))


def _live_bytes(file: LiveFile) -> int:
    return file.size * ((file.rows or 0) - file.deleted_rows) // (file.rows or 1)


def _size_class(file: LiveFile) -> int:
    size, bound = 0, SMALLEST
    while file.size > bound:
        size, bound = size + 1, bound * FACTOR
    return size


def write_move(
    table_path: TablePath,
    files: pafs.FileSystem,
    table: Table,
    view: TableView,
    deleted: Callable[[LiveFile], BitMap],
    move: Move,
    now: int,
) -> Batch:
    """Writes the files of `move`; `deleted` gives a file's deleted rows."""
    batch, parts, vectors = Batch(), [], VectorFile(uuid.uuid4())
    for path in move.paths:
        file = view.files[path]
        gone, count = deleted(file), file.rows or 0
        first, end = _first_rows(gone, count, move.rows)
        parts += list(live_rows(files, f"{table_path.folder}/{file.path}", arrow_schema(table), gone, first, end))
        delete_rows(batch, file, count, gone | BitMap(range(first, end)), vectors, now, data_change=False)
    rows = pa.Table.from_batches(parts, arrow_schema(table)).sort_by([(name, "ascending") for name in table.key])
    offset = 0
    for staged in stage(
        table_path.lake.below(table_path.root), table_path.staged, table, rows.to_batches(), "compacted"
    ):
        made = new_file(staged.path.removeprefix(table_path.prefix), staged.size, staged.stats, now, data_change=False)
        batch.add(made, rows.slice(offset, staged.rows).select(list(table.key)))
        offset += staged.rows
    write_vectors(table_path, vectors)
    return batch


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
