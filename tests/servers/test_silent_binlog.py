"""Rules R6 and R10 while the binlog is silent: a heartbeat counts once a proof has followed it: the
binlog that the source's name leads to is ours and ends where the dump stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.position import Position
from cdcsync_mysql.positions import watermark
from cdcsync_spark.binlog.dump.reader_health import Received, ReceivedFile
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings, Reconnect
from support.fixtures import Syncing
from support.relay import Relay, relay_to
from support.semisync import next_second
from support.servers import VARIANTS, Server
from support.source import connected, source_of

_HEARTBEAT = 1.0
_SECONDS = 120.0


@pytest.fixture(scope="module", params=["mariadb1011", "mysql97_gtid", "mysql97_nogtid"])
def own_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, syncing: Syncing
) -> Iterator[Server]:
    """A server whose binlog the tests of this module reset and remove."""
    variant = VARIANTS[request.param]
    server = variant.start(tmp_path_factory.mktemp(variant.name), **syncing[variant.flavor])
    server.run("CREATE DATABASE h", "CREATE TABLE h.t (id INT PRIMARY KEY)")
    yield server
    server.remove()


@pytest.fixture
def server(own_server: Server) -> Server:
    """A server whose binlog has one file, which every RESET begins with the same name."""
    own_server.run("TRUNCATE TABLE h.t")
    _reset(own_server)
    _write(own_server, 1)
    return own_server


def _reset(server: Server) -> None:
    server.run("RESET MASTER" if server.flavor == "mariadb" else "RESET BINARY LOGS AND GTIDS")


def _write(server: Server, key: int) -> None:
    server.run(f"INSERT INTO h.t VALUES ({key})")


class _Following:
    """A reader of the server's binlog, from its end on."""

    def __init__(self, reader: BinlogReader, received: ReceivedFile) -> None:
        self._reader, self._received = reader, received
        self.position: Position | None = None

    @property
    def received(self) -> Received:
        found = self._received.read()
        assert found is not None
        return found

    def until(self, wanted: Callable[[Received], object]) -> Received:
        deadline = time.monotonic() + _SECONDS
        while not wanted(found := self.received):
            assert time.monotonic() < deadline, f"not in {_SECONDS} s: {found}"
            self.next()
            time.sleep(0.02)
        return found

    def proved(self) -> float:
        """When the first heartbeat came from now on that was proved."""
        now = time.monotonic()
        end = self.until(lambda r: r.end is not None and r.end > now).end
        assert end is not None
        return end

    def next(self) -> None:
        batch = self._reader.next_batch()
        if batch is not None and batch.fatal is not None:
            raise batch.fatal
        self.position = self.position if batch is None else batch.end

    def failure(self) -> CdcError:
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            try:
                self.next()
            except CdcError as error:
                return error
            time.sleep(0.02)
        raise AssertionError(f"no failure in {_SECONDS} s; {self.received}")


@contextmanager
def _following(server: Server, folder: Path, port: int | None = None) -> Iterator[_Following]:
    source = replace(source_of(server), port=port or server.port)
    with connected(server) as (connection, facts):
        lineage, start = facts.lineage, watermark.current(connection, facts)
    folder.mkdir(exist_ok=True)
    received = folder / "received"
    settings = ReaderSettings(
        source, lineage, 4_000_000_077, {}, start, {}, _HEARTBEAT, 8 << 20, folder,
        received=received, reconnect=Reconnect(3 * _SECONDS, 0.1),
    )  # fmt: skip
    reader = BinlogReader(settings)
    reader.start()
    try:
        following = _Following(reader, ReceivedFile(received))
        following.proved()
        yield following
    finally:
        reader.stop()


def test_a_reset_to_a_file_of_the_same_name_and_size_is_a_lost_position(server: Server, tmp_path: Path) -> None:
    """Names, sizes and GTIDs come again; the dump of the old file gets nothing of the new one."""
    with _following(server, tmp_path) as following:
        at = server.binlog_status()
        next_second()
        _reset(server)
        _write(server, 2)
        assert server.binlog_status() == at, "the case that only the file's beginning shows"
        error = following.failure()
    assert error.reason is Reason.POSITION_LOST
    assert "spec.resnapshot" in error.remedy


def test_a_reset_to_a_longer_file_is_a_lost_position(server: Server, tmp_path: Path) -> None:
    with _following(server, tmp_path) as following:
        next_second()
        _reset(server)
        for key in (2, 3, 4):
            _write(server, key)
        assert following.failure().reason is Reason.POSITION_LOST


def test_a_reset_to_fewer_transactions_is_a_lost_position(server: Server, tmp_path: Path) -> None:
    """No server is asked to wait for those that are missing: MySQL would wait without end."""
    for key in (2, 3, 4, 5):
        _write(server, key)
    with _following(server, tmp_path) as following:
        next_second()
        _reset(server)
        _write(server, 6)
        assert following.failure().reason is Reason.POSITION_LOST


def test_a_heartbeat_that_is_not_proved_counts_for_nothing(
    server: Server, mariadb1011_loose: Server, tmp_path: Path
) -> None:
    """No connection is to be had beside the dump: neither the time up to which all is applied nor
    that of the last sign of life goes on. Then the name leads to another server, while the dump of
    the first one lives on."""
    with relay_to(server.host, server.port) as relay, _following(server, tmp_path, relay.port) as following:
        relay.refuse = True
        unproved = _await_attempt(relay, following)
        for _ in range(2):
            assert _await_attempt(relay, following) == unproved
        relay.refuse = False
        assert following.proved() > (unproved.end or 0)
        _write(server, 2)
        following.until(lambda r: r.end is None or r.end > (unproved.end or 0))
        relay.lead_to(mariadb1011_loose.host, mariadb1011_loose.port)
        assert following.failure().reason is Reason.POSITION_LOST


def _await_attempt(relay: Relay, following: _Following) -> Received:
    """What was received once another connection has been refused."""
    before = relay.refused
    return following.until(lambda _: relay.refused > before)


def test_a_file_that_is_gone_is_a_lost_position(server: Server, tmp_path: Path) -> None:
    with _following(server, tmp_path) as following:
        file, _ = server.binlog_status()
        (server.binlog_dir / file).unlink()
        assert following.failure().reason is Reason.POSITION_LOST


def test_a_global_that_hides_changes_is_refused_while_the_binlog_is_silent(server: Server, tmp_path: Path) -> None:
    with _following(server, tmp_path) as following:
        server.run("SET GLOBAL binlog_row_image = 'MINIMAL'")
        try:
            assert following.failure().reason is Reason.ROW_IMAGE_NOT_FULL
        finally:
            server.run("SET GLOBAL binlog_row_image = 'FULL'")


@pytest.mark.parametrize("own_server", ["mariadb1011", "mysql97_gtid"], indirect=True)
def test_a_restart_with_a_filter_is_an_incomplete_log(server: Server, tmp_path: Path) -> None:
    """R10: at the first connection after it, before anything is taken from the binlog. The last
    test of its server, which keeps the filter."""
    with _following(server, tmp_path) as following:
        server.restart(**{"binlog-ignore-db": "h"})
        _write(server, 7)
        error = following.failure()
    assert error.reason is Reason.LOG_INCOMPLETE
    assert "binlog_ignore_db: h" in error.message
    assert "--binlog-ignore-db" in error.remedy
