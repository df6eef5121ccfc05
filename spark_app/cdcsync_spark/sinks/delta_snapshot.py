"""Reading one version of a Delta table, range by range, with bounded memory.

Row groups are skipped by the bounds of the leading key column in the Parquet footers, which are read once per snapshot and never by the
log's statistics. The rest is filtered after the batches have the table's own types: delta-rs marks its strings as views, which
Arrow's filters cannot compare inside a file scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from cdcsync_core.state import TableState
from cdcsync_core.typemap import arrow_schema
from cdcsync_spark.sinks.place import Place

_FOOTERS_AT_ONCE = 8


@dataclass(frozen=True)
class DeltaSnapshot:
    """Version `version` of the table at `place`, with the state that it carries; `paths` are its files, relative to `place`."""

    place: Place
    version: int
    state: TableState
    paths: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.state.table)

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
            if f.name in schema.names or (key_filter is not None and f.name in self.state.table.key)
        ]
        with self.place.failing_clearly(str(self.state.table.id), "reading rows"):
            for fragment in self._dataset.get_fragments(key_filter):
                for batch in fragment.to_batches(
                    schema=self.schema, columns=[f.name for f in needed], batch_readahead=2
                ):
                    typed = batch.cast(pa.schema(needed))
                    kept = typed if key_filter is None else typed.filter(key_filter)
                    if kept.num_rows:
                        yield kept.select(schema.names)

    @cached_property
    def _dataset(self) -> ds.FileSystemDataset:
        files, key = self.place.files(), self.schema.field(self.state.table.key[0])
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            found = pool.map(lambda path: list(_row_groups(files, path, key)), self.paths)
            fragments = [fragment for of_file in found for fragment in of_file]
        return ds.FileSystemDataset(fragments, self.schema, ds.ParquetFileFormat(), files)


def _row_groups(files: pafs.FileSystem, path: str, key: pa.Field) -> Iterator[ds.ParquetFileFragment]:
    """Each row group of a file as a fragment that knows the bounds of `key`."""
    with files.open_input_file(path) as opened:
        footer = pq.read_metadata(opened)
    leaf = next(i for i in range(footer.num_columns) if footer.schema.column(i).path == key.name)
    for number in range(footer.num_row_groups):
        yield ds.ParquetFileFormat().make_fragment(
            path, files, partition_expression=_bounds(footer.row_group(number).column(leaf), key), row_groups=[number]
        )


def _bounds(chunk: pq.ColumnChunkMetaData, key: pa.Field) -> pc.Expression | None:
    found = chunk.statistics
    if found is None or not found.has_min_max or found.null_count:
        return None
    try:
        low, high = (pa.scalar(value, key.type) for value in (found.min, found.max))
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None
    return (pc.field(key.name) >= low) & (pc.field(key.name) <= high)
