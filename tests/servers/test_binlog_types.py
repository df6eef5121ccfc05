"""A value read by SELECT and the same value decoded from the binlog are equal (types.md), on every
server, at the types' extremes."""

from __future__ import annotations

import random
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.capture import uncertain_members
from cdcsync_mysql.sessions.version import parse_version
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import changes_schema
from support.dump import changes, definition, log_end
from support.fixtures import FreshDatabase
from support.row_metadata import least_metadata
from support.servers import Server
from support.snapshots import assert_same

pytestmark = pytest.mark.server

# a latin1 connection would not do: values must arrive as they are written here
_SESSION = (
    "SET sql_mode = 'ALLOW_INVALID_DATES'",
    "SET time_zone = '+00:00'",
)


@dataclass(frozen=True)
class TypeCase:
    """A table's columns after `id INT PRIMARY KEY`, and rows of SQL expressions; NULLs and defaults
    are added."""

    name: str
    columns: str
    rows: tuple[str, ...]
    flavor: str = ""
    since: tuple[int, ...] = ()


def _texts(*values: str) -> str:
    return ", ".join(f"'{v}'" for v in values)


CASES = [
    TypeCase(
        "integers",
        "a TINYINT, b TINYINT UNSIGNED, c SMALLINT, d SMALLINT UNSIGNED, y YEAR, e MEDIUMINT, f MEDIUMINT UNSIGNED, g INT, h INT UNSIGNED,"
        " i BIGINT, j BIGINT UNSIGNED, k TINYINT(1), l INT(5) ZEROFILL",
        (
            "-128, 255, -32768, 65535, 1901, -8388608, 16777215, -2147483648, 4294967295, -9223372036854775808,18446744073709551615,2,42",
            "127, 0, 32767, 0, 2155, 8388607, 0, 2147483647, 0, 9223372036854775807, 0, -128, 100000",
            "-1, 1, -1, 1, 0, -1, 1, -1, 1, -1, 1, 0, 0",
        ),
    ),
    TypeCase(
        "numbers",
        "a DECIMAL(10,2), b DECIMAL(65,30), c DECIMAL(38,0), d DECIMAL(5,5), e DECIMAL(1,0), f DECIMAL(38,30) UNSIGNED, g DECIMAL,"
        " h DECIMAL(39,0), i FLOAT, j FLOAT UNSIGNED, k DOUBLE, l FLOAT(7,3),"
        " m DECIMAL(40,2) ZEROFILL",
        (
            (
                "-99999999.99, -99999999999999999999999999999999999.999999999999999999999999999999,"
                " 99999999999999999999999999999999999999, -0.00001, -9, 99999999.999999999999999999999999999999, -9999999999,"
                " 999999999999999999999999999999999999999, 16777216, 3.4e38,"
                " -1.7976931348623157e308, 1234.567, 12.34"
            ),
            "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0",
            "-0.01, -.000000000000000000000000000001, -1, .99999, 9, 0.000000000000000000000000000001,1,-1,-1e-38,1e-38, 5e-324, -.5, .01",
            "1000000.00, 123456789.123456789, 1000000000, 0.1, 1, 1, 100000000, 1000000000000000000, 0.1, 0.1, 0.1, 0.1, 1",
        ),
    ),
    TypeCase(
        "bits",
        "a BIT(1), b BIT, c BIT(8), d BIT(9), e BIT(10), f BIT(64)",
        ("b'1', 1, 255, 511, 513, 18446744073709551615", "0, 0, 0, 0, 0, 0", "1, b'1', 1, 1, 1, 1"),
    ),
    TypeCase(
        "dates",
        "a DATE, b DATETIME, c DATETIME(1), d DATETIME(3), e DATETIME(6), f TIMESTAMP NULL, g TIMESTAMP(2) NULL, h TIMESTAMP(6) NULL",
        (
            _texts(
                "0001-01-01",
                "1000-01-01 00:00:00",
                "1582-10-10 00:00:00.1",
                "2024-02-29 12:00:00.123",
                "9999-12-31 23:59:59.999999",
                "1970-01-01 00:00:01",
                "2020-01-01 00:00:00.05",
                "2038-01-19 03:14:07.999999",
            ),
            "'9999-12-31', '0001-01-01 00:00:00', NULL, NULL, '1582-10-05 00:00:00.000001', NOW(), NOW(2), NOW(6)",
            # zero, partial and impossible
            _texts(*["0000-00-00"] * 5) + ", 0, 0, 0",
            _texts("2024-00-10", "2024-01-00", "2024-02-31", "2023-02-29", "0000-01-01") + ", NULL, NULL, NULL",
            # the second 0 with a fraction, which is a moment to MariaDB alone
            "NULL, NULL, NULL, NULL, NULL, "
            + _texts("1970-01-01", "1970-01-01 00:00:00.25", "1970-01-01 00:00:00.000001"),
        ),
    ),
    TypeCase(
        "times",
        "a TIME, b TIME(1), c TIME(2), d TIME(3), e TIME(4), f TIME(5), g TIME(6)",
        (
            _texts(
                "-838:59:59",
                "-838:59:58.9",
                "-101:02:03.45",
                "-0:0:0.001",
                "-0:0:1.0001",
                "838:59:58.99999",
                "-838:59:59.000000",
            ),
            _texts("838:59:59", "-00:00:00.1", "0", "101:02:03.456", "-1:0:0.5", "-0:0:0.00001", "-101:02:03.456789"),
            _texts(
                "0",
                "1:2:3.9",
                "-00:00:00.99",
                "-101:02:03.999",
                "-838:59:58.0001",
                "-838:59:58.99999",
                "838:59:58.999999",
            ),
        ),
    ),
    TypeCase(
        "texts",
        "a CHAR(10), b VARCHAR(20), c VARCHAR(300), d TINYTEXT, e TEXT, f MEDIUMTEXT, g LONGTEXT, h CHAR(200),"
        " i CHAR(3) CHARACTER SET utf32, j TEXT CHARACTER SET utf16, k VARCHAR(9) CHARACTER SET latin1,"
        " l CHAR(9) CHARACTER SET ucs2, m VARCHAR(9) CHARACTER SET utf16le,"
        " n VARCHAR(9) CHARACTER SET gbk, o CHAR(9) CHARACTER SET ascii, p VARCHAR(255) CHARACTER SET utf8mb3",
        (
            (
                "'abc  ', ' lead trail  ', REPEAT('ü', 300), 'NULL', 'a\\0b', 'wide 😀', REPEAT('x', 70000), REPEAT('😀', 200), '😀 ',"
                " 'utf16 😀 ', _latin1 x'80819dff20', 'é ', 'ü😀 ', '你好', 'ascii ', REPEAT('ü', 255)"
            ),
            ", ".join(["''"] * 16),
            ", ".join(["' '"] * 16),
        ),
    ),
    TypeCase(
        "binaries",
        "a BINARY(16), b BINARY(3) NOT NULL DEFAULT '', c VARBINARY(10), d TINYBLOB, e BLOB, f MEDIUMBLOB, g LONGBLOB, h BINARY(255)",
        (
            "x'00000000000000000000000000000000', x'610000', '', '', '', '', '', REPEAT(x'ff', 255)",
            "x'0102030400', 'a', x'00', x'00ff00', x'00', x'20', REPEAT(x'00ff', 40000), x'00'",
            "'', '', x'2000', ' ', '\\0', x'ff', x'', ''",
        ),
    ),
    TypeCase(
        "labels",
        "a ENUM('a','b''c','d\\\\\\\\e','é','f,g','x(y)','') , b ENUM('A','ß') CHARACTER SET latin1, c SET('x','y','z''w','ü'),"
        " d ENUM('p','q') CHARACTER SET utf16, e SET('p','q') CHARACTER SET ucs2",
        (
            "'b''c', 'ß', 'x,z''w', 'q', 'q,p'",
            "'d\\\\\\\\e', 1, 15, 1, 3",
            "'é', 'A', 'ü', 'p', ''",
            "'f,g', 'A', '', 'p', 'p'",
            "'no such member', 0, 0, 0, 0",
            "'', 2, 8, 2, 2",
        ),
    ),
    TypeCase(
        "labels that the catalog shows exactly",
        "a ENUM('a','b''c','é','f,g','x(y)','') , b ENUM('A','ß') CHARACTER SET latin1, c SET('x','y','z''w','ü'),"
        " d ENUM('p','ü') CHARACTER SET utf16, e SET('p','q') CHARACTER SET ucs2, f ENUM('é','€') CHARACTER SET gbk",
        (
            "'b''c', 'ß', 'x,z''w', 'ü', 'q,p', '€'",
            "'é', 'A', 'ü', 'p', '', 'é'",
            "'f,g', 'A', '', 'p', 'p', 'é'",
            "'no such member', 0, 0, 0, 0, 0",
            "'', 2, 8, 2, 2, 2",
        ),
    ),
    TypeCase(
        "nothing",
        "a BINARY(0), b VARBINARY(0), c CHAR(0), d VARCHAR(0), e BINARY(0) NOT NULL DEFAULT '', f INT",
        ("'', '', '', '', '', 7", "NULL, '', NULL, '', '', 8", "'', NULL, '', NULL, '', NULL"),
    ),
    TypeCase(
        "labels in the binary character set",
        "a ENUM('x','é','f,g','') CHARACTER SET binary, b SET('x','ü','z') CHARACTER SET binary,"
        " c ENUM('only') CHARACTER SET binary NOT NULL DEFAULT 'only'",
        ("'x', 'x,z', 'only'", "'é', 'ü', 'only'", "'f,g', '', 'only'", "'', 7, 1", "0, 2, 1"),
    ),
    TypeCase(
        "geometries",
        "a GEOMETRY, b POINT, c LINESTRING, d POLYGON, e GEOMETRYCOLLECTION, f VARCHAR(5)",
        (
            (
                "ST_GeomFromText('POINT(1 2)'), ST_GeomFromText('POINT(-1.5 1e300)'), ST_GeomFromText('LINESTRING(0 0,1 1)'),"
                " ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))'), ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1))'), 'é'"
            ),
            "ST_GeomFromText('POINT(1 2)', 4326), NULL, NULL, NULL, NULL, 'ü'",
        ),
    ),
    TypeCase(
        "generated",
        "a INT, b INT AS (a + 1) STORED, c INT AS (a + 2) VIRTUAL, d VARCHAR(10) INVISIBLE DEFAULT 'hid'",
        ("7, DEFAULT, DEFAULT",),
    ),
    TypeCase(
        "functional index",
        "a INT, b JSON, KEY ((a * 2)), KEY ((CAST(b AS UNSIGNED ARRAY)))",
        ("7, '[1, 2]'",),
        "mysql",
    ),
    TypeCase(
        "vectors",
        "s TEXT, a VECTOR(3), c CHAR(3) CHARACTER SET latin1, b VECTOR, t VARCHAR(9) CHARACTER SET ucs2",
        ("'ä', TO_VECTOR('[1,-2.5,3e38]'), 'ö', TO_VECTOR('[0.1]'), 'ü'",),
        "mysql",
    ),
    TypeCase(
        "vectors of MariaDB",
        "s TEXT, a VECTOR(3), c CHAR(3) CHARACTER SET latin1, b VECTOR(1), t VARCHAR(9) CHARACTER SET ucs2",
        ("'ä', VEC_FromText('[1,-2.5,3e38]'), 'ö', VEC_FromText('[0.1]'), 'ü'",),
        "mariadb",
        since=(11, 8),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
@pytest.mark.parametrize("server_name", ["mariadb1011", "mariadb114", "mariadb118", "mysql97_gtid"])
def test_every_type_at_its_extremes(
    case: TypeCase, server_name: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase
) -> None:
    server: Server = request.getfixturevalue(server_name)
    if case.flavor not in ("", server.flavor) or parse_version(server.version) < case.since:
        return
    database = fresh_database(server)
    server.run(f"CREATE TABLE t (id INT PRIMARY KEY, {case.columns})", db=database)
    rows = [f"INSERT INTO t VALUES ({i}, {row})" for i, row in enumerate(case.rows, 1)]
    rows.append("INSERT INTO t (id) VALUES (1000)")
    _assert_same(server, database, rows)
    server.run("DELETE FROM t", db=database)
    with least_metadata(server):
        if uncertain_members(definition(server, database, "t")):
            _assert_refused(server, database, rows)
        else:
            _assert_same(server, database, rows)


def _assert_refused(server: Server, database: str, statements: Sequence[str]) -> None:
    start = log_end(server)
    server.run(*_SESSION, *statements, db=database)
    with pytest.raises(CdcError) as refused:
        changes(server, definition(server, database, "t"), start)
    assert refused.value.reason is Reason.ROW_METADATA_NOT_FULL
    assert "members of" in refused.value.found


def test_old_times_of_mariadb(any_mariadb: Server, fresh_database: FreshDatabase) -> None:
    """At each number of digits, with zero, partial and impossible dates."""
    database, digits = fresh_database(any_mariadb), range(7)
    columns = [f"t{d} TIME({d}), d{d} DATETIME({d}), s{d} TIMESTAMP({d}) NULL" for d in digits]
    any_mariadb.run(
        "SET GLOBAL mysql56_temporal_format = OFF",
        f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(columns)})",
        "SET GLOBAL mysql56_temporal_format = DEFAULT",
        db=database,
    )
    rows = [
        ("-838:59:58.987654", "9999-12-31 23:59:59.987654", "2038-01-19 03:14:06.987654"),
        ("838:59:58.123456", "0001-01-01 00:00:00.000001", "1970-01-01 00:00:01.000001"),
        ("-00:00:00.000009", "0000-00-00", "0000-00-00"),
        ("00:00:00.9", "2024-00-10 01:02:03.9", "2000-02-29 23:59:59.9"),
        ("00:00:00.1", "1970-01-01 00:00:00.1", "1970-01-01 00:00:00.000987"),
        ("00:00:00", "2023-02-31 23:00:00", "2000-01-01"),
    ]
    inserts = [f"INSERT INTO t VALUES ({i}, {', '.join([_texts(*row)] * len(digits))})" for i, row in enumerate(rows)]
    types = {row[1] for row in any_mariadb.query("SHOW COLUMNS FROM t", db=database)}
    assert "time(3) /* mariadb-5.3 */" in types
    _assert_same(any_mariadb, database, [*inserts, "INSERT INTO t (id) VALUES (1000)"])


