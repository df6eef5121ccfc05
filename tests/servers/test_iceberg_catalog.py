"""A REST catalog by Iceberg's own handlers: creation, the compare-and-set, and answers that are
lost, where the table decides what became of a commit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, CommitLost, LoadedTable, NewTable, OutcomeUnknown
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from support.iceberg_catalog import IcebergCatalog
from support.waiting import eventually

FIELDS = [{"id": 1, "name": "id", "required": True, "type": "long"}]
NEW = NewTable({"type": "struct", "schema-id": 0, "fields": FIELDS, "identifier-field-ids": [1]}, 3, {"made": "here"})


@pytest.fixture
def rest(iceberg_catalog: IcebergCatalog) -> RestCatalog:
    return RestCatalog(RestSettings(iceberg_catalog.uri, seconds=120))


@pytest.fixture
def table() -> CatalogTableName:
    return CatalogTableName((f"n{uuid.uuid4().hex}", "a b"), "order/s")


def committed(rest: RestCatalog, table: CatalogTableName, of: LoadedTable, value: str) -> LoadedTable:
    requirements = [{"type": "assert-table-uuid", "uuid": of.metadata["table-uuid"]}]
    return rest.commit(table, requirements, [{"action": "set-properties", "updates": {"value": value}}])


def value(rest: RestCatalog, table: CatalogTableName) -> str | None:
    loaded = rest.load(table)
    assert loaded is not None
    return loaded.metadata["properties"].get("value")


def test_a_table_from_its_creation_to_its_end(rest: RestCatalog, table: CatalogTableName) -> None:
    assert not rest.has_namespace(table.namespace)
    assert rest.load(table) is None
    created = rest.create(table, NEW)
    assert rest.has_namespace(table.namespace)
    assert created.metadata["format-version"] == 3
    assert created.metadata["properties"]["made"] == "here"
    with pytest.raises(CommitLost):
        rest.create(table, NEW)
    assert committed(rest, table, created, "1").metadata["properties"]["value"] == "1"
    with pytest.raises(CommitLost, match="UUID does not match"):
        rest.commit(table, [{"type": "assert-table-uuid", "uuid": str(uuid.uuid4())}], [])
    rest.drop(table)
    rest.drop(table)
    assert rest.load(table) is None
    with pytest.raises(CommitLost):
        committed(rest, table, created, "2")


@pytest.fixture
def faults(iceberg_catalog: IcebergCatalog) -> Iterator[IcebergCatalog]:
    yield iceberg_catalog
    iceberg_catalog.fault("release")
    iceberg_catalog.fault("")


@pytest.mark.parametrize(
    ("fault", "raised", "landed"),
    [
        ("before", OutcomeUnknown, False),
        ("after", OutcomeUnknown, True),
        ("cut", OutcomeUnknown, True),
        ("hang", OutcomeUnknown, True),
        ("conflict", CommitLost, False),
    ],
)
def test_the_table_decides_what_became_of_a_commit(
    faults: IcebergCatalog, table: CatalogTableName, fault: str, raised: type[Exception], landed: bool
) -> None:
    patient = RestCatalog(RestSettings(faults.uri, seconds=120))
    created = patient.create(table, NEW)
    rest = RestCatalog(RestSettings(faults.uri, seconds=5)) if fault == "hang" else patient
    rest._session.config = patient._session.config
    faults.fault(fault)
    with pytest.raises(raised):
        committed(rest, table, created, fault)
    if landed:
        eventually(lambda: value(patient, table) == fault)
    assert value(patient, table) == (fault if landed else None)
    committed(patient, table, created, "next")
    assert value(patient, table) == "next"


def test_a_creation_whose_answer_is_lost_is_tried_again_and_finds_the_table(
    faults: IcebergCatalog, rest: RestCatalog, table: CatalogTableName
) -> None:
    rest.create(CatalogTableName(table.namespace, "another"), NEW)
    faults.fault("after")
    with pytest.raises(CdcError) as unknown:
        rest.create(table, NEW)
    assert unknown.value.reason is Reason.SINK_UNREACHABLE
    with pytest.raises(CommitLost):
        rest.create(table, NEW)


def test_a_table_that_the_catalog_forgets(faults: IcebergCatalog, rest: RestCatalog) -> None:
    name = CatalogTableName((f"n{uuid.uuid4().hex}",), "orders")
    created = rest.create(name, NEW)
    faults.fault(f"forget={name.namespace[0]}/{name.name}")
    assert rest.load(name) is None
    with pytest.raises(CommitLost):
        committed(rest, name, created, "1")
