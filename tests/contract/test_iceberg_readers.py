"""Spark, PyIceberg, DuckDB and Polars read the rows of a model, after updates, deletes and changes
of the schema; and what Spark does to the table between our commits is gone on from.

The catalog is Iceberg's own REST server, the tables' files lie in a folder.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyiceberg.catalog.rest import RestCatalog as PyIcebergCatalog
from pyiceberg.table import Table

from cdcsync_core.errors import PermanentError
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.reserved_columns import ICEBERG
from cdcsync_core.tables.schema_change import Converted, Filled, Kept, Origin
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, NewTable
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink, IcebergTarget
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from contract.iceberg_duckdb import duckdb_connection
from contract.sinkcase import ORDERS, SYNC, Model, Row, batch, content, in_order, make_table, step, whole_snapshot
from support.folder_catalog import LocalStores
from support.iceberg_catalog import IcebergCatalog
from support.iceberg_spark import IcebergSpark

pytestmark = pytest.mark.spark
FIRST = {
    "id": "bigint(20)",
    "small": "tinyint(4)",
    "note": "varchar(40)",
    "price": "decimal(12,3)",
    "large": "bigint(20) unsigned",
    "at": "datetime(6)",
    "day": "date",
    "raw": "varbinary(9)",
    "ratio": "double",
}
#: a column is renamed and moved, and one is added
SECOND = {"id": "bigint(20)", "text": "varchar(40)"} | {n: t for n, t in FIRST.items() if n not in {"id", "note"}}
THIRD = SECOND | {"extra": "int(11)", "fee": "decimal(9,2)", "since": "datetime(6)", "mark": "varbinary(9)"}
DEFAULTS = {"fee": Decimal("-1.50"), "since": datetime(2024, 2, 29, 1, 2, 3, 4), "mark": b"\0x"}
#: a type is another, for which files are written again; a dropped name comes back
FOURTH = {**THIRD, "small": "decimal(5,0)"}
#: types are wider, and files stay
FIFTH = {**FOURTH, "price": "decimal(14,3)", "extra": "bigint(20)"}
STEPS: dict[int, tuple[dict[str, str], list[Origin]]] = {
    3: (SECOND, [Kept("note" if n == "text" else n) for n in SECOND]),
    6: (THIRD, [*map(Kept, SECOND), Filled(None), *map(Filled, DEFAULTS.values())]),
    9: (FOURTH, [Converted(n) if n == "small" else Filled(None) if n == "ratio" else Kept(n) for n in FOURTH]),
    11: (FIFTH, [Converted(n) if n in {"price", "extra"} else Kept(n) for n in FIFTH]),
}

#: conditions on columns that were widened, or whose default some files lack
FILTERS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "extra < -400": lambda row: row["extra"] is not None and row["extra"] < -400,
    "price < -4.750": lambda row: row["price"] < Decimal("-4.750"),
    "since = TIMESTAMP_NTZ '2024-02-29 01:02:03.000004'": lambda row: row["since"] == DEFAULTS["since"],
}


def table_of(columns: dict[str, str]) -> Capture:
    return make_table(columns, ["id"], "readers", "things")


def row_of(columns: dict[str, str], n: int, text: str | None) -> Row:
    values = {
        "id": n,
        "small": n % 256 - 128,
        "note": text,
        "text": text,
        "price": Decimal(n).scaleb(-3) - 5,
        "large": Decimal(2**64 - 1 - n),
        "at": datetime(1969, 12, 31, 23, 59, 59, n) + timedelta(n % 2),
        "day": date(1960, 1, 1) + timedelta(n * 30) if n % 7 else None,
        "raw": bytes([n % 256, 0, 255]),
        "ratio": n / 3,
        "extra": -n,
        "fee": Decimal(n),
        "since": None,
        "mark": b"",
    }
    return tuple(values[name] for name in columns)


@dataclass
class ReadableTable:
    """A table that takes batches, and its model."""

    target: IcebergTarget
    model: Model
    columns: dict[str, str]
    number: int = 0

    def batches(self, count: int, folder: Path) -> None:
        writer = self.target.writer(folder)
        for _ in range(count):
            self.number += 1
            if self.number in STEPS:
                self.change()
                continue
            n = 37 * self.number
            rows = [row_of(self.columns, m % 1100, f"batch {self.number}") for m in range(n, n + 60)]
            writer.commit(1, batch(self.number, self.model.apply(rows, [(m,) for m in range(n % 500, n % 500 + 20)])))
            writer.maintain()

    def commit(self, upserts: set[int], deletes: set[int], folder: Path) -> None:
        """One batch, and all upkeep that is due."""
        self.number += 1
        rows = [row_of(self.columns, n, f"batch {self.number}") for n in upserts]
        writer = self.target.writer(folder)
        writer.commit(1, batch(self.number, self.model.apply(rows, [(n,) for n in deletes])))
        while writer.maintain():
            pass

    def change(self) -> None:
        """A change of the schema; the rows that are there keep their values."""
        columns, origins = STEPS[self.number]
        table = table_of(columns)
        self.target.commit(1, step(self.number, table, origins))
        before = list(self.columns)
        rows = [
            tuple(o.value if isinstance(o, Filled) else row[before.index(o.source)] for o in origins)
            for row in self.model.rows.values()
        ]
        self.model, self.columns = Model(table), columns
        self.model.rows = {self.model.key(row): row for row in rows}


@pytest.fixture
def spark(iceberg_spark: IcebergSpark) -> IcebergSpark:
    return iceberg_spark


def read_by_all(spark: IcebergSpark, table: Table, patch: pytest.MonkeyPatch) -> dict[str, list[Row]]:
    patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    file = table.metadata_location
    polars = pl.scan_iceberg(file, reader_override="native").collect().rows()
    found = {
        "spark": spark.sql(f"SELECT * FROM lake.{'.'.join(table.name())}"),
        "pyiceberg": list(zip(*table.scan().to_arrow().to_pydict().values(), strict=True)),
        "duckdb": duckdb_connection().execute("SELECT * FROM iceberg_scan($1)", [file]).fetchall(),
        "polars": polars,
    }
    return {reader: in_order(map(plain, rows)) for reader, rows in found.items()}


def plain(row: Row) -> Row:
    """Values in the types of the model."""
    return tuple(bytes(v) if isinstance(v, bytearray) else v for v in row)


@pytest.mark.parametrize("version", [3, pytest.param(2, marks=pytest.mark.long)])
def test_all_readers_return_the_models_rows_whatever_spark_does_between(
    iceberg_catalog: IcebergCatalog,
    spark: IcebergSpark,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
) -> None:
    """Format version 2 has positions in the place of vectors, and no row ids."""
    catalog = RestCatalog(RestSettings(iceberg_catalog.uri))
    policy = MaintenancePolicy(gathered_files=4, smallest_class_bytes=16 * 1024)
    table, namespace = table_of(FIRST), f"n{uuid.uuid4().hex}"
    sink = IcebergSink(catalog, LocalStores(), SYNC, (namespace,), policy=policy, format_version=version)
    life = ReadableTable(sink.target(table.id), Model(table), FIRST)
    life.model.rows = {(n,): row_of(FIRST, n, f"first {n}") for n in range(1000)}
    whole_snapshot(life.target, life.model.rows.values(), table)
    life.batches(12, tmp_path)
    assert content(life.target) == life.model.content
    theirs = PyIcebergCatalog("rest", uri=iceberg_catalog.uri)

    def agree() -> None:
        found = read_by_all(spark, theirs.load_table((namespace, "things")), monkeypatch)
        assert {reader for reader, rows in found.items() if rows != life.model.content} == set()

    agree()
    name = f"{namespace}.things"
    for condition, holds in FILTERS.items():
        expected = [row[0] for row in life.model.content if holds(dict(zip(life.columns, row, strict=True)))]
        assert expected
        assert in_order(spark.sql(f"SELECT id FROM lake.{name} WHERE {condition}")) == in_order((n,) for n in expected)
    spark.sql(f"CALL lake.system.rewrite_manifests('{name}')")
    spark.sql(f"CALL lake.system.expire_snapshots(table => '{name}', retain_last => 1, older_than => now())")
    life.batches(2, tmp_path)
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    life.batches(2, tmp_path)
    state = life.target.last_commit()
    assert state is not None
    assert state.written is None
    spark.sql(f"UPDATE lake.{name} SET text = 'theirs' WHERE id IN (1, 3, 5, 7, 9)")
    life.model.rows |= {k: (r[0], "theirs", *r[2:]) for k, r in life.model.rows.items() if k[0] in (1, 3, 5, 7, 9)}
    life.batches(2, tmp_path)
    state = life.target.last_commit()
    assert state is not None
    assert state.written is not None
    assert state.written.program.startswith("spark")
    before = snapshot_of(theirs, name)
    life.commit({1, 2, 3, 4, 5, 2001, 2002}, {10, 11}, tmp_path)
    life.commit({2, 2001, 10}, {5}, tmp_path)
    agree()
    if version == 2:
        spark.sql(f"ALTER TABLE lake.{name} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
        spark.sql(f"DELETE FROM lake.{name} WHERE id IN (1, 3, 100, 200)")
        life.model.rows = {k: r for k, r in life.model.rows.items() if k[0] not in (1, 3, 100, 200)}
        life.commit({3, 4, 5}, {101, 201}, tmp_path)
        agree()
        assert kinds_of_deletes(theirs, name) == {"PARQUET"}
        return
    assert kinds_of_deletes(theirs, name) == {"PUFFIN"}
    assert changes_between(spark, name, before, snapshot_of(theirs, name)) == {
        "updated": {1, 2, 3, 4},
        "deleted": {5, 10, 11},
        "inserted": {2001, 2002, 10},
    }
    rows = spark.sql(f"SELECT count(*), count(DISTINCT _row_id) FROM lake.{name}")
    assert rows == [(len(life.model.rows), len(life.model.rows))]
    for statement in ("DROP COLUMN day", "ADD COLUMN day date"):
        spark.sql(f"ALTER TABLE lake.{name} {statement}")
    with pytest.raises(PermanentError, match="column 'day' is another: its field id was"):
        life.commit({1}, set(), tmp_path)


@pytest.mark.parametrize("version", [3, pytest.param(2, marks=pytest.mark.long)])
def test_upkeep_by_spark_after_our_newest_commit(
    iceberg_catalog: IcebergCatalog, spark: IcebergSpark, tmp_path: Path, version: int
) -> None:
    """A table that was taken back stays refused, whatever is expired then. A rewrite of our rows
    keeps the state, and so do two; but if the first one expires, rows may have changed unseen."""
    namespace = f"n{uuid.uuid4().hex}"
    sink = IcebergSink(
        RestCatalog(RestSettings(iceberg_catalog.uri)), LocalStores(), SYNC, (namespace,), format_version=version
    )
    upkeep = (
        "CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
        "CALL lake.system.expire_snapshots(table => '{name}', retain_last => 1, older_than => now())",
    )

    def filled(name: str) -> tuple[Model, IcebergTarget]:
        table = make_table({"id": "bigint(20)", "note": "varchar(20)"}, ["id"], "readers", name)
        model, target = Model(table, {(n,): (n, "first") for n in range(9)}), sink.target(table.id)
        whole_snapshot(target, model.rows.values(), table)
        target.writer(tmp_path).commit(1, batch(1, model.apply([(1, "ours"), (20, "ours")], [(2,)])))
        return model, target

    def run(name: str, *statements: str) -> None:
        for statement in statements:
            spark.sql(statement.format(name=f"{namespace}.{name}"))

    model, taken_back = filled("back")
    (first,) = spark.sql(f"SELECT snapshot_id FROM lake.{namespace}.back.snapshots ORDER BY committed_at LIMIT 1")
    run("back", f"CALL lake.system.rollback_to_snapshot('{{name}}', {first[0]})", *upkeep)
    with pytest.raises(PermanentError, match="taken back"):
        taken_back.last_commit()
    model, rewritten = filled("rewritten")
    before = rewritten.last_commit()
    run("rewritten", *upkeep)
    assert (rewritten.last_commit(), content(rewritten)) == (before, model.content)
    run("rewritten", upkeep[0], *upkeep)
    state = rewritten.last_commit()
    assert state is not None
    assert before is not None
    assert state.written is not None
    assert (replace(state, written=None), content(rewritten)) == (before, model.content)


def test_a_column_that_spark_added_keeps_its_values_through_compaction(
    iceberg_catalog: IcebergCatalog, spark: IcebergSpark, tmp_path: Path
) -> None:
    """In rows that no batch changed: one that is changed is rewritten without them."""
    name, catalog = f"n{uuid.uuid4().hex}.orders", RestCatalog(RestSettings(iceberg_catalog.uri, seconds=120))
    policy = MaintenancePolicy(gathered_files=2, smallest_class_bytes=2**20)
    sink = IcebergSink(catalog, LocalStores(), SYNC, (name.partition(".")[0],), policy=policy)
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(n,): (n, "first") for n in range(9)})
    whole_snapshot(target, model.rows.values())
    columns = {"other": "string", "Price": "decimal(20, 3)", "at": "timestamp"}
    spark.sql(f"ALTER TABLE lake.{name} ADD COLUMNS ({', '.join(f'{n} {kind}' for n, kind in columns.items())})")
    spark.sql(f"UPDATE lake.{name} SET other = 'theirs', Price = id + 0.125, at = TIMESTAMP '2026-01-02 03:04:05Z'")
    question = f"SELECT id, other, Price, at FROM lake.{name} WHERE Price > 1"
    before, writer, steps = in_order(spark.sql(question)), target.writer(tmp_path), list[str]()
    assert len(before) == 8
    for number in range(1, 4):
        writer.commit(1, batch(number, model.apply([(20 + number, "ours")], [])))
        steps += iter(writer.maintain, "")
    assert "compact" in steps
    ((files,),) = spark.sql(f"SELECT count(*) FROM lake.{name}.files WHERE content = 0")
    assert int(files) < 4
    assert in_order(spark.sql(question)) == before
    assert (content(target), len(spark.sql(f"SELECT * FROM lake.{name} WHERE other IS NULL"))) == (model.content, 3)
    read = PyIcebergCatalog("rest", uri=iceberg_catalog.uri).load_table(tuple(name.split("."))).scan().to_arrow()
    assert read["other"].to_pylist().count("theirs") == 9


def test_spark_refuses_the_names_that_no_column_may_have(
    iceberg_catalog: IcebergCatalog, spark: IcebergSpark, tmp_path: Path
) -> None:
    """And no others of its library's metadata columns."""
    names = ["id", *sorted(ICEBERG), "_change_type", "_change_ordinal", "_commit_snapshot_id", "pos", "file_path"]
    fields = [{"id": n, "name": name, "required": False, "type": "int"} for n, name in enumerate(names, 1)]
    table = CatalogTableName((f"n{uuid.uuid4().hex}",), "things")
    new = NewTable({"type": "struct", "schema-id": 0, "fields": fields}, 3, {})
    RestCatalog(RestSettings(iceberg_catalog.uri)).create(table, new)
    with pytest.raises(RuntimeError, match="names reserved for Iceberg metadata columns") as refused:
        spark.sql(f"SELECT * FROM lake.{table.namespace[0]}.things")
    named = re.search(r"reserved for Iceberg metadata columns: \[(.*?)\]", str(refused.value))
    assert named is not None
    assert set(named[1].split(", ")) == ICEBERG


