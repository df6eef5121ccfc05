"""Rules R1, R2 and R9 for XA transactions: prepared rows count at XA COMMIT, at its position, and
those rolled back never.

Between PREPARE and COMMIT there may be anything: a restart of the reader, a snapshot, other
connections, a crash of the server. What concerns no captured table stops none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.errors import Reason
from support.fixtures import FreshDatabase, FreshServer, variants
from support.servers import Connection, Server
from support.stepwise import Stepwise

TABLES = (
    *(f"CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(40))" for t in ("a", "b", "other")),
    *(f"INSERT INTO {t} VALUES " + ",".join(f"({i},'old')" for i in range(300)) for t in ("a", "b", "other")),
)

servers = variants("mariadb1011", "mysql97_gtid", "mysql97_nogtid", also=("mariadb114",))


@pytest.fixture
def copy(request: pytest.FixtureRequest, variant: str, fresh_database: FreshDatabase, tmp_path: Path) -> Stepwise:
    server: Server = request.getfixturevalue(variant)
    return _copy(server, fresh_database(server), tmp_path)


def _copy(server: Server, database: str, folder: Path) -> Stepwise:
    server.run(*TABLES, db=database)
    return Stepwise(server, database, folder)


def _prepare(copy: Stepwise, xid: str, *statements: str, connection: Connection | None = None) -> None:
    """In a connection that is closed, so that any other one may end it; in `connection` where one
    is given."""
    if connection is None:
        with copy.server.connect(db=copy.database) as own:
            _prepare(copy, xid, *statements, connection=own)
            thread_id = own.thread_id()
        with copy.server.connect() as other, other.cursor() as cursor:
            copy.server.await_gone(cursor, thread_id)
        return
    with connection.cursor() as cursor:
        for statement in (f"XA START {xid}", *statements, f"XA END {xid}", f"XA PREPARE {xid}"):
            cursor.execute(statement)


def _end(copy: Stepwise, verb: str, xid: str) -> None:
    """Ends the transaction by another connection."""
    copy.server.run(f"XA {verb} {xid}")


def _right(copy: Stepwise, *names: str) -> None:
    for name, table in copy.follow().items():
        assert table.error is None, (name, table.error)
    for name in names:
        assert not copy.difference(name)


@servers
def test_prepared_rows_count_at_their_commit(copy: Stepwise) -> None:
    """Not before, and with what was committed in between behind them or before them as the server
    has it."""
    copy.snapshot("a")
    copy.snapshot("b")
    _prepare(copy, "'one'", "UPDATE a SET v = 'prepared' WHERE id < 5", "DELETE FROM b WHERE id = 7")
    copy.server.run("UPDATE a SET v = 'between' WHERE id BETWEEN 10 AND 20", db=copy.database)
    _right(copy, "a", "b")
    _end(copy, "COMMIT", "'one'")
    copy.server.run("UPDATE a SET v = 'after' WHERE id = 3", db=copy.database)
    _right(copy, "a", "b")


@servers
def test_commit_in_the_same_connection_and_in_one_phase(copy: Stepwise) -> None:
    copy.snapshot("a")
    with copy.server.connect(db=copy.database) as connection, connection.cursor() as cursor:
        _prepare(copy, "'x','y',7", "INSERT INTO a VALUES (900,'x')", connection=connection)
        cursor.execute("XA COMMIT 'x','y',7")
        for statement in ("XA START 'z'", "DELETE FROM a WHERE id = 900", "XA END 'z'", "XA COMMIT 'z' ONE PHASE"):
            cursor.execute(statement)
        _prepare(copy, "'x','y',7", "INSERT INTO a VALUES (901,'again')", connection=connection)
        cursor.execute("XA COMMIT 'x','y',7")
    _right(copy, "a")


@servers
@pytest.mark.parametrize("restart", [False, True])
def test_rows_that_are_rolled_back_never_count(copy: Stepwise, restart: bool) -> None:
    copy.snapshot("a")
    _prepare(copy, "'never'", "UPDATE a SET v = 'never'")
    if restart:
        copy.follow()
    _end(copy, "ROLLBACK", "'never'")
    copy.server.run("UPDATE a SET v = 'after' WHERE id = 3", db=copy.database)
    _right(copy, "a")


@servers
def test_a_restart_between_prepare_and_commit(copy: Stepwise) -> None:
    """The second reader begins behind the PREPARE, in a later binlog file, and finds its rows."""
    copy.snapshot("a")
    copy.snapshot("b")
    _prepare(copy, "'first'", "INSERT INTO a VALUES (900,'first')", "UPDATE b SET v = 'first' WHERE id < 9")
    _prepare(copy, "'second'", "INSERT INTO a VALUES (901,'second')")
    copy.server.run("UPDATE a SET v = 'between' WHERE id = 3", "FLUSH BINARY LOGS", db=copy.database)
    _right(copy, "a", "b")
    copy.server.run("FLUSH BINARY LOGS", "UPDATE a SET v = 'later' WHERE id = 4", db=copy.database)
    _right(copy, "a", "b")
    _end(copy, "COMMIT", "'second'")
    _end(copy, "COMMIT", "'first'")
    copy.server.run("UPDATE a SET v = 'last' WHERE id = 900", db=copy.database)
    _right(copy, "a", "b")


@servers
def test_one_name_again_and_again_across_restarts(copy: Stepwise) -> None:
    """The last PREPARE of an xid before its commit is the one."""
    copy.snapshot("a")
    for number, verb in enumerate(("COMMIT", "ROLLBACK", "COMMIT", "COMMIT")):
        _prepare(copy, "'same'", f"UPDATE a SET v = '{number}' WHERE id < 9")
        copy.follow()
        _end(copy, verb, "'same'")
        if number == 1:
            copy.server.run("FLUSH BINARY LOGS")
    _right(copy, "a")


@servers
def test_a_snapshot_between_prepare_and_commit(copy: Stepwise) -> None:
    """R1: prepared rows are in the binlog before LOW and no SELECT sees them; they come with the
    commit."""
    _prepare(copy, "'s'", "UPDATE a SET v = 'prepared' WHERE id < 5", "INSERT INTO a VALUES (900,'prepared')")
    copy.snapshot("a")
    copy.snapshot("b", lambda split: _end(copy, "COMMIT", "'s'") if split == 1 else None)
    _right(copy, "a", "b")


@servers
def test_a_table_that_has_the_commit_and_one_that_has_only_the_prepare(copy: Stepwise) -> None:
    """R5: at the commit each table counts for itself."""
    copy.snapshot("b")
    _prepare(copy, "'s'", "UPDATE a SET v = 'prepared' WHERE id < 5", "UPDATE b SET v = 'prepared' WHERE id < 5")
    _end(copy, "COMMIT", "'s'")
    copy.server.run("UPDATE a SET v = 'newer' WHERE id < 5", db=copy.database)
    copy.snapshot("a")
    _right(copy, "a", "b")


@servers
@pytest.mark.parametrize("verb", ["COMMIT", "ROLLBACK"])
def test_other_tables_stop_none(copy: Stepwise, verb: str) -> None:
    """The PREPARE is before the start of the reader, the end behind it."""
    _prepare(copy, "'other'", "UPDATE other SET v = 'prepared'")
    copy.server.run("FLUSH BINARY LOGS")
    copy.snapshot("a")
    copy.snapshot("b")
    _end(copy, verb, "'other'")
    copy.server.run("UPDATE a SET v = 'after' WHERE id = 3", db=copy.database)
    _right(copy, "a", "b")


@servers
def test_savepoints_of_a_prepared_transaction(copy: Stepwise) -> None:
    copy.snapshot("a")
    _prepare(
        copy,
        "'sp'",
        "UPDATE a SET v = 'kept' WHERE id = 1",
        "SAVEPOINT s",
        "UPDATE a SET v = 'lost' WHERE id < 100",
        "ROLLBACK TO SAVEPOINT s",
        "UPDATE a SET v = 'kept too' WHERE id = 2",
    )
    copy.follow()
    _end(copy, "COMMIT", "'sp'")
    _right(copy, "a")


@servers
@pytest.mark.parametrize("restart", [False, True])
def test_a_prepared_transaction_larger_than_memory_allows(copy: Stepwise, restart: bool) -> None:
    """R9: it is spilled and applied in one commit."""
    copy.max_batch_bytes = 64 << 10
    copy.snapshot("a")
    _prepare(copy, "'large'", *(f"UPDATE a SET v = '{i:040d}'" for i in range(40)))
    copy.server.run(*(f"UPDATE b SET v = '{i}'" for i in range(20)), db=copy.database)
    if restart:
        copy.follow()
    before = copy.targets["a"].last_commit()
    _end(copy, "COMMIT", "'large'")
    _right(copy, "a")
    after = copy.targets["a"].last_commit()
    assert before is not None
    assert after is not None
    assert after.commit_number - before.commit_number <= 2


@pytest.mark.parametrize("variant", ["mysql97_gtid"])
def test_a_compressed_prepared_transaction(copy: Stepwise) -> None:
    copy.snapshot("a")
    compress = "SET SESSION binlog_transaction_compression = ON"
    with copy.server.connect(db=copy.database, init_command=compress) as connection:
        _prepare(copy, "'c'", "UPDATE a SET v = REPEAT('y', 30) WHERE id < 200", connection=connection)
    copy.follow()
    _end(copy, "COMMIT", "'c'")
    _right(copy, "a")


@servers
@pytest.mark.parametrize("follow", [False, True])
def test_a_crash_of_the_server_between_prepare_and_commit(
    variant: str, fresh_server: FreshServer, tmp_path: Path, follow: bool
) -> None:
    server = fresh_server(variant)
    copy = _copy(server, server.create_database(), tmp_path)
    copy.snapshot("a")
    with server.connect(db=copy.database) as connection:
        _prepare(copy, "'kept'", "UPDATE a SET v = 'kept' WHERE id < 5", connection=connection)
        with server.connect(db=copy.database) as second:
            _prepare(copy, "'undone'", "UPDATE a SET v = 'undone' WHERE id > 200", connection=second)
            if follow:
                copy.follow()
            server.kill()
            server.start()
    _end(copy, "COMMIT", "'kept'")
    _end(copy, "ROLLBACK", "'undone'")
    server.run("UPDATE a SET v = 'after' WHERE id = 3", db=copy.database)
    _right(copy, "a")


@servers
def test_a_commit_whose_prepare_is_in_no_binlog_stops_its_tables(
    variant: str, fresh_server: FreshServer, tmp_path: Path
) -> None:
    """Its rows may be anything. A resnapshot repairs it."""
    server = fresh_server(variant)
    copy = _copy(server, server.create_database(), tmp_path)
    _prepare(copy, "'old'", "UPDATE a SET v = 'lost' WHERE id < 5")
    server.run("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    server.purge_binlogs()
    copy.snapshot("a")
    _end(copy, "COMMIT", "'old'")
    stop = copy.follow()["a"].error
    assert stop is not None
    assert stop.reason is Reason.XA_UNSUPPORTED
    assert "no binlog file" in stop.found
    assert "spec.resnapshot" in stop.remedy
