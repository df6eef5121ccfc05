"""Statements on temporary tables that have the names of captured ones change nothing of the copy,
whatever the session's format; where it is not known which of the two is meant, the captured table
stops and is never changed (R9, R10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.reach import Cascades, fault_of_reading, fault_of_writing
from cdcsync_mysql.sessions.connection import connect
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from cdcsync_spark.wire.sql.syntax.text import Statement
from support.dump import log_end, read_log
from support.fixtures import FreshDatabase
from support.servers import Server
from support.source import source_of
from support.stepwise import Stepwise

servers = pytest.mark.parametrize("variant", ["mariadb1011", "mariadb114", "mysql97_gtid"])
REFILL = "INSERT INTO scratch VALUES (1, 1); TRUNCATE TABLE a; INSERT INTO a VALUES (3, 30); ALTER TABLE a ADD w INT DEFAULT 5"
TABLES = (
    *(f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT)" for t in ("a", "b")),
    *(f"INSERT INTO {t} VALUES (1, 10), (2, 20)" for t in ("a", "b")),
    "CREATE TABLE plain (id INT PRIMARY KEY, v INT)",
    "INSERT INTO plain VALUES (7, 70)",
    f"CREATE PROCEDURE refill() BEGIN {REFILL}; END",
)
CREATE_A = "CREATE TEMPORARY TABLE a (id INT PRIMARY KEY, v INT)"
#: on `a`, which is temporary throughout; `b` is, too, for a while
CORPUS = (
    CREATE_A,
    "INSERT INTO a VALUES (1, 1), (2, 2)",
    "INSERT INTO a SELECT id + 10, v FROM plain WHERE id > 0",
    "INSERT INTO a SELECT p.id + 20, MAX(q.v) FROM plain p JOIN plain AS q USING (id), plain GROUP BY p.id",
    "UPDATE a JOIN plain ON a.id = plain.id + 10 SET a.v = plain.v",
    "DELETE a FROM a JOIN plain ON a.id = plain.id + 20",
    "DELETE FROM a WHERE id IN (SELECT id + 10 FROM plain)",
    "REPLACE INTO a VALUES (1, 3)",
    "UPDATE a SET v = 4 WHERE id = 1",
    "DELETE FROM a WHERE id = 2",
    "TRUNCATE TABLE a",
    "TRUNCATE a",
    "ALTER TABLE a ADD w INT, ADD KEY (w)",
    "ALTER TABLE a DROP w",
    "ALTER TABLE a MODIFY v BIGINT",
    "ALTER TABLE a CHANGE v x INT",
    "ALTER TABLE a DROP PRIMARY KEY",
    "ALTER TABLE a CONVERT TO CHARACTER SET latin1",
    "ALTER TABLE a ENGINE = MyISAM",
    "CREATE INDEX i ON a (x)",
    "CREATE UNIQUE INDEX u ON a (x)",
    "DROP INDEX i ON a",
    "REPAIR TABLE a",
    "OPTIMIZE TABLE a",
    "ANALYZE TABLE a",
    "ALTER TABLE a RENAME TO b",
    "TRUNCATE b",
    "ALTER TABLE b RENAME TO a, ADD y INT",
    "DROP TABLE a",
    "CREATE TEMPORARY TABLE IF NOT EXISTS a LIKE plain",
    "DROP TEMPORARY TABLE IF EXISTS a",
    "CREATE TEMPORARY TABLE `A``b` (id INT)",
    "/* a */ CREATE TEMPORARY TABLE a AS SELECT * FROM plain",
    "BEGIN",
    "INSERT INTO a VALUES (8, 8)",
    "UPDATE a SET v = 9",
    "ROLLBACK",
    "TRUNCATE a",
    # the session ends, and the server drops what is left
)
ONLY_MARIADB = (
    CREATE_A,
    "RENAME TABLE a TO b",
    "RENAME TABLE b TO x, x TO a",
    "SET STATEMENT max_statement_time = 60 FOR TRUNCATE TABLE a",
    "CREATE OR REPLACE TEMPORARY TABLE a (id INT)",
    "INSERT INTO a VALUES (5)",
    "DROP TABLE a",
)


@pytest.fixture
def copy(request: pytest.FixtureRequest, variant: str, fresh_database: FreshDatabase, tmp_path: Path) -> Stepwise:
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run(*TABLES, db=database)
    copied = Stepwise(server, database, tmp_path, policy=FollowPolicy(follow=True))
    copied.snapshot("a")
    copied.snapshot("b")
    return copied


def _run(copy: Stepwise, log_format: str, statements: Sequence[str]) -> None:
    copy.server.run(f"SET SESSION binlog_format = {log_format}", *statements, db=copy.database)


def _is_equal(copy: Stepwise, meanwhile: Callable[[], None] | None = None) -> None:
    for table in copy.follow(meanwhile).values():
        assert table.error is None, table.error
    assert not copy.difference("a")
    assert not copy.difference("b")


@servers
def test_no_statement_on_a_temporary_table_counts(copy: Stepwise) -> None:
    for log_format in ("ROW", "MIXED", "STATEMENT"):
        _run(copy, log_format, CORPUS)
        if copy.server.flavor == "mariadb" and log_format != "ROW":  # in ROW it writes RENAME TABLE without its table
            _run(copy, log_format, ONLY_MARIADB)
    copy.server.run("INSERT INTO a VALUES (4, 40)", db=copy.database)
    _is_equal(copy)
    assert len(copy.targets["a"].open_snapshot().schema.names) == 2


@servers
def test_a_session_goes_on_after_its_reader_was_stopped(copy: Stepwise) -> None:
    """What a reader has not read of a session is in doubt: never followed, and no base table is
    changed in silence."""
    with copy.server.connect(db=copy.database) as session, session.cursor() as cursor:
        for statement in ("SET SESSION binlog_format = STATEMENT", CREATE_A, "INSERT INTO a VALUES (9, 9)"):
            cursor.execute(statement)
        _is_equal(copy)
        cursor.execute("TRUNCATE TABLE a")
        stopped = copy.follow()
    error = stopped["a"].error
    assert error is not None
    assert error.reason is Reason.SCHEMA_CHANGE_REFUSED
    assert "its session may have a temporary table of this name" in error.found
    assert stopped["b"].error is None


def _reasons(copy: Stepwise) -> dict[str, Reason | None]:
    return {name: table.error and table.error.reason for name, table in copy.follow().items()}


@servers
def test_a_change_of_a_temporary_table_that_was_not_seen_stops_at_most_the_table_that_it_names(copy: Stepwise) -> None:
    """The others flow: what the source does not have is a temporary table."""
    with copy.server.connect(db=copy.database) as session, session.cursor() as cursor:
        scratch = "CREATE TEMPORARY TABLE {} (id INT PRIMARY KEY, v INT)"
        for statement in ("SET SESSION binlog_format = STATEMENT", scratch.format("s"), scratch.format("t"), CREATE_A):
            cursor.execute(statement)
        _is_equal(copy)
        for statement in (
            "INSERT INTO s VALUES (1, 1), (2, 2)",
            "INSERT INTO t SELECT id + 1, v FROM s",
            "INSERT INTO t SELECT p.id + 20, MAX(s.v) FROM plain p JOIN s GROUP BY p.id",
            "UPDATE t JOIN plain ON t.id = plain.id + 20 SET t.v = plain.v",
            "DELETE t FROM t JOIN plain ON t.id = plain.id + 20",
            "UPDATE s SET v = 5 WHERE id = 1",
            "TRUNCATE TABLE s",
        ):
            cursor.execute(statement)
        copy.server.run("INSERT INTO a VALUES (4, 40)", db=copy.database)
        _is_equal(copy)
        cursor.execute("INSERT INTO a VALUES (9, 9)")
        copy.server.run("INSERT INTO b VALUES (4, 40)", db=copy.database)
        assert _reasons(copy) == {"a": Reason.LOG_INCOMPLETE, "b": None}
        assert not copy.difference("b")


HIDDEN = ("SET sql_log_bin = 0", CREATE_A, "SET sql_log_bin = 1")


@servers
@pytest.mark.parametrize(
    "change", ["TRUNCATE TABLE a", "ALTER TABLE a ADD w INT DEFAULT 5", "INSERT INTO a VALUES (9, 9)"]
)
def test_a_temporary_table_whose_creation_was_not_written_changes_nothing(copy: Stepwise, change: str) -> None:
    """Its statements have the mark, as those of a base table may have. None of them is followed:
    the table stops for a resnapshot."""

    def meanwhile() -> None:
        _run(copy, "STATEMENT", (*HIDDEN, change))

    copy.server.run("INSERT INTO b VALUES (4, 40)", db=copy.database)  # so that the reader has to be there
    stopped = copy.follow(meanwhile)
    stopped = {**stopped, **copy.follow()}
    expected = Reason.LOG_INCOMPLETE if change.startswith("INSERT") else Reason.SCHEMA_CHANGE_REFUSED
    assert {name: table.error and table.error.reason for name, table in stopped.items()} == {"a": expected, "b": None}
    assert not copy.difference("a")
    assert copy.targets["a"].open_snapshot().schema.names == ["id", "v"]


@servers
def test_a_base_table_whose_statement_has_the_mark_is_in_doubt(copy: Stepwise, variant: str) -> None:
    """A temporary table earlier in the same call of a procedure marks what follows there; not on
    MariaDB 11.4, which marks nothing in a session of row format: there all is followed."""
    scratch = "CREATE TEMPORARY TABLE scratch (id INT PRIMARY KEY, v INT)"
    _run(copy, "ROW", (scratch, "CALL refill()"))
    if variant == "mariadb114":
        _is_equal(copy)
    else:
        assert _reasons(copy) == {"a": Reason.SCHEMA_CHANGE_REFUSED, "b": None}


@servers
def test_the_base_table_counts_although_the_session_has_a_temporary_one(copy: Stepwise) -> None:
    """A DROP TABLE always has the mark. MySQL's RENAME TABLE takes base tables alone."""
    _run(copy, "STATEMENT", (CREATE_A, "DROP TABLE a", "DROP TABLE a"))
    _run(copy, "STATEMENT", ("CREATE TEMPORARY TABLE b (id INT)", "RENAME TABLE b TO x"))
    assert _reasons(copy) == {"a": Reason.TABLE_GONE, "b": Reason.TABLE_GONE if copy.server.flavor == "mysql" else None}


