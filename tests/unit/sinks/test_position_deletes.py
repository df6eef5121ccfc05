"""Deleted rows as a file of positions: what is read back is what was written, and nothing else
passes for it."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_spark.sinks.lake.files.deletion_vectors import DeletedRows, load
from cdcsync_spark.sinks.lake.files.position_deletes import position_file

FILE = "s3://lake/shop/orders/data/a.parquet"


def read(content: bytes, count: int) -> BitMap:
    deleted = DeletedRows("d", count, len(content), "deletes-1.parquet", data_file=FILE)
    return load(deleted, lambda path, offset, size: content[offset : offset + size])


@pytest.mark.parametrize("rows", [[0], [5, 7, 2**32 - 1], range(0, 200_000, 3)], ids=["first", "last", "many"])
def test_rows_are_read_back(rows: list[int]) -> None:
    assert read(position_file(FILE, BitMap(rows)), len(rows)) == BitMap(rows)


def test_many_rows_of_a_long_path_are_written() -> None:
    """The path as often as there are rows would be more than an array of texts takes."""
    path, rows = FILE.rjust(1000, "x"), BitMap(range(2_200_000))
    content = position_file(path, rows)
    assert pq.read_metadata(io.BytesIO(content)).num_rows == len(rows)
    first = pq.ParquetFile(io.BytesIO(content), read_dictionary=["file_path"])
    assert next(first.iter_batches(2)).to_pydict() == {"file_path": [path, path], "pos": [0, 1]}


def test_columns_have_the_ids_of_the_specification() -> None:
    table = pq.read_table(io.BytesIO(position_file(FILE, BitMap([3, 1]))))
    assert table.to_pydict() == {"file_path": [FILE, FILE], "pos": [1, 3]}
    ids = [field.metadata[b"PARQUET:field_id"] for field in table.schema]
    assert ids == [b"2147483546", b"2147483545"]
    assert not any(field.nullable for field in table.schema)


def written(columns: dict[str, Any], **options: Any) -> bytes:
    content = io.BytesIO()
    pq.write_table(pa.table(columns), content, **options)
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (position_file(FILE, BitMap([1])), "1 rows"),
        (position_file(f"{FILE}x", BitMap([1, 2])), "rows of another data file"),
        (written({"file_path": [FILE, None], "pos": [1, 2]}), "rows of another data file"),
        (written({"file_path": [FILE, FILE], "pos": [1, None]}), "a position that no row has"),
        (written({"file_path": [FILE, FILE], "pos": [-1, 2]}), "a position that no row has"),
        (written({"file_path": [FILE, FILE], "pos": [1, 2**32]}), "a position that no row has"),
        (written({"file_path": [FILE, FILE], "pos": [1, 1]}), "1 rows"),
        (written({"pos": [1, 2], "file_path": [FILE, FILE]}), "the columns"),
        (position_file(FILE, BitMap([1, 2]))[:-9], "position delete file"),
        (b"", "position delete file"),
    ],
    ids=["fewer", "another", "no path", "no position", "before", "beyond", "twice", "columns", "cut", "empty"],
)
def test_another_file_stops_the_table(content: bytes, problem: str) -> None:
    with pytest.raises(PermanentError, match=problem) as refused:
        read(content, 2)
    assert refused.value.reason is Reason.SINK_CONFLICT


def test_a_file_of_one_long_path_takes_little_memory() -> None:
    """One text, any number of times, takes the memory of one."""
    rows = 3_000_000
    texts = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), ["x" * 1000])
    content = written({"file_path": texts, "pos": pa.repeat(1, rows)}, compression="zstd")
    assert len(content) < 2**20
    pool = pa.default_memory_pool()
    most = max(pool.max_memory(), 2**28)
    with pytest.raises(PermanentError, match="rows of another data file"):
        read(content, rows)
    assert pool.max_memory() <= most
