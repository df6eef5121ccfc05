"""Records and schemas of `debezium-avro` beside those of Debezium's own engine with the Avro
converter of the same registry: what is equal, and each difference that the manual lists."""

from __future__ import annotations

import datetime as dt
import io
import struct
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest

from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_spark.rows.changes import TRANSACTION
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.avro_records import Registered, debezium_avro, key_schema, value_schema
from cdcsync_spark.sinks.formats.json_records import Origin
from cdcsync_spark.sinks.formats.record_steps import columns_of
from support.debezium import BinlogPlace, DebeziumRecord, debezium_avro_changes
from support.dump import changes, definition, log_end
from support.fixtures import FreshDatabase
from support.registry import SchemaRegistry
from support.servers import Server

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]

HEAD = 5


class AvroColumn(NamedTuple):
    """A column with one value. What differs is after it: the type and the value in a record of
    `debezium-avro`, and in one of Debezium; types without `connect.version` and parameters."""

    declared: str
    value: str
    ours: tuple[Any, Any]
    theirs: tuple[Any, Any]


def alike(declared: str, value: str, kind: Any, found: Any) -> AvroColumn:
    return AvroColumn(declared, value, (kind, found), (kind, found))


def named(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "connect.name": name}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


_DECIMAL = {"connect.name": "org.apache.kafka.connect.data.Decimal"}
_MICROS = "io.debezium.time.MicroTimestamp"
_MOMENT, _UTC = dt.datetime(2020, 7, 17, 18, 0, 22, 500000), dt.UTC
#: of 2020-07-17T18:00:22.5 since 1970
_MICROSECONDS = 1595008822500000
WKB = struct.pack("<BI2d", 1, 1, 1.0, 2.0)
SHAPE = {
    "type": "record",
    "name": "Geometry",
    "namespace": "io.debezium.data.geometry",
    "fields": [
        {"name": "wkb", "type": "bytes"},
        {"name": "srid", "type": ["null", "int"], "default": None},
    ],
    "connect.name": "io.debezium.data.geometry.Geometry",
    "connect.doc": "Geometry",
}
COLUMNS = {
    "small": AvroColumn("TINYINT", "-1", ("int", -1), ({"type": "int", "connect.type": "int16"}, -1)),
    "number_": alike("INT", "-7", "int", -7),
    "large": alike("INT UNSIGNED", "4294967295", "long", 4294967295),
    "huge": alike("BIGINT", "-7", "long", -7),
    "unsigned_": AvroColumn(
        "BIGINT UNSIGNED",
        "18446744073709551615",
        (decimal(20, 0), Decimal(18446744073709551615)),
        (decimal(20, 0) | _DECIMAL, Decimal(18446744073709551615)),
    ),
    "amount": AvroColumn(
        "DECIMAL(10,2)", "-1.50", (decimal(10, 2), Decimal("-1.50")), (decimal(10, 2) | _DECIMAL, Decimal("-1.50"))
    ),
    "wide": AvroColumn("DECIMAL(40,1)", "1.5", ("string", "1.5"), (decimal(40, 1) | _DECIMAL, Decimal("1.5"))),
    "float_": alike("FLOAT", "0.5", "float", 0.5),
    "double_": alike("DOUBLE", "0.1", "double", 0.1),
    "flag": alike("BIT(1)", "b'1'", "boolean", True),
    "bits": AvroColumn(
        "BIT(12)", "b'100000000001'", ("bytes", b"\x08\x01"), (named("bytes", "io.debezium.data.Bits"), b"\x01\x08")
    ),
    "text_": alike("VARCHAR(9)", "'größe 😀'", "string", "größe 😀"),
    "needed": alike("VARCHAR(9) NOT NULL", "'q'", "string", "q"),
    "default_": AvroColumn(
        "VARCHAR(9) NOT NULL DEFAULT 'q'",
        "'r'",
        ("string", "r"),
        ({"type": "string", "connect.default": "q"}, "r"),
    ),
    "bytes_": alike("VARBINARY(4)", "x'00ff'", "bytes", b"\x00\xff"),
    "member": AvroColumn("ENUM('x','y')", "'x'", ("string", "x"), (named("string", "io.debezium.data.Enum"), "x")),
    "members": AvroColumn(
        "SET('x','y')", "'x,y'", ("string", "x,y"), (named("string", "io.debezium.data.EnumSet"), "x,y")
    ),
    "year_": AvroColumn("YEAR", "2020", ("int", 2020), (named("int", "io.debezium.time.Year"), 2020)),
    "date_": AvroColumn(
        "DATE",
        "'2020-07-17'",
        (named("int", "org.apache.kafka.connect.data.Date") | {"logicalType": "date"}, _MOMENT.date()),
        (named("int", "io.debezium.time.Date"), 18460),
    ),
    "time_": AvroColumn(
        "TIME(2)", "'18:00:22.5'", ("string", "18:00:22.50"), (named("long", "io.debezium.time.MicroTime"), 64822500000)
    ),
    "moment": AvroColumn(
        "DATETIME(3)",
        "'2020-07-17 18:00:22.5'",
        (named("long", _MICROS) | {"logicalType": "local-timestamp-micros"}, _MOMENT),
        (named("long", _MICROS), _MICROSECONDS),
    ),
    "instant": AvroColumn(
        "TIMESTAMP(2) NULL",
        "'2020-07-17 18:00:22.5'",
        (named("long", _MICROS) | {"logicalType": "timestamp-micros"}, _MOMENT.replace(tzinfo=_UTC)),
        (named("string", "io.debezium.time.ZonedTimestamp"), "2020-07-17T18:00:22.50Z"),
    ),
    "shape": AvroColumn(
        "GEOMETRY", "ST_GeomFromText('POINT(1 2)')", ("bytes", bytes(4) + WKB), (SHAPE, {"wkb": WKB, "srid": None})
    ),
    "document": AvroColumn(
        "JSON", """'{"a": 1}'""", ("string", '{"a": 1}'), (named("string", "io.debezium.data.Json"), '{"a":1}')
    ),
    "vector_": AvroColumn(
        "VECTOR(2)",
        "STRING_TO_VECTOR('[1,0.5]')",
        ({"type": "array", "items": "float"}, [1.0, 0.5]),
        ({"type": "array", "items": "float", "connect.name": "io.debezium.data.FloatVector"}, [1.0, 0.5]),
    ),
}