@servers
def test_a_drop_that_was_not_written_leaves_no_trace_in_its_session(copy: Stepwise, variant: str) -> None:
    """The limit in the manual: what a procedure then does to the base table is, event for event,
    what it would have done to the temporary one, which a replica takes it for, too. MariaDB 11.4
    does not mark it, so that the table stops there."""
    scratch = "CREATE TEMPORARY TABLE scratch (id INT PRIMARY KEY, v INT)"
    hidden = ("SET sql_log_bin = 0", "DROP TEMPORARY TABLE a", "SET sql_log_bin = 1")
    body = "BEGIN INSERT INTO scratch VALUES (1, 1); TRUNCATE TABLE a; END"
    copy.server.run(f"CREATE PROCEDURE empty_a() {body}", db=copy.database)

    def written(*dropped: str) -> list[tuple[str, bool]]:
        start = log_end(copy.server)
        with copy.server.connect(db=copy.database) as session, session.cursor() as cursor:
            for statement in ("SET binlog_format = STATEMENT", CREATE_A, scratch, *dropped, "CALL empty_a()"):
                cursor.execute(statement)
            statements = [fact for fact in read_log(copy.server, start) if isinstance(fact, Statement)]
        return [(s.sql, s.thread is not None and s.thread.specific) for s in statements]

    rows = "SELECT COUNT(*) FROM a"
    of_the_temporary = written()
    assert copy.server.query(rows, db=copy.database) == [(2,)]
    of_the_base = written(*hidden)
    assert copy.server.query(rows, db=copy.database) == [(0,)]
    assert ("TRUNCATE TABLE a", True) in of_the_temporary
    if variant == "mariadb114":
        assert ("TRUNCATE TABLE a", False) in of_the_base
        assert _reasons(copy) == {"a": Reason.SCHEMA_CHANGE_REFUSED, "b": None}
    else:
        assert of_the_base == of_the_temporary


