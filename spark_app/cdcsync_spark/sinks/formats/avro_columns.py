"""Avro records read as columns: all records of one schema step through it together.

Why it is right: an Avro record has no marks, so each value's place is known when the one before it
was read. There is a cursor for each record, and a step of the schema moves them all (numpy). No
cursor passes its record's end, and a record with bytes left is refused, so that bytes of another
schema are an error and not a value. What `avro_values` writes is read; of the rest of Avro (maps,
enums, fixed, arrays of several blocks) nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_DECIMAL_BYTES = 16
_PAYLOAD_BITS, _LONGEST = 7, 10

Places = npt.NDArray[np.int64]


@dataclass
class Cursors:
    """Where in `data` each record is read, ascending, and where it ends."""

    data: npt.NDArray[np.uint8]
    at: Places
    ends: Places

    @classmethod
    def of(cls, records: Sequence[bytes]) -> Cursors:
        ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
        if len(ends) and ends[-1] > np.iinfo(np.int32).max:
            raise OverflowError("records of more than 2 GiB at once")
        begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
        return cls(np.frombuffer(b"".join(records), np.uint8), begins, ends)

    def some(self, rows: Places) -> Cursors:
        return Cursors(self.data, self.at[rows], self.ends[rows])

    def passed(self, sizes: Places | int) -> Places:
        """Where these bytes of each record begin; the cursors are behind them."""
        begins = self.at
        if np.any(np.asarray(sizes) < 0) or np.any(sizes > self.ends - begins):
            raise ValueError("a record that ends within a value")
        self.at = begins + sizes
        return begins

    def fixed(self, width: int) -> npt.NDArray[np.uint8]:
        """The next bytes of each record, a row for each."""
        return self.data[self.passed(width)[:, None] + np.arange(width)]

    def longs(self) -> Places:
        """The next `long` of each record: seven bits a byte, the lowest first, zigzag."""
        bits = np.zeros(len(self.at), np.uint64)
        going = np.arange(len(self.at))
        for number in range(_LONGEST):
            some = self.some(going)
            byte = some.fixed(1)[:, 0]
            self.at[going] = some.at
            if number == _LONGEST - 1 and np.any(byte > 1):
                raise ValueError("a number of more than 64 bits")
            bits[going] |= (byte & np.uint8(127)).astype(np.uint64) << np.uint64(_PAYLOAD_BITS * number)
            going = going[byte > 127]
            if not len(going):
                break
        return (bits >> np.uint64(1)).astype(np.int64) ^ -(bits & np.uint64(1)).astype(np.int64)

    def binary(self, sizes: Places) -> pa.Array:
        """The next `sizes` bytes of each record. What is between two of them is an element, too,
        and left out: Arrow copies the rest."""
        begins = self.passed(sizes)
        bounds = np.column_stack([begins, begins + sizes]).reshape(-1)
        if not len(bounds):
            return pa.array([], pa.binary())
        buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(self.data)]
        cut = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
        return cut.take(pa.array(np.arange(0, len(cut), 2)))


Decoder = Callable[[Cursors], pa.Array]


def records(decode: Decoder, payloads: Sequence[bytes]) -> pa.Array:
    """A value for each record."""
    cursors = Cursors.of(payloads)
    values = decode(cursors)
    if np.any(cursors.at != cursors.ends):
        raise ValueError("a record with bytes behind its value")
    return values


def decoder(schema: Any, named: dict[str, Decoder] | None = None) -> Decoder:
    """What reads values of an Avro schema; `named` has the records that are defined before."""
    names = {} if named is None else named
    if isinstance(schema, list):
        return _union(schema, names)
    if isinstance(schema, str):
        return names[schema] if schema in names else _PRIMITIVES[schema]
    kind = schema["type"]
    if kind == "record":
        return _record(schema, names)
    if kind == "array":
        return _vector(schema["items"])
    if schema.get("logicalType") == "decimal":
        return _decimal(kind, pa.decimal128(schema["precision"], schema.get("scale", 0)))
    return _LOGICAL[kind, schema["logicalType"]] if "logicalType" in schema else decoder(kind, names)


def _record(schema: dict[str, Any], names: dict[str, Decoder]) -> Decoder:
    fields = [(field["name"], decoder(field["type"], names)) for field in schema["fields"]]

    def decode(cursors: Cursors) -> pa.Array:
        return pa.StructArray.from_arrays([read(cursors) for _, read in fields], [name for name, _ in fields])

    names[schema["name"]] = decode
    return decode


def _union(branches: list[Any], names: dict[str, Decoder]) -> Decoder:
    """The decoder of a union of "null" and another type."""
    (other,) = (number for number, branch in enumerate(branches) if branch != "null")
    if len(branches) != 2:
        raise ValueError(f"a union of {len(branches)} types")
    read = decoder(branches[other], names)

    def decode(cursors: Cursors) -> pa.Array:
        branch = cursors.longs()
        if np.any((branch != 0) & (branch != 1)):
            raise ValueError("a type that its union does not have")
        of_branch = np.flatnonzero(branch == other)
        some = cursors.some(of_branch)
        values = read(some)
        cursors.at[of_branch] = some.at
        if len(of_branch) == len(branch):
            return values
        places = np.cumsum(branch == other) - 1
        return values.take(pa.array(places, mask=branch != other))

    return decode


def _decimal(kind: str, target: pa.DataType) -> Decoder:
    """Two's complement, big endian; Arrow has 16 bytes, little endian."""
    if kind != "bytes":
        raise ValueError(f"a decimal as {kind}")

    def decode(cursors: Cursors) -> pa.Array:
        sizes = cursors.longs()
        if np.any((sizes < 1) | (sizes > _DECIMAL_BYTES)):
            raise ValueError("a decimal of other than 1 to 16 bytes")
        begins = cursors.passed(sizes)
        sign = np.where(cursors.data[begins] > 127, np.uint8(255), np.uint8(0))
        digits = np.repeat(sign[:, None], _DECIMAL_BYTES, axis=1)
        for place in range(int(sizes.max(initial=0))):
            some = sizes > place
            digits[some, place] = cursors.data[(begins + sizes - 1 - place)[some]]
        decimals = pa.Array.from_buffers(target, len(sizes), [None, pa.py_buffer(digits.tobytes())])
        decimals.validate(full=True)
        return decimals

    return decode


