"""Reading one version of a table in a lake, range by range, with bounded memory.

Row groups are skipped by the bounds of the leading key column in the Parquet footers, which are
read once per snapshot, and never by the bounds in the table's metadata. Deleted rows are left out
by their number in the file, which is why a row group is always read whole and in order. The rest is
filtered after the batches have the table's own types: delta-rs marks its strings as views, which
Arrow's filters cannot compare inside a file scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyroaring import BitMap

from cdcsync_core.errors import RUN_AGAIN, PermanentError, Reason
from cdcsync_core.quoting import quoted
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_core.state import TableState
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.lake.files.deletion_vectors import DeletedRows, deleted_rows
from cdcsync_spark.sinks.lake.files.field_ids import FieldIds, FileNames
from cdcsync_spark.sinks.lake.storage.checked_parquet import checked
from cdcsync_spark.sinks.lake.storage.store import Store, refuse_large

_FOOTERS_AT_ONCE = 8
#: rows of keys that are read at a time, and bytes of a file
_KEY_ROWS, _BUFFER_BYTES = 64 * 1024, 2**20


class LostFile(PermanentError):
    """A file that a version of the table names, and that is not there."""


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Around what reads the file at `path`, which a version of a table names: where it is not there
    no retry finds it, and the table stops alone."""
    try:
        yield
    except FileNotFoundError:
        raise LostFile(
            Reason.SINK_CONFLICT,
            f"the file {quoted(path)} is not there, and the table names it",
            needed="all files of a version, as long as it is read",
            remedy=f"{RESNAPSHOT}; or restore the file, {RUN_AGAIN}; or, where the reading took longer than files stay, "
            "raise the table's delta.deletedFileRetentionDuration (Iceberg: history.expire.max-snapshot-age-ms)",
        ) from None