def _assert_same(server: Server, database: str, statements: Sequence[str]) -> None:
    """Runs the statements on the table `t` and compares its rows with what the binlog has about
    them."""
    start = log_end(server)
    server.run(*_SESSION, *statements, db=database)
    table = definition(server, database, "t")
    decoded = changes(server, table, start)
    assert decoded.batch.schema == changes_schema(captured_schema(table))
    names = ", ".join(_selected(c.name, c.type.base) for c in table.columns)
    expected = server.query(f"SELECT {names} FROM t ORDER BY id", db=database)
    nulled = 0
    for i, column in enumerate(table.columns):
        wanted = [_expected(row[i], decoded.batch.schema.field(i + 2).type) for row in expected]
        assert decoded.batch.column(i + 2).to_pylist() == wanted, (column.name, column.type.declared)
        nulled += sum(row[i] is not None and w is None for row, w in zip(expected, wanted, strict=True))
    assert decoded.nulled == nulled
    snapshot = assert_same(server, table)
    assert snapshot.combine_chunks().equals(pa.table(decoded.batch.columns[2:], schema=snapshot.schema))


def _selected(name: str, base: str) -> str:
    if base in ("date", "datetime", "timestamp", "time", "decimal"):
        return f"CAST(`{name}` AS CHAR)"
    forms = {"float": "CAST(`{}` AS DOUBLE)", "year": "`{}` + 0", "vector": "HEX(`{}`)"}
    return forms.get(base, "`{}`").format(name)