#: the columns whose fields are no unions with null for Debezium
NEEDED = {"id", "needed", "default_"}
#: the members of Debezium's `source` and envelope that CdcSync's have not
NOT_THERE = ({"version", "sequence", "row", "thread", "query"}, {"transaction", "ts_us", "ts_ns"})


class Decoded(NamedTuple):
    key: Any
    value: Any


@pytest.mark.long
def test_avro_beside_debeziums(
    mysql97_gtid: Server, fresh_database: FreshDatabase, registry: SchemaRegistry, tmp_path: Path
) -> None:
    server, database = mysql97_gtid, fresh_database(mysql97_gtid)
    start, place = log_end(server), BinlogPlace.end_of(server)
    declared = ", ".join(f"{name} {c.declared}" for name, c in COLUMNS.items())
    row = ", ".join(c.value for c in COLUMNS.values())
    server.run(
        "SET time_zone = '+00:00'",
        f"CREATE TABLE t (id INT PRIMARY KEY, {declared}) CHARACTER SET utf8mb4",
        f"INSERT INTO t VALUES (1, {row})",
        "UPDATE t SET text_ = NULL",
        "UPDATE t SET id = 2",
        "DELETE FROM t",
        db=database,
    )
    theirs = debezium_avro_changes(server, database, place, tmp_path, registry.url)
    capture = definition(server, database, "t")
    origin = Origin(capture.id, capture.key, "mysql", 12, "cdc", 5000, columns=capture.captured)
    images = pa.Table.from_batches([changes(server, capture, start).batch])
    columns = columns_of(images).schema
    key, value = key_schema(columns, origin), value_schema(columns, origin)
    assert_subjects(registry, theirs, f"cdc.{database}.t")
    their_key, their_value = (registry.schema(number(data)) for data in (theirs[0].key, theirs[0].value or b""))
    assert_schemas(key, value, their_key, their_value)
    found = decoded(records(images, origin), key, value)
    expected = decoded([(r.key, r.value) for r in theirs], their_key, their_value)
    assert {h for r in theirs for h, _ in r.headers} == {"__debezium.newkey", "__debezium.oldkey"}
    assert [(r.key, r.value and r.value["op"]) for r in found] == [(r.key, r.value and r.value["op"]) for r in expected]
    for name, column in COLUMNS.items():
        types = tuple(column_type(schema, name) for schema in (value, their_value))
        assert types == (column.ours[0], column.theirs[0]), name
        values = tuple(r[0].value["after"][name] for r in (found, expected))
        assert values == (column.ours[1], column.theirs[1]), name


