"""Changes in statement format (R10): those that cannot reach a captured table let it flow; one that
can reach none but the table that it writes stops that one; all others stop every table.

Amazon RDS writes its heartbeat so, pt-table-checksum its results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from cdcsync_core.errors import Reason
from cdcsync_mysql.sessions import session
from support.fixtures import FreshDatabase
from support.locks import locked_for_ddl
from support.semisync import until
from support.servers import Server
from support.stepwise import Stepwise

VARIANTS = ["mariadb1011", "mariadb114", "mysql97_gtid", "mysql97_nogtid"]
TABLES = (
    *(f"CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(40))" for t in ("a", "b")),
    *(f"INSERT INTO {t} VALUES " + ",".join(f"({i},'old')" for i in range(300)) for t in ("a", "b")),
    "CREATE TABLE other (id INT PRIMARY KEY, v VARCHAR(40))",
    "CREATE TABLE checksums (db CHAR(64), tbl CHAR(64), chunk INT, this_cnt INT, this_crc CHAR(40), PRIMARY KEY (db, tbl, chunk))",
)
STATEMENT = "SET SESSION binlog_format = STATEMENT"
HEARTBEAT = "INSERT INTO mysql.rds_heartbeat2(id, value) values (1,{0}) ON DUPLICATE KEY UPDATE value = {0}"

CopyOf: TypeAlias = Callable[[Server], Stepwise]

servers = pytest.mark.parametrize("variant", VARIANTS)
both = pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])


@pytest.fixture
def copy_of(fresh_database: FreshDatabase, tmp_path: Path) -> CopyOf:
    def copied(server: Server) -> Stepwise:
        database = fresh_database(server)
        server.run(*TABLES, db=database)
        copy = Stepwise(server, database, tmp_path)
        copy.snapshot("a")
        copy.snapshot("b")
        return copy

    return copied


@pytest.fixture
def copy(request: pytest.FixtureRequest, variant: str, copy_of: CopyOf) -> Stepwise:
    return copy_of(request.getfixturevalue(variant))


@contextmanager
def _heartbeat_table(server: Server) -> Iterator[None]:
    """As Amazon RDS has it, which its own account writes."""
    made = "CREATE TABLE IF NOT EXISTS mysql.rds_heartbeat2 (id INT PRIMARY KEY, value BIGINT) ENGINE=InnoDB"
    server.run("SET sql_log_bin = 0", made)
    try:
        yield
    finally:
        server.run("SET sql_log_bin = 0", "DROP TABLE mysql.rds_heartbeat2")


def _flows(copy: Stepwise) -> None:
    copy.server.run("UPDATE a SET v = 'after' WHERE id < 7", db=copy.database)
    for table in copy.follow().values():
        assert table.error is None, table.error
    assert not copy.difference("a")
    assert not copy.difference("b")


def _stops(copy: Stepwise, why: str) -> None:
    """Every table, for a statement may reach any."""
    stops = [table.error for table in copy.follow().values()]
    assert [stop.reason for stop in stops if stop] == [Reason.LOG_INCOMPLETE] * 2
    assert all(stop and why in stop.found for stop in stops), stops


@servers
def test_the_heartbeat_of_amazon_rds(copy: Stepwise) -> None:
    """The account has the rights that the documentation asks for: no right on triggers, which the
    schema `mysql` has none of."""
    grants = ["SELECT", "REPLICATION SLAVE", "REPLICATION CLIENT"]
    copy.server.create_user("stepwise", "only for tests", grants)
    behind = "SET STATEMENT max_statement_time=60 FOR " if copy.server.flavor == "mariadb" else ""
    with _heartbeat_table(copy.server):
        for beat in (1640995200000, 1640995500000):
            copy.server.run(STATEMENT, behind + HEARTBEAT.format(beat), db=copy.database)
            copy.server.run(f"UPDATE b SET v = '{beat}' WHERE id = 9", db=copy.database)
        _flows(copy)
        copy.server.run(STATEMENT, behind + HEARTBEAT.format(7))
        _flows(copy)


@servers
def test_the_results_of_pt_table_checksum(copy: Stepwise) -> None:
    db = copy.database
    copy.server.run(
        STATEMENT,
        f"REPLACE INTO `{db}`.`checksums` (db, tbl, chunk, this_cnt, this_crc) SELECT '{db}', 'a', '1', COUNT(*) AS cnt,"
        " COALESCE(LOWER(CONV(BIT_XOR(CAST(CRC32(CONCAT_WS('#', `id`, `v`)) AS UNSIGNED)), 10, 16)), 0) AS crc"
        f" FROM `{db}`.`a` FORCE INDEX(`PRIMARY`) WHERE ((`id` >= '1')) AND ((`id` <= '10')) /*checksum chunk*/",
        f"UPDATE `{db}`.`checksums` SET this_cnt = '1' WHERE db = '{db}' AND tbl = 'a' AND chunk = '1'",
        f"DELETE FROM `{db}`.`checksums` WHERE db = '{db}' AND tbl = 'a'",
        db=db,
    )
    _flows(copy)


@both
def test_a_captured_table_as_a_target(copy: Stepwise) -> None:
    """It stops alone where nothing hangs on it."""
    copy.server.run(STATEMENT, "UPDATE a SET v = 'x' WHERE id = 3", db=copy.database)
    copy.server.run("UPDATE b SET v = 'after' WHERE id < 7", db=copy.database)
    stops = {name: table.error for name, table in copy.follow().items()}
    assert stops["a"] is not None
    assert (stops["a"].reason, "UPDATE a SET" in stops["a"].found) == (Reason.LOG_INCOMPLETE, True)
    assert stops["b"] is None
    assert not copy.difference("b")


@both
def test_a_captured_table_as_a_target_with_a_trigger(copy: Stepwise) -> None:
    trigger = "CREATE TRIGGER reaches AFTER UPDATE ON a FOR EACH ROW UPDATE b SET v = 'by trigger' WHERE id = NEW.id"
    copy.server.run(trigger, STATEMENT, "UPDATE a SET v = 'x' WHERE id = 3", db=copy.database)
    _stops(copy, "has the trigger reaches")


@both
def test_a_view_that_is_gone_by_now(copy: Stepwise) -> None:
    """The change has the mark of a temporary table, which the same call used before; and the source
    has no table of that name."""
    copy.server.run(
        "CREATE VIEW v AS SELECT * FROM a",
        "CREATE PROCEDURE touch() BEGIN INSERT INTO scratch VALUES (1); UPDATE v SET v = 'x' WHERE id = 3; END",
        STATEMENT,
        "CREATE TEMPORARY TABLE scratch (id INT)",
        "CALL touch()",
        "DROP VIEW v",
        db=copy.database,
    )
    _stops(copy, "may have changed since: DROP VIEW")


@both
def test_a_trigger_towards_a_captured_table(copy: Stepwise) -> None:
    trigger = (
        "CREATE TRIGGER reaches AFTER INSERT ON other FOR EACH ROW UPDATE a SET v = 'by trigger' WHERE id = NEW.id"
    )
    copy.server.run(trigger, STATEMENT, "INSERT INTO other VALUES (3, 'x')", db=copy.database)
    _stops(copy, "has the trigger reaches")


@both
def test_a_trigger_that_is_gone_by_now(copy: Stepwise) -> None:
    """The catalog is today's, the statement is older: what was in between is in the binlog."""
    trigger = (
        "CREATE TRIGGER reaches AFTER INSERT ON other FOR EACH ROW UPDATE a SET v = 'by trigger' WHERE id = NEW.id"
    )
    copy.server.run(trigger, STATEMENT, "INSERT INTO other VALUES (3, 'x')", "DROP TRIGGER reaches", db=copy.database)
    _stops(copy, "may have changed since: DROP TRIGGER")


