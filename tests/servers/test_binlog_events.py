"""What real servers write, and the facts that come of it: transactions, savepoints, compression,
DDL, XA, what is not whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymysql.err import MySQLError

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.rows.changes import ChangeKind
from cdcsync_spark.wire.binlog.event.compression import BOUND
from cdcsync_spark.wire.binlog.facts import (
    Fact,
    Operation,
    Progress,
    RowsEvent,
    Savepoint,
    TransactionBegin,
    TransactionEnd,
    TransactionRollback,
    XaEnd,
    XaPrepare,
)
from cdcsync_spark.wire.binlog.rows import decode
from cdcsync_spark.wire.sql.syntax.text import Statement
from cdcsync_spark.wire.sql.syntax.tokens import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from support.dump import changes, definition, log_end, read_log
from support.fixtures import FreshDatabase, FreshServer
from support.servers import Server

pytestmark = pytest.mark.server

#: made by `make servers`
KEYS_PLUGIN = Path(__file__).parents[2] / ".cache/mariadb-plugins/file_key_management.so"

#: a fact's name, and what identifies it
Shape = tuple[str, ...]


class LoggedDatabase:
    """A database with the table `t (id, v)`, and what is written to the binlog from then on."""

    def __init__(self, server: Server, database: str) -> None:
        self.server = server
        self.database = database
        server.run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(8000))", db=database)
        self.start: FilePosition = log_end(server)

    def run(self, *statements: str) -> list[Fact]:
        self.server.run(*statements, db=self.database)
        return self.facts()

    def facts(self) -> list[Fact]:
        return read_log(self.server, self.start)

    @property
    def table(self) -> Capture:
        return definition(self.server, self.database, "t")

    def ids(self, facts: list[Fact]) -> list[Shape]:
        """The facts by name, rows with the keys of their images."""
        return [shape for fact in facts if (shape := self._shape(fact))]

    def _shape(self, fact: Fact) -> Shape:
        match fact:
            case RowsEvent():
                batch = decode(self.table, [fact], [0]).batch
                return (fact.operation.name, *(str(i) for i in batch["id"].to_pylist()))
            case Savepoint():
                return ("savepoint", fact.name)
            case Statement():
                return ("statement", fact.sql)
            case XaPrepare():
                return ("xa prepare", fact.xid)
            case XaEnd():
                return ("xa end", fact.xid, str(fact.committed))
            case TransactionBegin():
                return ("begin",)
            case TransactionEnd():
                return ("end",)
            case TransactionRollback():
                return ("rollback",)
        return ()


@pytest.fixture(params=["mariadb1011", "mariadb114", "mysql97_gtid"])
def log(request: pytest.FixtureRequest, fresh_database: FreshDatabase) -> LoggedDatabase:
    server: Server = request.getfixturevalue(request.param)
    return LoggedDatabase(server, fresh_database(server))


@pytest.fixture
def mysql_log(mysql97_gtid: Server, fresh_database: FreshDatabase) -> LoggedDatabase:
    return LoggedDatabase(mysql97_gtid, fresh_database(mysql97_gtid))


@pytest.fixture
def mariadb_log(any_mariadb: Server, fresh_database: FreshDatabase) -> LoggedDatabase:
    return LoggedDatabase(any_mariadb, fresh_database(any_mariadb))


def test_a_transaction_is_begin_rows_end(log: LoggedDatabase) -> None:
    log.server.rotate_binlog()
    facts = log.run(
        "BEGIN",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "UPDATE t SET id = id + 10",
        "DELETE FROM t WHERE id = 11",
        "COMMIT",
    )
    assert log.ids(facts) == [
        ("begin",),
        ("WRITE", "1", "2"),
        ("UPDATE", "1", "11", "2", "12"),
        ("DELETE", "11"),
        ("end",),
    ]
    end = facts[-1]
    assert isinstance(end, TransactionEnd)
    assert end.id.end == log_end(log.server).at
    assert (end.id.gtid is not None) == (log.server.variant == "mysql97_gtid")
    now = log.server.query("SELECT UNIX_TIMESTAMP(NOW(6))")[0][0]
    assert 0 <= float(now) - end.timestamp < 60


def test_replace_and_on_duplicate_key_carry_the_old_keys_bytes(log: LoggedDatabase) -> None:
    """R2: a key is compared byte for byte, so its before image must have the stored bytes."""
    log.server.run("CREATE TABLE k (id VARCHAR(9) PRIMARY KEY, v INT)", db=log.database)
    start = log_end(log.server)
    log.server.run(
        "INSERT INTO k VALUES ('a', 1)",
        "REPLACE INTO k VALUES ('A', 2)",
        "INSERT INTO k VALUES ('a', 3) ON DUPLICATE KEY UPDATE v = 4",
        "UPDATE k SET id = 'a'",
        db=log.database,
    )
    batch = changes(log.server, definition(log.server, log.database, "k"), start).batch
    rows = list(zip(batch["_cdc_kind"].to_pylist(), batch["id"].to_pylist(), batch["v"].to_pylist(), strict=True))
    before, after = ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER
    tail = [(before, "A", 2), (after, "A", 4), (before, "A", 4), (after, "a", 4)]
    assert rows[0] == (ChangeKind.INSERT, "a", 1)
    assert rows[1:-4] in (
        [(before, "a", 1), (after, "A", 2)],
        [(ChangeKind.DELETE, "a", 1), (ChangeKind.INSERT, "A", 2)],
    )
    assert rows[-4:] == tail


def test_rows_of_a_rolled_back_savepoint_are_not_in_the_log(log: LoggedDatabase) -> None:
    facts = log.run(
        "BEGIN",
        "INSERT INTO t VALUES (1, 'a')",
        "SAVEPOINT `Point ``1`",
        "INSERT INTO t VALUES (2, 'b')",
        "ROLLBACK TO `point ``1`",
        "INSERT INTO t VALUES (3, 'c')",
        "COMMIT",
        "BEGIN",
        "INSERT INTO t VALUES (4, 'a')",
        "ROLLBACK",
    )
    assert log.ids(facts) == [("begin",), ("WRITE", "1"), ("savepoint", "point `1"), ("WRITE", "3"), ("end",)]


def test_an_engine_without_transactions_ends_its_own(log: LoggedDatabase) -> None:
    log.server.run("CREATE TABLE m (id INT PRIMARY KEY) ENGINE = MyISAM", db=log.database)
    log.start = log_end(log.server)
    facts = log.run(
        "BEGIN", "INSERT INTO m VALUES (1)", "INSERT INTO t VALUES (1, 'a')", "ROLLBACK", "INSERT INTO m VALUES (2)"
    )
    shape = [type(f).__name__ for f in facts if not isinstance(f, Progress)]
    assert shape == ["TransactionBegin", "RowsEvent", "TransactionEnd"] * 2


def test_a_definition_is_a_transaction_of_its_own(log: LoggedDatabase) -> None:
    facts = log.run("CREATE TABLE x (id INT)", "ALTER TABLE x ADD y INT COMMENT 'ü'", "DROP TABLE x")
    statements = [f for f in facts if isinstance(f, Statement)]
    assert [f.database for f in statements] == [log.database] * 3
    assert [f.sql.split(" /*")[0] for f in statements] == [
        "CREATE TABLE x (id INT)",
        "ALTER TABLE x ADD y INT COMMENT 'ü'",
        "DROP TABLE `x`",
    ]
    assert [s[0] for s in log.ids(facts)] == ["begin", "statement", "end"] * 3


def test_a_statement_is_read_in_the_clients_character_set(log: LoggedDatabase) -> None:
    with log.server.connect(db=log.database, charset="latin1") as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE übung (id INT) CHARACTER SET latin1")
    facts = log.facts()
    assert [f.sql for f in facts if isinstance(f, Statement)] == ["CREATE TABLE übung (id INT) CHARACTER SET latin1"]


def test_a_statement_comes_with_what_it_was_read_by(log: LoggedDatabase) -> None:
    """The session's sql_mode and character set, the server's flavor and version."""
    mode = "ANSI_QUOTES,NO_BACKSLASH_ESCAPES"
    with (
        log.server.connect(db=log.database, charset="latin1", sql_mode=mode) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute('CREATE TABLE "x" (id INT)')
        cursor.execute("SELECT VERSION()")
        (version,) = cursor.fetchone()
    (statement,) = [f for f in log.facts() if isinstance(f, Statement)]
    session = statement.session
    assert (session.sql_mode, session.charset) == (ANSI_QUOTES | NO_BACKSLASH_ESCAPES, "latin1")
    assert session.mariadb == (log.server.flavor == "mariadb")
    assert version.startswith(f"{session.version // 10_000}.{session.version // 100 % 100}.{session.version % 100}")


@pytest.mark.parametrize("variant", ["mariadb1011", "mariadb114"])
def test_an_alter_in_two_phases_happens_where_it_is_committed(
    request: pytest.FixtureRequest, variant: str, fresh_database: FreshDatabase
) -> None:
    """R9: what failed never happened, though the binlog has its text twice; rows that came between
    have the old definition."""
    server: Server = request.getfixturevalue(variant)
    log = LoggedDatabase(server, fresh_database(server))
    server.run("INSERT INTO t VALUES (1, 'a'), (2, 'a')", db=log.database)
    log.start = log_end(server)
    two = "SET STATEMENT binlog_alter_two_phase = 1 FOR "
    with pytest.raises(MySQLError):
        log.server.run(f"{two}ALTER TABLE t ADD UNIQUE u (v)", db=log.database)
    log.server.run(f"{two}ALTER TABLE t COMMENT 'done'", db=log.database)
    facts = log.facts()
    assert log.ids(facts) == [("begin",), ("end",)] * 3 + [
        ("begin",),
        ("statement", f"{two}ALTER TABLE t COMMENT 'done'"),
        ("end",),
    ]


def test_create_table_select_is_one_transaction(log: LoggedDatabase) -> None:
    """Also where the text that MySQL logs has comments and quotes, and names without ASCII."""
    log.server.run("INSERT INTO t VALUES (1, 'a')", db=log.database)
    log.start = log_end(log.server)
    facts = log.run("CREATE TABLE `x$ü` (c INT COMMENT '# -- ') COMMENT ' -- it''s # /*' AS SELECT * FROM t")
    assert [type(f).__name__ for f in facts if not isinstance(f, Progress)] == [
        "TransactionBegin",
        "Statement",
        "RowsEvent",
        "TransactionEnd",
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE PROCEDURE begin_work() START TRANSACTION",
        "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DISABLE DO START TRANSACTION",
        "CREATE TABLE x (id INT) -- then: start transaction",
        "CREATE TABLE x (id INT) # START TRANSACTION",
    ],
)
def test_a_statement_that_ends_like_create_table_select(statement: str, log: LoggedDatabase) -> None:
    """It is a transaction of its own, and so is the next one."""
    facts = log.run(statement, "INSERT INTO t VALUES (1, 'a')")
    assert [shape[0] for shape in log.ids(facts)] == ["begin", "statement", "end", "begin", "WRITE", "end"]


def test_statement_format_arrives_as_text(log: LoggedDatabase) -> None:
    """R10: a session may leave the row format."""
    facts = log.run(
        "SET SESSION binlog_format = STATEMENT",
        "SET @a = 5",
        "INSERT INTO t VALUES (@a, RAND())",
        "SET SESSION binlog_format = ROW",
    )
    assert log.ids(facts) == [("begin",), ("statement", "INSERT INTO t VALUES (@a, RAND())"), ("end",)]


def test_load_data_in_statement_format_arrives_as_text(fresh_server: FreshServer) -> None:
    server = fresh_server("mariadb1011", local_infile=True)
    server.run("CREATE DATABASE d", "CREATE TABLE d.t (a INT)")
    start = log_end(server)
    (server.datadir / "d" / "rows.txt").write_text("1\n2\n")
    server.run("SET SESSION binlog_format = STATEMENT", "LOAD DATA INFILE 'rows.txt' INTO TABLE t", db="d")
    statements = [f.sql for f in read_log(server, start) if isinstance(f, Statement)]
    assert len(statements) == 1
    assert statements[0].startswith("LOAD DATA INFILE")


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_an_incomplete_image_is_a_defect_of_its_table(image: str, log: LoggedDatabase) -> None:
    log.server.run("CREATE TABLE b (id INT PRIMARY KEY, v BLOB)", "INSERT INTO b VALUES (1, 'x')", db=log.database)
    log.start = log_end(log.server)
    facts = log.run(f"SET SESSION binlog_row_image = {image}", "UPDATE b SET id = 2")
    defects = [f.defect for f in facts if isinstance(f, RowsEvent)]
    assert [d and (d.reason, d.table) for d in defects] == [(Reason.ROW_IMAGE_NOT_FULL, f"{log.database}.b")]


def _big_transaction(log: LoggedDatabase) -> list[str]:
    rows = [f"INSERT INTO t SELECT {i} * 1000 + seq, REPEAT(CHAR(65 + seq % 26), 2000) FROM seqs" for i in range(10)]
    numbers = ", ".join(f"({i})" for i in range(1000))
    log.server.run("CREATE TABLE seqs (seq INT)", f"INSERT INTO seqs VALUES {numbers}", db=log.database)
    log.start = log_end(log.server)
    return ["BEGIN", *rows, "SAVEPOINT s", "UPDATE t SET v = 'short' WHERE id % 10 = 0", "COMMIT"]


def _check_big_transaction(log: LoggedDatabase, facts: list[Fact]) -> None:
    events = [f for f in facts if isinstance(f, RowsEvent) and f.table.name == "t"]
    batch = decode(log.table, events, [0] * len(events)).batch
    kinds = batch["_cdc_kind"].to_pylist()
    assert kinds == [ChangeKind.INSERT] * 10_000 + [ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER] * 1000
    assert batch["id"].to_pylist()[:10_000] == list(range(10_000))
    assert batch["v"].to_pylist()[25] == "Z" * 2000
    assert [type(f).__name__ for f in facts if not isinstance(f, RowsEvent | Progress)] == [
        "TransactionBegin",
        "Savepoint",
        "TransactionEnd",
    ]


def test_a_compressed_transaction_of_mysql(mysql_log: LoggedDatabase) -> None:
    """20 MB of rows in one TRANSACTION_PAYLOAD event; the same without compression gives the same
    bodies."""
    statements = _big_transaction(mysql_log)
    facts = mysql_log.run("SET SESSION binlog_transaction_compression = ON", *statements)
    _check_big_transaction(mysql_log, facts)
    end = facts[-1]
    assert isinstance(end, TransactionEnd)
    assert end.id.end == log_end(mysql_log.server).at
    assert end.id.end.offset - mysql_log.start.at.offset < 1_000_000
    bodies = [f.body for f in facts if isinstance(f, RowsEvent)]
    mysql_log.server.run("DELETE FROM t", db=mysql_log.database)
    mysql_log.start = log_end(mysql_log.server)
    plain = mysql_log.run(*statements)
    assert b"".join(f.body for f in plain if isinstance(f, RowsEvent)) == b"".join(bodies)


def _with_global(server: Server, name: str, value: str) -> Iterator[None]:
    before = server.query(f"SELECT @@global.{name}")[0][0]
    server.run(f"SET GLOBAL {name} = {value}")
    yield
    server.run(f"SET GLOBAL {name} = {before}")


@pytest.fixture
def compressing(any_mariadb: Server) -> Iterator[None]:
    yield from _with_global(any_mariadb, "log_bin_compress", "1")


@pytest.mark.usefixtures("compressing")
def test_compressed_events_of_mariadb(mariadb_log: LoggedDatabase) -> None:
    facts = mariadb_log.run(*_big_transaction(mariadb_log))
    _check_big_transaction(mariadb_log, facts)
    mariadb_log.start = log_end(mariadb_log.server)
    comment = "c" * 1000
    facts = mariadb_log.run("DELETE FROM t WHERE id < 10", f"CREATE TABLE x (a INT COMMENT '{comment}')")
    assert {f.operation for f in facts if isinstance(f, RowsEvent)} == {Operation.DELETE}
    assert [f.sql for f in facts if isinstance(f, Statement)] == [f"CREATE TABLE x (a INT COMMENT '{comment}')"]


@pytest.mark.usefixtures("compressing")
def test_rows_too_large_to_unpack_are_a_defect_of_their_table(
    mariadb_log: LoggedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tables' rows come, in the same transaction and behind it."""
    monkeypatch.setattr(BOUND, "largest", 4000)
    wide = "REPEAT('x', 8000)"
    mariadb_log.server.run("CREATE TABLE small (id INT PRIMARY KEY)", db=mariadb_log.database)
    facts = mariadb_log.run(
        "BEGIN",
        f"INSERT INTO t VALUES (1, {wide})",
        "INSERT INTO small VALUES (1)",
        "COMMIT",
        "INSERT INTO small VALUES (2)",
    )
    defects = [(f.table.name, f.defect.reason if f.defect else None) for f in facts if isinstance(f, RowsEvent)]
    assert defects == [("t", Reason.TYPE_UNSUPPORTED), ("small", None), ("small", None)]


