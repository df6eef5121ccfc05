"""Rules R6, R9 and R10 on real servers: what would make a copy wrong stops the table, and only that
table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from support.fixtures import FreshDatabase, FreshServer, variants
from support.semisync import next_second
from support.servers import Server
from support.stepwise import Stepwise

TWO_TABLES = (
    "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(40))",
    "CREATE TABLE b (id INT PRIMARY KEY, v VARCHAR(40))",
    *(f"INSERT INTO {t} VALUES " + ",".join(f"({i},'old')" for i in range(300)) for t in ("a", "b")),
)

servers = pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid", "mysql97_nogtid"])

all_servers = variants("mariadb1011", "mysql97_gtid", "mysql97_nogtid", also=("mariadb114",))


@pytest.fixture
def copy(request: pytest.FixtureRequest, variant: str, fresh_database: FreshDatabase, tmp_path: Path) -> Stepwise:
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run(*TWO_TABLES, db=database)
    return Stepwise(server, database, tmp_path)


def _stopped(copy: Stepwise, reason: Reason) -> None:
    """Table a has stopped for `reason`, table b flows on to the end."""
    copy.server.run("UPDATE b SET v = 'after' WHERE id < 7", db=copy.database)
    tables = copy.follow()
    stop = tables["a"].error
    assert stop is not None
    assert stop.reason is reason, stop
    assert stop.remedy
    assert tables["b"].error is None
    assert not copy.difference("b")


def _at_split(number: int, act: Callable[[], None]) -> Callable[[int], None]:
    return lambda i: act() if i == number else None


# -- R9: DDL


@servers
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE a ADD COLUMN w INT",
        "TRUNCATE TABLE a",
        "RENAME TABLE a TO a2",
        "DROP TABLE a",
        "CREATE OR REPLACE TABLE a (id INT PRIMARY KEY)",
    ],
)
def test_ddl_stops_its_table_and_no_other(copy: Stepwise, variant: str, statement: str) -> None:
    """R9: everything before the DDL is in the target, nothing after it."""
    if "OR REPLACE" in statement and variant != "mariadb1011":
        statement = "CREATE TABLE a2 LIKE a; DROP TABLE a; RENAME TABLE a2 TO a"
    copy.snapshot("a")
    copy.snapshot("b")
    copy.server.run("UPDATE a SET v = 'before' WHERE id = 1", db=copy.database)
    copy.server.run(*statement.split("; "), db=copy.database)
    _stopped(copy, Reason.SCHEMA_CHANGE_REFUSED)
    rows = dict(zip(*copy.targets["a"].open_snapshot().scan(["id", "v"]).read_all().to_pydict().values(), strict=True))
    assert len(rows) == 300
    assert rows[1] == "before"


@servers
def test_a_rename_swap_during_the_snapshot(copy: Stepwise) -> None:
    """R9: another table under the same name and definition is seen by its DDL in the binlog,
    whatever the splits read."""
    swap = ("CREATE TABLE o LIKE a", "INSERT INTO o VALUES (1,'other')", "RENAME TABLE a TO a_old, o TO a")
    copy.snapshot("b")
    copy.snapshot("a", _at_split(0, lambda: copy.server.run(*swap, db=copy.database)))
    _stopped(copy, Reason.SCHEMA_CHANGE_REFUSED)


@servers
def test_a_truncate_during_the_snapshot(copy: Stepwise) -> None:
    """R9: rows that were read before a TRUNCATE are void."""
    copy.snapshot("b")
    copy.snapshot("a", _at_split(1, lambda: copy.server.run("TRUNCATE TABLE a", db=copy.database)))
    _stopped(copy, Reason.SCHEMA_CHANGE_REFUSED)


@servers
def test_a_changed_definition_fails_its_split(copy: Stepwise) -> None:
    """R9: a split compares the definition after its SELECT, in the same transaction."""
    alter = _at_split(0, lambda: copy.server.run("ALTER TABLE a MODIFY v VARCHAR(50)", db=copy.database))
    with pytest.raises(CdcError) as error:
        copy.snapshot("a", alter)
    assert error.value.reason is Reason.SCHEMA_CHANGE_REFUSED


HARMLESS = (
    "CREATE TABLE _a_gho LIKE a",
    "ALTER TABLE _a_gho ADD COLUMN a INT",
    "CREATE TABLE _a_new (id INT PRIMARY KEY, v VARCHAR(40), a INT)",
    "CREATE TRIGGER pt_osc_upd AFTER UPDATE ON a FOR EACH ROW REPLACE INTO _a_new (id, v) VALUES (NEW.id, NEW.v)",
    "ALTER TABLE a ADD INDEX k (v), COMMENT 'a'",
    "ALTER TABLE a MODIFY v VARCHAR(40) DEFAULT 'x' COMMENT 'a'",
    "ALTER TABLE a MODIFY v VARCHAR(40) NOT NULL",
    "ALTER TABLE a ALTER COLUMN v DROP DEFAULT",
    "ALTER TABLE a ADD UNIQUE u (v, id), AUTO_INCREMENT = 5000",
    "ALTER TABLE a ADD CONSTRAINT ck CHECK (id > -5)",
    "ALTER TABLE a FORCE",
    "ALTER TABLE a DROP INDEX k, RENAME INDEX u TO u2",
    "CREATE TABLE IF NOT EXISTS a (id INT PRIMARY KEY)",
    "DROP TRIGGER pt_osc_upd",
    "DROP TABLE _a_new, _a_gho",
    "ALTER TABLE a PARTITION BY HASH (id) PARTITIONS 3",
    "ALTER TABLE a COALESCE PARTITION 1",
    "ALTER TABLE a REMOVE PARTITIONING",
)
STRICT = "SET sql_mode = 'STRICT_TRANS_TABLES'"


@all_servers
def test_ddl_that_changes_nothing_lets_its_table_flow(copy: Stepwise) -> None:
    """R9: the first statements of gh-ost and pt-online-schema-change, indexes, comments, defaults,
    partitions."""
    copy.snapshot("a")
    copy.snapshot("b")
    for number, statement in enumerate(HARMLESS):
        copy.server.run(STRICT, statement, f"UPDATE a SET v = '{number}' WHERE id % 7 = 3", db=copy.database)
        if number % 6 == 5:
            assert copy.follow()["a"].error is None
    for name in ("a", "b"):
        assert copy.follow()[name].error is None
        assert not copy.difference(name)


@all_servers
def test_ddl_that_changes_nothing_during_the_snapshot(copy: Stepwise) -> None:
    """R9: splits that are read after it say the same of their rows, and the binlog's part of it is
    no stop."""
    copy.snapshot("a", _at_split(1, lambda: copy.server.run(STRICT, *HARMLESS, db=copy.database)))
    copy.server.run("UPDATE a SET v = 'after' WHERE id < 7", db=copy.database)
    assert copy.follow()["a"].error is None
    assert not copy.difference("a")


# -- R10: what is not in row events


@servers
def test_a_session_in_statement_format(copy: Stepwise) -> None:
    """R10: DML that arrives as a statement stops the table that it names, and others only where
    triggers and cascades may reach them."""
    copy.snapshot("a")
    copy.snapshot("b")
    copy.server.run("SET SESSION binlog_format = STATEMENT", "UPDATE a SET v = 'x' WHERE id = 3", db=copy.database)
    stops = {name: table.error and table.error.reason for name, table in copy.follow().items()}
    assert stops == {"a": Reason.LOG_INCOMPLETE, "b": None}


@servers
def test_a_session_with_minimal_row_images(copy: Stepwise) -> None:
    """R10: an incomplete row image stops its table."""
    copy.snapshot("a")
    copy.snapshot("b")
    copy.server.run("SET SESSION binlog_row_image = MINIMAL", "UPDATE a SET v = 'x' WHERE id = 3", db=copy.database)
    _stopped(copy, Reason.ROW_IMAGE_NOT_FULL)


@pytest.mark.parametrize("variant", ["mysql97_gtid"])
def test_cascades_are_right_where_they_are_logged(copy: Stepwise) -> None:
    """R10: MySQL 9.7 writes the child's rows."""
    copy.server.run(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent(id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1),(2)",
        "INSERT INTO child VALUES (10,1),(11,1),(20,2)",
        db=copy.database,
    )
    copy.snapshot("parent")
    copy.snapshot("child")
    copy.server.run("DELETE FROM parent WHERE id = 1", db=copy.database)
    copy.follow()
    assert not copy.difference("parent")
    assert not copy.difference("child")
    assert copy.targets["child"].open_snapshot().scan().read_all().num_rows == 1


