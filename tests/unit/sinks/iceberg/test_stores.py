"""Where a catalog may put a table."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_lake.location import Location
from cdcsync_spark.sinks.iceberg.catalog.stores import TableStores
from cdcsync_spark.sinks.lake.storage.object_store import ObjectStore

STORES = TableStores("http://s3:9000", "eu", "/secrets/lake", folder="/data/lake")


@pytest.mark.parametrize("location", ["/data/lake/shop/a", "file:///data/lake/shop/a", "file:/data/lake/shop/a"])
def test_a_folder_below_the_warehouse(location: str) -> None:
    assert STORES.at(location).location == Location("file", "/data/lake/shop/a")


@pytest.mark.parametrize("location", ["s3://lake/shop/a", "s3a://lake/shop/a/"])
def test_a_folder_of_a_bucket(location: str) -> None:
    store = STORES.at(location, lambda: {"s3.access-key-id": "theirs"})
    assert store == ObjectStore(Location("s3", "lake/shop/a", "http://s3:9000", "eu", "/secrets/lake"))


@pytest.mark.parametrize(
    "location",
    [
        "/etc",
        "/data/lake2/a",
        "file:///data/lake/../../etc",
        "/data/lake/../../etc",
        "file://host/data/lake/a",
        "gs://lake/a",
        "s3://lake/a%2Fb",
        "s3://key:word@lake/a",
        "",
    ],
)
def test_where_no_table_may_be(location: str) -> None:
    with pytest.raises(CdcError) as refused:
        STORES.at(location)
    assert refused.value.reason is Reason.SPEC_INVALID


def test_a_folder_that_the_manifest_does_not_name() -> None:
    with pytest.raises(CdcError) as refused:
        TableStores().at("/data/lake/shop/a")
    assert "spec.sink.iceberg.catalog.warehouse" in refused.value.message
