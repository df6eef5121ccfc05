"""Rule R1: everything that a low watermark covers is visible to every later SELECT.

Semi-synchronous replication that waits for a replica that does not exist holds the window open in
which the binlog already has a transaction that no SELECT sees. The plain status position is shown
to lose the row there; ours does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, PermanentError, Reason, TransientError
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import UNKNOWN
from cdcsync_core.positions.position import FilePosition, GtidPosition, Position, TransactionId
from cdcsync_mysql.positions import watermark
from cdcsync_mysql.positions.history import verify_resumable
from cdcsync_mysql.positions.logfile import file_created_at
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, Source
from cdcsync_spark.binlog.dump.dump import end_of_ours
from cdcsync_spark.binlog.search.crash_tail import TailReader
from cdcsync_spark.binlog.search.xa_search import XaSearch
from cdcsync_spark.snapshot.source import LiveSource
from cdcsync_spark.snapshot.splits import high_mark
from cdcsync_spark.snapshot.splits.low_mark import prepared_xids
from cdcsync_spark.stream.apply.crash_repair import SourceRepair
from cdcsync_spark.verify.keys import select_keys
from support.fixtures import FreshDatabase, FreshServer
from support.semisync import WAIT_SECONDS, OpenWindow, open_window, until
from support.servers import Server
from support.source import connected, source_of
from support.statements import ORDERS

_VARIANTS = ["mariadb1011", "mariadb114", "mysql97_gtid", "mysql97_nogtid"]


@pytest.fixture(params=_VARIANTS)
def window(request: pytest.FixtureRequest, fresh_server: FreshServer) -> Iterator[OpenWindow]:
    with open_window(fresh_server(request.param)) as opened:
        yield opened


def _insert_of(window: OpenWindow, executed_before: str) -> TransactionId:
    """The transaction, once it is over: the last one in the binlog."""
    end = window.naive()
    if not executed_before:
        return TransactionId(end)
    executed = GtidSet.parse(str(window.server.query("SELECT @@GLOBAL.gtid_executed")[0][0]))
    source, intervals = next(iter(executed.items()))
    return TransactionId(end, Gtid(source, intervals[-1][1]))


def test_low_covers_only_what_is_visible(window: OpenWindow) -> None:
    with connected(window.server) as (_, facts), ThreadPoolExecutor(1) as pool:
        source = source_of(window.server)
        gtids = str(window.server.query("SELECT @@GLOBAL.gtid_executed")[0][0]) if facts.gtid else ""
        naive = window.naive()
        assert window.rows() == 0, "the window is not open"

        taken = pool.submit(lambda: _low_and_rows(source_of(window.server), facts, window))
        if facts.flavor == "mysql" and not facts.gtid:
            # log_status waits until the window closes, so it has to
            until(lambda: _asks_log_status(window.server), "the question for log_status")
            assert not taken.done()
            window.close()
        low, seen = taken.result(WAIT_SECONDS)
        window.close()

        insert = _insert_of(window, gtids)
        assert naive.covers(insert.end), "the plain status position covers the insert, which a SELECT after it missed"
        assert seen == 1 or not low.covers(insert)
        assert window.rows() == 1
        assert watermark.low(source, facts).covers(insert)


def test_low_waits_for_a_commit_of_a_file_that_the_binlog_has_left(fresh_server: FreshServer) -> None:
    """MariaDB's snapshot has a place in the new file then, and not the transaction that waits."""
    server = fresh_server("mariadb1011")
    server.create_user("cdc", "for tests", ("SELECT", "REPLICATION SLAVE", "BINLOG MONITOR"))
    source = source_of(server, "cdc", "for tests")
    with open_window(server) as window, connected(server) as (_, facts), ThreadPoolExecutor(2) as pool:
        naive = window.naive()
        rotated = pool.submit(server.run, "FLUSH BINARY LOGS")
        file = "SHOW STATUS LIKE 'binlog_snapshot_file'"
        until(lambda: server.query(file)[0][1] != naive.file, "the snapshot's place in the new file")
        assert window.rows() == 0, "the window is not open"
        taken = pool.submit(lambda: _low_and_rows(source, facts, window))
        asks = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SHOW BINLOG EVENTS IN%'"
        until(lambda: taken.done() or bool(server.query(asks)[0][0]), "the question for the file's first events")
        window.close()
        low, seen = taken.result(WAIT_SECONDS)
        rotated.result(WAIT_SECONDS)
        assert seen == 1 or not low.covers(TransactionId(naive))
        server.restart()
        assert watermark.low(source_of(server), facts).covers(TransactionId(naive))


@pytest.mark.parametrize("variant", ["mariadb1011", "mariadb118"])
def test_low_in_a_file_that_begins_with_an_event_beyond_max_allowed_packet(
    variant: str, fresh_server: FreshServer
) -> None:
    """The event of an UPDATE has the row before and after: two times 9 MB, where 16 MiB are
    allowed. BINLOG_GTID_POS and SHOW BINLOG EVENTS end at it."""
    server = fresh_server(variant)
    server.run("CREATE DATABASE shop", "CREATE TABLE shop.files (id INT PRIMARY KEY, content LONGBLOB)")
    server.run("INSERT INTO shop.files VALUES (1, REPEAT('x', 9000000))")
    server.rotate_binlog()
    server.run("UPDATE shop.files SET content = REPEAT('y', 9000000)", "INSERT INTO shop.files VALUES (2, 'z')")
    with connected(server) as (connection, facts):
        low = watermark.low(source_of(server), facts)
        assert isinstance(low, FilePosition)
        assert low.at == watermark.high(connection, facts)
        verify_resumable(connection, facts, Lineage.of(facts.log), low)
        within = replace(low, at=replace(low.at, offset=low.at.offset - 1), gtid_pos=UNKNOWN, file_created_at=0)
        with pytest.raises(PermanentError, match="no event ends at") as refused:
            verify_resumable(connection, facts, Lineage.of(facts.log), within)
    assert refused.value.reason is Reason.POSITION_LOST


