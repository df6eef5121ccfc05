"""Values in Debezium's form where its own engine is wrong, and numbers as Java writes them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from cdcsync_core.tables.source_table import Column, SourceType
from cdcsync_spark.sinks.formats.debezium_reader import DebeziumReader
from cdcsync_spark.sinks.formats.debezium_text import debezium_name, debezium_texts, java_text


@pytest.mark.parametrize(
    ("shortest", "text"),
    [
        ("0", "0.0"),
        ("-0", "-0.0"),
        ("1", "1.0"),
        ("0.001", "0.001"),
        ("0.00099", "9.9E-4"),
        ("9999999.5", "9999999.5"),
        ("10000000", "1.0E7"),
        ("-1.7976931348623157e+308", "-1.7976931348623157E308"),
        ("5e-324", "4.9E-324"),
        ("1e+23", "1.0E23"),
    ],
)
def test_a_number_is_as_java_writes_it(shortest: str, text: str) -> None:
    assert java_text(shortest) == text


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        ("time(2)", "-00:00:00.50", "-00:00:00.50"),
        ("time(2)", "24:00:00.00", "24:00:00.00"),
        ("time(2)", "838:59:58.10", "838:59:58.10"),
        ("time(2)", "23:00:00.50", "23:00:00.5Z"),
        ("time", "23:00:00", "23:00:00Z"),
        ("decimal(40,2) unsigned zerofill", "0" * 38 + ".50", "0.50"),
        ("decimal(40,0) unsigned zerofill", "0" * 40, "0"),
        ("enum('f,g')", "f,g", "f,g"),
        ("json", r'{"a": [1, "x: , y"], "\\": {}}', r'{"a":[1,"x: , y"],"\\":{}}'),
        ("json", r'["\u001f", "\\u001f, \"", 1e30]', r'["\u001F","\\u001f, \"",1e30]'),
    ],
)
def test_a_value_is_written_and_read_back(declared: str, value: str, text: str) -> None:
    column = Column("v", SourceType.parse(declared))
    begin, texts, end = debezium_texts([column])("v", pa.array([value, None]))
    escaped = json.dumps(text, ensure_ascii=False)
    assert (begin, texts.to_pylist(), end) == ('"', [escaped[1:-1], None], '"')
    record = f'{{"v":{escaped}}}'.encode()
    read = DebeziumReader().of([column]).keys([record, b'{"v":null}'], pa.schema([pa.field("v", pa.string())]))
    assert read["v"].to_pylist() == [value, None]


def test_a_document_of_a_snapshot_is_as_the_server_prints_it() -> None:
    column, document = Column("v", SourceType.parse("json")), '{"a": [1, 2], "b": "x"}'
    _, texts, _ = debezium_texts([column], snapshot=True)("v", pa.array([document]))
    assert json.loads(f'"{texts[0]}"') == document
    record = json.dumps({"v": document}).encode()
    read = DebeziumReader().of([column]).keys([record], pa.schema([pa.field("v", pa.string())]))
    assert read["v"].to_pylist() == [document]


def test_a_name_has_the_escapes_of_values() -> None:
    assert debezium_name('x\x1f"\\u001f😀é') == '"x\\u001F\\"\\\\u001f\\uD83D\\uDE00é"'


def test_a_date_without_its_zone_is_no_record_of_the_form() -> None:
    reader = DebeziumReader().of([Column("v", SourceType.parse("date"))])
    with pytest.raises(ValueError, match="a date without its zone"):
        reader.keys([b'{"v":"2020-01-01"}'], pa.schema([pa.field("v", pa.date32())]))
