"""Which part of the binlog a crash makes suspicious, and how the keys of it become changes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.binlog.search.crash_tail import FileScan, Mark, Tail, Timed, scan_file, suspicious
from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.delivery.upsert import fold
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.stream.apply.crash_repair import as_changes
from cdcsync_spark.wire.binlog.facts import FileLeft, Progress, TransactionEnd

FIRST, LAST = "binlog.000001", "binlog.000002"


def _scan(file: str, marks: list[tuple[int, int]], end: int, newest: int) -> FileScan:
    return FileScan(file, tuple(Mark(*m) for m in marks), end, newest, ended=file != LAST)


def _tail(*scans: FileScan, seconds: int = 60, least_bytes: int = 0) -> Tail:
    return suspicious(iter(scans), seconds, least_bytes)


def test_it_begins_at_the_last_mark_that_is_older() -> None:
    scan = _scan(LAST, [(4, 100), (500, 900), (700, 939), (800, 940)], 900, newest=1000)
    assert _tail(scan) == Tail(LogOffset(LAST, 700), 940)


def test_it_has_at_least_so_many_bytes() -> None:
    scan = _scan(LAST, [(4, 100), (500, 900), (700, 939)], 900, newest=1000)
    assert _tail(scan, least_bytes=201).start == LogOffset(LAST, 500)


def test_a_file_that_is_old_enough_needs_no_file_before() -> None:
    scan = _scan(LAST, [(4, 939)], 900, newest=1000)

    def scans() -> Iterator[FileScan]:
        yield scan
        raise AssertionError("the file before was read")

    assert suspicious(scans(), 60, 1 << 20).start == LogOffset(LAST, 4)


@pytest.mark.parametrize(("least_bytes", "start"), [(0, 700), (950, 700), (1200, 300), (5000, 4)])
def test_a_young_file_takes_the_end_of_the_one_before(least_bytes: int, start: int) -> None:
    before = _scan(FIRST, [(4, 10), (300, 900), (700, 930)], 800, newest=990)
    young = _scan(LAST, [(4, 991)], 900, newest=1000)
    assert _tail(young, before, least_bytes=least_bytes).start == LogOffset(FIRST, start)


def test_without_files_before_it_is_all_there_is() -> None:
    assert _tail(_scan(LAST, [(4, 991)], 900, newest=1000)) == Tail(LogOffset(LAST, 4), 940)


def _end(offset: int, newest: int) -> Timed:
    return Timed(newest, TransactionEnd(TransactionId(LogOffset(LAST, offset)), float(newest)))


def test_a_scan_remembers_ends_some_way_apart_and_how_the_file_ended() -> None:
    facts = [_end(200, 10), _end(70_000, 30), _end(70_100, 20 + 10), _end(140_000, 40)]
    moved = Timed(99, Progress(LogOffset("binlog.000003", 4)))
    marks = (Mark(4, 10), Mark(70_000, 30), Mark(140_000, 40))
    assert scan_file(LAST, iter([*facts, moved])) == FileScan(LAST, marks, 140_000, 40, ended=True)
    crashed = Timed(99, FileLeft(LAST, "binlog.000003"))
    assert scan_file(LAST, iter([*facts, crashed, moved])) == FileScan(LAST, marks, 140_000, 40, ended=False)


def test_keys_are_deleted_unless_the_source_has_them_byte_for_byte() -> None:
    """The server gave the row of `A` for the keys `a` and `A`, once for each."""
    columns = (
        Column("k", SourceType.parse("varchar(9)", "utf8mb4"), nullable=False),
        Column("v", SourceType.parse("int")),
    )
    table = Capture(SourceTable(TableId("shop", "t"), columns), ("k",))
    rows = pa.table({"k": ["A", "c", "A"], "v": [1, 3, 1]}, schema=captured_schema(table))

    folded = fold(Changelog(as_changes(table, pa.table({"k": ["a", "A", "b", "c"]}), rows)), table.key)

    assert sorted(folded.upserts.to_pylist(), key=str) == [{"k": "A", "v": 1}, {"k": "c", "v": 3}]
    assert sorted(folded.deletes["k"].to_pylist()) == ["a", "b"]
