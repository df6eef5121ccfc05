"""The deleted rows of one data file as a Parquet file of their positions, which Iceberg has in
format version 2.

A row says a data file's whole path and a row's number in it. What is read is checked as a vector
is: rows of another file, or other than the metadata say, stop the table, because rows would rise
again. Format: Iceberg's specification, "Position Delete Files".
"""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from cdcsync_spark.sinks.lake.files.field_ids import FIELD_ID
from cdcsync_spark.sinks.lake.storage.checked_parquet import refuse_heavy_pages

#: the reserved ids of the columns
PATH_ID, POSITION_ID = 2147483546, 2147483545
_PATH, _POSITION = "file_path", "pos"
_SCHEMA = pa.schema(
    [
        pa.field(
            _PATH, pa.dictionary(pa.int8(), pa.string()), nullable=False, metadata={FIELD_ID: str(PATH_ID).encode()}
        ),
        pa.field(_POSITION, pa.int64(), nullable=False, metadata={FIELD_ID: str(POSITION_ID).encode()}),
    ]
)
_ROWS = 64 * 1024


def position_file(data_file: str, rows: BitMap) -> bytes:
    """The file of the deleted `rows` of a data file, by its whole path, which is in memory once."""
    numbers = np.array(rows.to_array(), np.int64)
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(numbers), np.int8), [data_file])
    table = pa.table([paths, numbers], schema=_SCHEMA)
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd", use_dictionary=[_PATH], store_schema=False)
    return content.getvalue()


def positions(path: str, content: bytes, data_file: str, count: int) -> BitMap:
    """The deleted rows of a data file, `count` in number, from the file at `path`. Raises
    ValueError for another file, and SinkConflict for one that takes too much memory."""
    try:
        parquet = pq.ParquetFile(pa.BufferReader(content), read_dictionary=[_PATH])
        if parquet.metadata.num_rows != count:
            raise ValueError(f"{parquet.metadata.num_rows} rows")
        if parquet.schema_arrow.names[:2] != [_PATH, _POSITION]:
            raise ValueError(f"the columns {parquet.schema_arrow.names}")
        refuse_heavy_pages(path, content, parquet.metadata, [0, 1])
        rows = BitMap()
        for batch in parquet.iter_batches(_ROWS, columns=[_PATH, _POSITION]):
            rows |= _rows(batch, data_file)
    except pa.ArrowException as broken:
        raise ValueError(str(broken)[:300]) from None
    return rows


def _rows(batch: pa.RecordBatch, data_file: str) -> BitMap:
    paths, numbers = batch.columns
    if paths.null_count or paths.unique().to_pylist() != [data_file]:
        raise ValueError("rows of another data file")
    places = numbers.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if numbers.null_count or places.min() < 0 or places.max() >= 2**32:
        raise ValueError("a position that no row has")
    return BitMap(places.astype(np.uint32))
