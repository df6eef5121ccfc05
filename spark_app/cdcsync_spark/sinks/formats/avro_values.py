"""Rows as Avro records, made column by column: no Python object for a value, none for a row.

Why it is right: an Avro record is the bytes of its fields behind each other, so a column is encoded
whole (numpy) and the columns are joined for each row (Arrow). A column that may be NULL is a union
of "null" and its type: the byte 00, or 02 and the value. `avro_rows` is compared byte by byte with
another library in the tests.

Decimals have the fewest bytes of two's complement, as Java's. No column may exceed 2 GiB in sum
(Arrow's offsets): callers pass slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_NULL, _VALUE = b"\x00", b"\x02"
_DECIMAL_BYTES = 16
_PAYLOAD_BITS = 7

AvroType = str | dict[str, Any]


def avro_type(kind: pa.DataType) -> AvroType:
    """The schema of a column's values, NULL apart."""
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_list(kind):
        return {"type": "array", "items": avro_type(kind.value_type)}
    schema = _SCHEMAS.get(kind)
    if schema is None:
        raise TypeError(f"no Avro form of {kind}")
    return schema


def avro_rows(rows: pa.Table, nullable: bool = True) -> pa.Array:
    """A record a row, of all columns in their order. Without `nullable` a NULL is an error."""
    return join(rows.num_rows, *(avro_values(column, nullable) for column in rows.columns))


def avro_values(column: pa.ChunkedArray | pa.Array, nullable: bool = True) -> pa.Array:
    """The bytes of each value of a column; with `nullable` as the union with "null"."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if values.null_count and not nullable:
        raise ValueError("a NULL in a column that has none by its schema")
    encoded = _encoded(values)
    if not nullable:
        return encoded
    encoded_values = join(len(values), _VALUE, encoded)
    return (
        pc.if_else(values.is_valid(), encoded_values, pa.scalar(_NULL, pa.binary()))
        if values.null_count
        else encoded_values
    )


def join(count: int, *parts: bytes | pa.Array) -> pa.Array:
    """The parts of each of `count` rows behind each other."""
    each = [pa.scalar(p, pa.binary()) if isinstance(p, bytes) else p for p in parts]
    if all(isinstance(p, pa.Scalar) for p in each):
        return pa.array([b"".join(p.as_py() for p in each)] * count, pa.binary())
    return pc.binary_join_element_wise(*each, pa.scalar(b"", pa.binary()))


def zigzag(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Numbers as Avro's `long`: zigzag, then seven bits a byte, the lowest first."""
    bits = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    sizes = np.ones(len(bits), np.int64)
    for shift in range(_PAYLOAD_BITS, 64, _PAYLOAD_BITS):
        sizes += bits >= np.uint64(1 << shift)
    begins = np.cumsum(sizes) - sizes
    data = np.empty(int(sizes.sum()), np.uint8)
    for i in range(int(sizes.max(initial=0))):
        some = sizes > i
        payload = (bits[some] >> np.uint64(_PAYLOAD_BITS * i)) & np.uint64(127)
        data[begins[some] + i] = payload | np.where(sizes[some] > i + 1, np.uint64(128), np.uint64(0))
    return _cut(data, sizes)


def _cut(data: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> pa.Array:
    """`data` as values of these sizes."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError("a column of more than 2 GiB in one slice")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _encoded(values: pa.Array) -> pa.Array:
    """The values in Avro's encoding. A NULL may have any: the union's branch leaves it out."""
    for is_type, encode in _ENCODERS:
        if is_type(values.type):
            return encode(values)
    raise TypeError(f"no Avro form of {values.type}")


def _integer(values: pa.Array) -> pa.Array:
    return zigzag(pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False))


def _date(values: pa.Array) -> pa.Array:
    return _integer(values.cast(pa.int32()))


def _boolean(values: pa.Array) -> pa.Array:
    flags = pc.fill_null(values, False).cast(pa.uint8()).to_numpy(zero_copy_only=False)
    return _cut(flags, np.ones(len(flags), np.int64))


def _floating(values: pa.Array) -> pa.Array:
    """Little endian, as numpy has them on the machines that the product runs on."""
    width = values.type.bit_width // 8
    numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
    data = np.frombuffer(numbers.astype(f"<f{width}").tobytes(), np.uint8)
    return _cut(data, np.full(len(values), width, np.int64))


def _bytes(values: pa.Array) -> pa.Array:
    data = pc.fill_null(values.cast(pa.binary()), b"")
    return join(len(values), zigzag(pc.binary_length(data).cast(pa.int64()).to_numpy()), data)


def _decimal(values: pa.Array) -> pa.Array:
    """Arrow has 16 bytes, little endian; a leading byte that only repeats the sign is left out."""
    filled = pc.fill_null(values, pa.scalar(0, values.type))
    first, last = filled.offset * _DECIMAL_BYTES, (filled.offset + len(filled)) * _DECIMAL_BYTES
    data = np.frombuffer(filled.buffers()[1], np.uint8)[first:last].reshape(-1, _DECIMAL_BYTES)[:, ::-1]
    sign = np.where(data[:, :1] >= 128, np.uint8(255), np.uint8(0))
    repeats = (data[:, :-1] == sign) & ((data[:, 1:] >= 128) == (sign == 255))
    left_out = np.cumprod(repeats, axis=1).sum(axis=1).astype(np.int64)
    significant = np.arange(_DECIMAL_BYTES) >= left_out[:, None]
    return _bytes(_cut(data[significant], _DECIMAL_BYTES - left_out))


def _vector(values: pa.Array) -> pa.Array:
    """One block of all numbers, and the empty one that ends it."""
    counts = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
    numbers = values.flatten()
    width = numbers.type.bit_width // 8
    data = np.frombuffer(numbers.to_numpy(zero_copy_only=False).astype(f"<f{width}").tobytes(), np.uint8)
    full = join(len(values), zigzag(counts), _cut(data, counts * width), b"\x00")
    return pc.if_else(pa.array(counts > 0), full, pa.scalar(b"\x00", pa.binary()))


_SCHEMAS: dict[pa.DataType, AvroType] = {
    pa.bool_(): "boolean",
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32()), "int"),
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.timestamp("us"): {"type": "long", "logicalType": "local-timestamp-micros"},
    pa.timestamp("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
}
_ENCODERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.Array]], ...] = (
    (pa.types.is_boolean, _boolean),
    (lambda t: pa.types.is_integer(t) or pa.types.is_timestamp(t), _integer),
    (pa.types.is_floating, _floating),
    (lambda t: pa.types.is_string(t) or pa.types.is_binary(t), _bytes),
    (pa.types.is_date, _date),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_list, _vector),
)
