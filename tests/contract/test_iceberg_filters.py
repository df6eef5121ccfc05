"""What readers of Iceberg tables find by filters, which they compare with the bounds of files and
with the defaults of columns that a file lacks, before they read a row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable

from cdcsync_core.tables.schema_change import Converted, Filled, Kept
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from cdcsync_spark.sinks.lake.policy import CommitLimits, MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.iceberg_duckdb import duckdb_connection
from contract.sinkcase import SYNC, Model, batch, content, make_table, step, whole_snapshot
from support.folder_catalog import FolderCatalog, iceberg_sink

Find = Callable[[str, str, Any], list[int]]


def by_duckdb(file: str, column: str, value: Any) -> list[int]:
    rows = duckdb_connection().execute(f'SELECT id FROM iceberg_scan($1) WHERE "{column}" = $2', [file, value])
    return sorted(number for (number,) in rows.fetchall())


def by_pyiceberg(file: str, column: str, value: Any) -> list[int]:
    rows = StaticTable.from_metadata(file).scan(row_filter=EqualTo(column, value)).to_arrow()
    return sorted(rows["id"].to_pylist())


def by_polars(file: str, column: str, value: Any) -> list[int]:
    rows = pl.scan_iceberg(file, reader_override="native")
    kind = rows.collect_schema()[column]
    return sorted(rows.filter(pl.col(column) == pl.lit(value, dtype=kind)).collect()["id"].to_list())


READERS: dict[str, Find] = {"DuckDB": by_duckdb, "PyIceberg": by_pyiceberg, "Polars": by_polars}
#: columns that are added with a default: their types, and the values of rows that are there
ADDED: dict[str, tuple[str, Any]] = {
    "whole": ("int(11)", -7),
    "word": ("varchar(20)", "dé"),
    "price": ("decimal(9,2)", Decimal("-1.50")),
    "raw": ("varbinary(9)", b"\0x"),
    "day": ("date", date(1, 1, 1)),
    "at": ("datetime(6)", datetime(2024, 2, 29, 1, 2, 3, 4)),
}
TEMPORAL = pytest.mark.xfail(strict=True, reason="PyIceberg 0.12 compares such a default as its text in JSON")
NARROW = make_table(
    {"id": "int(11)", "small": "smallint(6)", "number": "int(11)", "price": "decimal(9,2)", "total": "decimal(9,2)"},
    ["id"],
)
WIDE = make_table(
    {
        "id": "bigint(20)",
        "small": "int(11)",
        "number": "bigint(20)",
        "price": "decimal(12,2)",
        "total": "decimal(30,2)",
    },
    ["id"],
)


WIDE_NAMES = [column.name for column in WIDE.captured]


def row(id_: int, number: int) -> tuple[Any, ...]:
    quarter = Decimal(number * 25).scaleb(-2)
    return (id_, number, number, quarter, quarter)


def metadata_file(sink: IcebergSink) -> str:
    assert isinstance(sink.catalog, FolderCatalog)
    return sink.catalog.metadata_file(CatalogTableName(("shop",), "orders"))


@pytest.mark.parametrize("version", [2, 3])
def test_a_type_that_iceberg_widens_is_followed_without_a_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """In a table of any size, its key too: files have the narrow type and its bounds, and readers
    find the rows of both."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    policy = MaintenancePolicy(gathered_files=4)
    store, limits = open_store(str(tmp_path / "lake")), CommitLimits(rewritten_bytes=1)
    sink = iceberg_sink(store, SYNC, policy=policy, limits=limits, format_version=version)
    target, narrow, wide = sink.target(NARROW.id), Model(NARROW), Model(WIDE)
    narrow.rows = {(n,): row(n, n - 5) for n in range(10)}
    whole_snapshot(target, narrow.rows.values(), NARROW)
    writer = target.writer(tmp_path)
    writer.commit(1, batch(1, narrow.apply([row(3, 30)], [(4,)])))
    files = set(tmp_path.glob("lake/shop/orders/data/*"))
    writer.commit(1, step(2, WIDE, [Converted(name) for name in WIDE_NAMES]))
    assert set(tmp_path.glob("lake/shop/orders/data/*")) == files
    wide.rows = dict(narrow.rows)
    for number in (3, 4):
        rows = [row(number + 2, 2**30), row(2**40 + number, -(2**30))]
        writer.commit(1, batch(number, wide.apply(rows, [(number + 5,)])))
        assert ("compact" in list(iter(writer.maintain, ""))) == (number == 4)
        assert content(target) == wide.content
        assert target.staged()
        for reader, find in READERS.items():
            for place, name in enumerate(WIDE_NAMES):
                for value in {r[place] for r in wide.rows.values()}:
                    expected = sorted(r[0] for r in wide.rows.values() if r[place] == value)
                    assert find(metadata_file(sink), name, value) == expected, (reader, name, value)


@pytest.mark.parametrize(
    ("reader", "name"),
    [
        pytest.param(reader, name, marks=[TEMPORAL] if reader == "PyIceberg" and name in ("day", "at") else [])
        for reader in READERS
        for name in ADDED
    ],
)
def test_a_filter_finds_rows_by_the_default_that_their_files_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, name: str
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    sink, (kind, value) = iceberg_sink(open_store(str(tmp_path / "lake")), SYNC), ADDED[name]
    target = sink.target(NARROW.id)
    whole_snapshot(target, [(1,), (2,)], make_table({"id": "int(11)"}, ["id"]))
    after = make_table({"id": "int(11)", name: kind}, ["id"])
    target.commit(1, step(1, after, [Kept("id"), Filled(value)]))
    target.commit(1, batch(2, Model(after).apply([(2, None), (3, value)], [])))
    assert READERS[reader](metadata_file(sink), name, value) == [1, 3]