def _expected(value: Any, kind: pa.DataType) -> Any:
    """What the server prints as a value of the target's type, by Python's own means."""
    if value is None:
        return None
    if pa.types.is_date32(kind):
        return _valid(date.fromisoformat, value)
    if pa.types.is_timestamp(kind):
        read = _valid(lambda text: datetime.fromisoformat(_with_micros(text)), value)
        return read and pa.scalar(read, pa.timestamp("us")).cast(kind).as_py()
    if pa.types.is_boolean(kind):
        return value == b"\1"
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_list(kind):
        return list(struct.unpack(f"<{len(value) // 8}f", bytes.fromhex(value)))
    if pa.types.is_string(kind) and isinstance(value, bytes):
        return value.decode()
    return int(value) if pa.types.is_integer(kind) else value


def _valid(read: Any, text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        return None


def _with_micros(text: str) -> str:
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(6, '0')}"


def _doubles(rnd: random.Random) -> list[str]:
    numbers = [struct.unpack("<d", struct.pack("<Q", rnd.getrandbits(64)))[0] for _ in range(2000)]
    numbers += [rnd.uniform(-1, 1) * 10 ** rnd.randint(-20, 20) for _ in range(4000)]
    numbers += [float(rnd.getrandbits(60)) / 2 ** rnd.randint(0, 10) for _ in range(1000)]
    return [repr(n) for n in numbers if n == n and abs(n) != float("inf")]


