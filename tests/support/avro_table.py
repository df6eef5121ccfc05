"""A table of every type that Avro has a form for."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

DAYS = st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999))
SINGLES = st.floats(allow_nan=False, width=32)


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    **{f"int{n}": (t, _integers(n)) for n, t in ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64()))},
    "float": (pa.float32(), SINGLES),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]))),
    "bytes": (pa.binary(), st.binary()),
    "date": (pa.date32(), DAYS.map(lambda d: d.date())),
    "datetime": (pa.timestamp("us"), DAYS),
    "instant": (pa.timestamp("us", "UTC"), DAYS.map(lambda d: d.replace(tzinfo=dt.UTC))),
    "unsigned": (pa.decimal128(20, 0), st.integers(0, 2**64 - 1).map(Decimal)),
    "decimal": (pa.decimal128(38, 18), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: scaled(n, 18))),
    "vector": (pa.list_(pa.float32()), st.lists(SINGLES, max_size=70)),
}
ROWS = st.lists(st.fixed_dictionaries({n: st.none() | v for n, (_, v) in VALUES.items()}), max_size=6)


def scaled(unscaled: int, scale: int) -> Decimal:
    """Exact whatever the context's precision is."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def table_of_values(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({n: pa.array([row[n] for row in rows], t) for n, (t, _) in VALUES.items()})
