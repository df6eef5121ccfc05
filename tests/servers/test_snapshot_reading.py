"""The snapshot's readers on real servers: the fast one sees what the plain one sees, and a result
that breaks off is an error."""

from __future__ import annotations

import pymysql
import pytest

from cdcsync_core.errors import PermanentError, Reason, TransientError
from cdcsync_core.runs.run import Decoder
from cdcsync_mysql.sessions.connection import Tls, connect, fetch
from cdcsync_mysql.sessions.failures import map_error
from cdcsync_spark.snapshot.splits.binary_select import read_select
from cdcsync_spark.snapshot.splits.split_read import READERS
from support.dump import definition
from support.fixtures import FreshDatabase
from support.servers import Server
from support.snapshots import assert_same
from support.source import connected, source_of

pytestmark = pytest.mark.server

MIB = 1 << 20
_TEN = " UNION ALL ".join(f"SELECT {i} AS v" for i in range(10))
#: 0 to 9,999
NUMBERS = f"SELECT a.v + 10 * b.v + 100 * c.v + 1000 * d.v AS n FROM ({_TEN}) a, ({_TEN}) b, ({_TEN}) c, ({_TEN}) d"


@pytest.fixture(params=["mariadb1011", "mysql97_gtid"])
def server(request: pytest.FixtureRequest) -> Server:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Server)
    return found


@pytest.fixture
def database(server: Server, fresh_database: FreshDatabase) -> str:
    return fresh_database(server)


def test_many_rows_of_every_length(server: Server, database: str) -> None:
    """Short and long rows in turn, NULLs in every pattern of 12 columns: buffers end anywhere in a
    row."""
    columns = ", ".join(f"c{i} {t}" for i, t in enumerate(("INT", "VARCHAR(400)", "DECIMAL(12,3)", "DATETIME(3)") * 3))
    values = ", ".join(
        f"IF(n & {1 << i}, NULL, {v})"
        for i, v in enumerate(
            (
                "n * 7919",
                "REPEAT(CHAR(97 + n MOD 26), n * 7 MOD 400)",
                "n * 3.141 - 5000",
                "FROM_UNIXTIME(n * 86399.125)",
            )
            * 3
        )
    )
    server.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO t SELECT n, {values} FROM ({NUMBERS}) x",
        db=database,
    )
    assert assert_same(server, definition(server, database, "t")).num_rows == 10_000


def test_rows_longer_than_a_packet(server: Server, database: str) -> None:
    """A packet ends at 2^24 - 1 bytes; rows of 17 MiB, of exactly one packet and around it, and one
    of 33 MiB, between short ones.

    No value exceeds the server's max_allowed_packet: a row may.
    """
    server.run("CREATE TABLE t (id INT PRIMARY KEY, a LONGBLOB, b LONGBLOB, c LONGBLOB, t LONGTEXT)", db=database)
    # header 1, bitmap 1, id 4, three lengths of 4, the text 3
    edge = 0xFFFFFF - 21
    totals = {2: 17 * MIB, 4: edge - 1, 5: edge, 6: edge + 1, 8: 33 * MIB}
    for i in range(10):
        total = totals.get(i, 300_000)
        first = second = total // 3
        for column, size in (("a", first), ("b", second), ("c", total - first - second)):
            server.run(
                f"INSERT INTO t (id, {column}, t) VALUES ({i}, REPEAT(CHAR(0x80 + {i}), {size}), 'ü')"
                f" ON DUPLICATE KEY UPDATE {column} = VALUES({column})",
                db=database,
            )
    found = assert_same(server, definition(server, database, "t"))
    assert [sum(len(found[c][i].as_py()) for c in "abc") for i in range(10)] == [
        totals.get(i, 300_000) for i in range(10)
    ]


def test_many_columns(server: Server, database: str) -> None:
    types = ("INT", "VARCHAR(9)", "DECIMAL(20,10)", "DATE", "TIME(3)", "BIT(5)", "DOUBLE", "BIGINT UNSIGNED")
    columns = [f"c{i} {types[i % len(types)]}" for i in range(500)]
    server.run(f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(columns)})", db=database)
    values = ("n", "n", "n / 7", "'2024-02-29'", "'-1:2:3.456'", "n & 31", "n / 3", "n")
    odd = [values[i % len(types)] for i in range(500)]
    server.run(
        f"INSERT INTO t SELECT n, {', '.join(odd)} FROM ({NUMBERS}) x WHERE n < 50",
        "INSERT INTO t (id) VALUES (1000), (1001)",
        f"INSERT INTO t (id, c0, c250, c496) SELECT n + 2000, n, n, n FROM ({NUMBERS}) x WHERE n < 50",
        db=database,
    )
    assert assert_same(server, definition(server, database, "t")).num_rows == 102


