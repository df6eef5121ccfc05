"""Rows as Avro records: byte by byte what another library writes, and read back equal."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_spark.sinks.formats.avro_values import avro_rows, avro_type, avro_values, zigzag
from support.avro_table import ROWS, VALUES, scaled, table_of_values

#: of the locked packages of development; an environment that is older than the lock lacks it
fastavro = pytest.importorskip("fastavro")


def _schema(nullable: bool) -> Any:
    fields = [{"name": n, "type": ["null", avro_type(t)] if nullable else avro_type(t)} for n, (t, _) in VALUES.items()]
    return fastavro.parse_schema({"type": "record", "name": "Row", "fields": fields})


def _theirs(rows: list[dict[str, Any]], schema: Any) -> list[bytes]:
    found = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        found.append(out.getvalue())
    return found


def _is_longer_in_fastavro(value: Any) -> bool:
    """It gives -2 ** (8n - 1) a byte more than Java, which changes no value."""
    unscaled = int(value.scaleb(-value.as_tuple().exponent)) if isinstance(value, Decimal) and value < 0 else 0
    return unscaled in {-(2 ** (8 * n - 1)) for n in range(1, 17)}


@settings(max_examples=60)
@given(ROWS)
def test_random_rows_are_byte_by_byte_those_of_fastavro(rows: list[dict[str, Any]]) -> None:
    schema = _schema(nullable=True)
    found = avro_rows(table_of_values(rows)).to_pylist()
    assert [fastavro.schemaless_reader(io.BytesIO(r), schema) for r in found] == rows
    if not any(_is_longer_in_fastavro(v) for row in rows for v in row.values()):
        assert found == _theirs(rows, schema)
    assert avro_rows(table_of_values(rows).slice(1)).to_pylist() == found[1:]


@settings(max_examples=20)
@given(st.lists(st.fixed_dictionaries({n: v for n, (_, v) in VALUES.items()}), min_size=1, max_size=4))
def test_columns_without_null_have_no_union(rows: list[dict[str, Any]]) -> None:
    schema = _schema(nullable=False)
    found = avro_rows(table_of_values(rows), nullable=False).to_pylist()
    assert [fastavro.schemaless_reader(io.BytesIO(r), schema) for r in found] == rows


@pytest.mark.parametrize("number", [n for i in range(64) for n in (2**i - 1, -(2**i))])
def test_every_size_of_a_number(number: int) -> None:
    (found,) = avro_values(pa.array([number], pa.int64()), nullable=False).to_pylist()
    assert fastavro.schemaless_reader(io.BytesIO(found), "long") == number
    assert [found] == _theirs([number], "long")  # type: ignore[list-item]


@pytest.mark.parametrize("unscaled", [s * (2**i + d) for i in range(0, 126, 7) for d in (-1, 0, 1) for s in (1, -1)])
def test_decimals_have_the_fewest_bytes_of_twos_complement(unscaled: int) -> None:
    value = scaled(unscaled, 3)
    (found,) = avro_values(pa.array([value], pa.decimal128(38, 3)), nullable=False).to_pylist()
    fewest = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    assert found == bytes([2 * fewest]) + unscaled.to_bytes(fewest, "big", signed=True)


def test_a_null_where_none_may_be_is_an_error() -> None:
    with pytest.raises(ValueError, match="a NULL in a column that has none"):
        avro_values(pa.array([1, None], pa.int32()), nullable=False)


def test_nothing_is_nothing() -> None:
    assert avro_rows(table_of_values([])).to_pylist() == []
    assert len(zigzag(pa.array([], pa.int64()).to_numpy())) == 0


def test_a_type_without_a_form_is_an_error_of_ours() -> None:
    with pytest.raises(TypeError, match="no Avro form of struct"):
        avro_values(pa.array([{"a": 1}]))
    with pytest.raises(TypeError, match="no Avro form of struct"):
        avro_type(pa.struct([("a", pa.int8())]))