@servers
def test_what_comes_later_and_takes_nothing_away(copy: Stepwise) -> None:
    """None of these can change what the statement before them reached."""
    db = copy.database
    later = (
        "CREATE INDEX i ON b (v)",
        "ALTER TABLE b COMMENT 'x', ADD INDEX j (v)",
        "DROP INDEX j ON b",
        "ALTER TABLE other ADD o INT, ADD UNIQUE (id, v)",
        "TRUNCATE TABLE other",
        "CREATE TABLE scratch LIKE other",
        "ALTER TABLE scratch ADD CONSTRAINT c CHECK (id > 0)",
        "CREATE TABLE child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES scratch (id) ON DELETE CASCADE)",
        "RENAME TABLE scratch TO scratch2",
        "DROP TABLE child, scratch2",
        "CREATE TEMPORARY TABLE other (id INT)",
        "DROP TEMPORARY TABLE other",
        "CREATE VIEW v AS SELECT * FROM other",
        "DROP VIEW v",
        "CREATE TRIGGER t BEFORE INSERT ON checksums FOR EACH ROW SET NEW.chunk = 1",
        f"CREATE DATABASE {db}_2",
        f"CREATE TABLE {db}_2.t (id INT PRIMARY KEY)",
        f"CREATE TRIGGER {db}_2.t BEFORE INSERT ON {db}_2.t FOR EACH ROW SET NEW.id = 1",
        f"DROP TRIGGER {db}_2.t",
        f"DROP DATABASE {db}_2",
    )
    copy.server.run(STATEMENT, "UPDATE other SET v = 'x'", "INSERT INTO other VALUES (3, 'x')", *later, db=db)
    _flows(copy)


@both
@pytest.mark.parametrize(
    "later",
    [
        "ALTER TABLE child DROP FOREIGN KEY fk",
        "RENAME TABLE other TO gone, b2 TO other",
        "ALTER TABLE middle RENAME TO elsewhere",
    ],
)
def test_what_comes_later_and_may_have_taken_something_away(copy: Stepwise, later: str) -> None:
    """The change cascaded to a captured table. The catalog no longer says so, or might not."""
    fk = "CONSTRAINT fk FOREIGN KEY (id) REFERENCES {} (id) ON DELETE CASCADE"
    copy.server.run(
        f"CREATE TABLE middle (id INT PRIMARY KEY, {fk.format('other').replace('fk', 'mfk', 1)})",
        f"CREATE TABLE child (id INT PRIMARY KEY, {fk.format('middle')})",
        "CREATE TABLE b2 LIKE other",
        db=copy.database,
    )
    copy.snapshot("child")
    copy.server.run(STATEMENT, "DELETE FROM other WHERE id = 1", later, db=copy.database)
    stops = [table.error for table in copy.follow().values()]
    assert [stop.reason for stop in stops if stop] == [Reason.LOG_INCOMPLETE] * 3


