"""The dump client on real servers: where it starts, what keeps it alive, and in which words it
fails."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.position import FilePosition, GtidPosition, Position
from cdcsync_spark.binlog.dump.client import BinlogClient, DumpTakenOver
from cdcsync_spark.binlog.reader import BinlogReader
from cdcsync_spark.binlog.settings import ReaderSettings, Reconnect
from cdcsync_spark.wire.binlog.facts import Fact, Progress, RowsEvent, TransactionEnd
from cdcsync_spark.wire.binlog.parser import EventParser
from support.dump import REPLICA_ID, log_end, raw_events, read_log
from support.fixtures import FreshDatabase, FreshServer
from support.semisync import until
from support.servers import Server
from support.source import connected, source_of

pytestmark = pytest.mark.server


def _client(
    server: Server,
    start: Position,
    *,
    heartbeat: float = 0.2,
    silence: float = 30,
    user: str = "root",
    password: str = "",
) -> BinlogClient:
    return BinlogClient(
        server.connect(user=user, password=password),
        flavor=server.flavor,
        start=start,
        replica_id=REPLICA_ID,
        heartbeat_seconds=heartbeat,
        silence_seconds=silence,
    )


def _facts(server: Server, client: BinlogClient) -> Iterator[Fact]:
    parser = EventParser(server.flavor, binlog=server.binlog_end().binlog)
    for event in client.events():
        yield from parser.feed(event)


def _ends(facts: list[Fact]) -> list[TransactionEnd]:
    return [f for f in facts if isinstance(f, TransactionEnd)]


def test_every_end_of_a_transaction_is_a_place_to_start_from(
    every_server: Server, fresh_database: FreshDatabase
) -> None:
    every_server.rotate_binlog()
    start = log_end(every_server)
    database = fresh_database(every_server)
    every_server.run(
        "CREATE TABLE t (id INT PRIMARY KEY)", *[f"INSERT INTO t VALUES ({i})" for i in range(5)], db=database
    )
    ends = _ends(read_log(every_server, start))
    assert ends[-1].id.end == log_end(every_server).at
    for i, end in enumerate(ends):
        assert _ends(read_log(every_server, FilePosition(end.id.end))) == ends[i + 1 :]


def test_a_gtid_set_is_a_place_to_start_from(mysql97_gtid: Server, fresh_database: FreshDatabase) -> None:
    """R5: membership is exact; what is in the set does not come, whatever lies around it."""
    database = fresh_database(mysql97_gtid)
    mysql97_gtid.run(
        "CREATE TABLE t (id INT PRIMARY KEY)", *[f"INSERT INTO t VALUES ({i})" for i in range(6)], db=database
    )
    executed = GtidSet.parse(mysql97_gtid.query("SELECT @@global.gtid_executed")[0][0])
    ends = _ends(read_log(mysql97_gtid, GtidPosition(GtidSet())))
    gtids = [e.id.gtid for e in ends if e.id.gtid]
    assert GtidSet().with_gtids(gtids) == executed
    assert _ends(read_log(mysql97_gtid, GtidPosition(executed))) == []
    had = GtidSet().with_gtids([*gtids[:-4], gtids[-2]])
    assert [e.id.gtid for e in _ends(read_log(mysql97_gtid, GtidPosition(had)))] == [*gtids[-4:-2], gtids[-1]]


def test_tagged_gtids_are_read_and_started_from(fresh_server: FreshServer) -> None:
    server = fresh_server("mysql97_gtid")
    server.run(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY)",
        "SET gtid_next = 'AUTOMATIC:one_tag'",
        "INSERT INTO d.t VALUES (1)",
        "INSERT INTO d.t VALUES (2)",
        "SET gtid_next = 'AUTOMATIC:a_tag_of_thirty_two_characters__'",
        "INSERT INTO d.t VALUES (3)",
        "SET gtid_next = 'AUTOMATIC'",
        "FLUSH BINARY LOGS",
        "INSERT INTO d.t VALUES (4)",
    )
    executed = GtidSet.parse(server.query("SELECT @@global.gtid_executed")[0][0])
    gtids = [e.id.gtid for e in _ends(read_log(server, GtidPosition(GtidSet()))) if e.id.gtid]
    assert GtidSet().with_gtids(gtids) == executed
    for i in range(len(gtids)):
        rest = read_log(server, GtidPosition(GtidSet().with_gtids(gtids[:i])))
        assert [e.id.gtid for e in _ends(rest)] == gtids[i:]


def test_heartbeats_come_and_say_where_the_reader_is(every_server: Server) -> None:
    start = log_end(every_server)
    with _client(every_server, start) as client:
        beats = 0
        for fact in _facts(every_server, client):
            assert isinstance(fact, Progress)
            assert fact.at == start.at
            beats += fact.timestamp is None
            if beats == 3:
                break


def test_what_is_written_meanwhile_arrives(every_server: Server, fresh_database: FreshDatabase) -> None:
    every_server.rotate_binlog()
    database = fresh_database(every_server)
    every_server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    with _client(every_server, log_end(every_server)) as client:
        facts = _facts(every_server, client)
        next(f for f in facts if isinstance(f, Progress))
        for i in range(3):
            every_server.run(f"INSERT INTO t VALUES ({i})", db=database)
            end = next(f for f in facts if isinstance(f, TransactionEnd))
            assert end.id.end == log_end(every_server).at


def test_closing_ends_a_waiting_reader(every_server: Server) -> None:
    client = _client(every_server, log_end(every_server), heartbeat=3600)
    read: list[int] = []
    started = threading.Event()

    def follow() -> None:
        for event in client.events():
            read.append(len(event))
            started.set()

    thread = threading.Thread(target=follow)
    thread.start()
    assert started.wait(120)
    client.close()
    thread.join(120)
    assert not thread.is_alive()
    client.close()


def test_a_server_that_dies_is_unreachable(fresh_server: FreshServer) -> None:
    server = fresh_server("mariadb1011")
    with _client(server, log_end(server)) as client:
        facts = _facts(server, client)
        next(facts)
        server.kill()
        with pytest.raises(CdcError) as caught:
            list(facts)
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE


def test_a_server_that_falls_silent_is_unreachable(fresh_server: FreshServer) -> None:
    server = fresh_server("mariadb1011")
    assert server.pid
    with _client(server, log_end(server), silence=30) as client:
        facts = _facts(server, client)
        next(facts)
        client._connection._sock.settimeout(1)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(CdcError) as caught:
                list(facts)
        finally:
            os.kill(server.pid, signal.SIGCONT)
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE
    assert "no heartbeat" in caught.value.found


def test_the_successor_ends_the_zombies_dump(every_server: Server) -> None:
    """R8: both have the same replica id. A server ends one dump of it, so one that a test left
    behind must be gone."""
    for dump in _dumps(every_server):
        with suppress(pymysql.err.OperationalError):  # it has ended by itself
            every_server.run(f"KILL {dump}")
    until(lambda: not _dumps(every_server), "the end of other tests' dumps")
    start = log_end(every_server)
    with _client(every_server, start) as zombie, _client(every_server, start) as successor:
        facts = _facts(every_server, zombie)
        next(facts)
        assert isinstance(next(_facts(every_server, successor)), Progress)
        with pytest.raises(CdcError) as caught:
            list(facts)
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE
    assert "same id took over" in caught.value.found


def test_two_that_take_the_log_from_each_other_say_so(
    every_server: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """Two syncs with one `serverId`: both read on, connection by connection, while rows are
    written; neither takes a spare id."""
    with connected(every_server) as (_, facts):
        log = facts.lineage
    database, start = fresh_database(every_server), log_end(every_server)
    every_server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    source, spares = source_of(every_server), (REPLICA_ID + 1, REPLICA_ID + 2)
    readers = [
        BinlogReader(
            ReaderSettings(
                source,
                log,
                REPLICA_ID,
                {},
                start,
                {},
                1.0,
                1 << 20,
                tmp_path,
                spare_ids=spares,
                reconnect=Reconnect(window_seconds=3.0),
            )
        )
        for _ in range(2)
    ]
    last: list[CdcError] = []
    deadline, key = time.monotonic() + 180, 0
    try:
        for reader in readers:
            reader.start()
        while not last and time.monotonic() < deadline:
            every_server.run(f"INSERT INTO t VALUES ({key})", db=database)
            key += 1
            last = [batch.fatal for reader in readers if (batch := reader.next_batch()) and batch.fatal]
            time.sleep(0.02)
    finally:
        for reader in readers:
            reader.stop()
    assert last, f"both read on after {key} rows"
    assert isinstance(last[0], DumpTakenOver)
    assert "set another spec.source.serverId" in last[0].message


def _dumps(server: Server) -> list[int]:
    """The connections that read the binlog. A server keeps one whose client is gone until it has
    something to send."""
    found = server.query("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
    return [int(row[0]) for row in found]


@pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])
def test_a_lost_position_is_named(variant: str, fresh_server: FreshServer) -> None:
    """R6: a purged file, a place behind the end, a place inside an event."""
    server = fresh_server(variant)
    first = log_end(server)
    server.run("CREATE DATABASE d", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    last = log_end(server)
    server.purge_binlogs()
    places = [
        first.at,
        replace(last.at, offset=last.at.offset + 100_000),
        replace(last.at, file="binlog.000077", offset=4),
    ]
    for place in places:
        with pytest.raises(CdcError) as caught:
            read_log(server, FilePosition(place))
        assert caught.value.reason is Reason.POSITION_LOST
        assert str(place) in caught.value.message
    if server.flavor == "mysql":
        with pytest.raises(CdcError) as caught:
            read_log(server, GtidPosition(GtidSet()))
        assert caught.value.reason is Reason.POSITION_LOST


def test_a_place_inside_an_event_never_gives_facts(every_server: Server, fresh_database: FreshDatabase) -> None:
    start = log_end(every_server)
    fresh_database(every_server)
    with pytest.raises(CdcError):
        read_log(every_server, FilePosition(replace(start.at, offset=start.at.offset + 7)))


def test_a_missing_privilege_is_named(every_server: Server) -> None:
    every_server.create_user("nodump", "secret-word", ["SELECT"])
    with pytest.raises(CdcError) as caught:
        list(raw_events(every_server, log_end(every_server), user="nodump", password="secret-word"))
    assert caught.value.reason is Reason.PRIVILEGE_MISSING
    assert "GRANT REPLICATION SLAVE" in caught.value.remedy
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize(("variant", "tls"), [("mysql97_gtid", True), ("mysql97_gtid", False), ("mariadb114", False)])
def test_rows_beyond_sixteen_mebibytes_arrive_whole(
    variant: str, tls: bool, request: pytest.FixtureRequest, fresh_database: FreshDatabase
) -> None:
    """A packet holds at most 16 MiB - 1: one, two and three of them (the boundary itself is a unit
    test's)."""
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)", db=database)
    start = log_end(server)
    before = server.query("SELECT @@global.max_allowed_packet")[0][0]
    server.run(f"SET GLOBAL max_allowed_packet = {64 << 20}")
    try:
        sizes = [0xFFFFFF - 60, 0xFFFFFF - 40, 40 << 20]
        for i, size in enumerate(sizes):
            server.run(f"INSERT INTO t VALUES ({i}, REPEAT('x', {size}))", db=database)
    finally:
        server.run(f"SET GLOBAL max_allowed_packet = {before}")
    arguments = {"ssl": {"check_hostname": False}, "ssl_disabled": False} if tls else {}
    connection = server.connect(**arguments)
    client = BinlogClient(
        connection, flavor=server.flavor, start=start, replica_id=REPLICA_ID, heartbeat_seconds=5, nonblocking=True
    )
    with client:
        parser = EventParser(server.flavor)
        bodies = [len(f.body) for e in client.events() for f in parser.feed(e) if isinstance(f, RowsEvent)]
    # one byte of NULL bits, four of the key, four of the length
    assert bodies == [size + 9 for size in sizes]