@dataclass(frozen=True)
class LakeSnapshot:
    """Version `version` of the table at `place`, with the state that it carries; `files` has its
    files' paths, relative to `place`, and which of their rows are deleted. `columns` are the
    table's where it has more than the source's; `ids` those by which its files have them, None
    where they go by names."""

    store: Store
    version: int
    state: TableState
    files: tuple[tuple[str, DeletedRows | None], ...]
    columns: pa.Schema | None = None
    ids: FieldIds | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.columns or arrow_schema(self.state.schema)

    def scan(
        self, columns: Sequence[str] | None = None, key_filter: pc.Expression | None = None
    ) -> pa.RecordBatchReader:
        """See `TargetSnapshot.scan`; raises `SinkUnreachable` from the reader."""
        names = self.schema.names if columns is None else list(columns)
        schema = pa.schema([self.schema.field(n) for n in names])
        return pa.RecordBatchReader.from_batches(schema, self._batches(schema, key_filter))

    def _batches(self, schema: pa.Schema, key_filter: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        needed = [
            f
            for f in self.schema
            if f.name in schema.names or (key_filter is not None and f.name in self.state.schema.key)
        ]
        with self.store.translating_errors(self.state.identity.table, "reading rows"):
            for part in self._parts(key_filter):
                for typed in part.batches(self.schema, needed):
                    rows = typed if key_filter is None else typed.filter(key_filter)
                    if rows.num_rows:
                        yield rows.select(schema.names)

    def _parts(self, key_filter: pc.Expression | None) -> Iterator[_RowGroup]:
        """The row groups that may hold a wanted key."""
        if key_filter is None:
            yield from self._groups.values()
            return
        dataset = ds.FileSystemDataset(
            [g.fragment for g in self._groups.values()], self.schema, ds.ParquetFileFormat(), self._files
        )
        for fragment in dataset.get_fragments(key_filter):
            yield self._groups[fragment.path, fragment.row_groups[0].id]

    @cached_property
    def _files(self) -> pafs.FileSystem:
        return checked(self.store.files())

    @cached_property
    def _groups(self) -> dict[tuple[str, int], _RowGroup]:
        files, names = self._files, self.state.schema.key
        key = self.schema.field(names[0]) if names else None
        read = partial(read_range, self.store.files())
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            parts_of_files = pool.map(
                lambda file: list(_row_groups(files, file[0], key, deleted_rows(file[1], read), self.ids)), self.files
            )
            return {(p.fragment.path, p.fragment.row_groups[0].id): p for parts in parts_of_files for p in parts}


@dataclass(frozen=True)
class _RowGroup:
    """A row group: its first row's number in the file, its rows, and the file's deleted rows;
    `names` are the file's where it does not go by the table's."""

    fragment: ds.ParquetFileFragment
    first: int
    rows: int
    deleted: BitMap
    names: FileNames | None

    def batches(self, table: pa.Schema, fields: Sequence[pa.Field]) -> Iterator[pa.RecordBatch]:
        """Its live rows, with the columns `fields` of the table's schema."""
        row = self.first
        for batch in typed_batches(self.fragment, table, fields, self.names):
            yield without(batch, row, self.deleted)
            row += batch.num_rows
        if row != self.first + self.rows:
            raise OSError(f"{self.fragment.path} gave {row - self.first} of {self.rows} rows")


def typed_batches(
    fragment: ds.ParquetFileFragment, table: pa.Schema, fields: Sequence[pa.Field], names: FileNames | None
) -> Iterator[pa.RecordBatch]:
    """All rows in physical order, with the columns `fields` of the table's schema."""
    schema = pa.schema(fields)
    with _named(fragment.path):
        if names is not None:
            for batch in fragment.to_batches(columns=names.of(schema.names), batch_readahead=2):
                yield names.batch(batch, schema)
            return
        for batch in fragment.to_batches(schema=table, columns=schema.names, batch_readahead=2):
            yield batch.cast(schema)


def without(batch: pa.RecordBatch, first: int, deleted: BitMap) -> pa.RecordBatch:
    """The rows of a batch that begins at row `first` of its file, without the deleted ones."""
    gone = deleted & BitMap(range(first, first + batch.num_rows)) if deleted else None
    if not gone:
        return batch
    flags = np.ones(batch.num_rows, bool)
    flags[np.frombuffer(gone.to_array(), np.uint32) - first] = False
    return batch.filter(pa.array(flags))


@dataclass(frozen=True)
class StoredRows:
    """The rows of a data file by its own footer, whatever the table's metadata count; `deleted` are
    those that are not live."""

    parts: tuple[_RowGroup, ...]
    deleted: BitMap

    @classmethod
    def of(cls, files: pafs.FileSystem, path: str, deleted: BitMap, ids: FieldIds | None) -> StoredRows:
        return cls(tuple(_row_groups(checked(files), path, None, deleted, ids)), deleted)

    @property
    def count(self) -> int:
        """Deleted ones included."""
        return sum(part.rows for part in self.parts)

    def live(
        self,
        table: pa.Schema,
        first: int,
        end: int,
        complete: Callable[[pa.RecordBatch, int], pa.RecordBatch] = lambda batch, _: batch,
    ) -> Iterator[pa.RecordBatch]:
        """The live rows among rows `first` to `end`, in their order, with all columns of the
        table's schema; `complete` is given rows and the number of the first of them."""
        for part in self.parts:
            if part.first < end and first < part.first + part.rows:
                row = part.first
                for batch in typed_batches(part.fragment, table, list(table), part.names):
                    start, stop = max(first - row, 0), min(end - row, batch.num_rows)
                    if start < stop:
                        rows = complete(batch.slice(start, stop - start), row + start)
                        yield without(rows, row + start, self.deleted)
                    row += batch.num_rows


def read_range(files: pafs.FileSystem, path: str, offset: int, size: int) -> bytes:
    """Raises SinkConflict for more than memory has room for, which is there before it is read."""
    refuse_large(path, size)
    with _named(path), files.open_input_file(path) as file:
        return bytes(file.read_at(size, offset))


def file_batches(
    files: pafs.FileSystem, path: str, table: pa.Schema, columns: Sequence[str], ids: FieldIds | None = None
) -> Iterator[pa.RecordBatch]:
    """All rows of a data file in physical order, deleted ones included, with the columns `columns`
    of the table's schema."""
    for part in _row_groups(checked(files), path, None, BitMap(), ids):
        yield from typed_batches(part.fragment, table, [table.field(name) for name in columns], part.names)


def key_batches(
    files: pafs.FileSystem, path: str, table: pa.Schema, key: Sequence[str], ids: FieldIds | None = None
) -> Iterator[pa.RecordBatch]:
    """The same for a few narrow columns `key`, page by page: a file may have one row group."""
    schema = pa.schema([table.field(name) for name in key])
    with (
        _named(path),
        checked(files, streamed=True).open_input_file(path) as opened,
        pq.ParquetFile(opened, buffer_size=_BUFFER_BYTES, pre_buffer=True) as parquet,
    ):
        names = ids.in_file(path, parquet.schema_arrow) if ids else None
        columns = names.of(key) if names else list(key)
        for batch in parquet.iter_batches(_KEY_ROWS, columns=columns, use_threads=False):
            yield names.batch(batch, schema) if names else batch.select(schema.names).cast(schema)


def _row_groups(
    files: pafs.FileSystem, path: str, key: pa.Field | None, deleted: BitMap, ids: FieldIds | None
) -> Iterator[_RowGroup]:
    """Each row group of a file as a fragment that knows the bounds of `key`."""
    with _named(path), files.open_input_file(path) as opened:
        footer = pq.read_metadata(opened)
    names = ids.in_file(path, footer.schema.to_arrow_schema()) if ids else None
    stored, first = _stored_name(key, names), 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        fragment = ds.ParquetFileFormat().make_fragment(
            path, files, partition_expression=_bounds(group, key, stored) if key else None, row_groups=[number]
        )
        yield _RowGroup(fragment, first, group.num_rows, deleted, names)
        first += group.num_rows


def _stored_name(key: pa.Field | None, names: FileNames | None) -> str:
    """What a file calls the key; empty where there is none."""
    if key is None or names is None:
        return key.name if key else ""
    return names.names.get(key.name, "")


def _bounds(group: pq.RowGroupMetaData, key: pa.Field, stored: str) -> pc.Expression | None:
    chunks = map(group.column, range(group.num_columns))
    statistics = next((c.statistics for c in chunks if c.path_in_schema == stored), None)
    if statistics is None or not statistics.has_min_max or statistics.null_count:
        return None
    try:
        low, high = (pa.scalar(value, key.type) for value in (statistics.min, statistics.max))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return (pc.field(key.name) >= low) & (pc.field(key.name) <= high)
