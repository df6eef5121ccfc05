"""Iceberg tables in AWS Glue: its compare-and-set between writers, answers that are lost, what
looks like Glue and does not check, and PyIceberg's own `GlueCatalog` beside it."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from pyiceberg.catalog.glue import GlueCatalog as PyIcebergCatalog

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_spark.sinks.iceberg.catalog.glue import GlueCatalog, GlueSettings
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, CommitLost, NewTable, OutcomeUnknown
from cdcsync_spark.sinks.iceberg.catalog.sigv4 import SigV4
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from contract import crashing, stepping
from contract.sinkcase import ORDERS, SYNC, Model, batch, content, in_order, whole_snapshot
from support.glue import GlueServer
from support.signature import AccessKey

KEY = AccessKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "eu-central-1", "glue")
FIELDS = [
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {"id": 2, "name": "at", "required": False, "type": "timestamptz"},
    {"id": 3, "name": "price", "required": False, "type": "decimal(9, 2)"},
]
NEW = NewTable({"type": "struct", "schema-id": 0, "fields": FIELDS, "identifier-field-ids": [1]}, 3, {"made": "here"})


@pytest.fixture(scope="module")
def glue() -> Iterator[GlueServer]:
    with GlueServer(KEY) as server:
        yield server


@pytest.fixture
def catalog(glue: GlueServer, tmp_path: Path) -> GlueCatalog:
    (tmp_path / "username").write_text(KEY.id)
    (tmp_path / "password").write_text(KEY.secret)
    warehouse = str(tmp_path / "lake")
    login = SigV4(tmp_path / "username", tmp_path / "password", KEY.region)
    glue.fault, glue.checks_versions = "", True
    return GlueCatalog(GlueSettings(glue.uri, login, seconds=120), warehouse, TableStores(folder=warehouse))


@pytest.fixture
def table() -> CatalogTableName:
    return CatalogTableName((f"n{uuid.uuid4().hex}",), "orders")


@pytest.fixture
def sink(catalog: GlueCatalog, table: CatalogTableName) -> IcebergSink:
    return IcebergSink(catalog, catalog.stores, SYNC, table.namespace)


def set_value(value: str) -> list[dict[str, object]]:
    return [{"action": "set-properties", "updates": {"value": value}}]


def value(catalog: GlueCatalog, table: CatalogTableName) -> str | None:
    loaded = catalog.load(table)
    assert loaded is not None
    return loaded.metadata["properties"].get("value")


def test_a_table_from_its_creation_to_its_end(catalog: GlueCatalog, table: CatalogTableName, glue: GlueServer) -> None:
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
    assert glue.faults == []


def test_pyiceberg_reads_the_same_table_and_what_others_set_stays(
    catalog: GlueCatalog, sink: IcebergSink, table: CatalogTableName
) -> None:
    target, model = sink.target(ORDERS.id), Model(ORDERS, {(n,): (n, "first") for n in range(50)})
    whole_snapshot(target, model.rows.values())
    client = {"glue.access-key-id": KEY.id, "glue.secret-access-key": KEY.secret, "glue.region": KEY.region}
    other = PyIcebergCatalog("glue", **{"glue.endpoint": catalog.settings.uri, **client})
    entry = other.glue.get_table(DatabaseName=table.namespace[0], Name="orders")["Table"]
    described = entry["StorageDescriptor"]["Columns"]
    assert [(c["Name"], c["Type"]) for c in described] == [("id", "bigint"), ("note", "string")]
    changed = {"Name": "orders", "Description": "theirs", "Owner": "them"}
    unchanged = {name: entry[name] for name in ("StorageDescriptor", "TableType", "Parameters")}
    other.glue.update_table(
        DatabaseName=table.namespace[0], VersionId=entry["VersionId"], TableInput={**unchanged, **changed}
    )
    target.commit(1, batch(1, model.apply([(1, "changed"), (99, "new")], [(2,)])))
    rows = other.load_table((*table.namespace, "orders")).scan().to_arrow().to_pydict().values()
    assert in_order(zip(*rows, strict=True)) == model.content == content(target)
    after = other.glue.get_table(DatabaseName=table.namespace[0], Name="orders")["Table"]
    assert (after["Description"], after["Owner"]) == ("theirs", "them")


def test_of_commits_at_the_same_time_none_undoes_another(catalog: GlueCatalog, table: CatalogTableName) -> None:
    """Each sets a property of its own, so that one that is lost is missing at the end."""
    catalog.create(table, NEW)

    def commit(number: int) -> int:
        own, lost = pickle.loads(pickle.dumps(catalog)), 0
        for _ in range(200):
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
    catalog: GlueCatalog, table: CatalogTableName, glue: GlueServer, fault: str
) -> None:
    catalog.create(table, NEW)
    catalog.commit(table, [], set_value("first"))
    glue.fault = fault
    with pytest.raises(OutcomeUnknown):
        catalog.commit(table, [], set_value(fault))
    assert value(catalog, table) == (fault if fault == "after" else "first")
    catalog.commit(table, [], set_value("next"))
    assert value(catalog, table) == "next"


def test_a_conflict_with_itself_loses_nothing(sink: IcebergSink, glue: GlueServer) -> None:
    """Something on the way has sent the request twice, and gave the second answer."""
    target = sink.target(ORDERS.id)
    before = whole_snapshot(target, [(1, "a"), (2, "b")])
    glue.fault = "conflict after"
    assert target.commit(1, batch(1, Model(ORDERS).apply([(1, "changed")], [(2,)]))).commit_number == (
        before.commit_number + 1
    )
    assert content(target) == [(1, "changed")]


def test_a_lost_answer_is_decided_by_the_table(sink: IcebergSink, glue: GlueServer) -> None:
    target = sink.target(ORDERS.id)
    before = whole_snapshot(target, [(1, "a"), (2, "b")])
    change = Model(ORDERS).apply([(1, "changed")], [(2,)])
    glue.fault = "before"
    with pytest.raises(CdcError, match=r"not confirmed, .*: Glue at .* it answered 500") as lost:
        target.commit(1, batch(1, change))
    assert lost.value.reason is Reason.SINK_UNREACHABLE
    assert content(target) == [(1, "a"), (2, "b")]
    glue.fault = "after"
    assert target.commit(1, batch(1, change)).commit_number == before.commit_number + 1
    assert content(target) == [(1, "changed")]


def test_what_does_not_check_versions_is_refused(
    catalog: GlueCatalog, table: CatalogTableName, glue: GlueServer
) -> None:
    """As moto itself does not."""
    catalog.create(table, NEW)
    glue.checks_versions = False
    with pytest.raises(PermanentError, match="it changes a table of another version") as refused:
        catalog.commit(table, [], set_value("1"))
    assert refused.value.reason is Reason.SPEC_INVALID
    assert value(catalog, table) is None


def test_a_table_of_another_kind_is_refused(catalog: GlueCatalog, table: CatalogTableName) -> None:
    catalog.create(table, NEW)
    other = {
        "DatabaseName": table.namespace[0],
        "TableInput": {"Name": "logs", "Parameters": {"classification": "json"}},
    }
    assert catalog._sent("CreateTable", other).error == ""
    with pytest.raises(PermanentError, match="is no Iceberg table") as refused:
        catalog.load(replace(table, name="logs"))
    assert refused.value.reason is Reason.SINK_CONFLICT


@pytest.mark.long
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("program", [crashing, stepping], ids=["rows", "steps"])
def test_whole_lives_of_a_table(sink: IcebergSink, program: ModuleType, version: int) -> None:
    sink = replace(sink, format_version=version)
    for epoch in (1, 2):
        program.run(sink, epoch)
        assert content(sink.target(ORDERS.id)) == in_order(program.EXPECTED)
