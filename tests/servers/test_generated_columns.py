"""Generated columns: the copy has the values that a SELECT of the source shows, in whichever
session rows are written and the table is changed, or the table is refused or stops (R1, R9)."""

from __future__ import annotations

import re
import threading
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pymysql.err import MySQLError

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.runs.run import LOG_END, RunConfig, RunKind, TableAssignment
from cdcsync_core.state import TableState
from cdcsync_mysql.readiness.preflight import preflight
from cdcsync_spark.app.driver import complete
from cdcsync_spark.engine.process_engine import ProcessEngine
from cdcsync_spark.run.context import RunContext, open_context
from cdcsync_spark.run.progress import Reporter
from cdcsync_spark.sinks.contract.changes import Append, Commit
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from cdcsync_spark.stream.confirmation import CatalogTable, ask_catalog
from cdcsync_spark.stream.run import run_stream
from support import small_sync
from support.fixtures import FreshDatabase, variants
from support.servers import Server
from support.small_sync import SmallSync
from support.verified import verify

pytestmark = pytest.mark.server

servers = variants("mariadb1011", "mysql97_gtid")

_BASE = (
    "id INT AUTO_INCREMENT PRIMARY KEY, x INT, n INT, m INT NOT NULL DEFAULT 3, d DECIMAL(10,2), f DOUBLE, c CHAR(5),"
    " v VARCHAR(20), l VARCHAR(20) CHARACTER SET latin1, d6 DATETIME(6), d0 DATETIME, da DATE, ts TIMESTAMP NULL,"
    " tm TIME, j JSON, b VARBINARY(16)"
)
_NAMES = "n, d, f, c, v, l, d6, d0, da, ts, tm, j, b"
_ROWS = (
    (
        "(1, 10.25, 0.1, 'ab', 'X', 'é', '2024-01-06 23:59:59.999999', '2024-01-07 01:00:00', '2024-01-06',"
        " '2024-01-07 01:00:00', '10:00:00', '{\"a\": \"é\", \"n\": 1}', x'0a000001')"
    ),
    (
        "(-7, -0.05, 1e20, '', '2024-02-31', '', '2024-12-31 23:59:59.5', '2024-12-31 23:00:00', '2024-02-29', NULL,"
        " '-10:00:00', '{\"a\": \"2\"}', x'')"
    ),
    "(NULL, NULL, NULL, NULL, NULL, NULL, '0000-00-00', '2024-00-00', '0000-00-00', NULL, NULL, NULL, NULL)",
)
#: that of one row alone
_PROVED = {
    "BIGINT": (
        "n + m * 2", "n DIV m", "n % m", "-n", "n = m", "n > 3 AND m < 5", "n BETWEEN 1 AND 5", "n IN (1, 2)", "NOT n",
        "IF(v = 'x', 1, 0)", "v IN ('x', 'é')", "ISNULL(v)", "v = ''", "v < 'X'", "v = l", "n = '1'", "v = 1", "n & m",
        "n << 2", "n XOR m", "NULLIF(n, m)", "GREATEST(n, m)", "ABS(n)", "FLOOR(d)", "CEILING(f)", "SIGN(n)", "BIT_COUNT(n)",
        "CRC32(v)", "LENGTH(CONCAT(n, m))", "LENGTH(v)", "CHAR_LENGTH('é')", "LOCATE('x', v)", "STRCMP(v, l)",
        "FIELD(v, 'a', 'x')", "INET_ATON(v)", "ASCII(v)", "v COLLATE utf8mb4_bin = 'X'", "CAST(v AS SIGNED)", "d", "f",
        "IF(ts IS NULL, 1, NULL)", "ts IS NOT NULL", "tm IS NULL", "c IS NULL", "YEAR(d0)", "MONTH(da)", "DAY(d0)",
        "HOUR(d6)", "MINUTE(d0)", "SECOND(d6)", "MICROSECOND(d6)", "QUARTER(d0)", "WEEKDAY(d0)", "DAYOFWEEK(da)", "TO_DAYS(da)",
        "DATEDIFF(d0, da)", "EXTRACT(YEAR_MONTH FROM d0)", "YEARWEEK(da, 1)", "TIMESTAMPDIFF(DAY, d0, da)", "d0 = da",
        "d0 > '2024-01-01'", "JSON_EXTRACT(j, '$.n')", "JSON_LENGTH(j)", "JSON_UNQUOTE(JSON_EXTRACT(j, '$.a')) = 'é'",
    ),
    "DECIMAL(20,4)": ("d * m", "CAST(v AS DECIMAL(10,2))", "ROUND(d, 1)", "TRUNCATE(d, 1)"),
    "DOUBLE": ("f * 1.5", "POW(n, 2)", "ROUND(f)", "SQRT(m)"),
    "VARCHAR(80) CHARACTER SET utf8mb4": (
        "CASE WHEN n > 1 THEN 'a' ELSE 'é' END", "CONCAT(v, 'é')", "CONCAT(l, 'é', n)", "CONCAT(n, m)", "CONCAT(f)",
        "CONCAT_WS('-', v, l)", "SHA2(CONCAT(v, 'é'), 256)", "HEX(v)", "LOWER(v)", "UPPER(l)", "SUBSTRING(v, 1, 2)", "LEFT(v, 1)",
        "TRIM(v)", "SUBSTRING_INDEX(v, '-', 1)", "REPLACE(v, 'x', 'y')", "REVERSE(v)", "LPAD(n, 5, '0')", "ELT(m, 'a', 'é', 'b')",
        "IFNULL(v, '')", "COALESCE(v, l, 'é')", "LEAST(v, l)", "CONV(n, 10, 16)", "INET6_NTOA(b)", "TO_BASE64(v)", "CAST(n AS CHAR)",
        "HEX(CAST(n AS CHAR))", "JSON_UNQUOTE(JSON_EXTRACT(j, '$.a'))", "JSON_VALUE(j, '$.a')", "CONCAT(da)", "CONCAT(d6)",
    ),
    "VARBINARY(80)": ("UNHEX(HEX(b))",),
    "DATE": ("DATE(d0)", "DATE(d6)", "LAST_DAY(d0)", "da + INTERVAL 1 MONTH"),
    "DATETIME": ("d0 + INTERVAL 1 DAY",),
}  # fmt: skip
#: that of a session, too; or not proved
_OPEN = {
    "BIGINT": (
        "HOUR(ts)", "UNIX_TIMESTAMP(d0)", "n / m", "WEEK(da)", "tm < d0", "LENGTH(c)", "YEAR(v)", "DEFAULT(x)",
        "v REGEXP '^x'", "TIMESTAMPDIFF(SECOND, d0, NOW())",
    ),
    "DECIMAL(20,10)": ("d / m",),
    "VARCHAR(80) CHARACTER SET utf8mb4": (
        "CONCAT(ts)", "CONCAT(c, '|')", "DATE_FORMAT(d0, '%W')", "DAYNAME(da)", "MONTHNAME(da)", "FORMAT(n, 2)",
    ),
    "DATE": ("DATE(ts)", "d6", "v"),
    "DATETIME": ("ts", "tm", "d6", "CAST(d6 AS DATETIME)"),
    "TIMESTAMP": ("d0",),
}  # fmt: skip
_WRITERS = (
    ("time_zone = '+05:00'",),
    ("time_zone = '-11:00', lc_time_names = 'de_DE', default_week_format = 3, div_precision_increment = 0",),
    ("div_precision_increment = 20, timestamp = 1000000000",),
    ("NAMES latin1",),
    ("character_set_connection = utf16",),
    ("NAMES utf8mb4 COLLATE utf8mb4_spanish_ci",),
    ("sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'",),
    ("sql_mode = 'TRADITIONAL,ANSI,NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION,HIGH_NOT_PRECEDENCE'",),
    ("sql_mode = 'ALLOW_INVALID_DATES'",),
)
_WRITERS_OF = {
    "mariadb": (("sql_mode = 'EMPTY_STRING_IS_NULL,TIME_ROUND_FRACTIONAL'",), ("sql_mode = 'ORACLE'",)),
    "mysql": (
        ("sql_mode = 'TIME_TRUNCATE_FRACTIONAL'",),
        ("sql_mode = ''", "default_collation_for_utf8mb4 = utf8mb4_general_ci"),
    ),
}


