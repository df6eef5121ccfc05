"""Split planning and rule R3: the union of all splits is the table, no two splits share a row,
every key that may still be inserted falls into exactly one split, and splits stay small whatever
keys and statistics are like."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, pairwise

import pytest

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.reading import planner
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.reading.planner import plan
from cdcsync_mysql.reading.splitquery import order_by, select_key, where
from cdcsync_mysql.sessions.connection import Connection, fetch
from support.fixtures import FreshDatabase
from support.servers import Server
from support.source import connected

#: numbers 0 ... 2999 as `n`, for INSERT ... SELECT
_NUMBERS = (
    "WITH RECURSIVE d AS (SELECT 0 AS x UNION ALL SELECT x + 1 FROM d WHERE x < 9)"
    " SELECT a.x + 10 * b.x + 100 * c.x + 1000 * e.x AS n FROM d a, d b, d c, d e WHERE e.x < 3"
)
_ROWS = 3000
_CHUNK = 100
_ASCII = "CHAR(33 + n MOD 90 USING ascii)"


@dataclass(frozen=True)
class Keys:
    """A table by its key columns, filled with `values` of n; `later` are keys inserted after the
    plan was made."""

    name: str
    columns: str
    values: str
    later: tuple[str, ...] = ()
    key: str = "k"
    flavor: str = ""
    options: str = ""
    distinct: bool = False


def _string(name: str, declared: str, flavor: str = "") -> Keys:
    """Keys whose order differs between bytes, code points and most collations."""
    texts = f"CONCAT(ELT(1 + n MOD 7, 'a', 'A', 'ä', 'ß', 'z', '_', '1 '), {_ASCII}, LPAD(n, 4, '0'), ELT(1 + n MOD 2, '', 'é'))"
    return Keys(name, f"k {declared} NOT NULL", texts, ("''", "'  '", "'zzzz'", "'Ä'"), flavor=flavor)


KEYS = [
    Keys("dense", "k INT NOT NULL", "n", ("-2147483648", "2147483647")),
    Keys("negative", "k SMALLINT NOT NULL", "3 * n - 4000", ("-32768", "32767", "1")),
    Keys("mediumint", "k MEDIUMINT UNSIGNED NOT NULL", "n * 7", ("16777215",)),
    Keys("unsigned",
         "k BIGINT UNSIGNED NOT NULL", "18446744073709551615 - 2 * n",
         ("0", "9223372036854775807", "9223372036854775808")),
    Keys("around",
         "k BIGINT NOT NULL", "(n - 1500) * 6148914691236517",
         ("-9223372036854775808", "9223372036854775807")),
    Keys("gap", "k BIGINT NOT NULL", "IF(n < 1500, n, 2000000 + n)", ("1000000",)),
    Keys("skewed", "k BIGINT NOT NULL", "IF(n < 2700, n, (n - 2700) * 4000 + 2700)", ("100000", "5000000")),
    Keys("decimal",
         "k DECIMAL(40,5) NOT NULL", "(n - 1500) * 12345678901234567890123.00123",
         ("0.00001", "-99999999999999999999999999999999999.99999")),
    Keys("date", "k DATE NOT NULL", "DATE'2000-01-01' + INTERVAL n DAY", ("'1000-01-01'", "'9999-12-31'")),
    Keys("datetime",
         "k DATETIME(6) NOT NULL", "TIMESTAMP'2000-01-01 00:00:00.000001' + INTERVAL n * 1000003 MICROSECOND",
         ("'1000-01-01'", "'9999-12-31 23:59:59.999999'")),
    Keys("timestamp",
         "k TIMESTAMP(3) NOT NULL DEFAULT NOW(3)", "TIMESTAMP'2020-03-29 00:00:00.001' + INTERVAL n * 17 SECOND",
         ("'1980-01-01'", "'2037-12-31 23:59:59.999'")),
    Keys("time",
         "k TIME(6) NOT NULL", "SEC_TO_TIME((n - 1500) * 1000.25)",
         ("'-838:59:59.000000'", "'838:59:59.000000'", "'-00:00:00.000001'")),
    Keys("year",
         "k YEAR NOT NULL, n INT NOT NULL", "IF(n < 1500, 0, 1901 + n MOD 255), n",
         ("2155, -1", "0, 5000"), key="k, n"),
    Keys("bits",
         "k BIT(64) NOT NULL", "18446744073709551615 - CAST(n AS UNSIGNED) * 6148914691236517",
         ("0", "18446744073709551615 - 1")),
    Keys("binary16", "k BINARY(16) NOT NULL", "UNHEX(LEFT(SHA2(n, 256), 32))", ("''", "x'FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF'")),
    Keys("varbinary",
         "k VARBINARY(40) NOT NULL", "CONCAT(UNHEX(LEFT(SHA2(n, 256), 32)), REPEAT(x'00', n MOD 3))",
         ("''", "x'00'", "x'0000'")),
    Keys("enum",
         "k ENUM('zulu', 'alpha', 'kilo', 'mike', 'é') NOT NULL, n INT NOT NULL", "1 + n MOD 5, n",
         ("'zulu', -1", "'é', 9999", "'alpha', 100000"), key="k, n"),
    Keys("only_enum", "k ENUM('b', 'a', 'c') NOT NULL", "1 + n MOD 3", ("'b'",), distinct=True),
    Keys("set",
         "k SET('c', 'b', 'a') NOT NULL, n INT NOT NULL", "n MOD 8, n",
         ("'', 9999", "'c,b,a', 9999"), key="k, n"),
    Keys("few_leading",
         "a TINYINT NOT NULL, b INT NOT NULL", "n MOD 2, n",
         ("0, -1", "1, 100000", "2, 0", "0, 100000"), key="a, b"),
    Keys("three",
         "a VARCHAR(5) NOT NULL, b ENUM('x', 'y') NOT NULL, c BIGINT NOT NULL",
         "ELT(1 + n MOD 3, 'a', 'B', 'c'), 1 + n MOD 2, -n",
         ("'b', 'x', 0", "'A', 'y', -5000"), key="a, b, c"),
    Keys("text_first", "a VARCHAR(20) NOT NULL, b INT NOT NULL", f"{_ASCII}, n", ("'', 0", "'~', 9999"), key="a, b"),
    Keys("descending", "a INT NOT NULL, b INT NOT NULL", "n MOD 10, n", ("-1, 0", "5, 100000"), key="a DESC, b DESC"),
    Keys("partitioned", "k INT NOT NULL", "n * 3", ("-5", "1", "100000"), options="PARTITION BY HASH (k) PARTITIONS 4"),
    _string("default", "VARCHAR(30)"),
    _string("general_ci", "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
    _string("unicode_ci", "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"),
    _string("bin", "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"),
    _string("char", "CHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
    _string("latin1", "VARCHAR(30) CHARACTER SET latin1 COLLATE latin1_german2_ci"),
    _string("gbk", "VARCHAR(30) CHARACTER SET gbk"),
    _string("utf16", "VARCHAR(30) CHARACTER SET utf16"),
    _string("utf8mb3", "VARCHAR(30) CHARACTER SET utf8mb3"),
    _string("0900_ai_ci", "VARCHAR(30) COLLATE utf8mb4_0900_ai_ci", "mysql"),
    _string("ja_0900", "VARCHAR(30) COLLATE utf8mb4_ja_0900_as_cs", "mysql"),
    _string("uca1400", "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE uca1400_ai_ci", "mariadb"),
    _string("nopad", "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_nopad_ci", "mariadb"),
    Keys("uuid",
         "k UUID NOT NULL",
         "CONCAT_WS('-', LEFT(SHA2(n, 256), 8), 'abcd', ELT(1 + n MOD 3, '1abc', '4def', '7012'), '8123', RIGHT(SHA2(n, 256), 12))",
         ("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-4fff-bfff-ffffffffffff'"), flavor="mariadb"),
    Keys("inet4", "k INET4 NOT NULL", "INET_NTOA(CONV(LEFT(SHA2(n, 256), 8), 16, 10))",
         ("'0.0.0.0'", "'255.255.255.255'"), flavor="mariadb"),
    Keys("inet6", "k INET6 NOT NULL", "INET6_NTOA(UNHEX(LEFT(SHA2(n, 256), 32)))", ("'::'", "'ffff::'"), flavor="mariadb"),
]  # fmt: skip


@pytest.fixture
def key_tables(any_server: Server) -> list[tuple[Keys, Capture]]:
    """All the tables on one server, made once."""
    if any_server.variant not in _MADE:
        _MADE[any_server.variant] = _create_all(any_server)
    return _MADE[any_server.variant]


_MADE: dict[str, list[tuple[Keys, Capture]]] = {}


def _create_all(server: Server) -> list[tuple[Keys, Capture]]:
    database = server.create_database()
    cases = [keys for keys in KEYS if keys.flavor in ("", server.flavor)]
    for keys in cases:
        _create(server, database, keys)
    with connected(server) as (connection, _):
        return [(keys, _table(connection, database, f"k_{keys.name}")) for keys in cases]


def _create(server: Server, database: str, keys: Keys) -> None:
    name = f"k_{keys.name}"
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"CREATE TABLE {name} ({keys.columns}, v INT, PRIMARY KEY ({keys.key})) {keys.options}")
        ignore = "IGNORE" if keys.distinct else ""
        cursor.execute(
            f"INSERT {ignore} INTO {name} ({_column_names(keys)}) SELECT {keys.values} FROM ({_NUMBERS}) AS numbers"
        )
        cursor.execute(f"ANALYZE TABLE {name}")


def _column_names(keys: Keys) -> str:
    return ", ".join(k.split()[0] for k in keys.key.split(", "))


def _table(connection: Connection, database: str, name: str) -> Capture:
    return read_table(connection, TableId(database, name))


def _count(connection: Connection, table: Capture, split: Split) -> int:
    return int(fetch(connection, f"SELECT COUNT(*) FROM {table.id.quoted} WHERE {where(table, split)}")[0][0])


def _keys_in(connection: Connection, table: Capture, split: Split) -> list[tuple[object, ...]]:
    sql = f"SELECT {select_key(table)} FROM {table.id.quoted} WHERE {where(table, split)} ORDER BY {order_by(table)}"
    return fetch(connection, sql)


def _assert_adjacent(splits: list[Split], frontier: Bound = None) -> None:
    assert splits[0].start == frontier
    assert splits[-1].end is None
    assert all(a.end == b.start is not None for a, b in pairwise(splits))


def test_splits_cover_the_table_once(any_server: Server, key_tables: list[tuple[Keys, Capture]]) -> None:
    """Before and after keys are inserted that the plan knows nothing of."""
    with connected(any_server) as (connection, _):
        for keys, table in key_tables:
            splits = list(plan(connection, table, _CHUNK))
            _assert_adjacent(splits)
            assert [Split.from_dict(s.to_dict()) for s in splits] == splits
            parts = [_keys_in(connection, table, split) for split in splits]
            _assert_whole(connection, table, parts)
            assert max(map(len, parts)) <= 3 * _CHUNK, f"{keys.name}: {[len(p) for p in parts]}"
            assert len(splits) <= max(3, 3 * sum(map(len, parts)) // _CHUNK), f"{keys.name}: {len(splits)} splits"

            added = _insert_later(any_server, keys, table)
            later = [_keys_in(connection, table, split) for split in splits]
            _assert_whole(connection, table, later)
            assert keys.distinct or sum(map(len, later)) == sum(map(len, parts)) + added, keys.name


def _assert_whole(connection: Connection, table: Capture, parts: list[list[tuple[object, ...]]]) -> None:
    """The parts, one after the other, are the table in key order: no row twice, none missing."""
    assert [key for part in parts for key in part] == _keys_in(connection, table, Split()), table.id.name


def _insert_later(server: Server, keys: Keys, table: Capture) -> int:
    """How many rows were new: the tables are shared by tests."""
    with server.connect(db=table.id.database) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        return sum(
            cursor.execute(f"INSERT IGNORE INTO {table.id.name} ({_column_names(keys)}) VALUES ({values})")
            for values in keys.later
        )


def test_a_plan_goes_on_from_a_frontier(any_server: Server, key_tables: list[tuple[Keys, Capture]]) -> None:
    """R7: unfinished splits are planned again from what is finished."""
    with connected(any_server) as (connection, _):
        for _keys, table in key_tables:
            done = list(islice(plan(connection, table, _CHUNK), 2))
            if done[-1].end is None:
                continue
            rest = list(plan(connection, table, 70, done[-1].end))
            _assert_adjacent(rest, done[-1].end)
            _assert_whole(connection, table, [_keys_in(connection, table, split) for split in (*done, *rest)])


def test_a_split_is_a_range_scan(any_server: Server, key_tables: list[tuple[Keys, Capture]]) -> None:
    """A split costs its own rows, in the middle of the table as well (composite and ENUM keys
    included)."""
    with connected(any_server) as (connection, _):
        for keys, table in key_tables:
            if keys.name in ("set", "only_enum"):
                continue  # the index knows a SET by its number only; three rows need no index
            splits = list(plan(connection, table, _CHUNK))
            middle = splits[len(splits) // 2]
            size = _count(connection, table, middle)
            read = _rows_read(connection, table, middle)
            assert read <= size + 50, f"{keys.name}: {read} rows read for {size}: {where(table, middle)}"


def _rows_read(connection: Connection, table: Capture, split: Split) -> int:
    fetch(connection, "FLUSH STATUS")
    fetch(connection, f"SELECT * FROM {table.id.quoted} WHERE {where(table, split)}")
    counters = fetch(connection, "SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(value) for name, value in counters if name not in ("Handler_read_rnd_deleted", "Handler_read_retry"))


@pytest.mark.parametrize("estimated", [0, 1, 10, 1_100, 30_000, 50_000_000])
def test_wrong_statistics_do_not_make_large_splits(
    estimated: int, any_server: Server, fresh_database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = fresh_database(any_server)
    any_server.run("CREATE TABLE stale (k BIGINT PRIMARY KEY)", f"INSERT INTO stale {_NUMBERS}", db=database)
    # The servers keep no wrong statistics on demand: the row count is live until they restart.
    monkeypatch.setattr(planner, "estimate_rows", lambda *_: estimated)
    with connected(any_server) as (connection, _):
        table = _table(connection, database, "stale")
        sizes = [_count(connection, table, split) for split in plan(connection, table, _CHUNK)]
    assert sum(sizes) == _ROWS
    assert max(sizes) <= 3 * _CHUNK, sizes
    assert len(sizes) <= 21 * _ROWS // _CHUNK, "a spread of less than 0.05 is not cut evenly"


def test_small_and_empty_tables_are_one_split(any_server: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(any_server)
    with connected(any_server) as (connection, _):
        for key in ("INT", "VARCHAR(5)", "DATE"):
            any_server.run("DROP TABLE IF EXISTS e", f"CREATE TABLE e (k {key} PRIMARY KEY)", db=database)
            assert list(plan(connection, _table(connection, database, "e"), _CHUNK)) == [Split()]


def test_plans_are_lazy(any_server: Server, fresh_database: FreshDatabase) -> None:
    """The first splits suffice to begin; nothing of the rest is asked for."""
    database = fresh_database(any_server)
    keys = next(k for k in KEYS if k.name == "general_ci")
    _create(any_server, database, keys)
    with connected(any_server) as (connection, _):
        table = _table(connection, database, "k_general_ci")
        plan_ahead = plan(connection, table, _CHUNK)
        fetch(connection, "FLUSH STATUS")
        assert len(list(islice(plan_ahead, 1))) == 1
        counters = dict(fetch(connection, "SHOW SESSION STATUS LIKE 'Handler_read%'"))
        assert int(counters["Handler_read_next"]) <= 2 * _CHUNK


def test_zero_dates_in_a_key_are_refused(any_server: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(any_server)
    with any_server.connect(db=database) as raw, raw.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("CREATE TABLE z (k DATE NOT NULL PRIMARY KEY)")
        cursor.execute(
            "INSERT INTO z VALUES ('0000-00-00'), ('2024-00-00'), ('2024-05-00'), ('2024-06-01'), ('2024-06-02')"
        )
    with connected(any_server) as (connection, _), pytest.raises(PermanentError) as refused:
        list(plan(connection, _table(connection, database, "z"), 1))
    assert refused.value.reason is Reason.TYPE_UNSUPPORTED


def test_a_unique_index_may_be_the_key(any_server: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(any_server)
    any_server.run(
        "CREATE TABLE u (v INT, k INT NOT NULL, s VARCHAR(9) NOT NULL, UNIQUE KEY `a``b` (s, k)) ENGINE=InnoDB",
        db=database,
    )
    any_server.run(f"INSERT INTO u SELECT n, n, n MOD 3 FROM ({_NUMBERS}) AS numbers", db=database)
    with connected(any_server) as (connection, _):
        table = _table(connection, database, "u")
        assert table.key == ("s", "k")
        sizes = [_count(connection, table, split) for split in plan(connection, table, _CHUNK)]
    assert (sum(sizes), max(sizes)) == (_ROWS, _CHUNK)
