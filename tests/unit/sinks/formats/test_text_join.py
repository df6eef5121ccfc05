"""Joins against the same made row by row in Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_spark.sinks.formats.text_join import Part, Pick, join

ROWS = 5
TEXTS = st.lists(st.none() | st.text(max_size=3), min_size=ROWS, max_size=ROWS)
ROW_NUMBERS = st.lists(st.none() | st.integers(0, ROWS - 1), min_size=ROWS, max_size=ROWS)
PARTS = st.recursive(
    st.text(max_size=3) | TEXTS.map(lambda texts: pa.array(texts, pa.string())),
    lambda inner: st.builds(
        Pick, st.lists(inner, max_size=3), ROW_NUMBERS.map(lambda at: pa.array(at, pa.int32())), st.text(max_size=2)
    ),
    max_leaves=6,
)


def row(part: Part, number: int) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Pick):
        at = part.at[number].as_py()
        return part.otherwise if at is None else "".join(row(inner, at) for inner in part.parts)
    return part[number].as_py() or ""


@given(st.lists(PARTS, max_size=4))
def test_each_row_is_its_parts_behind_each_other(parts: list[Part]) -> None:
    joined = join(ROWS, *parts)
    joined.validate(full=True)
    assert joined.to_pylist() == ["".join(row(part, number) for part in parts) for number in range(ROWS)]


def test_slices_of_longer_arrays_are_joined_by_their_own_rows() -> None:
    texts = pa.array(["no", "a", "b", None, "no"]).slice(1, 3)
    assert join(3, texts, "-", Pick([texts], pa.array([1, 0, None]))).to_pylist() == ["a-b", "b-a", "-null"]


@pytest.mark.parametrize("parts", [[], ["a"], [pa.array([], pa.string())]])
def test_no_rows_are_no_texts(parts: list[Part]) -> None:
    assert join(0, *parts).to_pylist() == []
