"""From `spec.sink` to a sink: only names of Secrets travel, and nothing is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_lake.location import Location
from cdcsync_spark.sinks import sink_from_spec
from cdcsync_spark.sinks.contract.driver import Role
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.iceberg.catalog.login import OAuth2
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from cdcsync_spark.sinks.iceberg.catalog.sqlite import SqliteCatalog
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from cdcsync_spark.sinks.iceberg.history.target import IcebergHistorySink
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink
from cdcsync_spark.sinks.lake.policy import LEAVING_SMALL_FILES
from cdcsync_spark.sinks.lake.storage.local_store import LocalStore
from cdcsync_spark.sinks.lake.storage.object_store import ObjectStore


def test_a_folder() -> None:
    sink = sink_from_spec(SinkSpec.model_validate({"delta": {"path": "/lake"}}), Path("/secrets"), "shop/orders")
    assert sink == DeltaSink(LocalStore(Location("file", "/lake")), "shop/orders")


def test_an_object_store(tmp_path: Path) -> None:
    spec = {
        "path": "s3://lake/cdc",
        "credentialsSecretRef": {"name": "lake"},
        "options": {"endpoint": "http://h:1", "region": "r"},
    }
    sink = sink_from_spec(SinkSpec.model_validate({"type": "delta", "delta": spec}), tmp_path, "shop/orders")
    assert sink == DeltaSink(
        ObjectStore(Location("s3", "lake/cdc", "http://h:1", "r", str(tmp_path / "lake"))), "shop/orders"
    )


def test_a_catalog(tmp_path: Path) -> None:
    account = {"credentialsSecretRef": {"name": "account"}, "oauth2": {"serverUri": "https://t/x", "scope": "all"}}
    spec = {
        "catalog": {"uri": "https://c/api", "warehouse": "lake", "tls": {"caSecretRef": {"name": "ca"}}, **account},
        "namespace": "lake.shop",
        "properties": {"b": "2", "a": "1"},
        "credentialsSecretRef": {"name": "bucket"},
        "options": {"endpoint": "http://s3", "region": "eu"},
    }
    sink = sink_from_spec(SinkSpec.model_validate({"iceberg": spec}), tmp_path, "shop/orders", Role(followed=True))
    login = OAuth2(tmp_path / "account" / "username", tmp_path / "account" / "password", "https://t/x", "all")
    rest = RestCatalog(RestSettings("https://c/api", "lake", login, tmp_path / "ca" / "ca.crt"))
    stores = TableStores("http://s3", "eu", str(tmp_path / "bucket"))
    properties = (("a", "1"), ("b", "2"))
    assert sink == IcebergSink(rest, stores, "shop/orders", ("lake", "shop"), properties, LEAVING_SMALL_FILES)


def test_a_catalog_in_a_file() -> None:
    catalog = {"type": "jdbc", "uri": "jdbc:sqlite:/lake/catalog.db", "warehouse": "/lake/tables"}
    sink = sink_from_spec(SinkSpec.model_validate({"iceberg": {"catalog": catalog}}), Path("/secrets"), "shop/orders")
    stores = TableStores(folder="/lake/tables")
    assert sink == IcebergSink(SqliteCatalog("/lake/catalog.db", "/lake/tables", stores), stores, "shop/orders")


def test_history_tables_of_a_catalog() -> None:
    catalog = {"type": "jdbc", "uri": "jdbc:sqlite:/lake/catalog.db", "warehouse": "/lake/tables"}
    section = {"catalog": catalog, "mode": "history", "historyColumns": {"op": "change"}}
    sink = sink_from_spec(SinkSpec.model_validate({"iceberg": section}), Path("/secrets"), "shop/orders")
    stores = TableStores(folder="/lake/tables")
    tables = IcebergSink(SqliteCatalog("/lake/catalog.db", "/lake/tables", stores), stores, "shop/orders")
    assert sink == IcebergHistorySink(tables, EventColumns(op="change"))


def test_a_store_that_is_not_supported() -> None:
    with pytest.raises(CdcError) as refused:
        sink_from_spec(SinkSpec.model_validate({"delta": {"path": "hdfs://x/y"}}), Path("/secrets"), "shop/orders")
    assert refused.value.reason is Reason.SPEC_INVALID
