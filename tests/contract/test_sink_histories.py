"""Random histories of a table against a model: whatever is merged in whatever order, the target
holds what the model holds.

The traps are in how files are skipped: keys at the ends of a file's bounds, long common prefixes,
microseconds, numbers beyond a double's precision. So keys are drawn from few values that lie close
together, and content is compared after every commit.
"""

from __future__ import annotations

import datetime as dt
import os
import uuid
from collections.abc import Callable
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdcsync_spark.sinks.delta.replica.sink import DeltaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import SYNC, Model, Row, batch, content, make_table, whole_snapshot

EPOCH = dt.datetime(2024, 1, 1)
LONG = "x" * 40
UNSIGNED = 2**64
EXACT = Context(prec=38)

#: declared type of each key column -> values that lie close together and at the ends
KEYS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "integer": {"bigint(20)": st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1])},
    "tiny": {"tinyint(4)": st.integers(-128, 127)},
    "unsigned": {
        "bigint(20) unsigned": st.sampled_from(
            [Decimal(n) for n in (0, 1, 2**53, 2**53 + 1, 2**53 + 2, UNSIGNED - 3, UNSIGNED - 2, UNSIGNED - 1)]
        )
    },
    "decimal": {
        "decimal(38,4)": st.sampled_from(
            [
                Decimal(s).scaleb(-4, EXACT)
                for s in ("0", "1", "-1", "12345678901234567890", "12345678901234567891", "9" * 38)
            ]
        )
    },
    "string": {
        "varchar(99)": st.sampled_from(
            ["", " ", "a", "A", "a ", "ä", "é", LONG, LONG + "a", LONG + "b", "\U0010ffff" * 40, "\0", "'", "\\"]
        )
    },
    "text": {"varchar(20)": st.text(st.characters(exclude_categories=["Cs"]), max_size=20)},
    "binary": {
        "varbinary(99)": st.sampled_from(
            [b"", b"\0", b"\0\0", b"a", b"A", b"\x80", b"\xff", b"\xff" * 70, b"\xff" * 70 + b"\0"]
        )
    },
    "date": {
        "date": st.sampled_from([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31)])
    },
    "datetime": {
        "datetime(6)": st.sampled_from(
            [
                dt.datetime(1, 1, 1),
                dt.datetime.max,
                *(EPOCH + dt.timedelta(microseconds=m) for m in (-1, 0, 1, 999, 1000, 1001)),
            ]
        )
    },
    "timestamp": {
        "timestamp(6)": st.sampled_from(
            [EPOCH.replace(tzinfo=dt.UTC) + dt.timedelta(microseconds=m) for m in (-1001, -1, 0, 1, 999, 1000, 1001)]
        )
    },
    "composite": {
        "int(11)": st.integers(-1, 1),
        "varchar(9)": st.sampled_from(["", "a", "A", "b"]),
        "varbinary(9)": st.sampled_from([b"", b"\xff"]),
    },
}

OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "varchar(30)": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    "double": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "vector(2)": st.none()
    | st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
    "bit(1)": st.none() | st.booleans(),
    "datetime(6)": st.none() | st.datetimes(),
}


@st.composite
def histories(draw: st.DrawFn, kind: str) -> tuple[list[Row], list[tuple[list[Row], list[Row]]]]:
    """The snapshot's rows, then batches of upserts and deleted keys."""
    key = st.tuples(*KEYS[kind].values())
    row = st.tuples(key, st.tuples(*OTHERS.values())).map(lambda r: r[0] + r[1])
    width = len(KEYS[kind])
    first = draw(st.lists(row, max_size=8, unique_by=lambda r: r[:width]))
    batches = st.lists(st.tuples(st.lists(row, max_size=5), st.lists(key, max_size=4)), min_size=1, max_size=5)
    return first, draw(batches)


def foreign_optimize(uri: str) -> None:
    DeltaTable(uri).optimize.compact()


def checked(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("kind", sorted(KEYS))
@checked(examples=12 if "CDCSYNC_NEW_EXAMPLES" in os.environ else 6)
@given(data=st.data())
def test_a_target_holds_what_its_history_says(kind: str, data: st.DataObject, tmp_path: Path) -> None:
    """R2, R4, R9: per key the last image, in commits of whole batches, with OPTIMIZE by another
    program in between."""
    live(kind, data, tmp_path, vectors=True)


@pytest.mark.parametrize("kind", sorted(KEYS))
@checked(examples=3 if "CDCSYNC_NEW_EXAMPLES" in os.environ else 2)
@given(data=st.data())
def test_so_does_one_whose_files_are_rewritten(kind: str, data: st.DataObject, tmp_path: Path) -> None:
    """Has delta-rs rewrite the files, which takes longer: fewer histories."""
    live(kind, data, tmp_path, vectors=False)


def live(kind: str, data: st.DataObject, folder: Path, *, vectors: bool) -> None:
    columns = {f"k{n}": t for n, t in enumerate(KEYS[kind])} | {f"v{n}": t for n, t in enumerate(OTHERS)}
    table = make_table(columns, [f"k{n}" for n in range(len(KEYS[kind]))])
    first, batches = data.draw(histories(kind))
    target = DeltaSink(open_store(str(folder / uuid.uuid4().hex)), SYNC, vectors).target(table.id)
    model = Model(table)
    model.rows = {model.key(r): r for r in first}
    whole_snapshot(target, first, table)
    assert content(target) == model.content
    for number, (upserts, deletes) in enumerate(batches, 1):
        target.commit(1, batch(number, model.apply(upserts, deletes)))
        assert content(target) == model.content
        if data.draw(st.booleans()):
            foreign_optimize(target.uri)
            assert content(target) == model.content


RANGES: dict[str, Callable[[int], Any]] = {
    "bigint(20)": lambda n: n,
    "bigint(20) unsigned": lambda n: Decimal(UNSIGNED - 1 - 7 * n),
    "decimal(30,3)": lambda n: Decimal(n) * Decimal("1000000000000.001"),
    "varchar(99)": lambda n: f"{LONG}{n:06d}",
    "varbinary(99)": lambda n: b"\xff" * 40 + n.to_bytes(3, "big"),
    "date": lambda n: dt.date(1960, 1, 1) + dt.timedelta(days=n),
    "datetime(6)": lambda n: dt.datetime(1969, 12, 31, 23, 59, 59) + dt.timedelta(microseconds=333 * n),
    "timestamp(6)": lambda n: dt.datetime(2038, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=333 * n),
}


@pytest.mark.parametrize("vectors", [True, False], ids=["entries", "rewritten"])
@pytest.mark.parametrize("declared", RANGES)
def test_keys_at_the_ends_of_many_files_are_found(declared: str, vectors: bool, tmp_path: Path) -> None:
    """Each file's first and last key is updated, deleted or inserted again: a bound that is too
    narrow would double a row."""
    value = RANGES[declared]
    table = make_table({"k": declared, "v": "int(11)"}, ["k"])
    target = DeltaSink(open_store(str(tmp_path)), SYNC, vectors).target(table.id)
    model = Model(table)
    whole_snapshot(target, [], table)
    for number in range(8):
        ends = [(value(10 * n + d), number) for n in range(number) for d in (0, 9)]
        fresh = [(value(10 * number + d), number) for d in range(10)]
        gone = [(value(10 * number - 10 + d),) for d in (1, 8)] if number else []
        target.commit(1, batch(number + 1, model.apply(ends + fresh, gone)))
        assert content(target) == model.content
    read = target.open_snapshot().scan(["k"], pc.field("k") == value(79)).read_all()
    assert read["k"].to_pylist() == [value(79)]