# -- what a binlog may hold and is right


@pytest.mark.parametrize("variant", ["mysql97_gtid", "mysql97_nogtid"])
def test_compressed_transactions(copy: Stepwise) -> None:
    copy.snapshot("a")
    copy.server.run(
        "SET SESSION binlog_transaction_compression = ON",
        "UPDATE a SET v = REPEAT('y', 30) WHERE id < 200",
        "DELETE FROM a WHERE id > 290",
        db=copy.database,
    )
    assert copy.follow()["a"].error is None
    assert not copy.difference("a")


def test_compressed_events(fresh_server: FreshServer, tmp_path: Path) -> None:
    """MariaDB compresses single events."""
    server = fresh_server("mariadb1011", log_bin_compress=True, log_bin_compress_min_len=10)
    database = server.create_database()
    server.run(*TWO_TABLES, db=database)
    copy = Stepwise(server, database, tmp_path)
    copy.snapshot("a")
    server.run(
        "UPDATE a SET v = REPEAT('y', 30) WHERE id < 200",
        "DELETE FROM a WHERE id > 290",
        "INSERT INTO a VALUES (900, REPEAT('z', 40))",
        db=database,
    )
    assert copy.follow()["a"].error is None
    assert not copy.difference("a")


@servers
def test_rollback_to_savepoint(copy: Stepwise) -> None:
    copy.snapshot("a")
    with copy.server.connect(db=copy.database, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE a SET v = 'kept' WHERE id = 1")
        cursor.execute("SAVEPOINT s")
        cursor.execute("UPDATE a SET v = 'lost' WHERE id < 100")
        cursor.execute("ROLLBACK TO SAVEPOINT s")
        cursor.execute("UPDATE a SET v = 'kept too' WHERE id = 2")
        connection.commit()
    assert copy.follow()["a"].error is None
    assert not copy.difference("a")


@servers
def test_a_transaction_larger_than_the_batch_and_than_memory_allows(copy: Stepwise) -> None:
    """R9: it is spilled and applied in one commit."""
    copy.max_batch_bytes = 64 << 10
    copy.snapshot("a")
    before = copy.targets["a"].last_commit()
    with copy.server.connect(db=copy.database, autocommit=False) as connection, connection.cursor() as cursor:
        for i in range(40):
            cursor.execute(f"UPDATE a SET v = '{i:040d}'")
        connection.commit()
    assert copy.follow()["a"].error is None
    assert not copy.difference("a")
    after = copy.targets["a"].last_commit()
    assert before is not None
    assert after is not None
    assert after.commit_number - before.commit_number <= 2


@servers
def test_rows_of_more_than_16_mib(copy: Stepwise, fresh_database: FreshDatabase) -> None:
    """A packet of the protocol ends at 16 MiB; a row does not."""
    copy.server.run("CREATE TABLE big (id INT PRIMARY KEY, v LONGBLOB)", db=copy.database)
    with (
        copy.server.connect(db=copy.database, max_allowed_packet=64 << 20) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET GLOBAL max_allowed_packet = 67108864")
    with (
        copy.server.connect(db=copy.database, max_allowed_packet=64 << 20) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("INSERT INTO big VALUES (1, REPEAT('a', 20000000))")
        copy.snapshot("big")
        cursor.execute("INSERT INTO big VALUES (2, REPEAT('b', 21000000))")
        cursor.execute("UPDATE big SET v = CONCAT('c', v) WHERE id = 1")
    assert copy.follow()["big"].error is None
    assert not copy.difference("big")


# -- R6: another history


@servers
def test_a_reset_of_the_same_server(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    """R6: after a RESET names, sizes and GTIDs come again, but the history is another one."""
    server = fresh_server(variant)
    database = server.create_database()
    server.run(*TWO_TABLES, db=database)
    copy = Stepwise(server, database, tmp_path)
    copy.snapshot("a")
    copy.follow()
    next_second()
    server.run("RESET MASTER" if server.flavor == "mariadb" else "RESET BINARY LOGS AND GTIDS")
    server.run("INSERT INTO a VALUES (1000,'new history')", db=database)
    for i in range(40):
        server.run(f"INSERT INTO b VALUES ({1000 + i}, REPEAT('x', 40))", db=database)
    with pytest.raises(CdcError) as error:
        copy.follow()
    assert error.value.reason is Reason.POSITION_LOST


@servers
def test_a_crash_that_cut_the_end_of_the_binlog(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    """R6: what a reader has and the server has forgotten cannot be taken back."""
    server = fresh_server(variant)
    database = server.create_database()
    server.run(*TWO_TABLES, db=database)
    copy = Stepwise(server, database, tmp_path)
    copy.snapshot("a")
    file, offset = server.binlog_status()
    server.run("INSERT INTO a VALUES (1000,'forgotten')", db=database)
    copy.follow()
    server.kill()
    log = server.binlog_dir / file
    with log.open("r+b") as content:
        content.truncate(offset)
    server.start()
    with pytest.raises(CdcError) as error:
        copy.verify_resumable(copy.position("a"))
    assert error.value.reason is Reason.POSITION_LOST


@pytest.mark.parametrize("variant", ["mariadb1011", "mariadb114"])
def test_a_gtid_domain_that_is_deleted(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    """R6: a later file begins without it, and its places are the same log's, also before its first
    transaction."""
    server = fresh_server(variant)
    database = server.create_database()
    server.run(*TWO_TABLES, db=database)
    server.run("SET gtid_domain_id = 5", "INSERT INTO a VALUES (1000,'of another domain')", db=database)
    copy = Stepwise(server, database, tmp_path)
    copy.snapshot("a")
    server.run("FLUSH BINARY LOGS")
    copy.follow()
    server.purge_binlogs()
    server.run("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (5)")
    copy.follow()
    server.run("INSERT INTO a VALUES (1001,'after')", db=database)
    assert copy.follow()["a"].error is None
    assert not copy.difference("a")


@servers
def test_a_purged_binlog(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    """R6: a gap is an error, not a jump."""
    server = fresh_server(variant)
    database = server.create_database()
    server.run(*TWO_TABLES, db=database)
    copy = Stepwise(server, database, tmp_path)
    copy.snapshot("a")
    server.run("INSERT INTO a VALUES (1000,'in the purged file')", "FLUSH BINARY LOGS", db=database)
    server.run("INSERT INTO a VALUES (1001,'after')", "FLUSH BINARY LOGS", db=database)
    server.purge_binlogs()
    with pytest.raises(CdcError) as error:
        copy.follow()
    assert error.value.reason is Reason.POSITION_LOST
