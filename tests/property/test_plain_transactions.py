"""Plain transactions are read as columns, all else event by event: both ways give the same batches
on random histories, and the same error on garbage."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.errors import DecodeError, Reason
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Position
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from cdcsync_spark.wire.binlog.parser import Flavor
from support import events
from support.binlog_histories import FILE, histories
from support.both_paths import Reading, outcome
from support.events import event

START: Position = FilePosition(LogOffset(FILE, 4))
_COLUMNS = (
    Column("id", SourceType.parse("int"), True),
    Column("v", SourceType.parse("varchar(10)", "utf8mb4"), True),
)
T, U = TableId("shop", "t"), TableId("shop", "u")
TABLES = {table: Capture(SourceTable(table, _COLUMNS), ("id",)) for table in (T, U)}


def buffers(draw: st.DrawFn, history: Sequence[bytes]) -> list[Sequence[bytes]]:
    cuts = sorted(draw(st.lists(st.integers(0, len(history)), max_size=2)))
    return [history[a:b] for a, b in zip([0, *cuts], [*cuts, len(history)], strict=True)]


def reading(data: st.DataObject, flavor: Flavor) -> Reading:
    by_gtids = flavor == "mysql" and data.draw(st.booleans())
    start = GtidPosition(GtidSet()) if by_gtids else START
    ahead_at = data.draw(st.integers(4, 2000))
    gtids = GtidSet({str(events.UUID): [(1, data.draw(st.integers(1, 9)))]})
    there: Position = GtidPosition(gtids) if by_gtids else FilePosition(LogOffset(FILE, ahead_at))
    return Reading(
        flavor,
        start,
        TABLES,
        ahead=data.draw(st.sampled_from([{}, {T: there}, {T: there, U: there}])),
        policies=data.draw(st.sampled_from([{}, dict.fromkeys(TABLES, FollowPolicy(follow=True))])),
        limit=data.draw(st.sampled_from([1 << 40, 3000, 1000])),
        befores=data.draw(st.booleans()),
        decoded=True,
    )


def agree(data: st.DataObject, flavor: Flavor, history: Sequence[bytes]) -> None:
    pieces, settings = data.draw(st.composite(buffers)(history)), reading(data, flavor)
    columns, single = (outcome(settings, pieces, columns=way) for way in (True, False))
    assert columns == single


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@given(data=st.data())
def test_random_histories(flavor: Flavor, data: st.DataObject) -> None:
    agree(data, flavor, data.draw(histories(flavor)))


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@given(data=st.data())
def test_garbage(flavor: Flavor, data: st.DataObject) -> None:
    """Other bytes, with a wrong checksum or a right one; events that are cut or left out."""
    history = list(data.draw(histories(flavor, odd=data.draw(st.booleans()))))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(2, len(history) - 1)) if len(history) > 2 else 0
        damage = data.draw(st.sampled_from([_flipped, _resealed, _shorter, _gone]))
        history[place : place + 1] = damage(data, history[place])
        if not history:
            return
    agree(data, flavor, history)


def _flipped(data: st.DataObject, raw: bytes) -> list[bytes]:
    if not raw:
        return [raw]
    at, mask = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(1, 255))
    return [raw[:at] + bytes([raw[at] ^ mask]) + raw[at + 1 :]]


def _resealed(data: st.DataObject, raw: bytes) -> list[bytes]:
    """Another body in an event that is right."""
    if len(raw) < 24:
        return [raw]
    _, kind, _, _, place, _ = struct.unpack_from("<IBIIIH", raw)
    body = _flipped(data, raw[19:-4])[0] if data.draw(st.booleans()) else data.draw(st.binary(max_size=60))
    return [event(kind, body, end=place, checksum=True)]


def _shorter(data: st.DataObject, raw: bytes) -> list[bytes]:
    return [raw[: data.draw(st.integers(0, len(raw)))]]


def _gone(_: st.DataObject, __: bytes) -> list[bytes]:
    return []


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@given(data=st.data())
def test_plain_transactions_are_taken_as_columns(flavor: Flavor, data: st.DataObject) -> None:
    """All of them where nothing else is in the buffer: the other tests compare two ways indeed."""
    history = data.draw(histories(flavor, odd=False))
    taken: list[int] = []
    outcome(Reading(flavor, START, TABLES), [history], columns=True, taken=taken)
    assert taken == ([len(history) - 2] if len(history) > 2 else [])


@pytest.mark.parametrize("length", range(6))
def test_an_event_that_ends_in_its_header_names_its_place(length: int) -> None:
    _, begun = events.BinlogFile.begun(checksum=True)
    for way in (True, False):
        found = outcome(Reading("mysql", START, TABLES), [[*begun, bytes(length)]], columns=way)
        assert (DecodeError, Reason.TYPE_UNSUPPORTED) in [(f[0], f[-1]) for f in found]
