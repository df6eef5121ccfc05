"""Staging: bounded memory, whole files or none, and nothing converted on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.lake.files import staging
from cdcsync_spark.sinks.lake.files.staging import FileSizes
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import ORDERS, rows_of

SCHEMA = TargetSchema.of(ORDERS)


def batches(count: int, rows: int) -> Iterator[pa.RecordBatch]:
    for n in range(count):
        yield from rows_of(ORDERS, [(n * rows + i, "x" * 20) for i in range(rows)]).to_batches()


def test_small_batches_become_row_groups_of_bounded_size(tmp_path: Path) -> None:
    sizes = FileSizes(group_rows=100)
    (file,) = staging.stage(open_store(str(tmp_path)), "", SCHEMA, batches(25, 10), "wave", sizes=sizes)
    footer = pq.read_metadata(tmp_path / file.path)
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [100, 100, 50]
    assert (file.rows, file.size) == (250, (tmp_path / file.path).stat().st_size)


def test_wide_rows_close_a_row_group_by_bytes() -> None:
    groups = staging.row_groups(SCHEMA, batches(20, 10), FileSizes(group_bytes=1000))
    sizes = [group.nbytes for group in groups]
    assert max(sizes) < 2000
    assert len(sizes) == 5


def test_a_large_split_becomes_several_files(tmp_path: Path) -> None:
    sizes = FileSizes(group_rows=10, file_bytes=1)
    files = staging.stage(open_store(str(tmp_path)), "_resnapshot-1", SCHEMA, batches(4, 10), "a/b c", sizes=sizes)
    assert [f.rows for f in files] == [10, 10, 10, 10]
    assert len({f.path for f in files}) == 4
    assert all(f.path.startswith("_resnapshot-1/a-b-c-") for f in files)
    read = pa.concat_tables(pq.read_table(tmp_path / f.path) for f in files)
    assert sorted(read["id"].to_pylist()) == list(range(40))


def test_a_reader_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(1, 10)
        raise ConnectionError("the server went away")

    with pytest.raises(ConnectionError):
        staging.stage(open_store(str(tmp_path)), "", SCHEMA, broken(), "wave")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_rows_of_another_schema_are_refused_not_converted(tmp_path: Path) -> None:
    wrong = pa.table({"id": pa.array([1], pa.int32()), "note": ["a"]}).to_batches()
    with pytest.raises(CdcError, match="id int32") as refused:
        staging.stage(open_store(str(tmp_path)), "", SCHEMA, wrong, "wave")
    assert refused.value.reason is Reason.INTERNAL_ERROR
