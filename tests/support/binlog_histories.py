"""Random binlogs, as one of the servers writes them: plain transactions with everything between
them that a binlog may hold."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pyarrow as pa
from hypothesis import strategies as st

from cdcsync_spark.wire.binlog.event.event_type import EventType
from cdcsync_spark.wire.binlog.parser import Flavor
from support import events
from support.events import BinlogFile, event, format_event, image, rotate

FILE = "binlog.000001"
COLUMNS = [(3, b""), (15, b"\x28\0")]
META = [(1, b"\0"), (2, b"\x2d"), events.names("id", "v")]
WIDER = [(1, b"\0"), (2, b"\x2d"), events.names("id", "v", "c")]
#: numbers of TABLE_MAPs: two of one table, one of each other one; 28 is the table of 18 with one
#: more column, the last is of a rows event that says nothing but that a statement ends
RESERVED = 0xFFFFFF
MAPS = {
    18: events.table_map(18, COLUMNS, table="t", optional=META),
    19: events.table_map(19, COLUMNS, table="t", optional=META),
    20: events.table_map(20, COLUMNS, table="u", optional=META),
    21: events.table_map(21, COLUMNS, table="other", optional=META),
    28: events.table_map(28, [*COLUMNS, (3, b"")], table="t", optional=WIDER),
    RESERVED: events.table_map(RESERVED, COLUMNS, table="t", optional=META),
}
CHANGED = events.table_map(18, [*COLUMNS, (3, b"")], table="t")
V1 = {events.WRITE: 23, events.UPDATE: 24, events.DELETE: 25}
INSIDE = {events.TABLE_MAP, EventType.ANNOTATE_ROWS, EventType.WRITE_ROWS_COMPRESSED_V1, *V1.values()}
STATEMENTS = ("ALTER TABLE u ADD c INT", "CREATE TABLE z (i INT)", "ANALYZE TABLE t", "TRUNCATE u")
#: status variables: flags 0, SQL mode 1, the client's character set 4
SESSION = b"\0" + bytes(4) + b"\1" + bytes(8) + b"\4" + struct.pack("<HHH", 45, 45, 45)
ALTER = "ALTER TABLE t ADD c INT"
STANDALONE_DDL, PREPARED_XA, COMPLETED_XA = 33, 64, 128
_PAST = (1 << 32) - 300


class History:
    """Rows events differ in their extra data only where `odd`; `widened`: the table t has a third
    column; `placed`: events inside a transaction say where they end, as before MariaDB 11.4."""

    def __init__(self, draw: st.DrawFn, flavor: Flavor, checksum: bool, odd: bool) -> None:
        self.draw, self.mariadb = draw, flavor == "mariadb"
        self.log, self.events = BinlogFile.begun(checksum=checksum)
        self.number, self.odd = 0, odd
        self.widened = False
        self.placed = not self.mariadb or draw(st.booleans())

    def add(self, kind: int, body: bytes, time: int = events.TIME) -> None:
        self.events.append(self.log.write(kind, body, time=time, placed=self.placed or kind not in INSIDE))

    def say(self, sql: str) -> None:
        self.add(events.QUERY, events.query(sql, status=SESSION))

    def open(self, flags: int = 0, further: int = 0) -> None:
        """`further`: the flags of an ALTER in two phases."""
        self.number += self.draw(st.sampled_from([1, 1, 1, 2]))
        if self.mariadb:
            body = events.mariadb_gtid(self.number, self.draw(st.integers(0, 1)), flags)
            self.add(events.MARIADB_GTID, body[:13] + bytes([further]) + body[14:])
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
        t = [28] if self.widened else [18, 18, 19]
        number = self.draw(st.sampled_from([*t, *t, 20, 21]))
        self.add(events.TABLE_MAP, MAPS[number])
        for _ in range(self.draw(st.integers(1, 2))):
            self.change(number)

    def interleaved(self) -> None:
        """One statement that changes several tables."""
        t = 28 if self.widened else 18
        for number in (t, 20, 21):
            self.add(events.TABLE_MAP, MAPS[number])
        for number in self.draw(st.lists(st.sampled_from([t, 20, 21]), min_size=1, max_size=4)):
            self.change(number)

    def change(self, number: int, *, present: int | None = None) -> None:
        kind = self.draw(st.sampled_from([events.WRITE, events.UPDATE, events.DELETE]))
        body = self.changed(number, kind, present)
        self.add(V1[kind] if self.mariadb else kind, body)

    def changed(self, number: int, kind: int, present: int | None = None) -> bytes:
        wide = number == 28
        count = self.draw(st.integers(1, 2)) * (2 if kind == events.UPDATE else 1)
        images = b"".join(self.image(i, wide) for i in range(count))
        extra = b"" if self.mariadb else self.draw(st.sampled_from([b"\2\0"] * 9 + [b"\5\0abc"] * self.odd))
        update = kind == events.UPDATE
        return events.rows(number, images, width=3 if wide else 2, update=update, extra=extra, present=present)

    def image(self, number: int, wide: bool = False) -> bytes:
        narrow = image(number, self.draw(st.text("ab", max_size=3)))
        return b"\xf8" + narrow[1:] + b"\7\0\0\0" if wide else narrow

    def end(self) -> None:
        self.add(events.XID, b"\0" * 8, time=events.TIME + self.number if self.number % 3 else 0)

    # -- transactions

    def plain(self) -> None:
        self.begin()
        for _ in range(self.draw(st.integers(1, 2))):
            self.draw(st.sampled_from([History.rows, History.rows, History.interleaved]))(self)
        if self.draw(st.integers(0, 9)) == 0:
            self.add(EventType.ANNOTATE_ROWS if self.mariadb else EventType.ROWS_QUERY, b"\5some text")
        self.end()

    def of_statement(self) -> None:
        self.open(flags=1)
        self.say(self.draw(st.sampled_from(STATEMENTS)))

    def altered(self) -> None:
        """MariaDB may log it where it starts, and again where it is committed or rolled back."""
        phases = self.draw(st.sampled_from([[0], [2, 4], [2, 8]])) if self.mariadb else [0]
        for phase in phases:
            if phase == phases[-1] and self.draw(st.booleans()):
                self.plain()
            self.open(STANDALONE_DDL, phase)
            self.say(ALTER)
        self.widened = self.widened or phases[-1] != 8

    def taken_back(self) -> None:
        self.begin()
        self.rows()
        self.say(self.draw(st.sampled_from(["ROLLBACK", "COMMIT"])))

    def with_savepoint(self) -> None:
        self.begin()
        self.say("SAVEPOINT a")
        self.rows()
        if self.draw(st.booleans()):
            self.say("ROLLBACK TO a")
        self.end()

    def in_two_phases(self) -> None:
        """XA, with other transactions between the phases."""
        xid = "X'61',X'',1"
        self.open(PREPARED_XA)
        self.say(f"XA START {xid}")
        self.rows()
        self.say(f"XA END {xid}")
        self.add(events.XA_PREPARE, struct.pack("<BIII", 0, 1, 1, 0) + b"a")
        if self.draw(st.booleans()):
            self.plain()
        self.open(COMPLETED_XA | 1)
        self.say(self.draw(st.sampled_from(["XA COMMIT ", "XA ROLLBACK "])) + xid)

    def compressed(self) -> None:
        self.begin() if self.mariadb else self.open()
        if self.mariadb:
            self.add(events.TABLE_MAP, MAPS[20])
            packed = zlib.compress(self.image(1) * 3)
            images = b"\x81" + bytes([3 * len(self.image(1))]) + packed
            self.add(EventType.WRITE_ROWS_COMPRESSED_V1, events.rows(20, images, width=2, extra=b""))
            self.end()
            return
        changed = ((events.TABLE_MAP, MAPS[20]), (events.WRITE, self.changed(20, events.WRITE)))
        parts = ((events.QUERY, events.query("BEGIN")), *changed, (events.XID, bytes(8)))
        inner = b"".join(event(kind, body, end=7) for kind, body in parts)
        stream = pa.compress(inner, "zstd", asbytes=True)
        fields = b"".join(bytes([k, 3, 252]) + struct.pack("<H", v) for k, v in ((3, len(inner)), (1, len(stream))))
        self.add(events.PAYLOAD, b"\2\1\0" + fields + b"\0" + stream)

    def tagged(self) -> None:
        if self.mariadb:
            return
        self.add(events.TAGGED, bytes.fromhex("027c00000202ee450341025802690322c50369028241023502dcbedc35020404"))
        self.add(events.QUERY, events.query("BEGIN"))
        self.rows()
        self.end()

    def incomplete(self) -> None:
        self.begin()
        self.add(events.TABLE_MAP, MAPS[20])
        self.change(20, present=1)
        self.end()

    def unmapped(self) -> None:
        """Rows of a TABLE_MAP of another transaction, or of none."""
        self.begin()
        self.change(self.draw(st.sampled_from([18, 22, RESERVED])))
        self.end()

    def reserved(self) -> None:
        self.begin()
        self.add(events.TABLE_MAP, MAPS[RESERVED])
        self.change(RESERVED)
        self.end()

    def redefined(self) -> None:
        self.begin()
        self.add(events.TABLE_MAP, CHANGED)
        self.change(18)
        self.end()

    # -- what is between or in them

    def cut(self) -> None:
        self.begin()
        self.rows()

    def next_file(self) -> None:
        """Begins the next file, with or without the event that ends one; checksums may be
        switched."""
        name = f"binlog.{self.draw(st.integers(1, 3)):06}"
        if self.draw(st.booleans()):
            self.events.append(rotate(name, end=self.log.offset + 40, checksum=self.log.checksum))
        self.log.offset = 4
        self.log.checksum = self.draw(st.sampled_from([self.log.checksum, self.log.checksum, True]))
        self.events += [rotate(name, checksum=self.log.checksum), format_event(checksum=self.log.checksum)]

    def stopped(self) -> None:
        self.add(events.STOP, b"")
        self.next_file()

    def encrypted(self) -> None:
        self.add(EventType.START_ENCRYPTION, bytes(17))

    def waits(self) -> None:
        self.events.append(event(events.HEARTBEAT, FILE.encode(), end=self.log.offset, checksum=self.log.checksum))

    def waits_inside(self) -> None:
        self.begin()
        self.rows()
        self.waits()
        self.rows()
        self.end()

    def without_place(self) -> None:
        """As an event that the server has made for the dump."""
        self.begin()
        self.add(events.TABLE_MAP, MAPS[20])
        self.events.append(event(events.TABLE_MAP, MAPS[20], checksum=self.log.checksum))
        self.change(20)
        self.end()

    def past_four_gibibytes(self) -> None:
        self.log.offset = max(self.log.offset, _PAST)


ODD: list[Callable[[History], None]] = [
    History.of_statement,
    History.altered,
    History.taken_back,
    History.with_savepoint,
    History.in_two_phases,
    History.compressed,
    History.tagged,
    History.incomplete,
    History.unmapped,
    History.reserved,
    History.redefined,
    History.cut,
    History.next_file,
    History.stopped,
    History.encrypted,
    History.waits,
    History.waits_inside,
    History.without_place,
    History.past_four_gibibytes,
]


@st.composite
def histories(draw: st.DrawFn, flavor: Flavor, *, odd: bool = True) -> list[bytes]:
    history = History(draw, flavor, not odd or draw(st.sampled_from([True, True, True, False])), odd)
    for _ in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(0, 5))):
            history.plain()
        if odd:
            draw(st.sampled_from(ODD))(history)
    return history.events
