"""The lock-step decoder and the plain one, its oracle: the same batch or an error from both,
whatever the table, its rows, or the bytes. What they leave out of a batch does not change what it
folds to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.errors import DecodeError
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.delivery.upsert import fold
from cdcsync_spark.wire.binlog.facts import Operation, RowsEvent
from cdcsync_spark.wire.binlog.rows import DecodedRows, decode
from support.images import KINDS, ImageType, image, rows_event, table_of


def _outcome(table: Capture, events: Sequence[RowsEvent], decoder: Decoder, befores: bool) -> DecodedRows | None:
    """None for a DecodeError; any other exception fails the test."""
    try:
        return decode(table, events, list(range(len(events))), decoder, befores=befores)
    except DecodeError:
        return None


def _agree(table: Capture, events: Sequence[RowsEvent], *, befores: bool = True) -> DecodedRows | None:
    found = _outcome(table, events, Decoder.VECTORIZED, befores)
    expected = _outcome(table, events, Decoder.REFERENCE, befores)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        found.batch.validate(full=True)
        assert found.batch.schema == expected.batch.schema
        # as text, in which a damaged float that is no number equals itself
        assert repr(found.batch.to_pydict()) == repr(expected.batch.to_pydict())
        assert (found.nulled, found.images) == (expected.nulled, expected.images)
    return found


def _rows(data: st.DataObject, kinds: Sequence[ImageType], most: int) -> list[list[bytes | None]]:
    cells = [st.none() | k.stored for k in kinds]
    return data.draw(st.lists(st.tuples(*cells).map(list), min_size=1, max_size=most))


@pytest.mark.parametrize("kind", KINDS, ids=[f"{k.declared}-{k.code}-{k.charset}" for k in KINDS])
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_every_type(kind: ImageType, data: st.DataObject) -> None:
    """Before and after another column that varies, so that a wrong length shows."""
    kinds = [kind, KINDS[-1], kind]
    table, table_map = table_of(kinds)
    body = b"".join(image(table_map, row) for row in _rows(data, kinds, 12))
    assert _agree(table, [rows_event(table_map, body)]) is not None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_tables_of_any_columns_in_events_of_any_size(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=20))
    excluded = frozenset(f"c{i}" for i in data.draw(st.sets(st.integers(1, len(kinds)))) if i < len(kinds))
    table, table_map = table_of(kinds, excluded)
    events = []
    for operation in data.draw(st.lists(st.sampled_from(Operation), max_size=5)):
        images = [image(table_map, row) for row in _rows(data, kinds, 4)]
        body = b"".join(images * 2 if operation is Operation.UPDATE else images)
        events.append(rows_event(table_map, body, operation))
    assert _agree(table, events) is not None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_images(data: st.DataObject) -> None:
    """Bytes are changed, cut or added, in one of a few events or of very many."""
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
    table, table_map = table_of(kinds)
    body = bytearray(b"".join(image(table_map, row) for row in _rows(data, kinds, 3)))
    whole, operation = bytes(body), data.draw(st.sampled_from([Operation.WRITE, Operation.UPDATE]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    bodies = [whole] * data.draw(st.sampled_from([0, 60]))
    bodies.insert(data.draw(st.integers(0, len(bodies))), bytes(body))
    for befores in (True, False):
        _agree(table, [rows_event(table_map, b, operation) for b in bodies], befores=befores)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.binary(max_size=60))
def test_images_of_any_bytes(data: st.DataObject, body: bytes) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    table, table_map = table_of(kinds)
    _agree(table, [rows_event(table_map, body)] * data.draw(st.sampled_from([1, 60])))


#: of values that may be a key and are never NULL as a column
_KEYS = [
    k for k in KINDS if k.declared.startswith(("int", "bigint", "varchar", "char", "binary", "uuid", "double", "bit"))
]


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_what_is_left_out_folds_away(data: st.DataObject) -> None:
    """R2, with keys of one to three columns at any place, of few values, so that they change and
    come again."""
    kinds = data.draw(st.lists(st.sampled_from(_KEYS), min_size=1, max_size=10))
    key = data.draw(st.permutations(range(len(kinds))))[: data.draw(st.integers(1, 3))]
    table, table_map = table_of(kinds)
    table = replace(table, key=tuple(f"c{i}" for i in key))
    values = [k.stored if i in key else st.none() | k.stored for i, k in enumerate(kinds)]
    few = [st.sampled_from(data.draw(st.lists(v, min_size=1, max_size=2))) for v in values]
    events = []
    for operation in data.draw(st.lists(st.sampled_from(Operation), max_size=6)):
        rows = data.draw(st.lists(st.tuples(*few), min_size=1, max_size=4))
        body = b"".join(image(table_map, row) for row in (rows * 2 if operation is Operation.UPDATE else rows))
        events.append(rows_event(table_map, body, operation))
    found, whole = _agree(table, events, befores=False), _agree(table, events)
    assert found is not None
    assert whole is not None
    assert found.images == whole.images == whole.batch.num_rows
    folded, expected = (fold(Changelog(pa.Table.from_batches([d.batch])), table.key) for d in (found, whole))
    assert folded.upserts.equals(expected.upserts)
    assert folded.deletes.equals(expected.deletes)