def kinds_of_deletes(catalog: PyIcebergCatalog, name: str) -> set[str]:
    """The formats of the files that delete rows of others, none of which has two."""
    tasks = list(catalog.load_table(name).scan().plan_files())
    assert all(len(task.delete_files) <= 1 for task in tasks)
    return {file.file_format.value for task in tasks for file in task.delete_files}


def snapshot_of(catalog: PyIcebergCatalog, name: str) -> int:
    snapshot = catalog.load_table(name).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def changes_between(spark: IcebergSpark, name: str, before: int, after: int) -> dict[str, set[int]]:
    """The keys of the rows that one snapshot has and the other has not, or in another form, by
    their row ids."""
    columns = "id, _row_id, _last_updated_sequence_number AS updated"
    one, other = (f"(SELECT {columns} FROM lake.{name} VERSION AS OF {snapshot})" for snapshot in (before, after))
    rows = spark.sql(
        f"SELECT a.id, b.id FROM {one} a FULL OUTER JOIN {other} b ON a._row_id = b._row_id "
        "WHERE a.updated IS DISTINCT FROM b.updated"
    )
    assert all(a == b for a, b in rows if a is not None and b is not None)
    return {
        "updated": {a for a, b in rows if a is not None and b is not None},
        "deleted": {a for a, b in rows if b is None},
        "inserted": {b for a, b in rows if a is None},
    }
