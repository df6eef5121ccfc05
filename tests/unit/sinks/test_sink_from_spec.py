"""From `spec.sink` to a sink: only names of Secrets travel, and nothing is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.sink_spec import Sink
from cdcsync_lake.location import Location
from cdcsync_spark.sinks import sink_from_spec
from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.local_store import LocalStore
from cdcsync_spark.sinks.lake.storage.object_store import ObjectStore


def test_a_folder() -> None:
    sink = sink_from_spec(Sink.model_validate({"delta": {"path": "/lake"}}), Path("/secrets"), "shop/orders")
    assert sink == DeltaSink(LocalStore(Location("file", "/lake")), "shop/orders")


def test_an_object_store(tmp_path: Path) -> None:
    spec = {
        "path": "s3://lake/cdc",
        "credentialsSecretRef": {"name": "lake"},
        "options": {"endpoint": "http://h:1", "region": "r"},
    }
    sink = sink_from_spec(Sink.model_validate({"type": "delta", "delta": spec}), tmp_path, "shop/orders")
    assert sink == DeltaSink(
        ObjectStore(Location("s3", "lake/cdc", "http://h:1", "r", str(tmp_path / "lake"))), "shop/orders"
    )


def test_a_store_that_is_not_supported() -> None:
    with pytest.raises(CdcError) as refused:
        sink_from_spec(Sink.model_validate({"delta": {"path": "hdfs://x/y"}}), Path("/secrets"), "shop/orders")
    assert refused.value.reason is Reason.SPEC_INVALID