def test_every_character_set(server: Server, database: str) -> None:
    """The server converts each to the session's utf8mb4, in the binary protocol as in the text
    protocol."""
    charsets = [str(r[0]) for r in server.query("SELECT character_set_name FROM information_schema.character_sets")]
    assert len(charsets) > 35
    columns = ", ".join(
        f"c{i} VARCHAR(20) CHARACTER SET {c}, d{i} CHAR(9) CHARACTER SET {c}, e{i} TEXT CHARACTER SET {c}"
        for i, c in enumerate(charsets)
    )
    server.run("SET sql_mode = ''", f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", db=database)
    texts = ("abc ", "é", "ä ö", "Ж", "你好", "かな", "ñ€", "😀", "")
    for number, text in enumerate(texts):
        values = ", ".join([f"'{text}'"] * (3 * len(charsets)))
        # what a character set lacks becomes ?, which is then what is stored
        server.run("SET sql_mode = ''", f"INSERT INTO t VALUES ({number}, {values})", db=database)
    found = assert_same(server, definition(server, database, "t"))
    assert found["c0"].null_count == 0
    assert found.num_rows == len(texts)


def test_a_connection_is_idle_after_a_result(server: Server, database: str) -> None:
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", db=database)
    table = definition(server, database, "t")
    with connected(server) as (connection, _):
        for where, rows in (("id < 0", 0), ("id > 1", 1), ("TRUE", 2)):
            parts = list(READERS[Decoder.VECTORIZED](connection, table, f"FROM {table.id.quoted} WHERE {where}"))
            assert sum(p.batch.num_rows for p in parts) == rows
            assert fetch(connection, "SELECT 7") == [(7,)]


def test_over_tls(mysql97_gtid: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(mysql97_gtid)
    mysql97_gtid.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(2000))",
        f"INSERT INTO t SELECT n, REPEAT('ü', n MOD 1000) FROM ({NUMBERS}) x",
        db=database,
    )
    table = definition(mysql97_gtid, database, "t")
    plain = assert_same(mysql97_gtid, table)
    with connect(source_of(mysql97_gtid, tls=Tls("required"))) as connection:
        assert fetch(connection, "SHOW STATUS LIKE 'Ssl_cipher'")[0][1]
        sql = f"SELECT id, v FROM {table.id.quoted} ORDER BY id"
        batches = [d.batch for d in read_select(connection, table, sql)]
    assert [r for b in batches for r in b.to_pylist()] == plain.to_pylist()


@pytest.mark.parametrize("decoder", Decoder)
def test_a_statement_beyond_its_seconds_is_an_error(decoder: Decoder, server: Server, database: str) -> None:
    """The bound of the session holds for both protocols; the rows before it do not pass for the
    split."""
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", f"INSERT INTO t SELECT n FROM ({NUMBERS}) x", db=database)
    table = definition(server, database, "t")
    name = table.id.quoted
    slow = f"FROM {name} WHERE id < 9000 OR (SELECT COUNT(*) FROM {name} a, {name} b WHERE a.id + b.id > {name}.id) = 0"
    with connect(source_of(server), max_seconds=1) as connection, pytest.raises(pymysql.MySQLError) as caught:
        list(READERS[decoder](connection, table, slow))
    error = map_error(caught.value, "reading")
    assert isinstance(error, TransientError)
    assert error.reason is Reason.TABLE_BUSY
    assert "maxSplitSeconds" in error.remedy


@pytest.mark.parametrize("what", ["QUERY", "CONNECTION"])
def test_a_result_that_is_killed_is_an_error(what: str, server: Server, database: str) -> None:
    """Rows came before, and more than fit in the buffers of both sides were to come."""
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v TEXT)", db=database)
    server.run(f"INSERT INTO t SELECT n, REPEAT('x', 9000) FROM ({NUMBERS}) x WHERE n < 3000", db=database)
    table = definition(server, database, "t")
    with connected(server) as (connection, _):
        (number,) = fetch(connection, "SELECT CONNECTION_ID()")[0]
        parts = READERS[Decoder.VECTORIZED](connection, table, f"FROM {table.id.quoted}")
        assert next(parts).batch.num_rows > 0
        server.run(f"KILL {what} {number}")
        with pytest.raises(pymysql.MySQLError) as caught:
            list(parts)
    assert map_error(caught.value, "reading").reason is Reason.SOURCE_UNREACHABLE


@pytest.mark.parametrize(
    "change",
    ["MODIFY v BIGINT", "MODIFY v INT UNSIGNED", "MODIFY v VARCHAR(9)", "RENAME COLUMN v TO w, ADD COLUMN v DATE"],
)
def test_a_column_of_another_type_is_refused(change: str, server: Server, database: str) -> None:
    """Before a row is decoded; what the wire does not tell apart, the catalog does (splitread)."""
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 2)", db=database)
    table = definition(server, database, "t")
    server.run(f"ALTER TABLE t {change}", db=database)
    with connected(server) as (connection, _), pytest.raises(PermanentError) as caught:
        list(READERS[Decoder.VECTORIZED](connection, table, f"FROM {table.id.quoted}"))
    assert caught.value.reason is Reason.SCHEMA_CHANGE_REFUSED
    assert caught.value.table == str(table.id)


def test_a_column_that_is_gone_is_a_refused_change(server: Server, database: str) -> None:
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", db=database)
    table = definition(server, database, "t")
    server.run("ALTER TABLE t DROP COLUMN v", db=database)
    with connected(server) as (connection, _), pytest.raises(pymysql.MySQLError) as caught:
        list(READERS[Decoder.VECTORIZED](connection, table, f"FROM {table.id.quoted}"))
    assert map_error(caught.value, "reading").reason is Reason.SCHEMA_CHANGE_REFUSED
