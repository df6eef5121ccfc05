"""A changelog as Avro records in the wire form of schema registries: Debezium's envelope.

A record is the byte 00, the schema's id in 4 bytes big endian, and the Avro bytes. Which records a
changelog is, and in which order, is as in `debezium-json`; tombstones follow deletes.

Avro's names have ASCII letters, digits and underscores only. Other characters become underscores,
and where two columns would then be one, the table is refused: a reader could not tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import Reason, fail
from cdcsync_spark.rows.changes import TRANSACTION
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.avro_values import AvroType, avro_rows, avro_type, avro_values, join
from cdcsync_spark.sinks.formats.json_records import Origin, Records
from cdcsync_spark.sinks.formats.json_text import single
from cdcsync_spark.sinks.formats.record_steps import columns_of, kinds_of, microseconds, record_steps

#: before each record: a byte, and the id of its schema
MAGIC, HEAD_BYTES = b"\x00", 5
_NULL, _VALUE = b"\x00", b"\x02"
_FOREIGN = re.compile(r"[^A-Za-z0-9_]")
#: what Kafka Connect calls these types; without a name its sinks make columns of numbers. Its own
#: type of a timestamp has milliseconds, so the name is Debezium's for microseconds since 1970
_CONNECT_NAMES = {
    pa.date32(): "org.apache.kafka.connect.data.Date",
    pa.timestamp("us"): "io.debezium.time.MicroTimestamp",
    pa.timestamp("us", "UTC"): "io.debezium.time.MicroTimestamp",
}
#: the members of `source`: name, type, whether it may be NULL
_SOURCE = (
    ("connector", pa.string(), False),
    ("name", pa.string(), False),
    ("ts_ms", pa.int64(), False),
    ("ts_us", pa.int64(), False),
    ("ts_ns", pa.int64(), False),
    ("snapshot", pa.string(), False),
    ("db", pa.string(), False),
    ("table", pa.string(), False),
    ("server_id", pa.int64(), False),
    ("gtid", pa.string(), True),
    ("file", pa.string(), True),
    ("pos", pa.int64(), True),
)


@dataclass(frozen=True)
class Registered:
    """The ids that a registry gave to a table's two schemas."""

    key: int
    value: int


def key_schema(columns: pa.Schema, origin: Origin) -> dict[str, Any]:
    """The schema of the table's key columns. It leaves out Kafka Connect's names: a schema with
    them has another id, and keys with another id go to other partitions of the topics that
    exist."""
    fields = _fields(pa.schema([columns.field(name) for name in origin.key]), origin, nullable=False)
    return {"type": "record", "name": "Key", "namespace": _namespace(origin), "fields": fields}


def value_schema(columns: pa.Schema, origin: Origin) -> dict[str, Any]:
    """The schema of the envelope; every column may be NULL, so that one that is added later does
    not break a reader of the schema before."""
    row = {"type": "record", "name": "Value", "fields": _fields(columns, origin, nullable=True)}
    source = {"type": "record", "name": "Source", "fields": [_field(n, avro_type(t), null) for n, t, null in _SOURCE]}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": _namespace(origin),
        "fields": [
            _field("before", row, nullable=True),
            _field("after", "Value", nullable=True),
            _field("source", source, nullable=False),
            _field("op", "string", nullable=False),
            _field("ts_ms", "long", nullable=True),
        ],
    }


def debezium_avro(changes: Events, origin: Origin, ids: Registered) -> Records:
    """The records of `debezium-json`, in Avro."""
    images = changes.images
    keys, rows = avro_rows(images.select(list(origin.key)), nullable=False), avro_rows(columns_of(images))
    steps = record_steps(keys, kinds_of(images), tombstones=True)
    sources = _sources(changes, origin).take(single(images[TRANSACTION]).take(steps.image))
    ops = avro_values(pa.array(["r" if origin.snapshot else "c", "u", "d"]), nullable=False)
    values = join(
        len(steps.op),
        _head(ids.value),
        _or_null(rows.take(steps.before)),
        _or_null(rows.take(steps.after)),
        sources,
        ops.take(steps.op),
        avro_values(pa.array([origin.sent], pa.int64()))[0].as_py(),
    )
    return Records(
        join(len(steps.op), _head(ids.key), keys.take(steps.image)), pc.if_else(steps.tombstone, None, values)
    )


def _head(number: int) -> bytes:
    return MAGIC + number.to_bytes(4, "big")


def _or_null(rows: pa.Array) -> pa.Array:
    return pc.fill_null(join(len(rows), _VALUE, rows), _NULL)


def _sources(changes: Events, origin: Origin) -> pa.Array:
    """The `source` of each transaction; a snapshot has one for all rows."""
    rows = _source_rows(changes, origin)
    columns = zip(*rows, strict=True) if rows else [()] * len(_SOURCE)
    parts = [avro_values(pa.array(c, t), null) for c, (_, t, null) in zip(columns, _SOURCE, strict=True)]
    return join(len(parts[0]), *parts)


def _source_rows(changes: Events, origin: Origin) -> Sequence[tuple[Any, ...]]:
    """`pos` is where the transaction ends, not where the row's event begins."""
    if origin.snapshot:
        return [_source_row(origin, origin.sent * 1000, None, None, None)]
    return [
        _source_row(origin, microseconds(at), t.gtid_text, t.end.file, t.end.offset)
        for t, at in zip(changes.transactions, changes.committed_at, strict=True)
    ]


def _source_row(origin: Origin, committed: int, *place: str | int | None) -> tuple[Any, ...]:
    times = (committed // 1000, committed, committed * 1000)
    snapshot = "true" if origin.snapshot else "false"
    table = (origin.table.database, origin.table.name)
    return (origin.flavour, origin.prefix, *times, snapshot, *table, origin.server_id, *place)


def _fields(columns: pa.Schema, origin: Origin, *, nullable: bool) -> list[dict[str, Any]]:
    names = [avro_name(column.name) for column in columns]
    for i, name in enumerate(names):
        if name in names[:i]:
            met = columns[names.index(name)].name
            raise fail(
                Reason.TYPE_UNSUPPORTED,
                f"the columns {met} and {columns[i].name} of {origin.table} are both {name} in Avro",
                needed="columns whose names differ in letters, digits and underscores",
                remedy="leave one out by tables.overrides[].columns.exclude, or take a JSON format",
                table=str(origin.table),
            )
    kind = _connect_type if nullable else avro_type
    return [_field(n, kind(c.type), nullable=nullable) for n, c in zip(names, columns, strict=True)]


def _connect_type(kind: pa.DataType) -> AvroType:
    """The schema of a column's values with the name that Kafka Connect knows their type by."""
    schema = avro_type(kind)
    if kind not in _CONNECT_NAMES or isinstance(schema, str):
        return schema
    return {**schema, "connect.name": _CONNECT_NAMES[kind], "connect.version": 1}


def _field(name: str, kind: Any, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None} if nullable else {"name": name, "type": kind}


def avro_name(text: str) -> str:
    """What a column, or a part of a namespace, is called in Avro."""
    name = _FOREIGN.sub("_", text)
    return f"_{name}" if not name or name[0].isdigit() else name


def _namespace(origin: Origin) -> str:
    parts = (*origin.prefix.split("."), origin.table.database, origin.table.name)
    return ".".join(avro_name(part) for part in parts)