def test_an_event_too_large_to_unpack_is_a_defect_of_its_table(
    mysql_log: LoggedDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a compressed transaction of MySQL: the other tables' rows come, and where its table is not
    wanted, nothing of it."""
    monkeypatch.setattr(BOUND, "largest", 4000)
    mysql_log.server.run("CREATE TABLE small (id INT PRIMARY KEY)", db=mysql_log.database)
    facts = mysql_log.run(
        "SET SESSION binlog_transaction_compression = ON, binlog_rows_query_log_events = ON",
        "BEGIN",
        "INSERT INTO t VALUES (1, REPEAT('x', 8000))",
        f"INSERT INTO small VALUES (1) /* {'of rows' * 1000} */",
        "UPDATE t SET v = REPEAT('y', 8000)",
        "COMMIT",
        "INSERT INTO small VALUES (2)",
    )
    found = [(f.table.name, f.defect.reason if f.defect else None) for f in facts if isinstance(f, RowsEvent)]
    refused = ("t", Reason.TYPE_UNSUPPORTED)
    assert found == [refused, ("small", None), refused, ("small", None)]
    facts = read_log(mysql_log.server, mysql_log.start, wanted=lambda table: table.name == "small")
    assert [(f.table.name, f.defect) for f in facts if isinstance(f, RowsEvent)] == [("small", None)] * 2


@pytest.mark.parametrize(("verb", "committed"), [("COMMIT", True), ("ROLLBACK", False)])
def test_xa_is_told_from_other_transactions(verb: str, committed: bool, log: LoggedDatabase) -> None:
    facts = log.run(
        "XA START 'a', 'b', 7",
        "INSERT INTO t VALUES (1, 'a')",
        "XA END 'a', 'b', 7",
        "XA PREPARE 'a', 'b', 7",
        f"XA {verb} 'a', 'b', 7",
    )
    xid = "X'61',X'62',7"
    prepared = [("begin",), ("WRITE", "1"), ("xa prepare", xid), ("end",)]
    assert log.ids(facts) == [*prepared, ("begin",), ("xa end", xid, str(committed)), ("end",)]


def test_xa_in_one_phase_is_a_plain_transaction(log: LoggedDatabase) -> None:
    facts = log.run("XA START 'a'", "INSERT INTO t VALUES (1, 'a')", "XA END 'a'", "XA COMMIT 'a' ONE PHASE")
    assert log.ids(facts) == [("begin",), ("WRITE", "1"), ("end",)]


def test_rows_of_other_tables_do_not_come(log: LoggedDatabase) -> None:
    log.server.run("CREATE TABLE x (id INT)", db=log.database)
    log.server.run("INSERT INTO x VALUES (1)", "INSERT INTO t VALUES (1, 'a')", db=log.database)
    facts = read_log(log.server, log.start, wanted=lambda t: t.name == "t")
    assert [f.table.name for f in facts if isinstance(f, RowsEvent)] == ["t"]


def test_a_table_that_is_called_otherwise_than_planned_is_refused(log: LoggedDatabase) -> None:
    """R9: a difference without DDL in between is an error, not a guess."""
    plan = log.table
    log.server.run("ALTER TABLE t MODIFY v VARCHAR(8000) CHARACTER SET latin1", db=log.database)
    start = log_end(log.server)
    log.server.run("INSERT INTO t VALUES (1, 'a')", db=log.database)
    with pytest.raises(CdcError) as caught:
        changes(log.server, plan, start)
    assert caught.value.reason is Reason.SCHEMA_CHANGE_REFUSED
    assert "latin1" in caught.value.found


def _gtid_pos_set(text: str) -> set[str]:
    return set(text.split(","))


def test_marks_are_the_servers_gtid_positions(fresh_server: FreshServer) -> None:
    """R6: several domains and servers in one log, numbers that go backwards, several files."""
    server = fresh_server("mariadb1011_loose")
    start = log_end(server)
    server.run(
        "CREATE DATABASE w",
        "CREATE TABLE w.t (id INT PRIMARY KEY)",
        *("SET gtid_domain_id = 5", "INSERT INTO w.t VALUES (1)", "SET server_id = 99", "INSERT INTO w.t VALUES (2)"),
        *("SET gtid_domain_id = 0", "SET gtid_seq_no = 77", "INSERT INTO w.t VALUES (3)", "SET server_id = 11"),
        *("INSERT INTO w.t VALUES (4)", "SET gtid_domain_id = 2", "INSERT INTO w.t VALUES (5)", "FLUSH LOGS"),
        *(
            "SET gtid_domain_id = 10",
            "INSERT INTO w.t VALUES (6)",
            "SET gtid_domain_id = 5, server_id = 3, gtid_seq_no = 1",
        ),
        *("INSERT INTO w.t VALUES (7)", "FLUSH LOGS", "FLUSH LOGS", "INSERT INTO w.t VALUES (8)"),
    )
    ends = [f for f in read_log(server, start) if isinstance(f, TransactionEnd)]
    positions = [
        str(server.query("SELECT BINLOG_GTID_POS(%s, %s)", e.id.end.file, e.id.end.offset)[0][0]) for e in ends
    ]
    assert len(ends) == 10
    first = ends[0].id.end.file
    for i, (end, position) in enumerate(zip(ends, positions, strict=True)):
        # the GTID position of the start is not given: it is known from the second file on
        assert _gtid_pos_set(end.gtid_pos) == (
            _gtid_pos_set("") if end.id.end.file == first else _gtid_pos_set(position)
        )
        rest = read_log(server, FilePosition(end.id.end), gtid_pos=position)
        found = [f.gtid_pos for f in rest if isinstance(f, TransactionEnd)]
        assert [_gtid_pos_set(m) for m in found] == [_gtid_pos_set(p) for p in positions[i + 1 :]]


def test_a_file_cut_by_a_crash_ends_without_its_transaction(fresh_server: FreshServer) -> None:
    """The server is killed again and again while it writes; every end that is read was
    committed."""
    for variant in ("mariadb1011", "mysql97_gtid"):
        server = fresh_server(variant, sync_binlog=1)
        server.run("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
        start = log_end(server)
        for i in range(2):
            server.run(f"INSERT INTO d.t VALUES ({i})")
            server.kill()
            server.start()
        facts = read_log(server, start)
        table = definition(server, "d", "t")
        events = [f for f in facts if isinstance(f, RowsEvent)]
        assert decode(table, events, [0] * len(events)).batch["id"].to_pylist() == [0, 1]
        assert [f.at.file for f in facts if isinstance(f, Progress)][-1] == log_end(server).at.file


@pytest.mark.parametrize("change", [("NONE", "CRC32"), ("CRC32", "NONE")])
def test_checksums_may_be_switched_between_files(change: tuple[str, str], fresh_server: FreshServer) -> None:
    for variant in ("mariadb1011", "mysql97_gtid"):
        server = fresh_server(variant, binlog_checksum=change[0])
        start = log_end(server)
        server.run("CREATE DATABASE d", f"SET GLOBAL binlog_checksum = {change[1]}", "CREATE DATABASE e")
        facts = read_log(server, start)
        assert [f.sql.split()[-1] for f in facts if isinstance(f, Statement)] == ["d", "e"]


def test_an_encrypted_binlog_is_sent_in_the_clear(
    fresh_server: FreshServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("1;" + "a7" * 32 + "\n")
    shutil.copy(KEYS_PLUGIN, keys.parent)
    keys.parent.chmod(0o755)
    for parent in list(keys.parents)[:3]:
        parent.chmod(0o755)
    server = fresh_server(
        "mariadb1011",
        plugin_dir=str(keys.parent),
        plugin_load_add="file_key_management",
        file_key_management_filename=str(keys),
        encrypt_binlog=True,
    )
    start = log_end(server)
    server.run("CREATE DATABASE d", "FLUSH LOGS", "CREATE DATABASE e")
    assert b"CREATE DATABASE" not in (server.binlog_dir / start.at.file).read_bytes()
    facts = read_log(server, start)
    assert [f.sql for f in facts if isinstance(f, Statement)] == ["CREATE DATABASE d", "CREATE DATABASE e"]