@both
def test_a_trigger_that_comes_later(copy: Stepwise) -> None:
    """An answer is for the statement, and for those like it until something changes."""
    insert = "INSERT INTO other VALUES ({}, 'x')"
    copy.server.run(STATEMENT, insert.format(1), db=copy.database)
    _flows(copy)
    trigger = (
        "CREATE TRIGGER reaches AFTER INSERT ON other FOR EACH ROW UPDATE a SET v = 'by trigger' WHERE id = NEW.id"
    )
    copy.server.run(STATEMENT, trigger, insert.format(2), db=copy.database)
    _stops(copy, "has the trigger reaches")


@both
def test_triggers_that_the_account_may_not_see(copy: Stepwise) -> None:
    grants = ["SELECT", "REPLICATION SLAVE", "REPLICATION CLIENT"]
    copy.server.create_user("stepwise", "only for tests", grants)
    copy.server.run(STATEMENT, "INSERT INTO other VALUES (3, 'x')", db=copy.database)
    _stops(copy, "cannot be seen (GRANT TRIGGER ON")


@both
def test_a_cascade_towards_a_captured_table(copy: Stepwise) -> None:
    copy.server.run(
        "CREATE TABLE middle (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES other (id) ON DELETE CASCADE)",
        "CREATE TABLE child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES middle (id) ON DELETE CASCADE)",
        db=copy.database,
    )
    copy.snapshot("child")
    copy.server.run(STATEMENT, "DELETE FROM other WHERE id = 1", db=copy.database)
    stops = [table.error for table in copy.follow().values()]
    assert all(stop and "cascades" in stop.found for stop in stops), stops


@both
def test_a_view_of_a_captured_table(copy: Stepwise) -> None:
    copy.server.run("CREATE VIEW v AS SELECT * FROM a", db=copy.database)
    copy.server.run(STATEMENT, "INSERT INTO v VALUES (900, 'x')", db=copy.database)
    _stops(copy, "is a VIEW")


@both
def test_a_stored_function_that_writes(copy: Stepwise) -> None:
    copy.server.run("SET GLOBAL log_bin_trust_function_creators = 1")
    body = "BEGIN UPDATE a SET v = 'by function' WHERE id = x; RETURN x; END"
    copy.server.run(f"CREATE FUNCTION reaches(x INT) RETURNS INT {body}", db=copy.database)
    copy.server.run(STATEMENT, "INSERT INTO other VALUES (reaches(3), 'x')", db=copy.database)
    _stops(copy, "INSERT INTO other")


def _write_elsewhere(copy: Stepwise) -> None:
    """In statement format, then rows of both captured tables."""
    copy.server.run(STATEMENT, "INSERT INTO other VALUES (1, 'x')", db=copy.database)
    copy.server.run(*(f"UPDATE {t} SET v = 'new' WHERE id < 9" for t in ("a", "b")), db=copy.database)


@both
@pytest.mark.parametrize("lock", ["child", "parent"])
def test_a_lock_holds_back_the_table_alone_of_which_a_change_asks(
    copy: Stepwise, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB's catalog waits for a table that is locked for DDL, captured or a parent of such.
    What is held back goes on from before the statement. MySQL's has no such wait."""
    monkeypatch.setattr(session, "_LOCK_SECONDS", 1)
    copy.server.run(
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL)",
        db=copy.database,
    )
    copy.snapshot("child")
    _write_elsewhere(copy)
    copy.server.run("INSERT INTO child VALUES (1, NULL)", db=copy.database)
    with locked_for_ddl(copy.server, copy.database, [lock]):
        errors = {name: table.error for name, table in copy.follow().items()}
    held = errors.pop("child")
    assert errors == {"a": None, "b": None}
    assert not copy.difference("b")
    if copy.server.flavor == "mariadb":
        assert held is not None
        assert (held.reason, held.table) == (Reason.TABLE_BUSY, f"{copy.database}.child")
        assert copy.difference("child")
    _flows(copy)
    assert not copy.difference("child")


def test_all_wait_while_the_table_is_locked_that_a_change_writes(mariadb1011: Server, copy_of: CopyOf) -> None:
    """Its triggers may change any of them."""
    copy = copy_of(mariadb1011)
    _write_elsewhere(copy)
    waits = (
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'stepwise' AND STATE LIKE '%%metadata lock%%'"
    )
    with ThreadPoolExecutor(1) as pool:
        with locked_for_ddl(mariadb1011, copy.database, ["other"]):
            following = pool.submit(copy.follow)
            until(lambda: mariadb1011.query(waits) != [(0,)], "the question that waits")
        assert [table.error for table in following.result().values()] == [None, None]
    assert not copy.difference("a")
    assert not copy.difference("b")
