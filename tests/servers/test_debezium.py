"""Keys and rows of `debezium-json` with `compatible: exact`, record by record, beside those that
Debezium's own engine makes of the same binlog."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdcsync_core.positions.position import LogOffset, Position, TransactionId
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.rows.changes import KIND, TRANSACTION, ChangeKind, changes_schema
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.debezium_reader import DebeziumReader
from cdcsync_spark.sinks.formats.debezium_records import debezium_exact_json
from cdcsync_spark.sinks.formats.json_records import Form, Origin, Records, debezium_json
from cdcsync_spark.sinks.formats.record_steps import columns_of
from support.debezium import BinlogPlace, DebeziumRecord, debezium_changes, debezium_snapshot
from support.dump import changes, definition, log_end
from support.fixtures import FreshDatabase
from support.servers import Server
from support.snapshots import assert_same

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

SESSION = ("SET sql_mode = 'ALLOW_INVALID_DATES'", "SET time_zone = '+00:00'")


class Typed(NamedTuple):
    """A table `id INT`, `columns`; the key is `key`. `rows` are SQL expressions."""

    columns: str
    rows: tuple[str, ...]
    key: str = "id"


TABLES = {
    "integers": Typed(
        "a TINYINT, b TINYINT UNSIGNED, c SMALLINT, d SMALLINT UNSIGNED, e MEDIUMINT, f MEDIUMINT UNSIGNED, g INT, "
        "h INT UNSIGNED, i BIGINT, j BIGINT UNSIGNED, k TINYINT(1), l INT(5) ZEROFILL, m BIGINT(20) ZEROFILL, y YEAR",
        (
            (
                "-128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295, -9223372036854775808, "
                "18446744073709551615, 2, 42, 42, 1901"
            ),
            "127, 0, 32767, 0, 8388607, 0, 2147483647, 0, 9223372036854775807, 9223372036854775808, -128, 0, 0, 2155",
            "0, 1, 0, 1, 0, 1, 0, 1, 0, 127, 1, 1, 128, 2000",
            "0, 1, 0, 1, 0, 1, 0, 1, 0, 32767, 1, 1, 65535, 1970",
        ),
    ),
    "numbers": Typed(
        "a DECIMAL(10,2), b DECIMAL(65,30), c DECIMAL(38,0), d DECIMAL(5,5), e DECIMAL, f DECIMAL(39,0), "
        "g DECIMAL(40,2) ZEROFILL, h FLOAT, i FLOAT UNSIGNED, j DOUBLE, k FLOAT(7,3), l DOUBLE(9,4), m FLOAT(30), "
        "n DECIMAL(40,30), o DECIMAL(12,2) ZEROFILL",
        (
            (
                "-99999999.99, -99999999999999999999999999999999999.999999999999999999999999999999, "
                "99999999999999999999999999999999999999, -0.00001, -9999999999, 999999999999999999999999999999999999999, "
                "12.34, 16777216, 3.4e38, -1.7976931348623157e308, 1234.567, 12345.6789, 0.1, -0.1, 1.5"
            ),
            "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0",
            (
                "-0.01, -.000000000000000000000000000001, -1, .99999, 1, -1, .01, -1e-38, 1e-38, 5e-324, -.5, 0.001, "
                "0.0001, 1e-40, 1234567890.12"
            ),
            (
                "1000000.00, 123456789.123456789, 1000000000, 0.1, 100000000, 1000000000000000000, 1, 0.1, 1e7, 1e7, 0.1, "
                "-0.5, 9999999.5, .5, 10"
            ),
            "1, 1, 1, 0, 1, 1, 1, 1234567, 0.001, 12345678.9, 1, 1, 1e22, 0, 0",
        ),
    ),
    "bits": Typed(
        "a BIT(1), b BIT, c BIT(8), d BIT(9), e BIT(64)",
        ("b'1', 1, 255, 258, 18446744073709551615", "0, 0, 0, 0, 0", "1, b'1', 1, 1, 72623859790382856"),
    ),
    "dates": Typed(
        "a DATE, b DATETIME, c DATETIME(1), d DATETIME(3), e DATETIME(6), f TIMESTAMP NULL, g TIMESTAMP(2) NULL, "
        "h TIMESTAMP(6) NULL",
        (
            (
                "'0001-01-01', '1000-01-01', '1582-10-10 00:00:00.1', '2024-02-29 12:00:00.120', "
                "'9999-12-31 23:59:59.999999', '1970-01-01 00:00:01', '2020-01-01 00:00:00.05', '2038-01-19 03:14:07.999999'"
            ),
            (
                "'9999-12-31', '0001-01-01', '2024-01-01 10:00:00', '2024-01-01 00:10:20.100', '1969-12-31 23:59:59.000010', "
                "'2024-03-31 02:30:00', '2024-10-27 02:30:00.10', '2024-10-27 01:30:00.100000'"
            ),
            # zero and partial, where a NULL may be
            "'0000-00-00', '0000-00-00', '2024-00-10', '2024-01-00', '0000-00-00', NULL, NULL, NULL",
        ),
    ),
    "times": Typed(
        "a TIME, b TIME(1), c TIME(2), d TIME(3), e TIME(6)",
        (
            "'00:00:00', '00:00:00', '0', '00:00:00.000', 0",
            "'23:59:59', '23:59:59.9', '23:59:59.90', '23:59:59.010', '23:59:59.999999'",
            "'10:20:30', '10:20:30', '10:20:00.5', '00:10:00.100', '01:00:00.100010'",
        ),
    ),
    "texts": Typed(
        "a CHAR(10), b VARCHAR(300), c TINYTEXT, d TEXT, e LONGTEXT, f VARCHAR(9) CHARACTER SET latin1, "
        "g TEXT CHARACTER SET utf16, h VARCHAR(9) CHARACTER SET gbk, i ENUM('a','b''c','é',''), j SET('x','y','ü')",
        (
            "'abc  ', REPEAT('ü', 300), 'a\\\\b/c', 'q\"q', REPEAT('x', 70000), 'é ', 'utf16 😀 ', '你好', 'b''c', 5",
            "'', '', '', '', '', '', '', '', '', 0",
            "' ', x'e280a8', 'NULL', x'7f', x'0102030405060708090a0b0c0d0e0f10111213141516', '', '', '', 'a', 'y'",
            "'x', x'1718191a1b1c1d1e1f', '', '', '', '', '', '', 'é', 'x,ü'",
        ),
    ),
    "binaries": Typed(
        "a BINARY(4), b BINARY(3) NOT NULL DEFAULT '', c VARBINARY(10), d TINYBLOB, e BLOB, f LONGBLOB",
        ("x'00000000', x'610000', '', '', '', ''", "x'ff', 'a', x'00ff00', x'00', x'20', REPEAT(x'00ff', 40000)"),
    ),
    "shapes": Typed(
        "a GEOMETRY, b POINT, c LINESTRING, d POLYGON, e GEOMETRYCOLLECTION, f MULTIPOINT",
        (
            (
                "ST_GeomFromText('POINT(1 2)'), ST_GeomFromText('POINT(-1.5 1e300)'), ST_GeomFromText('LINESTRING(0 0,1 1)'), "
                "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))'), ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1))'), NULL"
            ),
            (
                "ST_GeomFromText('POINT(1 2)', 4326), ST_GeomFromText('POINT(0 -0.1)', 3857), NULL, NULL, NULL, "
                "ST_GeomFromText('MULTIPOINT(1 1, 2 2)')"
            ),
        ),
    ),
    **{
        f"key_{n}": Typed(f"k {kind} NOT NULL", values, "k, id")
        for n, (kind, values) in enumerate(
            {
                "BIGINT UNSIGNED": ("18446744073709551615", "0", "255"),
                "DATE": ("'2020-07-17'", "'0001-01-01'"),
                "DATETIME(3)": ("'2020-07-17 18:00:22'", "'2020-07-17 18:00:22.5'"),
                "TIMESTAMP(6)": ("'2020-07-17 18:00:22'", "'2020-07-17 18:00:22.000100'"),
                "TIME(2)": ("'01:02:03'", "'23:00:00.10'"),
                "VARBINARY(8)": ("x'00ff'", "''"),
                "DECIMAL(12,3)": ("-1.5", "0"),
                "VARCHAR(20)": ("'größe 😀'", "''"),
                "BIT(12)": ("b'100000000001'", "0"),
            }.items()
        )
    },
}


class ValueDifference(NamedTuple):
    """A column with one value, and what it is in a record: of `compatible: envelope`, of Debezium,
    of `compatible: exact`, where that is not Debezium's. Numbers are their digits."""

    declared: str
    value: str
    envelope: Any
    debezium: Any
    exact: Any = ...


