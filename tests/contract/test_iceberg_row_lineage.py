"""Row lineage of Iceberg tables, as DuckDB reads it: a row keeps its id from its first batch to its
last, wherever it is moved, and the number of the commit that changed it last is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from cdcsync_core.tables.schema_change import Converted, Kept
from cdcsync_spark.sinks.contract.changes import Empty, Replace, Upsert
from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName
from cdcsync_spark.sinks.iceberg.replica import lineage
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from cdcsync_spark.sinks.lake.keys.scratch import Scratch
from cdcsync_spark.sinks.lake.policy import MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.iceberg_duckdb import duckdb_connection
from contract.sinkcase import SYNC, Model, Row, batch, make_table, stage, step, whole_snapshot
from support.folder_catalog import FolderCatalog, iceberg_sink

NAME = CatalogTableName(("shop",), "orders")
COLUMNS = {"id": "bigint(20)", "small": "tinyint(4)", "note": "varchar(20)"}
TABLE = make_table(COLUMNS, ["id"])
WIDER = make_table({**COLUMNS, "small": "decimal(5,0)"}, ["id"])
#: the id of a row, and the sequence number of the commit that changed it last
Identity = tuple[int, int]


def row_of(key: int, text: str) -> Row:
    return (key, key % 100, text)


@pytest.fixture
def sink(tmp_path: Path) -> IcebergSink:
    policy = MaintenancePolicy(gathered_files=4, smallest_class_bytes=6000, peeled_bytes=1)
    return iceberg_sink(open_store(str(tmp_path / "lake")), SYNC, policy=policy)


@dataclass
class Identities:
    """The identities of a table's rows after each of its commits."""

    sink: IcebergSink
    now: dict[int, Identity] = field(default_factory=dict)
    #: ids that were ever given
    given: set[int] = field(default_factory=set)

    def read(self) -> dict[int, Identity]:
        assert isinstance(self.sink.catalog, FolderCatalog)
        file = self.sink.catalog.metadata_file(NAME)
        columns = "id, _row_id, _last_updated_sequence_number"
        rows = duckdb_connection().execute(f"SELECT {columns} FROM iceberg_scan($1)", [file]).fetchall()
        identities = {key: (number, updated) for key, number, updated in rows}
        assert len(identities) == len(rows) == len({number for _, number, _ in rows})
        return identities

    @property
    def sequence_number(self) -> int:
        loaded = self.sink.catalog.load(NAME)
        assert loaded is not None
        return int(loaded.metadata["last-sequence-number"])

    def after(self, change: Callable[[], object], upserted: set[int], deleted: set[int]) -> None:
        """Commits a change: updated rows keep their id, inserted ones have one that no row had, and
        both have the commit's number; all other rows stay as they are."""
        change()
        before, self.now = self.now, self.read()
        for key, (number, updated) in self.now.items():
            if key not in upserted:
                assert (number, updated) == before[key]
                continue
            assert updated == self.sequence_number
            assert number == before[key][0] if key in before else number not in self.given
        assert self.now.keys() == (before.keys() | upserted) - deleted
        self.given |= {number for number, _ in self.now.values()}

    def refuse_change(self) -> None:
        assert self.read() == self.now


def test_a_row_keeps_its_id_through_updates_compactions_restarts_and_changes_of_a_type(
    sink: IcebergSink, tmp_path: Path
) -> None:
    target, model, random = sink.target(TABLE.id), Model(TABLE), Random(5)
    model.rows = {(n,): row_of(n, "first") for n in range(200)}
    rows, keys = Identities(sink), set(range(200))
    rows.after(lambda: whole_snapshot(target, model.rows.values(), TABLE), keys, set())
    writer, steps = target.writer(tmp_path), set[str]()
    for number in range(1, 25):
        some = random.sample(range(300), 15)
        upserted, deleted = set(some[:10]), set(some[10:])
        change = model.apply([row_of(k, f"by {number}") for k in upserted], [(k,) for k in deleted])
        rows.after(lambda: writer.commit(1, batch(number, change)), upserted, deleted)  # noqa: B023
        if upkeep := set(iter(writer.maintain, "")):
            steps |= upkeep
            rows.refuse_change()
        if number % 7 == 0:
            writer = target.writer(tmp_path)
    assert "compact" in steps
    origins = [Converted(n) if n == "small" else Kept(n) for n in COLUMNS]
    target.commit(1, step(25, WIDER, origins))
    rows.refuse_change()
    change = Model(WIDER).apply([row_of(k, "last") for k in range(0, 300, 7)], [])
    rows.after(lambda: target.commit(1, batch(26, change)), set(range(0, 300, 7)), set())


def test_a_key_that_comes_back_is_another_row_and_so_are_those_of_a_resnapshot(sink: IcebergSink) -> None:
    """But for one that is deleted and inserted within a batch, which is an update."""
    target, model = sink.target(TABLE.id), Model(TABLE, {(n,): row_of(n, "first") for n in range(9)})
    rows, keys = Identities(sink), set(range(9))
    rows.after(lambda: whole_snapshot(target, model.rows.values(), TABLE), keys, set())
    gone = model.apply([], [(3,)])
    rows.after(lambda: target.commit(1, batch(1, gone)), set(), {3})
    back = model.apply([row_of(3, "back"), row_of(4, "back")], [(4,)])
    rows.after(lambda: target.commit(1, batch(2, back)), {3, 4}, set())
    again = Replace(stage(target, TABLE, model.rows.values()).staged)
    rows.now = {}
    rows.after(lambda: target.commit(1, batch(3, again)), keys, set())
    rows.after(lambda: target.commit(1, batch(4, Empty())), set(), keys)


def test_ids_of_many_rows_lie_in_scratch_space(
    sink: IcebergSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of more rows than stay in memory, and more small files than stay there."""
    monkeypatch.setattr(lineage, "Scratch", partial(Scratch, in_memory=32))
    target, count, few = sink.target(TABLE.id), 70, 30
    model = Model(TABLE, {(n,): row_of(n, "first") for n in range(count)})
    whole_snapshot(target, model.rows.values(), TABLE)
    writer = target.writer(tmp_path)

    def update(number: int, first: int, size: int) -> None:
        rows = [row_of(n, f"by {number}") for n in range(first, first + size)]
        writer.commit(1, batch(number, model.apply(rows, [])))

    update(1, 0, count)
    for number in range(2, 14):
        update(number, number * 3, few)
    assert {key: number for key, (number, _) in Identities(sink).read().items()} == {n: n for n in range(count)}


def test_a_file_has_ids_only_where_they_are_of_rows_before(sink: IcebergSink, tmp_path: Path) -> None:
    target = sink.target(TABLE.id)
    whole_snapshot(target, [row_of(1, "first")], TABLE)
    new, update = (Model(TABLE).apply([row_of(n, "new")], []) for n in (2, 1))
    assert columns_after(target.writer(tmp_path), 1, new, tmp_path) == [*COLUMNS]
    assert columns_after(target.writer(tmp_path), 2, update, tmp_path) == [*COLUMNS, "_row_id"]


def columns_after(writer: Writer, number: int, change: Upsert, folder: Path) -> list[str]:
    """The columns of the data file that the batch brings."""
    before = set(folder.rglob("*.parquet"))
    writer.commit(1, batch(number, change))
    (file,) = set(folder.rglob("*.parquet")) - before
    return list(pq.read_schema(file).names)
