"""The GTID of each transaction of MariaDB, as the server itself shows it: of small transactions,
which are read as columns, of those that do not fit in memory, of XA, in domains that alternate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdcsync_core.positions.position import LogOffset
from cdcsync_core.tables.source_table import TableId
from support.both_paths import Reading, outcome, stand_in
from support.dump import log_end, raw_events
from support.fixtures import FreshDatabase
from support.gtids import last_gtid
from support.servers import Connection, Server

SMALL = 80
#: a batch is full at so many bytes, and a transaction beyond it goes to disk
LIMIT = 20_000


@pytest.mark.parametrize("limit", [1 << 40, LIMIT], ids=["in memory", "on disk"])
def test_each_transaction_has_the_gtid_that_the_server_shows(
    any_mariadb: Server, fresh_database: FreshDatabase, limit: int
) -> None:
    database = fresh_database(any_mariadb)
    any_mariadb.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(100))", db=database)
    start = log_end(any_mariadb)
    with any_mariadb.connect(db=database) as one, any_mariadb.connect(db=database) as other:
        written = [*small(one), *large(one), *in_two_phases(one, other), *small(one)]
    table = TableId(database, "t")
    reading = Reading("mariadb", start, {table: stand_in(table)}, limit=limit)
    events, taken = list(raw_events(any_mariadb, start)), list[int]()
    columns = outcome(reading, [events], columns=True, taken=taken)
    assert columns == outcome(reading, [events], columns=False)
    assert sum(taken) > SMALL, "small transactions were read as columns"

    read = [transaction for batch in columns if len(batch) == 9 for transaction in batch[3]]
    assert [t.mariadb_gtid for t in read] == written
    assert [t.gtid_text for t in read] == written
    assert {t.gtid for t in read} == {None}
    shown = of_the_binlog(any_mariadb, start.at)
    assert all(shown[t.mariadb_gtid] == t.end for t in read)


def small(connection: Connection) -> Iterator[str]:
    """Transactions of one row, as of two masters: domains and servers alternate."""
    for number in range(SMALL):
        yield last_gtid(connection, *group(number), "INSERT INTO t (v) VALUES ('a')")
    yield last_gtid(connection, *group(0), "BEGIN", *["INSERT INTO t (v) VALUES ('b')"] * 3, "COMMIT")


def group(number: int) -> tuple[str, str]:
    return f"SET gtid_domain_id = {number // 3 % 2}", f"SET server_id = {1 + number // 2 % 2}"


def large(connection: Connection) -> Iterator[str]:
    rows = f"INSERT INTO t (v) SELECT REPEAT('c', 100) FROM seq_1_to_{LIMIT // 25}"
    yield last_gtid(connection, "BEGIN", "SAVEPOINT a", rows, "ROLLBACK TO a", rows, "COMMIT")


def in_two_phases(connection: Connection, other: Connection) -> Iterator[str]:
    """The rows of a PREPARE have the GTID of their COMMIT; what was written between has its own."""
    prepared = last_gtid(connection, "XA START 'x'", "INSERT INTO t (v) VALUES ('d')", "XA END 'x'", "XA PREPARE 'x'")
    yield last_gtid(other, "INSERT INTO t (v) VALUES ('between')")
    done = last_gtid(connection, "XA COMMIT 'x'")
    assert prepared != done
    yield done
    yield last_gtid(
        connection, "XA START 'y'", "INSERT INTO t (v) VALUES ('e')", "XA END 'y'", "XA COMMIT 'y' ONE PHASE"
    )


def of_the_binlog(server: Server, start: LogOffset) -> dict[str, LogOffset]:
    """Each GTID from `start`, and where its transaction ends."""
    shown, gtid = dict[str, LogOffset](), ""
    for file, _, kind, _, end, info in server.query(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.offset}"):
        if kind == "Gtid":
            gtid = next(word for word in str(info).split() if word.count("-") == 2)
        if end:  # MariaDB since 11.4 gives none to events inside a transaction
            shown[gtid] = replace(start, file=str(file), offset=int(end))
    return shown
