"""What the state topic holds of a table is read as it was written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdcsync_spark.sinks.kafka.state.fold import header_of
from cdcsync_spark.sinks.kafka.state.table_record import SnapshotSending, TableRecord
from contract.sinkcase import first_state

PLAIN = TableRecord(first_state(), "topic", "id", 3)


@pytest.mark.parametrize(
    "record",
    [PLAIN, replace(PLAIN, publication=SnapshotSending(4, 5)), replace(PLAIN, begins=(0, 7, 2), key_schema=0)],
)
def test_it_is_read_as_it_was_written(record: TableRecord) -> None:
    text = record.to_json("me")
    assert TableRecord.from_json(text) == record
    assert header_of(text).writer == "me"


def test_one_of_a_version_before_has_no_schema_of_keys() -> None:
    """A record without one says what it said then, byte by byte."""
    assert "keySchema" not in json.loads(PLAIN.to_json("me"))
    assert TableRecord.from_json(PLAIN.to_json("me")).key_schema is None