def _vector(items: Any) -> Decoder:
    """One block of numbers, and the empty one that ends it."""
    kind, width = _FLOATS[items]

    def decode(cursors: Cursors) -> pa.Array:
        counts = cursors.longs()
        if np.any((counts < 0) | (counts > cursors.ends - cursors.at)):
            raise ValueError("an array of more numbers than its record has, or of blocks with sizes")
        full = np.flatnonzero(counts)
        some = cursors.some(full)
        data = some.binary(counts[full] * width)
        if np.any(some.longs()):
            raise ValueError("an array of several blocks")
        cursors.at[full] = some.at
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        numbers = np.frombuffer(data.buffers()[2] or b"", np.uint8)[: int(offsets[-1]) * width]
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers.view(f"<f{width}"), kind))

    return decode


def _integer(kind: pa.DataType, stored: pa.DataType | None = None) -> Decoder:
    """`stored`: the type of the number that a value of `kind` is."""

    def decode(cursors: Cursors) -> pa.Array:
        numbers = pa.array(cursors.longs(), pa.int64())
        return numbers.cast(stored or kind).view(kind)

    return decode


def _floating(kind: pa.DataType) -> Decoder:
    width = kind.bit_width // 8
    return lambda cursors: pa.array(cursors.fixed(width).reshape(-1).view(f"<f{width}"), kind)


def _boolean(cursors: Cursors) -> pa.Array:
    flags = cursors.fixed(1)[:, 0]
    if np.any(flags > 1):
        raise ValueError("a boolean of another value than 0 and 1")
    return pa.array(flags == 1)


def _binary(cursors: Cursors) -> pa.Array:
    return cursors.binary(cursors.longs())


def _text(cursors: Cursors) -> pa.Array:
    return pc.cast(_binary(cursors), pa.string())


_FLOATS = {"float": (pa.float32(), 4), "double": (pa.float64(), 8)}
_PRIMITIVES: dict[str, Decoder] = {
    "boolean": _boolean,
    "int": _integer(pa.int32()),
    "long": _integer(pa.int64()),
    "float": _floating(pa.float32()),
    "double": _floating(pa.float64()),
    "bytes": _binary,
    "string": _text,
}
_LOGICAL: dict[tuple[str, str], Decoder] = {
    ("int", "date"): _integer(pa.date32(), pa.int32()),
    ("long", "local-timestamp-micros"): _integer(pa.timestamp("us"), pa.int64()),
    ("long", "timestamp-micros"): _integer(pa.timestamp("us", "UTC"), pa.int64()),
}
