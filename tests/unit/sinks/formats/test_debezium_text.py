"""Values in Debezium's form where its own engine is wrong, and numbers as Java writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdcsync_core.source_table import Column, SourceType
from cdcsync_spark.sinks.formats.debezium_reader import DebeziumReader
from cdcsync_spark.sinks.formats.debezium_text import debezium_texts, java_text


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
    ],
)
def test_a_value_is_written_and_read_back(declared: str, value: str, text: str) -> None:
    column = Column("v", SourceType.parse(declared))
    begin, texts, end = debezium_texts([column])("v", pa.array([value, None]))
    assert (begin, texts.to_pylist(), end) == ('"', [text, None], '"')
    record = f'{{"v":"{text}"}}'.encode()
    read = DebeziumReader().of([column]).keys([record, b'{"v":null}'], pa.schema([pa.field("v", pa.string())]))
    assert read["v"].to_pylist() == [value, None]


def test_a_date_without_its_zone_is_no_record_of_the_form() -> None:
    reader = DebeziumReader().of([Column("v", SourceType.parse("date"))])
    with pytest.raises(ValueError, match="a date without its zone"):
        reader.keys([b'{"v":"2020-01-01"}'], pa.schema([pa.field("v", pa.date32())]))
