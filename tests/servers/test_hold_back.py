"""What is in the binlog and not committed yet is not applied: a promoted replica may never have
it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cdcsync_core.positions.position import Place
from cdcsync_mysql.positions import watermark
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings
from support.fixtures import FreshServer
from support.semisync import open_window, until
from support.source import connected, source_of


def test_a_batch_waits_for_the_commit(fresh_server: FreshServer, tmp_path: Path) -> None:
    """Semi-synchronous replication without a replica: the insert is in the binlog for a minute, and
    a dump sends it."""
    server = fresh_server("mysql97_gtid")
    with connected(server) as (connection, facts):
        start = watermark.current(connection, facts)
    settings = ReaderSettings(
        source_of(server), facts.lineage, 4_000_000_078, {}, start, {}, 1.0, 8 << 20, tmp_path, hold_back=True
    )
    held = BinlogReader(settings)
    at_once = BinlogReader(replace(settings, replica_id=4_000_000_079, hold_back=False))
    try:
        with open_window(server) as window:
            insert = window.naive()
            held.start()
            at_once.start()
            until(lambda: _reaches(at_once.next_batch(), insert), "the insert")
            assert not any(_reaches(held.next_batch(), insert) for _ in range(3))
            assert window.rows() == 0
        until(lambda: _reaches(held.next_batch(), insert), "the insert, committed")
    finally:
        held.stop()
        at_once.stop()


def _reaches(batch: BinlogBatch | None, place: Place) -> bool:
    if batch is not None and batch.fatal is not None:
        raise batch.fatal
    return batch is not None and batch.end.has_reached(place)
