"""Avro's envelope says what `debezium-json` says, read by another library with the schemas."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.avro_records import Registered, debezium_avro, key_schema, value_schema
from cdcsync_spark.sinks.formats.json_records import Origin, Records, debezium_json

#: of the locked packages of development; an environment that is older than the lock lacks it
fastavro = pytest.importorskip("fastavro")

COLUMNS = pa.schema([pa.field("id", pa.int32()), pa.field("v", pa.string())])
ORIGIN = Origin(TableId("shop", "orders"), ("id",), "mysql", 7, "cdc", sent=5000)
IDS = Registered(key=1, value=2**31 - 1)
TRANSACTIONS = [TransactionId(LogOffset("binlog.000001", n)) for n in (200, 2**40)]
INSERT, BEFORE, AFTER, DELETE = ChangeKind


def changelog(*images: tuple[int, int, int, str | None]) -> Events:
    columns = [list(c) for c in zip(*images, strict=True)] or [[], [], [], []]
    return Events(pa.table(columns, schema=changes_schema(COLUMNS)), TRANSACTIONS, [1.500123, None], first=1)


def read(records: Records, origin: Origin = ORIGIN) -> list[tuple[Any, Any]]:
    """Reads by the schemas alone; None is a tombstone. The head is the magic byte and the schema's
    id."""
    found = []
    for key, value in zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True):
        assert key[:5] == b"\x00\x00\x00\x00\x01"
        assert value is None or value[:5] == b"\x00\x7f\xff\xff\xff"
        found.append(
            (_one(key[5:], key_schema(COLUMNS, origin)), value and _one(value[5:], value_schema(COLUMNS, origin)))
        )
    return found


def _one(data: bytes, schema: Any) -> Any:
    source = io.BytesIO(data)
    found = fastavro.schemaless_reader(source, fastavro.parse_schema(schema))
    assert not source.read(), "bytes behind the record"
    return found


def in_json(events: Events, origin: Origin = ORIGIN) -> list[tuple[Any, Any]]:
    """What `debezium-json` says, without the member that Avro's envelope leaves out."""
    found = []
    records = debezium_json(events, origin)
    for key, value in zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True):
        said = json.loads(value) if value else None
        if said:
            del said["transaction"]
        found.append((json.loads(key), said))
    return found


def test_kafka_connect_knows_the_types_of_dates_and_times() -> None:
    """In rows; a key's schema, and so its id, stays what it was."""
    micros = ("io.debezium.time.MicroTimestamp", 1)
    named = {"day": ("org.apache.kafka.connect.data.Date", 1), "moment": micros, "stamp": micros}
    kinds = {"day": pa.date32(), "moment": pa.timestamp("us"), "stamp": pa.timestamp("us", "UTC"), "n": pa.int64()}
    columns = pa.schema([pa.field(n, t) for n, t in kinds.items()])
    rows = value_schema(columns, ORIGIN)["fields"][0]["type"][1]["fields"]
    found = {f["name"]: f["type"][1] for f in rows}
    assert {n: (t["connect.name"], t["connect.version"]) for n, t in found.items() if n != "n"} == named
    assert found["n"] == "long"
    key = key_schema(columns, replace(ORIGIN, key=("day", "moment")))
    assert [f["type"] for f in key["fields"]] == [
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "local-timestamp-micros"},
    ]


IMAGES = st.lists(
    st.tuples(st.sampled_from("idum"), st.integers(0, 1), st.integers(-3, 3), st.none() | st.text('a"é😀', max_size=3)),
    max_size=12,
)


@settings(max_examples=60)
@given(IMAGES)
def test_it_says_what_debezium_json_says(drawn: list[tuple[str, int, int, str | None]]) -> None:
    images: list[tuple[int, int, int, str | None]] = []
    for what, transaction, key, value in drawn:
        if what in "id":
            images.append((INSERT if what == "i" else DELETE, transaction, key, value))
        else:
            moved = key + (what == "m")
            images += [(BEFORE, transaction, key, "old"), (AFTER, transaction, moved, value)]
    events = changelog(*images)
    assert read(debezium_avro(events, ORIGIN, IDS)) == in_json(events)


def test_a_row_of_the_snapshot() -> None:
    rows = replace(changelog((INSERT, 0, 1, None)), transactions=(), committed_at=())
    snapshot = replace(ORIGIN, snapshot=True, flavour="mariadb")
    ((_, value),) = read(debezium_avro(rows, snapshot, IDS), snapshot)
    assert [(None, value)] == [(None, v) for _, v in in_json(rows, snapshot)]
    assert (value["op"], value["source"]["file"], value["after"]) == ("r", None, {"id": 1, "v": None})


def test_names_that_avro_does_not_know_are_made_ones_that_it_does() -> None:
    origin = Origin(TableId("my-shop", "1 größe"), ("kö",), "mysql", 7, "a.b-c", sent=0)
    schema = key_schema(pa.schema([pa.field("kö", pa.int32())]), origin)
    assert (schema["namespace"], schema["fields"][0]["name"]) == ("a.b_c.my_shop._1_gr__e", "k_")
    fastavro.parse_schema(schema)


def test_columns_that_would_have_one_name_are_refused() -> None:
    columns = pa.schema([pa.field("a b", pa.int32()), pa.field("a-b", pa.int32())])
    with pytest.raises(CdcError, match=r"a b and a-b of .*orders.* are both a_b in Avro"):
        value_schema(columns, ORIGIN)


def test_a_column_that_is_added_is_null_in_records_of_the_schema_before() -> None:
    """Avro's resolution of schemas reads them, as registries demand it."""
    wider = value_schema(COLUMNS.append(pa.field("more", pa.int64())), ORIGIN)
    narrow = fastavro.parse_schema(value_schema(COLUMNS, ORIGIN))
    (data,) = debezium_avro(changelog((INSERT, 0, 1, "a")), ORIGIN, IDS).values.to_pylist()
    found = fastavro.schemaless_reader(io.BytesIO(data[5:]), narrow, fastavro.parse_schema(wider))
    assert found["after"] == {"id": 1, "v": "a", "more": None}
