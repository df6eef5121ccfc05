"""Rule R1: no global variable of a server changes what our sessions read, how they end or how they
time out. Each session variable that the server lists is set to its odd values, many at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any

import pymysql
import pytest

from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.positions import watermark
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.reading.planner import plan
from cdcsync_spark.snapshot.splits.split_read import SplitReader
from support.fixtures import FreshServer, variants
from support.servers import Server
from support.source import connected, source_of

#: what is beyond them is refused with an error: a longer row, any statement that takes memory
_LIMITS = {"max_allowed_packet", "net_buffer_length", "max_session_mem_used"}
#: of what is written, by whom, or in which files and logs; some end the server or its accounts
_OTHER = {
    "sql_log_bin", "sql_log_off", "server_id", "gtid_domain_id", "gtid_seq_no", "default_storage_engine",
    "storage_engine", "default_tmp_storage_engine", "enforce_storage_engine", "innodb_tmpdir", "max_user_connections",
    "innodb_ft_user_stopword_table", "pseudo_thread_id", "pseudo_replica_mode", "wsrep_on", "max_relay_log_size",
    "binlog_format", "binlog_row_image", "rand_seed1", "rand_seed2", "sql_slave_skip_counter",
}  # fmt: skip
#: a member of ENUM and SET by its number
_MEMBERS = range(8)
_ROWS = [
    (number, f"a{number} ", date(2024, 1, number), Decimal("-1.50"), number / 3, "o'x\\", bytes([0, 255, number]))
    for number in range(1, 8)
]


def _fill(server: Server) -> None:
    server.run(
        "CREATE DATABASE g",
        "CREATE TABLE g.t (id INT PRIMARY KEY, c CHAR(5) CHARACTER SET utf8mb4, d DATE, n DECIMAL(9, 2), f DOUBLE,"
        " v VARCHAR(20) CHARACTER SET utf8mb4, b VARBINARY(9), z TIMESTAMP NULL, o VARCHAR(9) AS (concat(id, '!')) VIRTUAL)",
        "SET time_zone = '+00:00'",
    )
    with server.connect(db="g") as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for row in _ROWS:
            cursor.execute(
                "INSERT INTO t (id, c, d, n, f, v, b, z) VALUES (%s, %s, %s, %s, %s, %s, %s, '2024-05-06 07:08:09')",
                row,
            )


def _read(server: Server) -> list[list[dict[str, Any]]]:
    """The rows by both decoders, in splits of two."""
    with connected(server) as (connection, facts):
        table = read_table(connection, TableId("g", "t"))
        splits = list(plan(connection, table, 2))
        low = watermark.low(source_of(server), facts)
    found = []
    for decoder in Decoder:
        readers = [SplitReader(source_of(server), facts.lineage, table, s, low, 60, decoder) for s in splits]
        found.append([row for r in readers for batch in r.batches() for row in batch.to_pylist()])
    return found


def _listed(server: Server) -> list[tuple[str, str, list[str]]]:
    """Name, global value and odd values of each variable that a session inherits."""
    if server.flavor == "mariadb":
        rows = server.query(
            "SELECT VARIABLE_NAME, GLOBAL_VALUE, NUMERIC_MIN_VALUE, NUMERIC_MAX_VALUE FROM information_schema.SYSTEM_VARIABLES"
            " WHERE VARIABLE_SCOPE = 'SESSION' AND READ_ONLY = 'NO' AND GLOBAL_VALUE IS NOT NULL"
        )
    else:
        rows = server.query(
            "SELECT g.VARIABLE_NAME, g.VARIABLE_VALUE, NULLIF(m.MIN_VALUE, ''), NULLIF(m.MAX_VALUE, '')"
            " FROM performance_schema.global_variables g JOIN performance_schema.session_variables USING (VARIABLE_NAME)"
            " JOIN performance_schema.variables_metadata m USING (VARIABLE_NAME) WHERE m.VARIABLE_SCOPE LIKE 'SESSION%%'"
        )
    found = []
    for name, value, least, most in rows:
        numeric = least is not None and most is not None and str(least) != str(most)
        odd = [str(least), str(most)] if numeric else [str(n) for n in _MEMBERS]
        found.append((str(name).lower(), str(value), odd))
    return [entry for entry in found if entry[0] not in _LIMITS | _OTHER]


def _rounds(server: Server) -> Iterator[tuple[str, list[str]]]:
    """A description, and the names that were set: each to its next odd value, all others as they
    are meant to be."""
    listed = _listed(server)
    for number in range(max(len(odd) for _, _, odd in listed)):
        names = []
        with server.connect(db="g") as connection, connection.cursor() as cursor:
            for name, _, odd in listed:
                with suppress(pymysql.MySQLError):
                    if number < len(odd):
                        cursor.execute(f"SET GLOBAL {name} = {odd[number]}")
                        names.append(name)
            yield f"odd value {number}", names
            for name, value, _ in listed:
                with suppress(pymysql.MySQLError):
                    _restore(cursor, name, value)


def _restore(cursor: Any, name: str, value: str) -> None:
    try:
        cursor.execute(f"SET GLOBAL {name} = %s", (value,))
    except pymysql.MySQLError:
        cursor.execute(f"SET GLOBAL {name} = {value}")


@variants("mariadb1011", "mysql97_gtid")
def test_no_global_of_the_server_changes_what_is_read(variant: str, fresh_server: FreshServer) -> None:
    server = fresh_server(variant)
    _fill(server)
    expected = _read(server)
    assert [row["id"] for row in expected[0]] == list(range(1, 8))
    assert expected[0] == expected[1]
    seen = set[str]()
    for description, names in _rounds(server):
        seen |= set(names)
        assert _read(server) == expected, (description, names)
    assert {"completion_type", "sql_select_limit", "sql_mode", "autocommit", "net_write_timeout"} <= seen
    assert len(seen) > 80


@pytest.mark.parametrize("variant", ["mysql97_gtid"])
def test_a_global_that_ends_sessions_ends_none_of_ours(variant: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(variant)
    server.run("SET GLOBAL completion_type = 'RELEASE'")
    try:
        with connected(server) as (connection, _), connection.cursor() as cursor:
            for _ in itertools.repeat(None, 2):
                cursor.execute("START TRANSACTION READ ONLY")
                cursor.execute("COMMIT")
            cursor.execute("SELECT 1")
            assert cursor.fetchone() == (1,)
    finally:
        server.run("SET GLOBAL completion_type = 'NO_CHAIN'")