@servers
def test_values_that_the_row_decides_are_those_of_every_session(
    variant: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """The last row has dates that are none; each session writes rows and changes others."""
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    writers = (*_WRITERS, *_WRITERS_OF[server.flavor])
    server.run(f"CREATE TABLE t ({_BASE}) DEFAULT CHARSET utf8mb4", db=database)
    added = _add(server, database, "p", _PROVED)
    assert len(added) == sum(map(len, _PROVED.values()))
    server.run("SET sql_mode = ''", *[f"INSERT INTO t ({_NAMES}) VALUES {_ROWS[2]}"] * len(writers), db=database)
    sync = SmallSync(server, database, tmp_path / "followed", follow=True)
    sync.copy()
    for row, settings in enumerate(writers, 1):
        odd = ["FLUSH TABLES", "SET sql_mode = ''", *(f"SET {setting}" for setting in settings)]
        server.run(*odd, f"INSERT IGNORE INTO t ({_NAMES}) VALUES {', '.join(_ROWS)}", db=database)
        server.run(*odd, f"UPDATE IGNORE t SET x = 1 WHERE id = {row}", db=database)
    sync.catch_up()
    again = SmallSync(server, database, tmp_path / "selected", name="again")
    again.copy()
    followed, selected = _rows(sync), _rows(again)
    assert len(followed) == len(selected) == len(writers) * 4
    differing = {
        (added.get(name, name), str(a[name]), str(b[name]))
        for a, b in zip(followed, selected, strict=True)
        for name in a
        if a[name] != b[name]
    }
    assert differing == set()


def _add(server: Server, database: str, prefix: str, expressions: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """Returns those that the server takes, by column."""
    added = {}
    for kind, texts in expressions.items():
        for text in texts:
            name = f"{prefix}{len(added)}"
            with suppress(MySQLError):
                server.run(f"ALTER TABLE t ADD {name} {kind} AS ({text}) VIRTUAL", db=database)
                added[name] = text
    return added


def _rows(sync: SmallSync) -> list[dict[str, object]]:
    rows = sync.target("t").open_snapshot().scan().read_all()
    return rows.sort_by("id").to_pylist()


@servers
def test_virtual_columns_of_the_session_are_refused(
    variant: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """Each by its name, before a row is read; what is computed from one of them, too. Left out,
    the table is captured."""
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run(f"CREATE TABLE t ({_BASE}) DEFAULT CHARSET utf8mb4", db=database)
    added = _add(server, database, "o", _OPEN)
    assert len(added) > 18
    server.run("ALTER TABLE t ADD again INT AS (o0 + 1) VIRTUAL, ADD fine INT AS (n + 1) VIRTUAL", db=database)
    sync = SmallSync(server, database, tmp_path / "all")
    error = preflight(sync.source, sync.resource.spec).tables[0].error
    assert error is not None
    assert error.reason is Reason.TYPE_UNSUPPORTED
    refused = [*added, "again"]
    assert f"columns: {{exclude: [{', '.join(refused)}]}}" in error.remedy
    assert "o0 (it is computed from ts, a TIMESTAMP)" in error.found
    assert "again (it is computed from o0)" in error.found
    remedied = SmallSync(server, database, tmp_path / "some", excluded={"t": refused})
    assert preflight(remedied.source, remedied.resource.spec).tables[0].error is None


@servers
def test_a_table_that_was_captured_with_such_a_column_goes_on(
    variant: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """As an older release captured it: its definition is confirmed, and its rows are compared."""
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, g INT AS (n DIV 1) VIRTUAL)",
        "INSERT INTO t (id, n) VALUES (1, 1)",
        db=database,
    )
    sync = SmallSync(server, database, tmp_path)
    sync.copy()
    server.run("SET sql_log_bin = 0", "ALTER TABLE t MODIFY g INT AS (n / 1) VIRTUAL", db=database)
    server.run("INSERT INTO t (id, n) VALUES (2, 2)", db=database)
    sync.catch_up()
    state = sync.target("t").last_commit()
    assert state is not None
    shown = ask_catalog(sync.source, sync.facts.lineage, {"t": state.capture}).tables["t"]
    assert isinstance(shown, CatalogTable)
    assert shown.capture.source.recomputed == {"g"}
    result = verify(sync)["t"]
    assert (result.source_rows, result.equal) == (2, True)


def test_a_key_of_the_session_is_refused(mysql97_gtid: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """A row would be found by the value of its writer, and read by that of the reader. MariaDB has
    no such index."""
    database = fresh_database(mysql97_gtid)
    columns = "ts TIMESTAMP NOT NULL, k DATETIME AS (CAST(ts AS DATETIME)) VIRTUAL NOT NULL, UNIQUE KEY (k)"
    mysql97_gtid.run(f"CREATE TABLE t ({columns})", db=database)
    sync = SmallSync(mysql97_gtid, database, tmp_path)
    error = preflight(sync.source, sync.resource.spec).tables[0].error
    assert error is not None
    assert "k (it is computed from ts, a TIMESTAMP)" in error.found


_TEXT = "a VARCHAR(10) COLLATE utf8mb4_general_ci, g INT AS (IF(a = 'X', 1, 0)) {}"
_TIME = "a TIMESTAMP NULL, g INT AS (HOUR(a)) STORED"
_NUMBER = "a INT DEFAULT 1, g INT AS (DEFAULT(a)) STORED"
_BINARY = "VARCHAR(10) COLLATE utf8mb4_bin"
#: columns, and a statement that may change values of generated ones without a row event
_RECOMPUTED = (
    (_TEXT.format("VIRTUAL"), f"ALTER TABLE t MODIFY a {_BINARY}"),
    (_TEXT.format("VIRTUAL"), "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
    (_TEXT.format("STORED"), f"ALTER TABLE t MODIFY a {_BINARY}, ALGORITHM=COPY"),
    (_TIME, "ALTER TABLE t FORCE, ALGORITHM=COPY"),
    (_TIME, "ALTER TABLE t ORDER BY id"),
    (_TIME, "ALTER TABLE t PARTITION BY HASH(id) PARTITIONS 2"),
    (_TIME, "ALTER TABLE t ADD CONSTRAINT ck CHECK (id > 0)"),
    (_TIME, "ALTER TABLE t ADD COLUMN z INT DEFAULT 3, ALGORITHM=COPY"),
    (_TIME, "CREATE INDEX i ON t (a)"),
    (_TIME, "OPTIMIZE TABLE t"),
    (_NUMBER, "ALTER TABLE t ALTER a SET DEFAULT 7, FORCE, ALGORITHM=COPY"),
)


@servers
@pytest.mark.parametrize("follow", [True, False], ids=["follow", "fail"])
def test_what_may_compute_columns_again_stops_the_table(
    variant: str, follow: bool, request: pytest.FixtureRequest, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """A resnapshot cures it; with the policy to follow it comes by itself."""
    server: Server = request.getfixturevalue(variant)
    for i, (columns, statement) in enumerate(_RECOMPUTED):
        database = fresh_database(server)
        server.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) DEFAULT CHARSET utf8mb4", db=database)
        sync = SmallSync(server, database, tmp_path / str(i), follow=follow)
        sync.copy()
        server.run("SET time_zone = '+05:00'", "SET old_alter_table = 1", statement, db=database)
        with pytest.raises(CdcError, match=re.escape(statement[:40])) as caught:
            sync.catch_up()
        assert caught.value.reason is Reason.SCHEMA_CHANGE_REFUSED


@servers
def test_what_computes_no_column_again_is_followed(
    variant: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """Where the row decides the values, any statement; else one that says that it copies no row."""
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    proved = "g INT AS (a + 1) STORED, h INT AS (a * 2) VIRTUAL, t VARCHAR(9) COLLATE utf8mb4_bin"
    server.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, a INT, {proved})",
        f"CREATE TABLE u (id INT PRIMARY KEY, {_TIME})",
        "INSERT INTO t (id, a) VALUES (1, 1)",
        "INSERT INTO u (id, a) VALUES (1, '2024-01-01 10:00:00')",
        db=database,
    )
    sync = SmallSync(server, database, tmp_path, follow=True)
    sync.copy()
    server.run(
        "SET time_zone = '+05:00'",
        "ALTER TABLE t FORCE, ALGORITHM=COPY",
        "ALTER TABLE t ADD COLUMN z INT DEFAULT 3",
        "ALTER TABLE t MODIFY t VARCHAR(9) COLLATE utf8mb4_bin COMMENT 'x'",
        "ALTER TABLE t ALTER a SET DEFAULT 7",
        "CREATE INDEX i ON t (a)",
        "OPTIMIZE TABLE t",
        "ALTER TABLE u ADD COLUMN z INT DEFAULT 3, ALGORITHM=INSTANT",
        "ALTER TABLE u ADD INDEX (a), ALGORITHM=INPLACE",
        "INSERT INTO t (id, a) VALUES (2, 2)",
        "INSERT INTO u (id, a) VALUES (2, '2024-01-01 10:00:00')",
        db=database,
    )
    sync.catch_up()
    for table in ("t", "u"):
        target = sync.target(table).open_snapshot().scan().read_all().sort_by("id").select(["id", "g"])
        selected = server.query(f"SELECT id, g FROM {table} ORDER BY id", db=database)
        assert [tuple(row.values()) for row in target.to_pylist()] == [tuple(row) for row in selected]


def test_what_an_older_release_did_not_record_is_read_by_the_stream(
    mysql97_gtid: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """So a rebuild stops only the table whose column it may compute again, and one that is not any
    more as it was captured."""
    database = fresh_database(mysql97_gtid)
    proved = "a INT, g INT AS (a + 1) VIRTUAL"
    for table, columns in {"proved": proved, "altered": proved, "session": _TIME}.items():
        mysql97_gtid.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})", db=database)
    sync = SmallSync(mysql97_gtid, database, tmp_path)
    sync.copy()
    for target in sync.targets.values():
        target.commit(1, _as_older_release)
    mysql97_gtid.run("OPTIMIZE TABLE proved, altered, session", "ALTER TABLE altered ADD z INT", db=database)
    mysql97_gtid.run("INSERT INTO proved (id, a) VALUES (1, 1)", db=database)
    context = _catch_up_by_a_run(sync)
    assert {name: e.reason for name, e in context.failed.items()} == {
        f"{database}.altered": Reason.SCHEMA_CHANGE_REFUSED,
        f"{database}.session": Reason.SCHEMA_CHANGE_REFUSED,
    }
    assert sync.target("proved").open_snapshot().scan().read_all().num_rows == 1


def _as_older_release(state: TableState) -> Commit:
    source = replace(state.capture.source, recomputed=None)
    return Commit(replace(state, capture=state.capture.of(source), commit_number=state.commit_number + 1), Append(()))


def _catch_up_by_a_run(sync: SmallSync) -> RunContext:
    """The context of a run that has ended at the binlog's end, without Spark."""
    states = [state for target in sync.targets.values() if (state := target.last_commit())]
    tables = tuple(TableAssignment(state.capture) for state in states)
    resource, scratch = sync.resource.model_dump(by_alias=True, mode="json"), sync.folder / "scratch"
    scratch.mkdir()
    config = RunConfig(
        "r", 1, RunKind.CATCH_UP, resource, tables, "", str(sync.secrets_dir), str(scratch), stop_at=LOG_END
    )
    context = open_context(config, Reporter("r", -1), threading.Event(), Future())
    error = complete(context, partial(run_stream, open_engine=lambda: nullcontext(ProcessEngine())))
    assert error in (None, *context.failed.values()), error
    return context


@servers
def test_another_collation_between_two_splits(
    variant: str,
    request: pytest.FixtureRequest,
    fresh_database: FreshDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each split equals the plan, and the column is not the same in both."""
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    server.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, {_TEXT.format('VIRTUAL')}) DEFAULT CHARSET utf8mb4",
        "INSERT INTO t (id, a) VALUES (1, 'x'), (2, 'x'), (3, 'x'), (4, 'x')",
        db=database,
    )
    sync = SmallSync(server, database, tmp_path, chunk_size=2, follow=True)
    reads, batches = [], SplitReader.batches

    def altered(reader: SplitReader):
        reads.append(reader.split)
        if len(reads) == 2:
            server.run(f"ALTER TABLE t MODIFY a {_BINARY}", db=database)
        yield from batches(reader)

    monkeypatch.setattr(small_sync.SplitReader, "batches", altered)
    sync.copy()
    assert len(reads) > 1
    with pytest.raises(CdcError, match="the collation of a changes"):
        sync.catch_up()
