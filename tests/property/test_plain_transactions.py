"""Plain transactions are read as columns, all else event by event: both ways give the same batches
on random histories, and the same error on garbage."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.gtid import GtidSet
from cdcsync_core.position import FilePosition, GtidPosition, LogOffset, Position
from cdcsync_core.source_table import TableId
from cdcsync_spark.wire.binlog.event_type import EventType
from cdcsync_spark.wire.binlog.parser import Flavor
from support import events
from support.both_paths import outcome
from support.events import Log, event, format_event, image, rotate

FILE = "binlog.000001"
START: Position = FilePosition(LogOffset(FILE, 4))
T, U, OTHER = TableId("shop", "t"), TableId("shop", "u"), TableId("shop", "other")
COLUMNS = [(3, b""), (15, b"\x28\0")]
META = [(1, b"\0"), (2, b"\x2d"), events.names("id", "v")]
#: numbers of TABLE_MAPs: two of one table, one of each other one
MAPS = {
    18: events.table_map(18, COLUMNS, table="t", optional=META),
    19: events.table_map(19, COLUMNS, table="t", optional=META),
    20: events.table_map(20, COLUMNS, table="u", optional=META),
    21: events.table_map(21, COLUMNS, table="other", optional=META),
}
CHANGED = events.table_map(18, [*COLUMNS, (3, b"")], table="t")
V1 = {events.WRITE: 23, events.UPDATE: 24, events.DELETE: 25}


class History:
    """Writes a binlog as one of the servers does."""

    def __init__(self, draw: st.DrawFn, flavor: Flavor, checksum: bool) -> None:
        self.draw, self.mariadb = draw, flavor == "mariadb"
        self.log, self.events = Log.begun(checksum=checksum)
        self.number = 0

    def add(self, kind: int, body: bytes, time: int = events.TIME) -> None:
        self.events.append(self.log.write(kind, body, time=time))

    def open(self, flags: int = 0) -> None:
        self.number += self.draw(st.sampled_from([1, 1, 1, 2]))
        if self.mariadb:
            self.add(events.MARIADB_GTID, events.mariadb_gtid(self.number, self.draw(st.integers(0, 1)), flags))
        else:
            committed = self.draw(st.sampled_from([0, 1_700_000_000_123_456]))
            original = self.draw(st.sampled_from([0, 0, 5_000_000]))
            kind = self.draw(st.sampled_from([events.GTID] * 6 + [events.ANONYMOUS]))
            self.add(kind, events.gtid(self.number, committed=committed, original=original))

    def begin(self) -> None:
        self.open()
        if not self.mariadb:
            self.add(events.QUERY, events.query("BEGIN", self.draw(st.sampled_from(["shop", "x", ""]))))

    def rows(self) -> None:
        number = self.draw(st.sampled_from([18, 18, 18, 18, 19, 20, 21]))
        self.add(events.TABLE_MAP, MAPS[number])
        for _ in range(self.draw(st.integers(1, 2))):
            self.change(number)

    def change(self, number: int, *, present: int | None = None) -> None:
        kind = self.draw(st.sampled_from([events.WRITE, events.UPDATE, events.DELETE]))
        count = self.draw(st.integers(1, 2)) * (2 if kind == events.UPDATE else 1)
        images = b"".join(image(i, self.draw(st.text("ab", max_size=3))) for i in range(count))
        extra = b"" if self.mariadb else b"\2\0"
        update = kind == events.UPDATE
        body = events.rows(number, images, width=2, update=update, extra=extra, present=present)
        self.add(V1[kind] if self.mariadb else kind, body)

    def end(self) -> None:
        self.add(events.XID, b"\0" * 8, time=events.TIME + self.number if self.number % 3 else 0)

    # -- transactions

    def plain(self) -> None:
        self.begin()
        for _ in range(self.draw(st.integers(1, 2))):
            self.rows()
        if self.draw(st.integers(0, 9)) == 0:
            self.add(EventType.ANNOTATE_ROWS if self.mariadb else EventType.ROWS_QUERY, b"\5some text")
        self.end()

    def of_statement(self) -> None:
        self.open(flags=1)
        sql = self.draw(st.sampled_from(["ALTER TABLE u ADD c INT", "CREATE TABLE z (i INT)", "ANALYZE TABLE t"]))
        self.add(events.QUERY, events.query(sql))

    def taken_back(self) -> None:
        self.begin()
        self.rows()
        self.add(events.QUERY, events.query(self.draw(st.sampled_from(["ROLLBACK", "COMMIT"]))))

    def with_savepoint(self) -> None:
        self.begin()
        self.add(events.QUERY, events.query("SAVEPOINT a"))
        self.rows()
        if self.draw(st.booleans()):
            self.add(events.QUERY, events.query("ROLLBACK TO a"))
        self.end()

    def incomplete(self) -> None:
        self.begin()
        self.add(events.TABLE_MAP, MAPS[20])
        self.change(20, present=1)
        self.end()

    def unmapped(self) -> None:
        self.begin()
        self.change(self.draw(st.sampled_from([18, 22, 0xFFFFFF])))
        self.end()

    def redefined(self) -> None:
        self.begin()
        self.add(events.TABLE_MAP, CHANGED)
        self.change(18)
        self.end()

    def cut(self) -> None:
        self.begin()
        self.rows()

    def next_file(self) -> None:
        self.log.offset = 4
        name = f"binlog.{self.draw(st.integers(1, 3)):06}"
        self.events += [rotate(name, checksum=self.log.checksum), format_event(checksum=self.log.checksum)]

    def waits(self) -> None:
        self.events.append(event(events.HEARTBEAT, FILE.encode(), end=self.log.offset, checksum=self.log.checksum))


ODD: list[Callable[[History], None]] = [
    History.of_statement,
    History.taken_back,
    History.with_savepoint,
    History.incomplete,
    History.unmapped,
    History.redefined,
    History.cut,
    History.next_file,
    History.waits,
]


@st.composite
def histories(draw: st.DrawFn, flavor: Flavor, *, odd: bool = True) -> list[bytes]:
    history = History(draw, flavor, checksum=draw(st.sampled_from([True, True, True, False])) if odd else True)
    for _ in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(0, 5))):
            history.plain()
        if odd:
            draw(st.sampled_from(ODD))(history)
    return history.events


def buffers(draw: st.DrawFn, history: Sequence[bytes]) -> list[Sequence[bytes]]:
    cuts = sorted(draw(st.lists(st.integers(0, len(history)), max_size=2)))
    return [history[a:b] for a, b in zip([0, *cuts], [*cuts, len(history)], strict=True)]


def agree(data: st.DataObject, flavor: Flavor, history: Sequence[bytes]) -> list[int]:
    pieces = data.draw(st.composite(buffers)(history))
    by_gtids = flavor == "mysql" and data.draw(st.booleans())
    start = GtidPosition(GtidSet()) if by_gtids else START
    ahead_at = data.draw(st.integers(4, 2000))
    gtids = GtidSet({str(events.UUID): [(1, data.draw(st.integers(1, 9)))]})
    there: Position = GtidPosition(gtids) if by_gtids else FilePosition(LogOffset(FILE, ahead_at))
    ahead = data.draw(st.sampled_from([{}, {T: there}, {T: there, U: there}]))
    limit = data.draw(st.sampled_from([1 << 40, 3000, 1000]))
    taken: list[int] = []
    columns, single = (
        outcome(flavor, pieces, start, [T, U], columns=way, limit=limit, ahead=ahead, taken=taken)
        for way in (True, False)
    )
    assert columns == single
    return taken


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
    outcome(flavor, [history], START, [T, U], columns=True, taken=taken)
    assert taken == ([len(history) - 2] if len(history) > 2 else [])
