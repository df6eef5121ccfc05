"""Iceberg tables in a Hive metastore: its compare-and-set between writers, answers that are lost, a
metastore without that check, and Spark's own `HiveCatalog` beside it."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_spark.sinks.iceberg.catalog.hive import HiveCatalog
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, CommitLost, NewTable, OutcomeUnknown
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from contract import crashing, stepping
from contract.sinkcase import ORDERS, SYNC, Model, batch, content, in_order, whole_snapshot
from support.hive_metastore import HiveMetastore, MetastoreProxy
from support.iceberg_catalog import ICEBERG
from support.iceberg_spark import IcebergSpark
from support.secure_kafka import Authority

pytestmark = [pytest.mark.long]
FIELDS = [{"id": 1, "name": "id", "required": True, "type": "long"}]
NEW = NewTable({"type": "struct", "schema-id": 0, "fields": FIELDS, "identifier-field-ids": [1]}, 3, {"made": "here"})


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    metastore = HiveMetastore(tmp_path_factory.mktemp("metastore")).start()
    yield metastore
    metastore.kill()


@pytest.fixture
def proxy(metastore: HiveMetastore) -> Iterator[MetastoreProxy]:
    proxy = MetastoreProxy(metastore.uri)
    yield proxy
    proxy.close()


@pytest.fixture
def catalog(metastore: HiveMetastore, tmp_path: Path) -> HiveCatalog:
    warehouse = str(tmp_path / "lake")
    return HiveCatalog(metastore.uri, warehouse, TableStores(folder=warehouse), 300)


@pytest.fixture
def table() -> CatalogTableName:
    return CatalogTableName((f"n{uuid.uuid4().hex}",), "orders")


@pytest.fixture
def sink(catalog: HiveCatalog, table: CatalogTableName) -> IcebergSink:
    return IcebergSink(catalog, catalog.stores, SYNC, table.namespace)


def set_value(value: str) -> list[dict[str, object]]:
    return [{"action": "set-properties", "updates": {"value": value}}]


def value(catalog: HiveCatalog, table: CatalogTableName) -> str | None:
    loaded = catalog.load(table)
    assert loaded is not None
    return loaded.metadata["properties"].get("value")


def test_a_table_from_its_creation_to_its_end(catalog: HiveCatalog, table: CatalogTableName) -> None:
    catalog.check()
    assert catalog.load(table) is None
    created = catalog.create(table, NEW)
    with pytest.raises(CommitLost):
        catalog.create(table, NEW)
    assert pickle.loads(pickle.dumps(catalog)).load(table) == created
    assert catalog.commit(table, [], set_value("1")).metadata["properties"] == {"made": "here", "value": "1"}
    with pytest.raises(CommitLost):
        catalog.commit(table, [{"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}], set_value("2"))
    assert value(catalog, table) == "1"
    catalog.drop(table)
    catalog.drop(table)
    assert catalog.load(table) is None
    with pytest.raises(CommitLost):
        catalog.commit(table, [], set_value("3"))


def test_a_metastore_with_tls(table: CatalogTableName, tmp_path: Path) -> None:
    """It is trusted by its own authority and its name alone, and never asked without encryption."""
    metastore = HiveMetastore(tmp_path, Authority("tests")).start()
    try:
        warehouse = str(tmp_path / "lake")
        catalog = HiveCatalog(metastore.uri, warehouse, TableStores(folder=warehouse), 300, metastore.ca)
        created = catalog.create(table, NEW)
        assert pickle.loads(pickle.dumps(catalog)).load(table) == created
        assert catalog.commit(table, [], set_value("1")).metadata["properties"]["value"] == "1"
        (tmp_path / "other.pem").write_text(Authority("others").certificate)
        others = (
            replace(catalog, authority=tmp_path / "other.pem"),
            replace(catalog, uri=catalog.uri.replace("localhost", "127.0.0.1")),
        )
        for other in others:
            with pytest.raises(PermanentError, match="its certificate is refused") as refused:
                other.load(table)
            assert refused.value.reason is Reason.AUTHENTICATION_FAILED
        with pytest.raises(CdcError) as unreachable:
            replace(catalog, authority=None, seconds=20).load(table)
        assert unreachable.value.reason is Reason.SINK_UNREACHABLE
    finally:
        metastore.kill()


@pytest.mark.parametrize("name", ["order-lines", "order@20lines"])
def test_a_name_that_the_metastore_does_not_take_is_refused(
    catalog: HiveCatalog, table: CatalogTableName, name: str
) -> None:
    with pytest.raises(PermanentError, match="did not create the table") as refused:
        catalog.create(replace(table, name=name), NEW)
    assert refused.value.reason is Reason.SPEC_INVALID


def test_of_commits_at_the_same_time_none_undoes_another(catalog: HiveCatalog, table: CatalogTableName) -> None:
    """Each sets a property of its own, so that one that is lost is missing at the end."""
    catalog.create(table, NEW)

    def commit(number: int) -> int:
        own, lost = pickle.loads(pickle.dumps(catalog)), 0
        for _ in range(100):
            try:
                own.commit(table, [], [{"action": "set-properties", "updates": {f"p{number}": "1"}}])
                return lost
            except CommitLost:
                lost += 1
        raise AssertionError(number)

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(commit, range(12))) > 0
    loaded = catalog.load(table)
    assert loaded is not None
    assert {f"p{n}" for n in range(12)} <= loaded.metadata["properties"].keys()


@pytest.mark.parametrize("fault", ["before", "after"])
def test_the_table_decides_what_became_of_a_commit(
    catalog: HiveCatalog, table: CatalogTableName, proxy: MetastoreProxy, fault: str
) -> None:
    catalog.create(table, NEW)
    proxy.fault = fault
    with pytest.raises(OutcomeUnknown):
        replace(catalog, uri=proxy.uri).commit(table, [], set_value(fault))
    assert value(catalog, table) == (fault if fault == "after" else None)
    catalog.commit(table, [], set_value("next"))
    assert value(catalog, table) == "next"


def test_a_metastore_that_does_not_check_is_refused(
    catalog: HiveCatalog, table: CatalogTableName, proxy: MetastoreProxy
) -> None:
    catalog.create(table, NEW)
    proxy.fault = "unchecked"
    with pytest.raises(PermanentError, match="without looking at what the change expects") as refused:
        HiveCatalog(proxy.uri, catalog.warehouse, catalog.stores, 300).commit(table, [], set_value("1"))
    assert refused.value.reason is Reason.SPEC_INVALID
    assert value(catalog, table) is None


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("program", [crashing, stepping], ids=["rows", "steps"])
def test_whole_lives_of_a_table(sink: IcebergSink, program: ModuleType, version: int) -> None:
    """Waves, batches, a resnapshot by a branch, changes of the schema; and a second run after."""
    sink = replace(sink, format_version=version)
    for epoch in (1, 2):
        program.run(sink, epoch)
        assert content(sink.target(ORDERS.id)) == in_order(program.EXPECTED)


def test_a_lost_answer_is_decided_by_the_table(
    sink: IcebergSink, catalog: HiveCatalog, proxy: MetastoreProxy, tmp_path: Path
) -> None:
    lossy = replace(sink, catalog=replace(catalog, uri=proxy.uri)).target(ORDERS.id)
    before = whole_snapshot(lossy, [(1, "a"), (2, "b")])
    change = Model(ORDERS).apply([(1, "changed")], [(2,)])
    proxy.fault = "before"
    with pytest.raises(CdcError, match=r"not confirmed, .*: the metastore: .*Internal error") as lost:
        lossy.commit(1, batch(1, change))
    assert lost.value.reason is Reason.SINK_UNREACHABLE
    assert content(lossy) == [(1, "a"), (2, "b")]
    proxy.fault = "after"
    assert lossy.commit(1, batch(1, change)).commit_number == before.commit_number + 1
    assert content(lossy) == [(1, "changed")]


def test_a_right_that_the_metastore_refuses_is_named(
    sink: IcebergSink, catalog: HiveCatalog, table: CatalogTableName
) -> None:
    """To commit, and to read the table; once they are given the table goes on."""
    target = sink.target(ORDERS.id)
    before = whole_snapshot(target, [(1, "a")])
    change = Model(ORDERS).apply([(2, "new")], [])
    loaded = catalog.load(table)
    assert loaded is not None
    folder = Path(loaded.metadata["location"])
    for mode, doing in ((0o555, "did not commit to"), (0o000, "did not give")):
        folder.chmod(mode)
        with pytest.raises(PermanentError, match=f"{doing} the table .*Permission denied") as refused:
            target.commit(1, batch(1, change))
        folder.chmod(0o755)
        assert refused.value.reason is Reason.PRIVILEGE_MISSING
        assert target.last_commit() == before
    assert target.commit(1, batch(1, change)).commit_number == before.commit_number + 1
    assert content(target) == [(1, "a"), (2, "new")]


@pytest.mark.spark
def test_spark_reads_and_writes_the_same_tables(
    metastore: HiveMetastore, sink: IcebergSink, table: CatalogTableName, tmp_path: Path
) -> None:
    """Its `HiveCatalog` takes the metastore's lock; its statements and our batches go on at the
    same time, on rows of their own."""
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(n,): (n, "first") for n in range(50)})
    whole_snapshot(target, model.rows.values())
    name, writer = f"lake.{table.namespace[0]}.orders", target.writer(tmp_path)
    with IcebergSpark(metastore.uri, ICEBERG / "jars", tmp_path) as spark, ThreadPoolExecutor(1) as pool:
        assert in_order(spark.sql(f"SELECT id, note FROM {name}")) == model.content
        spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.retry.num-retries' = '100')")
        inserts = [(1000 + n, "spark") for n in range(8)]
        going = pool.submit(lambda: [spark.sql(f"INSERT INTO {name} VALUES ({i}L, '{note}')") for i, note in inserts])
        number = 0
        while number < 5 or not going.done():
            number += 1
            writer.commit(1, batch(number, model.apply([(number % 60, f"by {number}")], [(number % 7 + 30,)])))
        going.result()
        model.rows |= {(row[0],): row for row in inserts}
        assert in_order(spark.sql(f"SELECT id, note FROM {name}")) == model.content
        spark.sql(f"UPDATE {name} SET note = 'theirs' WHERE id IN (1, 2)")
        model.rows |= {key: (key[0], "theirs") for key in model.rows if key[0] in (1, 2)}
        writer.commit(1, batch(number + 1, model.apply([(3, "after")], [(4,)])))
        assert in_order(spark.sql(f"SELECT id, note FROM {name}")) == model.content
    assert content(target) == model.content