def test_rights_that_may_lack_a_schema_show_no_temporary_table(
    mysql97_gtid: Server, fresh_database: FreshDatabase
) -> None:
    """MySQL's partial revokes: the catalog hides a base table, and still shows the right on
    everything. A right on the schema itself counts."""
    server, database = mysql97_gtid, fresh_database(mysql97_gtid)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    hidden, absent = TableId(database, "t"), TableId(database, "x")
    server.create_user("partial", "geheim-7f3c", ["SELECT", "TRIGGER"])
    with connect(source_of(server, "partial", "geheim-7f3c")) as connection:
        assert fault_of_writing(connection, absent, Cascades(), in_doubt=True) == ""
        assert fault_of_writing(connection, hidden, Cascades()) == ""
    try:
        server.run("SET GLOBAL partial_revokes = ON")
        for right in ("SELECT", "TRIGGER"):
            server.run("SET sql_log_bin = 0", f"REVOKE {right} ON {database}.* FROM 'partial'@'%'")
        with connect(source_of(server, "partial", "geheim-7f3c")) as connection:
            for fault in (
                fault_of_reading(connection, hidden, in_doubt=True),
                fault_of_writing(connection, hidden, Cascades(), in_doubt=True),
            ):
                assert "cannot be seen (GRANT SELECT ON" in fault
            server.run("SET sql_log_bin = 0", f"GRANT SELECT ON {database}.* TO 'partial'@'%'")
        with connect(source_of(server, "partial", "geheim-7f3c")) as connection:
            assert "the triggers of" in fault_of_writing(connection, hidden, Cascades(), in_doubt=True)
        server.run("SET sql_log_bin = 0", f"GRANT SELECT, TRIGGER ON {database}.t TO 'partial'@'%'")
        with connect(source_of(server, "partial", "geheim-7f3c")) as connection:
            assert fault_of_writing(connection, hidden, Cascades(), in_doubt=True) == ""
    finally:
        server.run("SET sql_log_bin = 0", "DROP USER 'partial'@'%'", "SET GLOBAL partial_revokes = OFF")