def test_json_is_printed_as_the_server_prints_it(mysql97_gtid: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(mysql97_gtid)
    mysql97_gtid.run("CREATE TABLE t (id INT PRIMARY KEY, j JSON)", db=database)
    documents = [
        '{"a": 1.10, "b": [1, 2]}',
        "null",
        "true",
        "[]",
        "{}",
        r'"x\\"y\\\\\\n\\u0001\\u001f\\u007f\\/é😀"',
        "[1.0, 1e20, 1e100, -0.0, 1e15, 1e14, 123456789012345.6, 1e-14, 1e-15, 1e-5, 1e16, 5e-324, 184467440737095516, -92233720368547758]",
        "[18446744073709551615, 9223372036854775808, -9223372036854775808]",
        f'{{"bb": 1, "a": {{"x": [{{"y": null}}]}}, "ccc": "{"z" * 300}"}}',
        "[" + ",".join(["65536", "70000", "-40000", "2147483648", "-32769"] * 5000) + "]",
        f'{{"{"k" * 1000}": "{"v" * 70000}"}}',
        f"[{','.join(_doubles(random.Random(7)))}]",
    ]
    other_types = (
        "JSON_ARRAY(1.10, CAST(-99999999999999999999.5 AS DECIMAL(40,3)), CAST(0 AS DECIMAL(5,2)), CAST('2024-01-02' AS DATE),"
        " CAST('2024-01-02 03:04:05.678' AS DATETIME(3)), CAST('-838:59:59' AS TIME), CAST('12:13:14.5' AS TIME(2)), CAST(2000 AS YEAR),"
        " x'0102', CAST('abc' AS BINARY), b'101', CAST(1.5 AS FLOAT), ST_GeomFromText('POINT(1 2)'), CAST(REPEAT('x', 200) AS BINARY),"
        " TRUE, CAST(REPEAT('x', 57) AS BINARY), CAST('-00:00:00.000001' AS TIME(6)))"
    )
    inserts = [f"INSERT INTO t VALUES ({i}, '{d}')" for i, d in enumerate(documents)]
    _assert_same(
        mysql97_gtid,
        database,
        [*inserts, f"INSERT INTO t VALUES (100, {other_types})", "INSERT INTO t VALUES (101, NULL)"],
    )


def test_json_of_mariadb_is_the_text_as_typed(any_mariadb: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(any_mariadb)
    any_mariadb.run("CREATE TABLE t (id INT PRIMARY KEY, j JSON)", db=database)
    _assert_same(any_mariadb, database, ["""INSERT INTO t VALUES (1, '{"b":1.10,  "a":[]}'), (2, 'null'), (3, NULL)"""])


def test_mariadb_prints_uuids_and_addresses(any_mariadb: Server, fresh_database: FreshDatabase) -> None:
    rnd = random.Random(5)
    uuids = [str(uuid.UUID(int=rnd.getrandbits(128))) for _ in range(400)]
    uuids += [str(uuid.UUID(int=rnd.getrandbits(128), version=v)) for v in (1, 2, 3, 4, 5) for _ in range(20)]
    uuids += ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]
    uuids += ["01890a5d-ac96-774b-bcce-b302099a8057", "00000000-0000-4000-8000-000000000000"]
    words = [0, 0, 0, 1, 0xFFFF]
    v6 = [":".join(f"{rnd.choice([*words, rnd.getrandbits(16)]):x}" for _ in range(8)) for _ in range(len(uuids) - 8)]
    v6 += ["::", "::1", "::ffff:1.2.3.4", "::1.2.3.4", "::1:2", "1::", "2001:db8::", "::ffff:0:0"]
    v4 = ["0.0.0.0", "255.255.255.255", "1.0.0.0", "0.0.0.1"] * (len(uuids) // 4 + 1)
    database = fresh_database(any_mariadb)
    any_mariadb.run("CREATE TABLE t (id INT PRIMARY KEY, u UUID, s INET6, f INET4)", db=database)
    rows = ", ".join(f"({i}, '{u}', '{s}', '{f}')" for i, (u, s, f) in enumerate(zip(uuids, v6, v4, strict=False)))
    _assert_same(any_mariadb, database, [f"INSERT INTO t VALUES {rows}", "INSERT INTO t (id) VALUES (100000)"])


def test_mariadb_compressed_columns(any_mariadb: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(any_mariadb)
    columns = (
        "v VARCHAR(3000) COMPRESSED, b VARBINARY(3000) COMPRESSED, t TEXT COMPRESSED CHARACTER SET latin1, l LONGBLOB COMPRESSED,"
        " x TINYTEXT COMPRESSED, plain VARCHAR(20) CHARACTER SET latin1"
    )
    any_mariadb.run(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", db=database)
    long = "REPEAT('q', 2999), REPEAT('w', 2000), REPEAT('é', 3000), REPEAT('ab', 50000)"
    _assert_same(
        any_mariadb,
        database,
        [
            f"INSERT INTO t VALUES (1, {long}, '', 'é')",
            "SET column_compression_zlib_wrap = 1",
            f"INSERT INTO t VALUES (2, {long}, 'x', 'ü')",
            "INSERT INTO t VALUES (3, 'a', 'b', 'ç', '', '', '')",
            "INSERT INTO t (id, plain) VALUES (4, 'é')",
        ],
    )


def test_excluded_columns_are_passed_over(any_server: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(any_server)
    any_server.run("CREATE TABLE t (id INT PRIMARY KEY, secret VARCHAR(300), place GEOMETRY, b INT)", db=database)
    start = log_end(any_server)
    any_server.run(
        "INSERT INTO t VALUES (1, 'x', ST_GeomFromText('POINT(1 2)'), 2), (3, NULL, NULL, NULL)", db=database
    )
    table = definition(any_server, database, "t", excluded=frozenset({"secret", "place"}))
    batch = changes(any_server, table, start).batch
    assert batch.to_pydict() == {"_cdc_kind": [0, 0], "_cdc_transaction": [0, 0], "id": [1, 3], "b": [2, None]}
