"""Iceberg tables in a bucket by a REST catalog: a snapshot by executors, then a stream, both under
writers, while an executor, drivers and the operator are killed and an answer of the catalog is
lost: the rows of the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support.compare import diagnose_walk
from support.node import Node, wait_until
from support.node_iceberg import IcebergNodeSync, node_catalog
from support.node_sync import DRIVER
from support.servers import Server
from support.workload import Pace
from support.workload_tables import WALK

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]
PACE = Pace(rows=20_000, writers=4, per_second=40)


@pytest.fixture
def lake(node: Node, source: Server, store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergNodeSync]:
    catalog = node_catalog(tmp_path_factory.mktemp("catalog"), node, store).start()
    sync = IcebergNodeSync(node, source, store, "iceberg", PACE, 2, catalog)
    sync.create()
    yield sync
    sync.workload.stop()
    catalog.kill()


def test_snapshot_and_stream_through_kills_and_a_lost_answer(lake: IcebergNodeSync) -> None:
    with lake.workload:
        when_half_read(lake, lake.kill_an_executor)
        when_half_read(lake, lake.kill_everything)
        wait_until(lake.is_read, 800, "it is read", lake.describe)
        lake.flows()
        kill_the_driver(lake)
        lake.catalog.fault("after")
        lake.workload.wait(5)
        lake.flows()
        lake.catalog.kill()
        lake.until(lambda s: s.condition("Ready").reason == "SinkUnreachable", 240, "the catalog is missed")
        lake.catalog.start()
        lake.flows()
    lake.arrives()
    assert lake.pods(DRIVER) == [lake.driver()]
    target = lake.target(WALK)
    counters = dict(zip(target["id"].to_pylist(), target["counter"].to_pylist(), strict=True))
    assert not diagnose_walk(lake.workload.walked(), counters), "not what was committed"
    ready = f"{len(lake.workload.tables)}/{len(lake.workload.tables)}"
    lake.until(lambda s: s.tables.ready == ready, 180, "the status says so, too")


def when_half_read(sync: IcebergNodeSync, kill: Callable[[], None]) -> None:
    """Fails where the snapshot is over before."""
    wait_until(lambda: sync.is_half_read() or sync.is_read(), 800, "it is half read", sync.describe)
    assert not sync.is_read(), "the snapshot was over before anything could be killed"
    kill()


def kill_the_driver(sync: IcebergNodeSync) -> None:
    killed = sync.driver()
    sync.node.kill(sync.name, killed)
    sync.until(lambda s: s.runs.stream and s.runs.stream.pod != killed, 120, "a new driver after a kill")
    sync.flows()