def records(images: pa.Table, origin: Origin) -> list[tuple[bytes, bytes | None]]:
    count = max(images[TRANSACTION].to_pylist()) + 1
    events = Events(images, [TransactionId(LogOffset("binlog.000001", 200))] * count, [1.0] * count, 1)
    return list(debezium_avro(events, origin, Registered(1, 2)).pairs())


def number(data: bytes) -> int:
    """The id of the schema, behind the magic byte."""
    assert data[0] == 0
    return int.from_bytes(data[1:HEAD], "big")


def decoded(found: Iterable[tuple[bytes, bytes | None]], key: Any, value: Any) -> list[Decoded]:
    schemas = fastavro.parse_schema(key), fastavro.parse_schema(value)
    return [Decoded(*(data and _one(data[HEAD:], s) for data, s in zip(pair, schemas, strict=True))) for pair in found]


def _one(data: bytes, schema: Any) -> Any:
    source = io.BytesIO(data)
    found = fastavro.schemaless_reader(source, schema)
    assert not source.read(), "bytes behind the record"
    return found


def assert_subjects(registry: SchemaRegistry, theirs: list[DebeziumRecord], topic: str) -> None:
    """Debezium's schemas are the only versions of the subjects that CdcSync names, too."""
    for part in ("key", "value"):
        assert registry.versions(f"{topic}-{part}") == [1]
    assert len({number(r.key) for r in theirs}) == len({number(r.value) for r in theirs if r.value}) == 1


def assert_schemas(key: Any, value: Any, their_key: Any, their_value: Any) -> None:
    """Names, namespaces and fields, of which each that Debezium alone has is listed."""
    assert key | {"connect.name": f"{key['namespace']}.Key"} == their_key
    assert their_value["connect.name"] == f"{key['namespace']}.Envelope"
    assert "connect.name" not in value
    for ours, theirs, missing in zip(
        (source_of(value), value), (source_of(their_value), their_value), NOT_THERE, strict=True
    ):
        assert ours["name"] == theirs["name"]
        assert names(theirs) - names(ours) == missing
        assert names(ours) <= names(theirs)
    assert value["namespace"] == their_value["namespace"]
    assert [f["name"] for f in row_of(value)["fields"]] == [f["name"] for f in row_of(their_value)["fields"]]
    unions = ({f["name"] for f in row_of(s)["fields"] if not isinstance(f["type"], list)} for s in (value, their_value))
    assert tuple(unions) == (set(), NEEDED)
    assert (source_of(value).get("namespace"), source_of(their_value)["namespace"]) == (
        None,
        "io.debezium.connector.mysql",
    )


def field(record: Any, name: str) -> Any:
    return next(f["type"] for f in record["fields"] if f["name"] == name)


def names(record: Any) -> set[str]:
    return {f["name"] for f in record["fields"]}


def source_of(value: Any) -> Any:
    return field(value, "source")


def row_of(value: Any) -> Any:
    return field(value, "before")[1]


def column_type(value: Any, name: str) -> Any:
    """The type of a column's values, null apart."""
    kind = field(row_of(value), name)
    kind = kind[1] if isinstance(kind, list) else kind
    if not isinstance(kind, dict):
        return kind
    return {n: v for n, v in kind.items() if n not in ("connect.version", "connect.parameters")}
