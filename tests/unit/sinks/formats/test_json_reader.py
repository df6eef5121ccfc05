"""Records read back as `verify` reads them: every type, and which row a key has at its end."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.sinks.formats.json_reader import READABLE, keys_table, last_row, rows_table
from cdcsync_spark.sinks.formats.json_records import FORMS, Origin, Records
from cdcsync_spark.sinks.formats.record_steps import columns_of
from support.json_all_types import all_types
from support.json_changes import CHANGES, ORIGIN


def test_every_form_is_readable() -> None:
    assert FORMS.keys() == READABLE


@pytest.mark.parametrize("form", FORMS)
def test_the_extremes_of_every_type_are_read_back_bit_by_bit(form: str) -> None:
    events = all_types()
    wanted = columns_of(events.images).combine_chunks()
    records = FORMS[form](events, Origin(TableId("shop", "orders"), ("id",), "mysql", 7, "cdc", sent=5000))
    rows = [last_row(form, value) for value in records.values.to_pylist()]
    read = rows_table([row for row in rows if row is not None], wanted.schema)
    assert read.equals(wanted)
    assert [list(map(repr, c.to_pylist())) for c in read.columns] == [
        list(map(repr, c.to_pylist())) for c in wanted.columns
    ], "signs of zeros are no difference to Arrow"
    key = pa.schema([wanted.schema.field("id")])
    assert keys_table(records.keys.to_pylist(), key).equals(wanted.select(["id"]))


@pytest.mark.parametrize("form", FORMS)
def test_the_last_record_of_a_key_says_which_row_it_has(form: str) -> None:
    """Key 1 moves to key 2, which is deleted."""
    found = {}
    records: Records = FORMS[form](CHANGES, ORIGIN)
    for n, (key, value) in enumerate(zip(records.keys.to_pylist(), records.values.to_pylist(), strict=True)):
        found[key] = last_row(form, value)
        if n == 0:
            assert found == {b'{"id":1}': {"id": "1", "v": "a"}}
    assert found == {b'{"id":1}': None, b'{"id":2}': None}


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("debezium-json", b'{"op":"u","after":null}'),
        ("debezium-json", b'{"id":1}'),
        ("changelog-json", b'{"data":{"id":1},"op":"x"}'),
        ("canal-json", b'{"data":null,"type":"INSERT"}'),
        ("upsert-json", b"no JSON"),
    ],
)
def test_what_is_no_record_of_the_form_is_an_error(form: str, value: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        last_row(form, value)


def test_a_member_that_is_not_there_is_null() -> None:
    schema = pa.schema([pa.field("id", pa.int32()), pa.field("v", pa.string())])
    assert rows_table([{"id": "1"}], schema).to_pylist() == [{"id": 1, "v": None}]
