"""What is in the binlog and not committed yet is not applied: a promoted replica may never have
it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cdcsync_core.positions.position import FilePosition, Place
from cdcsync_mysql.positions import watermark
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.binlog.hold_back import HoldBack
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings
from support.fixtures import FreshServer
from support.semisync import WAIT_SECONDS, open_window, until
from support.servers import Server
from support.source import connected, source_of


@pytest.mark.parametrize("variant", ["mysql97_gtid", "mariadb1011", pytest.param("mariadb118", marks=pytest.mark.long)])
def test_a_batch_waits_for_the_commit(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    """Semi-synchronous replication without a replica: the insert is in the binlog for a minute, and
    a dump sends it."""
    server = fresh_server(variant)
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


@pytest.mark.parametrize("variant", ["mariadb1011", pytest.param("mariadb118", marks=pytest.mark.long)])
def test_no_batch_waits_where_no_commit_does(variant: str, fresh_server: FreshServer) -> None:
    """MariaDB's place of the last commit may stay before the binlog's end: here the end is a place
    that is not there."""
    server = fresh_server(variant)
    with connected(server) as (connection, facts):
        position = watermark.current(connection, facts)
    assert isinstance(position, FilePosition)
    beyond = replace(position, at=replace(position.at, offset=position.at.offset + 1_000_000))
    hold_back = HoldBack(source_of(server), facts.lineage)
    try:
        until(lambda: hold_back.covers(beyond), "the answer that commits do not wait for replicas")
        with open_window(server) as window:
            assert not hold_back.covers(beyond)
            until(lambda: hold_back.covers(position), "what is committed")
            assert window.rows() == 0
        server.run("SET GLOBAL rpl_semi_sync_master_enabled = ON")
        until(lambda: hold_back.covers(beyond), "the answer that none waits any more")
    finally:
        hold_back.close()


@pytest.mark.parametrize("variant", ["mariadb1011", pytest.param("mariadb118", marks=pytest.mark.long)])
def test_a_commit_that_waits_while_the_binlog_is_rotated(variant: str, fresh_server: FreshServer) -> None:
    """MariaDB's place of the last commit is in the new file at once."""
    server = fresh_server(variant)
    with connected(server) as (_, facts):
        hold_back = HoldBack(source_of(server), facts.lineage)
    rotation = threading.Thread(target=server.run, args=("FLUSH BINARY LOGS",))
    try:
        with open_window(server) as window:
            insert = FilePosition(window.naive())
            assert not hold_back.covers(insert)
            rotation.start()
            until(lambda: _last_commit(server) > (insert.at.file, insert.at.offset), "the new file")
            assert not hold_back.covers(insert)
            assert window.rows() == 0
        rotation.join(WAIT_SECONDS)
        until(lambda: hold_back.covers(insert), "the insert, committed")
    finally:
        hold_back.close()


def _last_commit(server: Server) -> tuple[str, int]:
    status = dict(server.query("SHOW STATUS LIKE 'binlog_snapshot%'"))
    return status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])


def _reaches(batch: BinlogBatch | None, place: Place) -> bool:
    if batch is not None and batch.fatal is not None:
        raise batch.fatal
    return batch is not None and batch.end.has_reached(place)
