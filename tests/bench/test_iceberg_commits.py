"""What a commit costs in an Iceberg table of N rows, by a REST catalog on this machine, with files
in a folder.

    ICEBERG_ROWS=1000000,10000000,50000000 make bench ARGS='-k iceberg_'

Keys and batches are those of the Delta benchmark; after each commit comes a step of maintenance, as
in the stream, which is timed for itself. CPU is this process's, without the catalog's server. Every
table ends in a count and sums that must be the model's.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.commit_times import HEAD, Show, measured
from bench.delta_tables import TABLE, Stream, fill
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from cdcsync_spark.sinks.iceberg.replica.sink import IcebergSink, IcebergTarget
from contract.sinkcase import SYNC, batch
from support.folder_catalog import LocalStores
from support.iceberg_catalog import IcebergCatalog

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

SIZES = [int(n) for n in os.environ.get("ICEBERG_ROWS", "1000000").split(",")]
COMMITS, CHANGES = 30, 10_000


class OwnSnapshot:
    """The product, with its maintenance."""

    def __init__(self, target: IcebergTarget, scratch: Path) -> None:
        self._writer = target.writer(scratch)
        self._writer.warm()

    def commit(self, number: int, change: Upsert) -> None:
        self._writer.commit(1, batch(number, change))

    def maintain(self) -> None:
        """As the stream does it: one step after each batch."""
        self._writer.maintain()

    def cpu(self) -> float:
        return time.process_time()


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergCatalog]:
    server = IcebergCatalog(tmp_path_factory.mktemp("catalog")).start()
    yield server
    server.kill()


@pytest.mark.parametrize("kind", ["uniform", "newest", "mixed"])
@pytest.mark.parametrize("rows", SIZES)
def test_iceberg_commits(catalog: IcebergCatalog, rows: int, kind: str, tmp_path: Path, show: Show) -> None:
    namespace = (f"n{uuid.uuid4().hex}",)
    rest = RestCatalog(RestSettings(catalog.uri, seconds=600))
    target = IcebergSink(rest, LocalStores(), SYNC, namespace).target(TABLE.id)
    fill(target, rows)
    os.sync()  # or the first commits wait for the disk to take what came before them
    stream, folder = Stream(rows, kind, CHANGES), Path(catalog.warehouse, *namespace)
    times = measured(OwnSnapshot(target, tmp_path), stream, folder, COMMITS, warm_up=1)
    show(HEAD, times.row(rows, kind, CHANGES, "own snapshot"))
    assert sums(target) == stream.expected


def sums(target: IcebergTarget) -> tuple[int, int, int]:
    """Count, and the sums of `id` and `v`."""
    count = ids = versions = 0
    for part in target.open_snapshot().scan(["id", "v"]):
        count += part.num_rows
        ids += _sum(part.column("id"))
        versions += _sum(part.column("v"))
    return count, ids, versions


def _sum(values: pa.Array) -> int:
    return pc.sum(values).as_py() or 0
