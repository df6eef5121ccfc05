"""Avro's records read back as `verify` reads them: every type, schemas that followed each other,
and which row a key has at its end; and what is no record is an error, wherever it is cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.avro_columns import decoder, records
from cdcsync_spark.sinks.formats.avro_reader import AvroReader
from cdcsync_spark.sinks.formats.avro_records import Registered, debezium_avro, key_schema, value_schema
from cdcsync_spark.sinks.formats.avro_values import avro_rows, avro_type, avro_values
from cdcsync_spark.sinks.formats.json_reader import JsonReader
from cdcsync_spark.sinks.formats.json_records import Origin, debezium_json
from cdcsync_spark.sinks.formats.record_steps import columns_of
from support.avro_table import ROWS, VALUES, table_of_values
from support.json_all_types import all_types
from support.json_changes import CHANGES, ORIGIN

IDS = Registered(key=1, value=2)
ALL_TYPES = Origin(TableId("shop", "orders"), ("id",), "mysql", 7, "cdc", sent=5000)


def reader(columns: pa.Schema, origin: Origin = ORIGIN) -> AvroReader:
    """A reader of records with `IDS`, whose schemas go through JSON as through a registry."""
    schemas = {1: key_schema(columns, origin), 2: value_schema(columns, origin)}
    return AvroReader(lambda number: json.loads(json.dumps(schemas[number])))


def inserted(rows: pa.Table) -> Events:
    schema = changes_schema(rows.schema)
    added = [pa.array([n] * rows.num_rows, f.type) for n, f in zip((ChangeKind.INSERT, 0), schema, strict=False)]
    return Events(pa.Table.from_arrays([*added, *rows.columns], schema=schema), CHANGES.transactions[:1], [1.5], 1)


def test_the_extremes_of_every_type_are_read_back_bit_by_bit() -> None:
    events = all_types()
    wanted = columns_of(events.images).combine_chunks()
    made = debezium_avro(events, ALL_TYPES, IDS)
    source = reader(wanted.schema, ALL_TYPES)
    known, read = source.rows(made.values.to_pylist(), wanted.schema)
    assert known == list(range(wanted.num_rows))
    assert read.equals(wanted)
    assert [list(map(repr, c.to_pylist())) for c in read.columns] == [
        list(map(repr, c.to_pylist())) for c in wanted.columns
    ], "signs of zeros are no difference to Arrow"
    read.validate(full=True)
    key = pa.schema([wanted.schema.field("id")])
    assert source.keys(made.keys.to_pylist(), key).equals(wanted.select(["id"]))


@settings(max_examples=60)
@given(ROWS)
def test_random_rows_are_read_back(rows: list[dict[str, Any]]) -> None:
    table = table_of_values(rows)
    fields = [{"name": n, "type": ["null", avro_type(t)]} for n, (t, _) in VALUES.items()]
    read = records(decoder({"type": "record", "name": "Row", "fields": fields}), avro_rows(table).to_pylist())
    assert read.to_pylist() == table.to_pylist()


def test_the_last_record_of_a_key_says_which_row_it_has() -> None:
    """As in `debezium-json`: key 1 moves to key 2, which is deleted."""
    columns = columns_of(CHANGES.images).schema
    key = columns.field("id")
    avro, text = debezium_avro(CHANGES, ORIGIN, IDS), debezium_json(CHANGES, ORIGIN)
    found = reader(columns).rows(avro.values.to_pylist(), columns)
    wanted = JsonReader("debezium-json").rows(text.values.to_pylist(), columns)
    assert list(found.places) == list(wanted.places)
    assert found.rows.equals(wanted.rows)
    assert found.rows.num_rows
    keys = reader(columns).keys(avro.keys.to_pylist(), pa.schema([key]))
    assert keys.equals(JsonReader("debezium-json").keys(text.keys.to_pylist(), pa.schema([key])))


WIDER = pa.schema([pa.field("added", pa.string()), pa.field("id", pa.int8()), pa.field("odd name", pa.bool_())])
NARROW = pa.schema([pa.field("id", pa.int8()), pa.field("dropped", pa.date32()), pa.field("odd name", pa.bool_())])


def test_each_record_is_read_by_the_schema_whose_id_it_has() -> None:
    """A column was dropped, one added and the order changed in between; records are mixed."""
    old = debezium_avro(inserted(pa.table([[1, 3, 5], [None] * 3, [True, False, None]], schema=NARROW)), ORIGIN, IDS)
    new = debezium_avro(
        inserted(pa.table([["x", None], [2, 4], [None, True]], schema=WIDER)), ORIGIN, Registered(key=1, value=3)
    )
    asked: list[int] = []

    def schema_of(number: int) -> Any:
        asked.append(number)
        return {2: value_schema(NARROW, ORIGIN), 3: value_schema(WIDER, ORIGIN)}[number]

    (a, b, c), (d, e) = old.values.to_pylist(), new.values.to_pylist()
    source = AvroReader(schema_of)
    known, read = source.rows([a, d, None, b, e, c], WIDER)
    assert list(known) == [0, 1, 3, 4, 5]
    assert list(zip(*read.to_pydict().values(), strict=True)) == [
        (None, 1, True),
        ("x", 2, None),
        (None, 3, False),
        (None, 4, True),
        (None, 5, None),
    ]
    source.rows([a, d], WIDER)
    assert asked == [2, 3], "each schema is asked for once"


def test_nothing_is_nothing() -> None:
    source = reader(NARROW)
    assert source.rows([None, None], NARROW) == ([], NARROW.empty_table())
    assert source.keys([], NARROW) == NARROW.empty_table()


def _values(rows: pa.Table) -> list[bytes]:
    return debezium_avro(inserted(rows), ORIGIN, IDS).values.to_pylist()


def test_a_column_of_another_type_is_an_error() -> None:
    """A topic follows no change of a type: text that was once a date is not guessed."""
    values = _values(pa.table([[1], [None], [True]], schema=NARROW))
    other = pa.schema([NARROW.field("id"), pa.field("dropped", pa.string())])
    with pytest.raises(ValueError, match=r"the column dropped as date32\[day\], and not string"):
        reader(NARROW).rows(values, other)
    large = pa.schema([pa.field("id", pa.int32())])
    with pytest.raises(ValueError, match="not in range"):
        reader(large).rows(_values(pa.table([[300]], schema=large)), pa.schema([pa.field("id", pa.int8())]))


FAULTS = (ValueError, KeyError, TypeError, ArithmeticError)


def _cut(value: bytes) -> Sequence[bytes]:
    """At each place, and longer by a byte."""
    return [*(value[:n] for n in range(len(value))), value + b"\0"]


def test_a_record_that_is_cut_or_longer_is_an_error() -> None:
    """Between others, whose bytes it must not take for its own."""
    events = all_types()
    schema = columns_of(events.images).schema
    source = reader(schema, ALL_TYPES)
    first, *others = debezium_avro(events, ALL_TYPES, IDS).values.to_pylist()
    for wrong in _cut(first):
        with pytest.raises(FAULTS):
            source.rows([others[0], wrong, others[1]], schema)


@settings(max_examples=150)
@given(st.binary(max_size=40), st.integers(0, 2))
def test_garbage_is_an_error_or_a_row_and_nothing_else(garbage: bytes, place: int) -> None:
    schema = columns_of(CHANGES.images).schema
    found = [v for v in debezium_avro(CHANGES, ORIGIN, IDS).values.to_pylist() if v is not None]
    found.insert(place, b"\0\0\0\0\2" + garbage)
    try:
        known, read = reader(schema).rows(found, schema)
    except FAULTS:
        return
    read.validate(full=True)
    assert len(known) == read.num_rows


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
        ("long", b"\xff" * 9 + b"\xff\x01", "more than 64 bits"),
        ("int", b"\x80\x80\x80\x80\x20", "not in range"),
        ("boolean", b"\x02", "another value than 0 and 1"),
        ("bytes", b"\x01", "ends within a value"),
        ("bytes", b"\xfe" + b"\xff" * 8 + b"\x01", "ends within a value"),
        ("string", b"\x02\xff", "Invalid UTF8"),
        (["null", "int"], b"\x04\x02", "a type that its union does not have"),
        (["null", "int"], b"\x01\x02", "a type that its union does not have"),
        (["null", "int", "string"], b"\x00", "unpack"),
        (avro_type(pa.decimal128(3, 0)), b"\x04\x03\xe8", "Decimal value 1000 does not fit"),
        (avro_type(pa.decimal128(3, 0)), b"\x00", "1 to 16 bytes"),
        (avro_type(pa.decimal128(38, 0)), b"\x22" + b"\0" * 17, "1 to 16 bytes"),
        (avro_type(pa.list_(pa.float32())), b"\x01\x08" + b"\0" * 5, "blocks with sizes"),
        (avro_type(pa.list_(pa.float32())), b"\xfe" + b"\xff" * 7 + b"\x7f" + b"\0" * 5, "more numbers than"),
        (avro_type(pa.list_(pa.float32())), (b"\x02" + b"\0" * 4) * 2 + b"\0", "several blocks"),
    ],
)
def test_what_is_no_value_is_an_error(schema: Any, value: bytes, fault: str) -> None:
    with pytest.raises(FAULTS, match=fault):
        records(decoder(schema), [value])


@pytest.mark.parametrize("schema", ["Unknown", {"type": "map", "values": "int"}, {"type": "fixed", "size": 3}, [], {}])
def test_a_schema_that_no_topic_of_ours_has_is_an_error(schema: Any) -> None:
    with pytest.raises(FAULTS):
        decoder(schema)


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\1\0\0\0\2", b'{"id":1}', b"\0\0\0\0\2"], ids=["empty", "short", "magic", "json", "head"]
)
def test_what_has_no_head_is_an_error(value: bytes) -> None:
    with pytest.raises(FAULTS):
        reader(NARROW).rows([value], NARROW)


def test_an_operation_without_its_row_is_an_error() -> None:
    (value,) = _values(pa.table([[1], [None], [True]], schema=NARROW))
    op = avro_values(pa.array(["c", "d"]), nullable=False).to_pylist()
    wrong = value.replace(op[0], op[1])
    assert wrong != value
    with pytest.raises(ValueError, match="an operation without its row"):
        reader(NARROW).rows([wrong], NARROW)
