"""A sink may have no store of files, as a database, or several: whoever asks a sink for its stores
and servers asks all of them, and knows no kind."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.resource.sinks.kind import Endpoint, SinkKind, StoreUse
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_lake.check import SinkCheck
from cdcsync_lake.location import Location
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy, violations
from cdcsync_operator.cluster.policy.source_networks import DEFAULT_REFUSED
from cdcsync_operator.reconcile.sink_calls import check_sink, check_sink_from_cluster
from unit.controller.harness import resource


class Stored(SinkKind):
    """Keeps files in each of `paths`; `host` is a server beside them."""

    paths: tuple[str, ...] = ()
    host: str = ""

    def stores(self) -> tuple[StoreUse, ...]:
        return tuple(
            StoreUse(f"spec.sink.stored.{n}", path, "http://169.254.1.1:1") for n, path in enumerate(self.paths)
        )

    def servers(self) -> tuple[Endpoint, ...]:
        return (Endpoint("spec.sink.stored.host", self.host),) if self.host else ()

    def secrets(self) -> dict[str, set[str]]:
        return {}

    def event_columns(self) -> EventColumns | None:
        return None

    @property
    def keeps_events(self) -> bool:
        return False


class StoredSink(SinkSpec):
    type: Literal["delta", "kafka", "stored"] = "stored"  # type: ignore[assignment]
    stored: Stored | None = None


def sync_of(**section: object) -> CdcSync:
    sync = resource(source={"host": "db", "credentialsSecretRef": {"name": "login"}})
    sink = StoredSink.model_validate({"stored": section})
    return sync.model_copy(update={"spec": sync.spec.model_copy(update={"sink": sink})})


def refused(**section: object) -> list[str]:
    return violations(sync_of(**section), PodPolicy(refused_source_networks=DEFAULT_REFUSED), Image("x"))


def test_a_sink_without_a_store_needs_no_volume_and_only_drivers_check_it(tmp_path: Path) -> None:
    assert refused(host="db.example") == []
    found = check_sink_from_cluster(sync_of(host="db.example"), tmp_path)
    assert found == SinkCheck("", unchecked="servers that only drivers ask")
    assert check_sink(sync_of(), tmp_path) == SinkCheck("")


def test_each_store_and_each_server_is_held_to_the_policy() -> None:
    faults = refused(paths=("s3://lake/x", "/lake", "hdfs://x"), host="127.0.0.1")
    for expected in (
        "spec.sink.stored.0.options.endpoint: 169.254.1.1 is in the network",
        "spec.sink.stored.1.options.endpoint: 169.254.1.1 is in the network",
        "spec.sink.stored.host: 127.0.0.1 is in the network",
        "spec.sink.stored.1.path: /lake is a folder of each pod alone",
        "spec.sink.stored.2.path: hdfs://x is in a store that is not supported",
    ):
        assert any(fault.startswith(expected) for fault in faults), (expected, faults)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_is_wrong_with_any_store_is_found(tmp_path: Path, order: tuple[int, int]) -> None:
    paths = (str(tmp_path), "hdfs://x")
    sync = sync_of(paths=tuple(paths[n] for n in order))
    for found in (check_sink(sync, tmp_path), check_sink_from_cluster(sync, tmp_path, lambda at: SinkCheck(at.uri))):
        (error,) = found.errors
        assert "hdfs://x" in error.found
        assert set(found.uri.split(", ")) == {Location.parse(str(tmp_path)).uri, "hdfs://x"}