#: the rows of the manual's table of what differs, as the stream has them
DIFFERENCES = {
    "unsigned_": ValueDifference("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551615", "AP//////////"),
    "date_": ValueDifference("DATE", "'2020-07-17'", "2020-07-17", "2020-07-17Z"),
    "moment": ValueDifference(
        "DATETIME(3)", "'2020-07-17 18:00:22.5'", "2020-07-17T18:00:22.500000", "2020-07-17T18:00:22.5Z"
    ),
    "instant": ValueDifference(
        "TIMESTAMP(2) NULL", "'2020-07-17 18:00:22.5'", "2020-07-17T18:00:22.500000Z", "2020-07-17T18:00:22.50Z"
    ),
    "time_": ValueDifference("TIME(2)", "'18:00:22.50'", "18:00:22.50", "18:00:22.5Z"),
    "day": ValueDifference("TIME", "'24:00:00'", "24:00:00", "00:00:00Z", "24:00:00"),
    "negative": ValueDifference("TIME(2)", "'-01:00:00.5'", "-01:00:00.50", None, "-01:00:00.50"),
    "long_": ValueDifference("TIME NOT NULL DEFAULT '01:00:00'", "'25:00:00'", "25:00:00", "01:00:00Z", "25:00:00"),
    "zero": ValueDifference("DATE NOT NULL", "'0000-00-00'", None, "1970-01-01Z", None),
    "zero_default": ValueDifference(
        "DATETIME NOT NULL DEFAULT '2000-01-01'", "'0000-00-00'", None, "2000-01-01T00:00:00Z", None
    ),
    "zero_instant": ValueDifference("TIMESTAMP NULL", "'0000-00-00'", None, "1970-01-01T00:00:00Z", None),
    "year_": ValueDifference("YEAR", "'0000'", "0", "1900", "0"),
    "float_": ValueDifference("FLOAT", "16777216", "16777216", "1.6777216E7"),
    "double_": ValueDifference("DOUBLE", "1e-38", "1e-38", "1.0E-38"),
    "fixed": ValueDifference("FLOAT(7,1)", "0.1", "0.1", "0.10000000149011612"),
    "zeros": ValueDifference("DECIMAL(40,1) ZEROFILL", "1.5", f"{'0' * 38}1.5", "1.5"),
    "bits": ValueDifference("BIT(12)", "b'100000000001'", "CAE=", "AQg="),
    "shape": ValueDifference(
        "GEOMETRY",
        "ST_GeomFromText('POINT(1 2)')",
        "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA==",
        {"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None},
    ),
    "point_": ValueDifference(
        "POINT",
        "ST_GeomFromText('POINT(1 2)')",
        "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA==",
        {"x": "1.0", "y": "2.0", "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None},
    ),
    "document": ValueDifference("JSON", """'{"a": 1}'""", '{"a": 1}', '{"a":1}'),
    "fraction": ValueDifference("JSON", "'[1e30]'", "[1e30]", "[1000000000000000019884624838656]", "[1e30]"),
    "opaque": ValueDifference(
        "JSON", "JSON_ARRAY(x'00ff')", '["base64:type15:AP8="]', '["AP8="]', '["base64:type15:AP8="]'
    ),
    "member": ValueDifference("ENUM('f,g')", "1", "f,g", "f\\,g", "f,g"),
    "vector_": ValueDifference("VECTOR(2)", "STRING_TO_VECTOR('[1,1e-7]')", ["1", "1e-7"], ["1.0", "1.0E-7"]),
}

#: a JSON column of MariaDB is text to both
ON_MARIADB = {
    **{name: d for name, d in DIFFERENCES.items() if name not in ("document", "fraction", "opaque", "vector_")},
    "document": ValueDifference("JSON", """'{"a" : 1}'""", '{"a" : 1}', '{"a" : 1}'),
    "uuid_": ValueDifference(
        "UUID",
        "'123e4567-e89b-12d3-a456-426655440000'",
        "123e4567-e89b-12d3-a456-426655440000",
        "0000123e-4567-e89b-12d3-a45642665544",
        "123e4567-e89b-12d3-a456-426655440000",
    ),
}

#: tables and columns that Debezium writes otherwise in a snapshot than in the stream
OTHERWISE_IN_SNAPSHOTS = {
    ("numbers", "h"),
    ("dates", "c"),
    ("dates", "g"),
    ("dates", "h"),
    ("key_3", "k"),
    ("key_8", "k"),
}


def statements(name: str, table: Typed) -> Iterator[str]:
    """Inserts, an update, a change of the key, a delete, a row of NULLs."""
    yield f"CREATE TABLE {name} (id INT, {table.columns}, PRIMARY KEY ({table.key})) CHARACTER SET utf8mb4"
    for number, row in enumerate(table.rows, 1):
        yield f"INSERT INTO {name} VALUES ({number}, {row})"
    if table.key == "id":
        yield f"INSERT INTO {name} (id) VALUES (1000)"
        yield f"REPLACE INTO {name} VALUES (1000, {table.rows[0]})"
        yield f"UPDATE {name} SET id = 1001 WHERE id = 1000"
    yield f"UPDATE {name} SET id = id + 100 WHERE id = 2"
    yield f"DELETE FROM {name} WHERE id IN (1, 102)"


@pytest.mark.parametrize("name", ["mysql97_gtid", "mariadb114"])
def test_keys_and_rows_are_debeziums_byte_by_byte(
    name: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    database = fresh_database(server)
    start, place = log_end(server), BinlogPlace.end_of(server)
    for name, table in TABLES.items():
        server.run(*SESSION, *statements(name, table), db=database)
    differences = DIFFERENCES if server.flavor == "mysql" else ON_MARIADB
    server.run(*SESSION, *differing_values(differences), db=database)
    theirs = debezium_changes(server, database, place, tmp_path)
    for name, table in TABLES.items():
        capture = definition(server, database, name, key=tuple(table.key.split(", ")))
        images = pa.Table.from_batches([changes(server, capture, start).batch])
        records = exact_records(capture, images)
        found = [compared(*pair) for pair in records.pairs()]
        assert len(found) >= len(table.rows) + 4
        assert found == [compared(r.key, r.value) for r in theirs if r.table == name], name
        assert_read_back(capture, images, records)
    assert_differences(differences, server, database, start, [r for r in theirs if r.table == "differing"])


def differing_values(differences: Mapping[str, ValueDifference]) -> tuple[str, str]:
    columns = ", ".join(f"{name} {d.declared}" for name, d in differences.items())
    values = ", ".join(d.value for d in differences.values())
    return f"CREATE TABLE differing (id INT PRIMARY KEY, {columns})", f"INSERT INTO differing VALUES (1, {values})"


def assert_differences(
    differences: Mapping[str, ValueDifference],
    server: Server,
    database: str,
    start: Position,
    theirs: list[DebeziumRecord],
) -> None:
    capture = definition(server, database, "differing")
    images = pa.Table.from_batches([changes(server, capture, start).batch])
    made = [
        [value for _, value in records_of(form, capture, images).pairs()]
        for form in (debezium_json, debezium_exact_json)
    ]
    envelope, exact, debezium = (rows_by_id(v)["1"] for v in (*made, [r.value for r in theirs]))
    for name, expected in differences.items():
        found = (envelope[name], debezium[name], exact[name])
        alike = expected.debezium if expected.exact is ... else expected.exact
        assert found == (expected.envelope, expected.debezium, alike), name


def test_rows_of_a_snapshot_are_debeziums(mysql97_gtid: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """But for FLOAT, of which Debezium has the 6 digits that the server prints, dates of the Julian
    calendar, zeros that end a TIMESTAMP, and the order of a key's bits. It stops at DECIMAL with
    ZEROFILL."""
    server, database = mysql97_gtid, fresh_database(mysql97_gtid)
    for name, table in TABLES.items():
        plain = [s.replace(" ZEROFILL", " UNSIGNED") for s in statements(name, table)]
        server.run(*SESSION, *plain[: len(table.rows) + 1], db=database)
    theirs = debezium_snapshot(server, database, tmp_path)
    differ = set()
    for name, table in TABLES.items():
        capture = definition(server, database, name, key=tuple(table.key.split(", ")))
        records = exact_records(capture, as_inserts(assert_same(server, capture)))
        found = rows_by_id(value for _, value in records.pairs())
        expected = rows_by_id(r.value for r in theirs if r.table == name)
        assert found.keys() == expected.keys()
        differ |= {(name, c) for key, row in found.items() for c, text in row.items() if text != expected[key][c]}
    assert differ == OTHERWISE_IN_SNAPSHOTS


def as_inserts(rows: pa.Table) -> pa.Table:
    """The images of a snapshot."""
    added = {KIND: ChangeKind.INSERT, TRANSACTION: 0}
    schema = changes_schema(rows.schema)
    columns = [pa.array([added[f.name]] * len(rows), f.type) if f.name in added else rows[f.name] for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def exact_records(table: Capture, images: pa.Table) -> Records:
    return records_of(debezium_exact_json, table, images)


def records_of(form: Form, table: Capture, images: pa.Table) -> Records:
    count = max(images[TRANSACTION].to_pylist()) + 1
    places = [TransactionId(LogOffset("binlog.000001", 200))] * count
    origin = Origin(table.id, table.key, "mysql", 7, "cdc", 5000, columns=table.captured)
    return form(Events(images, places, [1.0] * count, 1), origin)


def compared(key: bytes, value: bytes | None) -> tuple[bytes | str, ...]:
    """The key, the value up to `source`, and the operation; a tombstone has the key alone."""
    return (key,) if value is None else (key, value[: value.index(b',"source":')], json.loads(value)["op"])


def rows_by_id(values: Iterable[bytes | None]) -> dict[str, dict[str, Any]]:
    """Numbers are their digits."""
    rows = [json.loads(value or b"", parse_float=str, parse_int=str)["after"] for value in values]
    return {row["id"]: row for row in rows}


def assert_read_back(table: Capture, images: pa.Table, records: Records) -> None:
    """What `verify` reads of the records is the rows that the changes leave."""
    reader, columns = DebeziumReader().of(table.captured), columns_of(images)
    left = pc.is_in(images[KIND], pa.array([ChangeKind.INSERT, ChangeKind.UPDATE_AFTER], images[KIND].type))
    known, rows = reader.rows(records.values.to_pylist(), columns.schema)
    assert rows.to_pylist() == columns.filter(left).to_pylist()
    keys = reader.keys(records.keys.to_pylist(), rows.select(list(table.key)).schema)
    assert keys.take(pa.array(known)).to_pylist() == rows.select(list(table.key)).to_pylist()