def _low_and_rows(source: Source, facts: ServerFacts, window: OpenWindow) -> tuple[Position, int]:
    low = watermark.low(source, facts)
    return low, window.rows()


def _asks_log_status(server: Server) -> bool:
    question = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT LOCAL FROM %'"
    return bool(server.query(question)[0][0])


def test_kinds_of_positions(every_server: Server, fresh_database: FreshDatabase) -> None:
    """MySQL with GTIDs has sets, the others places with their proof (R5, R6)."""
    database = fresh_database(every_server)
    # MariaDB gives no GTID position in a file of a long event, which another test may have left
    every_server.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    every_server.rotate_binlog()
    with connected(every_server) as (connection, facts):
        low = watermark.low(source_of(every_server), facts)
        high = watermark.high(connection, facts)
        now = watermark.current(connection, facts)
    if facts.gtid:
        assert isinstance(low, GtidPosition)
        assert isinstance(now, GtidPosition)
        assert low.at is None
        assert now.at == high
        assert now.gtids == low.gtids
        return
    assert isinstance(low, FilePosition)
    assert low.at == high == now.at
    assert low.file_created_at > 0
    assert bool(low.gtid_pos) == (facts.flavor == "mariadb")


def test_a_transaction_after_low_is_not_in_it(every_server: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(every_server)
    every_server.run(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    with connected(every_server) as (connection, facts):
        low = watermark.low(source_of(every_server), facts)
        every_server.run(f"INSERT INTO {database}.t VALUES (1)")
        high = watermark.high(connection, facts)
        after = watermark.low(source_of(every_server), facts)
    assert after != low
    assert not low.has_reached(high)


def test_low_without_gtids_needs_backup_admin(mysql97_nogtid: Server) -> None:
    mysql97_nogtid.create_user("plain", "pw", ["SELECT", "REPLICATION CLIENT", "REPLICATION SLAVE"])
    with connected(mysql97_nogtid) as (_, facts), pytest.raises(PermanentError) as refused:
        watermark.low(source_of(mysql97_nogtid, "plain", "pw"), facts)
    assert refused.value.reason is Reason.PRIVILEGE_MISSING
    assert "GRANT BACKUP_ADMIN" in refused.value.remedy


def test_low_needs_no_more_than_documented(every_server: Server) -> None:
    """`low` raises PrivilegeMissing where a grant is missing."""
    grants = ["SELECT", "REPLICATION CLIENT", "REPLICATION SLAVE"]
    if every_server.variant == "mysql97_nogtid":
        grants.append("BACKUP_ADMIN")
    every_server.create_user("plain", "pw", grants)
    with connected(every_server) as (_, facts):
        watermark.low(source_of(every_server, "plain", "pw"), facts)


def test_no_binlog(fresh_server: FreshServer) -> None:
    server = fresh_server("mariadb1011", skip_log_bin=None)
    with connected(server) as (connection, facts):
        for question in (
            lambda: watermark.low(source_of(server), facts),
            lambda: watermark.high(connection, facts),
            lambda: watermark.current(connection, facts),
        ):
            with pytest.raises(PermanentError) as refused:
                question()
            assert refused.value.reason is Reason.BINLOG_DISABLED


def test_a_name_that_leads_to_another_server_gives_no_watermark(mysql97_gtid: Server, mysql97_nogtid: Server) -> None:
    """R6: what another server says is no place in the binlog of a run, whatever its files are
    called."""
    other = source_of(mysql97_nogtid)
    with connected(mysql97_gtid) as (_, facts):
        low = watermark.low(source_of(mysql97_gtid), facts)
    questions: list[Callable[[], object]] = [
        lambda: watermark.low(other, facts),
        lambda: file_created_at(other, mysql97_nogtid.binlog_status()[0], facts.log),
        lambda: LiveSource(other, facts).high(facts.lineage, low, low),
        lambda: next(iter(LiveSource(other, facts).splits(ORDERS, 10, None))),
        lambda: end_of_ours(other, facts.lineage, low),
        lambda: prepared_xids(other, facts.lineage),
        lambda: XaSearch(other, facts.lineage).last("x", mysql97_gtid.binlog_end()),
        lambda: list(select_keys(other, facts.lineage, ORDERS, pa.table({"id": [1]}), 10)),
        lambda: SourceRepair(other, facts.lineage, cast(TailReader, None), 10).passed(low, mysql97_gtid.binlog_end()),
    ]
    for question in questions:
        with pytest.raises(CdcError) as error:
            question()
        assert error.value.reason is Reason.POSITION_LOST


def test_high_stands_alone_where_the_name_leads_elsewhere_before_it_is_proved(
    fresh_server: FreshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that were read need no proof; the next question finds the other server."""
    server = fresh_server("mariadb1011")
    read_gtids = high_mark._gtids

    def leave(connection: Connection, facts: ServerFacts) -> GtidSet:
        gtids = read_gtids(connection, facts)
        server.run("SET GLOBAL server_id = 4711")
        return gtids

    monkeypatch.setattr(high_mark, "_gtids", leave)
    with connected(server) as (connection, facts):
        low = watermark.current(connection, facts)
        server.run("CREATE DATABASE h", "CREATE TABLE h.t (id INT PRIMARY KEY)", "INSERT INTO h.t VALUES (1)")
        end = watermark.high(connection, facts)
    source = LiveSource(source_of(server), facts)
    assert source.high(facts.lineage, low, low) == end
    with pytest.raises(TransientError, match="another server"):
        source.high(facts.lineage, low, low)
