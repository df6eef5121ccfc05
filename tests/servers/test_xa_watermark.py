"""Rule R1 with XA transactions that other connections commit: what LOW covers, every later SELECT
sees."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.positions.position import Position, TransactionId
from cdcsync_spark.snapshot.splits.low_mark import LowMark, prepared_xids
from cdcsync_spark.wire.binlog.facts import TransactionEnd, XaEnd
from support.dump import log_end, read_log
from support.fixtures import FreshDatabase, variants
from support.servers import Server
from support.source import connected, source_of

_LOWS = 60
_WRITERS = 6


@contextmanager
def _writers(server: Server, database: str) -> Iterator[None]:
    """Each commits, from one connection, what others prepared."""
    stopping = threading.Event()
    threads = [threading.Thread(target=_write, args=(server, database, n, stopping)) for n in range(_WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _write(server: Server, database: str, writer: int, stopping: threading.Event) -> None:
    with server.connect(db=database) as committing, committing.cursor() as cursor:
        for number in count(writer * 1_000_000):
            if stopping.is_set():
                return
            xid = f"'{database}','{number}'"
            with server.connect(db=database) as preparing, preparing.cursor() as branch:
                for statement in ("XA START {}", f"INSERT INTO t VALUES ({number})", "XA END {}", "XA PREPARE {}"):
                    branch.execute(statement.format(xid))
                thread_id = preparing.thread_id()
            server.await_gone(cursor, thread_id)
            cursor.execute(f"XA COMMIT {xid}")


@variants("mariadb1011", "mysql97_gtid", also=("mariadb114", "mysql97_nogtid"))
def test_what_low_covers_is_visible(
    variant: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase
) -> None:
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    start = log_end(server)
    seen: list[tuple[Position, int]] = []
    with connected(server) as (_, facts), _writers(server, database):
        marks = LowMark(source_of(server), facts)
        while len(seen) < _LOWS or seen[-1][1] <= _LOWS:
            low = marks.take()
            seen.append((low, server.query("SELECT COUNT(*) FROM t", db=database)[0][0]))
    commits = _commits(server, start)
    assert server.query("SELECT COUNT(*) FROM t", db=database) == [(len(commits),)], "the server lost what it committed"
    missed = [low for low, rows in seen if sum(low.covers(commit) for commit in commits) > rows]
    assert missed == []


def _commits(server: Server, start: Position) -> list[TransactionId]:
    found, committed = [], False
    for fact in read_log(server, start):
        committed = committed or isinstance(fact, XaEnd)
        if isinstance(fact, TransactionEnd):
            if committed:
                found.append(fact.id)
            committed = False
    return found


@variants("mariadb1011", also=("mariadb114",))
def test_what_stays_prepared_is_not_waited_for(
    variant: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase
) -> None:
    """It is listed as the binlog spells it; LOW covers its PREPARE, whose rows count at their
    commit."""
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        for statement in ("XA START {}", "INSERT INTO t VALUES (1)", "XA END {}", "XA PREPARE {}"):
            cursor.execute(statement.format("'a','bc',9"))
        with connected(server) as (_, facts):
            assert "X'61',X'6263',9" in prepared_xids(source_of(server), facts.lineage)
            low = LowMark(source_of(server), facts).take()
        cursor.execute("XA ROLLBACK 'a','bc',9")
    assert low.has_reached(log_end(server).at) is False


@pytest.mark.server
def test_without_gtids_low_needs_to_see_what_is_prepared(mysql97_nogtid: Server) -> None:
    """An account that cannot see the list could take a LOW that covers an XA COMMIT which no SELECT
    sees yet."""
    mysql97_nogtid.create_user("blind", "pw", ["SELECT", "REPLICATION CLIENT", "REPLICATION SLAVE", "BACKUP_ADMIN"])
    source = source_of(mysql97_nogtid, "blind", "pw")
    with connected(mysql97_nogtid) as (_, facts):
        with pytest.raises(PermanentError) as refused:
            LowMark(source, facts).take()
        assert refused.value.reason is Reason.PRIVILEGE_MISSING
        assert "GRANT XA_RECOVER_ADMIN ON *.*" in refused.value.remedy
        mysql97_nogtid.run("GRANT XA_RECOVER_ADMIN ON *.* TO 'blind'@'%'")
        LowMark(source, facts).take()
