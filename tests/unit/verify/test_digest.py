"""Digests show every difference that a table can hold, and no difference that it cannot."""

from __future__ import annotations

import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from cdcsync_spark.verify.digest import Digester

SEED = bytes(range(32))
DAY, MICROSECOND = 86_400, 1
NAN_A, NAN_B = (struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8000000000000, 0x7FF8000000000001))

#: type -> values that all differ from each other
VALUES = [
    (pa.bool_(), [None, False, True]),
    (pa.int8(), [None, 0, 1, -1, -128, 127]),
    (pa.int16(), [None, 0, 1, -1, 2**15 - 1]),
    (pa.int32(), [None, 0, 1, -1, 2**31 - 1]),
    (pa.int64(), [None, 0, 1, -1, 2**32, 2**63 - 1, -(2**63)]),
    (pa.float32(), [None, 0.0, -0.0, 1.5]),
    (pa.float64(), [None, 0.0, -0.0, 1.5, NAN_A, NAN_B]),
    (pa.decimal128(20, 0), [None, Decimal(0), Decimal(1), Decimal(-1), Decimal(2**64 - 1), Decimal(2**64)]),
    (pa.decimal128(38, 10), [None, Decimal("0.0000000001"), Decimal("1"), Decimal("1.0000000001")]),
    (pa.date32(), [None, 0, 1, -DAY]),
    (pa.timestamp("us"), [None, 0, MICROSECOND, -MICROSECOND]),
    (pa.timestamp("us", "UTC"), [None, 0, MICROSECOND]),
    (pa.string(), [None, "", " ", "a", "A", "a ", "\0", "ab", "ba", "x" * 5000, "ä", "a\u0308"]),
    (pa.binary(), [None, b"", b"\0", b"\0\0", b"a"]),
    (pa.list_(pa.float32()), [None, [], [0.0], [-0.0], [0.0, 0.0]]),
]


def digests(arrays: dict[str, pa.Array], seed: bytes = SEED) -> list[bytes]:
    batch = pa.RecordBatch.from_pydict(arrays)
    return [d.tobytes() for d in Digester(tuple(arrays), seed).of(batch)]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_all_values_of_a_type_differ(kind: pa.DataType, values: list[object]) -> None:
    found = digests({"c": pa.array(values, kind)})
    assert len(set(found)) == len(values)


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
def test_a_value_has_one_digest_wherever_it_stands(kind: pa.DataType, values: list[object]) -> None:
    whole = pa.array(values, kind)
    # sliced, behind other values, with NULLs around it and without
    alone = [digests({"c": whole.slice(i, 1)})[0] for i in range(len(values))]
    fresh = [digests({"c": pa.array([v], kind)})[0] for v in values]
    assert digests({"c": whole}) == alone == fresh


def test_what_lies_under_a_null_does_not_count() -> None:
    valid = pa.py_buffer(b"\x01")  # the second of two values is NULL
    one, other = (
        pa.Array.from_buffers(pa.int64(), 2, [valid, pa.py_buffer(struct.pack("<qq", 7, under))]) for under in (0, 99)
    )
    assert digests({"c": one}) == digests({"c": other})


def test_the_border_between_two_texts_counts() -> None:
    left = digests({"a": pa.array(["ab"]), "b": pa.array(["c"])})
    right = digests({"a": pa.array(["a"]), "b": pa.array(["bc"])})
    assert left != right


def test_the_column_of_a_null_counts() -> None:
    left = digests({"a": pa.array([None], pa.int32()), "b": pa.array([0], pa.int32())})
    right = digests({"a": pa.array([0], pa.int32()), "b": pa.array([None], pa.int32())})
    assert left != right


def test_more_than_32_columns_have_a_null_bit_each() -> None:
    def with_null(at: int) -> bytes:
        return digests({str(i): pa.array([None if i == at else 0], pa.int32()) for i in range(70)})[0]

    assert len({with_null(at) for at in range(70)}) == 70


def test_another_seed_has_other_digests() -> None:
    column = {"c": pa.array([1, 2, 3])}
    assert not set(digests(column)) & set(digests(column, bytes(32)))


def test_large_batches_are_cut_and_put_together_in_order() -> None:
    numbers = pa.array(np.arange(50_000))
    texts = pa.array([f"text {i}" for i in range(50_000)])
    whole = digests({"a": numbers, "b": texts})
    parts = [digests({"a": numbers.slice(s, 777), "b": texts.slice(s, 777)}) for s in range(0, 50_000, 777)]
    assert whole == [d for part in parts for d in part]
    assert len(set(whole)) == 50_000


def test_rows_of_many_mebibytes_are_taken() -> None:
    big = [b"\0" * (9 << 20), b"\0" * (9 << 20) + b"\1"]
    assert len(set(digests({"c": pa.array(big, pa.binary())}))) == 2


def test_no_rows_have_no_digests() -> None:
    assert Digester(("c",), SEED).of(pa.RecordBatch.from_pydict({"c": pa.array([], pa.int32())})).shape == (0, 2)
