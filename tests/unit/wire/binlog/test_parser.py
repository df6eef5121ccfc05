"""The parser's state machine: events in, facts out, and nothing understood by half."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pyarrow as pa
import pytest

from cdcsync_core.errors import CdcError, DecodeError, Reason
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import LogOffset, TransactionId
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.wire.binlog.event.events import parse_query, parse_version
from cdcsync_spark.wire.binlog.facts import (
    Fact,
    FileLeft,
    Incident,
    Operation,
    Progress,
    RollbackTo,
    RowsEvent,
    Savepoint,
    ServerStarted,
    TransactionBegin,
    TransactionEnd,
    TransactionRollback,
    XaEnd,
    XaPrepare,
)
from cdcsync_spark.wire.binlog.parser import EventParser, Flavor
from cdcsync_spark.wire.binlog.table_map import parse_map
from cdcsync_spark.wire.sql.syntax.text import Statement, Thread
from cdcsync_spark.wire.sql.syntax.tokens import ANSI_QUOTES, Session, Started
from support.events import (
    ANONYMOUS,
    DELETE,
    FORMAT,
    GTID,
    GTID_LIST,
    HEARTBEAT,
    HEARTBEAT_2,
    ID_V,
    INCIDENT,
    MARIADB_GTID,
    PARTIAL,
    PAYLOAD,
    QUERY,
    ROTATE,
    STOP,
    TABLE_MAP,
    TAGGED,
    TIME,
    UPDATE,
    UUID,
    WRITE,
    XA_PREPARE,
    XID,
    BinlogFile,
    event,
    format_body,
    format_event,
    gtid,
    gtid_list,
    image,
    mariadb_gtid,
    query,
    rotate,
    rows,
    table_map,
)
from support.events import (
    names as column_names,
)

FILE = "binlog.000001"
#: of a QUERY event without status variables
UNSAID = Session(None, "", mariadb=False, version=90_704, started=Started(TIME))
ONE = Gtid(str(UUID), 1)


def parse(flavor: Flavor, events: list[bytes], **options: object) -> list[Fact]:
    """All facts; every event is fed as bytes and as a view, with the same result."""
    parser, other = EventParser(flavor, **options), EventParser(flavor, **options)  # type: ignore[arg-type]
    facts = [fact for e in events for fact in parser.feed(e)]
    views = [fact for e in events for fact in other.feed(memoryview(bytearray(e)))]
    assert [repr(f) for f in views] == [repr(f) for f in facts]
    return facts


def end(offset: int, gtid: Gtid | None = None, timestamp: float = TIME, gtid_pos: str = "") -> TransactionEnd:
    return TransactionEnd(TransactionId(LogOffset(FILE, offset), gtid), float(timestamp), gtid_pos)


START = Progress(LogOffset(FILE, 4), None)


@pytest.mark.parametrize("checksum", [False, True])
def test_a_mysql_transaction(checksum: bool) -> None:
    log, events = BinlogFile.begun(checksum=checksum)
    events += [
        log.write(GTID, gtid(1, committed=TIME * 10**6 + 5)),
        log.write(QUERY, query("BEGIN")),
        log.write(TABLE_MAP, ID_V),
        log.write(WRITE, rows(18, image(1, "a") + image(2, "ü"), width=2)),
        log.write(UPDATE, rows(18, image(1, "a") + image(1, "b"), width=2, update=True)),
        log.write(DELETE, rows(18, image(2, "ü"), width=2)),
        log.write(XID, bytes(8)),
    ]
    facts = parse("mysql", events)
    assert facts[:2] == [START, TransactionBegin(ONE)]
    assert facts[-1] == end(log.offset, ONE, TIME + 5e-6)
    written = [f for f in facts if isinstance(f, RowsEvent)]
    assert [(f.table, f.operation, f.body) for f in written] == [
        (TableId("shop", "t"), Operation.WRITE, image(1, "a") + image(2, "ü")),
        (TableId("shop", "t"), Operation.UPDATE, image(1, "a") + image(1, "b")),
        (TableId("shop", "t"), Operation.DELETE, image(2, "ü")),
    ]
    assert [f.size for f in written] == [len(e) for e in events[5:8]]
    columns = written[0].map.columns
    assert [(c.name, c.code, c.meta, c.unsigned, c.collation) for c in columns] == [
        ("id", 3, 0, False, None),
        ("v", 15, 40, None, 45),
    ]


def test_a_vector_has_a_character_set_on_mysql() -> None:
    """`t (id INT, s TEXT, v VECTOR(3), c CHAR(1) latin1)`: 45, 63 and 8."""
    columns = [(3, b""), (252, b"\2"), (242, b"\4"), (254, b"\xfe\1")]
    optional = [(1, b"\0"), (3, b"\x2d\x3f\x08"), column_names("id", "s", "v", "c")]
    found = parse_map(table_map(18, columns, optional=optional), mariadb=False)
    assert [c.collation for c in found.columns] == [None, 45, 63, 8]


def test_the_original_commits_time_counts() -> None:
    """On a replica the immediate time (7 bytes) has its highest bit set and the original one
    follows."""
    log, events = BinlogFile.begun()
    events += [
        log.write(GTID, gtid(1, committed=9 * 10**15, original=TIME * 10**6)),
        log.write(QUERY, query("BEGIN")),
        log.write(XID, bytes(8)),
    ]
    assert parse("mysql", events)[-1] == end(log.offset, ONE, TIME)


def test_an_anonymous_transaction_has_no_gtid() -> None:
    log, events = BinlogFile.begun()
    events += [log.write(ANONYMOUS, gtid(0)), log.write(QUERY, query("BEGIN")), log.write(QUERY, query("COMMIT"))]
    assert parse("mysql", events) == [START, TransactionBegin(None), end(log.offset)]


def test_a_tagged_gtid() -> None:
    """Version 1, size 62, last needed field 0; field 0: flags 1; 1: the UUID as sixteen numbers (77
    is ee, d1 is 45 03); 2: number 1; 3: a tag of 8 characters; 4 and 5: clock; 6: commit time (7f:
    seven bytes follow); 8: length 337; 9: server version 80411."""
    octets = "ee 4503 4102 58 02 6903 22 c503 6902 82 4102 3502 dc be dc 3502"
    rest = "04 04  06 10 746573745f746167  08 00  0a 04  0c 7f003e8900fa5b06  10 4505  12 dbd009"
    body = bytes.fromhex(f"02 7c 00  00 02  02 {octets}  {rest}")
    log, events = BinlogFile.begun()
    events += [log.write(TAGGED, body), log.write(QUERY, query("BEGIN")), log.write(XID, bytes(8))]
    facts = parse("mysql", events)
    assert facts[1] == TransactionBegin(Gtid("77d1902c-01da-11f1-9a41-908d6e5f6e8d:test_tag", 1))
    # 0x065bfa00893e00 microseconds
    assert isinstance(facts[-1], TransactionEnd)
    assert facts[-1].timestamp == 0x065BFA00893E00 / 1e6


def test_a_statement_is_a_transaction_of_its_own() -> None:
    log, events = BinlogFile.begun()
    events += [log.write(GTID, gtid(1)), log.write(QUERY, query("ALTER TABLE t ADD x INT"))]
    assert parse("mysql", events) == [
        START,
        TransactionBegin(ONE),
        Statement("shop", "ALTER TABLE t ADD x INT", UNSAID),
        end(log.offset, ONE),
    ]


@pytest.mark.parametrize("mark", [0, 4])
def test_a_statement_comes_with_its_session(mark: int) -> None:
    """The server's id and the mark from the header, the session's number from the body."""
    log, events = BinlogFile.begun()
    events += [log.write(GTID, gtid(1)), log.write(QUERY, query("TRUNCATE t"), flags=mark, server=21)]
    statement = parse("mysql", events)[2]
    assert isinstance(statement, Statement)
    assert statement.thread == Thread(21, 7, bool(mark))


def test_the_first_file_of_a_server_that_was_started() -> None:
    """Its format description has the time; the one that is sent before the middle of a file has no
    place of its own."""
    body = format_body(0)[:52] + struct.pack("<I", TIME) + format_body(0)[56:] + bytes(4)
    events = [rotate("binlog.000001"), event(FORMAT, body, end=4 + 19 + len(body), server=21)]
    assert parse("mysql", events)[1:] == [ServerStarted(21)]
    assert parse("mysql", [events[0], event(FORMAT, body)])[1:] == []


def test_a_statement_inside_a_transaction_does_not_end_it() -> None:
    log, events = BinlogFile.begun()
    sql = "INSERT INTO t VALUES (1)"
    events += [
        log.write(GTID, gtid(1)),
        log.write(QUERY, query("BEGIN")),
        log.write(QUERY, query(sql)),
        log.write(XID, bytes(8)),
    ]
    assert parse("mysql", events)[1:] == [TransactionBegin(ONE), Statement("shop", sql, UNSAID), end(log.offset, ONE)]


def test_create_table_select_opens_a_transaction() -> None:
    log, events = BinlogFile.begun()
    sql = "CREATE TABLE `t` (\n  `id` int\n) START TRANSACTION"
    events += [
        log.write(GTID, gtid(1)),
        log.write(QUERY, query(sql)),
        log.write(TABLE_MAP, ID_V),
        log.write(WRITE, rows(18, image(1, "a"), width=2)),
        log.write(XID, bytes(8)),
    ]
    shape = [type(f) for f in parse("mysql", events)[1:]]
    assert shape == [TransactionBegin, Statement, RowsEvent, TransactionEnd]


def test_savepoints_and_rollbacks() -> None:
    log, events = BinlogFile.begun()
    sqls = [
        "BEGIN",
        "SAVEPOINT `A``b`",
        "ROLLBACK TO `a``B`",
        "savepoint x",
        "ROLLBACK TO SAVEPOINT X",
        "RELEASE SAVEPOINT x",
    ]
    events += [
        log.write(GTID, gtid(1)),
        *(log.write(QUERY, query(s)) for s in sqls),
        log.write(QUERY, query("ROLLBACK")),
    ]
    assert parse("mysql", events)[2:] == [
        Savepoint("a`b"),
        RollbackTo("a`b"),
        Savepoint("x"),
        RollbackTo("x"),
        TransactionRollback(TransactionId(LogOffset(FILE, log.offset), ONE), float(TIME)),
    ]


def test_xa() -> None:
    """XA_PREPARE: one phase 1, format 4, lengths 4 and 4, data."""
    log, events = BinlogFile.begun()
    prepare = b"\0" + struct.pack("<III", 7, 1, 2) + b"abc"
    one_phase = b"\1" + prepare[1:]
    for number, last in ((1, log.write(XA_PREPARE, prepare)), (2, log.write(XA_PREPARE, one_phase))):
        events += [
            event(GTID, gtid(number)),
            event(QUERY, query("XA START X'61',X'6263',7")),
            event(QUERY, query("XA END X'61'")),
            last,
        ]
    for number, verb in ((3, "COMMIT"), (4, "ROLLBACK")):
        events += [event(GTID, gtid(number)), log.write(QUERY, query(f"XA {verb} X'61',X'6263',7"))]
    xid = "X'61',X'6263',7"
    facts = [f for f in parse("mysql", events) if not isinstance(f, TransactionBegin | Progress)]
    assert [f for f in facts if not isinstance(f, TransactionEnd)] == [
        XaPrepare(xid),
        XaEnd(xid, True),
        XaEnd(xid, False),
    ]
    assert [type(f) for f in facts].count(TransactionEnd) == 4


def test_mariadb_marks() -> None:
    """Two domains; the second file begins with its own list, the last entry of a domain counts."""
    log, events = BinlogFile.begun()
    begin = 0
    events += [
        log.write(MARIADB_GTID, mariadb_gtid(5, 0, begin), server=3),
        log.write(XID, bytes(8)),
        log.write(MARIADB_GTID, mariadb_gtid(1, 7, 1)),
        log.write(QUERY, query("CREATE TABLE x (id INT)")),
        log.write(GTID_LIST, gtid_list((7, 9, 8), (0, 1, 9), (0, 3, 5))),
        log.write(MARIADB_GTID, mariadb_gtid(2, 7, begin)),
        log.write(QUERY, query("COMMIT")),
    ]
    facts = parse("mariadb", events, file=FILE, gtid_pos="0-11-4")
    assert [f.gtid_pos for f in facts if isinstance(f, Progress)] == [None, "0-3-5,7-9-8"], "as the file says it"
    assert [f.mariadb_gtid for f in facts if isinstance(f, TransactionBegin)] == ["0-3-5", "7-11-1", "7-11-2"]
    assert [f.gtid_pos for f in facts if isinstance(f, TransactionEnd)] == ["0-3-5", "0-3-5,7-11-1", "0-3-5,7-11-2"]
    unknown = [f.gtid_pos for f in parse("mariadb", events) if isinstance(f, TransactionEnd)]
    assert unknown == ["", "", "0-3-5,7-11-2"]


def test_mariadbs_compressed_events() -> None:
    """0x80: zlib, one byte of length; the length; the stream."""
    log, events = BinlogFile.begun()
    images = image(1, "aaaaaaaa") * 20
    sql = query("CREATE TABLE x (id INT)")
    head, text = sql[: -len("CREATE TABLE x (id INT)")], sql[-len("CREATE TABLE x (id INT)") :]

    def packed(data: bytes) -> bytes:
        return bytes([0x82]) + len(data).to_bytes(2, "big") + zlib.compress(data)

    body = rows(18, b"", width=2, extra=b"")
    events += [
        log.write(MARIADB_GTID, mariadb_gtid(1)),
        log.write(TABLE_MAP, ID_V),
        log.write(166, body + packed(images)),
        log.write(169, rows(18, packed(images), width=2)),
        log.write(XID, bytes(8)),
        log.write(MARIADB_GTID, mariadb_gtid(2, 0, 1)),
        log.write(165, head + packed(text)),
    ]
    facts = parse("mariadb", events)
    written = [f for f in facts if isinstance(f, RowsEvent)]
    assert [f.body for f in written] == [images, images]
    assert [f.size for f in written] == [19 + len(body) + len(images), 19 + len(body) + 2 + len(images)]
    assert Statement("shop", "CREATE TABLE x (id INT)", replace(UNSAID, mariadb=True)) in facts


def test_a_compressed_transaction() -> None:
    """Fields 2: algorithm 0, 3: unpacked length, 1: length; 0 ends the list. The inner events'
    positions do not count."""
    log, events = BinlogFile.begun()
    inner = b"".join(
        event(kind, body, end=7)
        for kind, body in (
            (QUERY, query("BEGIN")),
            (TABLE_MAP, ID_V),
            (WRITE, rows(18, image(1, "a"), width=2)),
            (XID, bytes(8)),
        )
    )
    stream = pa.compress(inner, "zstd", asbytes=True)
    fields = b"".join(bytes([k, 3, 252]) + struct.pack("<H", v) for k, v in ((3, len(inner)), (1, len(stream))))
    events += [log.write(GTID, gtid(1)), log.write(PAYLOAD, b"\x02\x01\x00" + fields + b"\x00" + stream)]
    facts = parse("mysql", events)
    assert [type(f) for f in facts] == [Progress, TransactionBegin, RowsEvent, TransactionEnd]
    assert facts[-1] == end(log.offset, ONE)


def test_offsets_go_on_past_four_gibibytes() -> None:
    """The header has 32 bits only."""
    log, _ = BinlogFile.begun()
    log.offset = (1 << 32) - 100
    events = [rotate(FILE, log.offset), format_event(), log.write(GTID, gtid(1)), log.write(QUERY, query("BEGIN"))]
    events.append(log.write(XID, bytes(8)))
    assert log.offset > 1 << 32
    assert parse("mysql", events)[-1] == end(log.offset, ONE)


def test_what_is_known_is_passed_over() -> None:
    """A file that is too long for the command's 32 bits is sent from its beginning."""
    log, events = BinlogFile.begun()
    known = 0
    for number in range(1, 4):
        events += [log.write(GTID, gtid(number)), log.write(QUERY, query("BEGIN")), log.write(XID, bytes(8))]
        known = known or log.offset
    facts = parse("mysql", events, after=LogOffset(FILE, known))
    assert [f.id.gtid for f in facts if isinstance(f, TransactionEnd)] == [Gtid(str(UUID), 2), Gtid(str(UUID), 3)]
    assert facts[0] == TransactionBegin(Gtid(str(UUID), 2))


def test_a_known_place_where_no_event_ends_is_another_log() -> None:
    log, events = BinlogFile.begun()
    events += [log.write(GTID, gtid(1)), log.write(QUERY, query("BEGIN")), log.write(XID, bytes(8))]
    with pytest.raises(CdcError, match=f"no event of the binlog ends at {FILE}:{log.offset - 1}") as caught:
        parse("mysql", events, after=LogOffset(FILE, log.offset - 1))
    assert caught.value.reason is Reason.POSITION_LOST


def test_rotation_is_progress_once() -> None:
    _, events = BinlogFile.begun()
    events += [
        event(ROTATE, struct.pack("<Q", 4) + b"binlog.000002", end=500),
        rotate("binlog.000002"),
        format_event(end=126),
    ]
    assert parse("mysql", events)[1:] == [Progress(LogOffset("binlog.000002", 4), float(TIME))]


@pytest.mark.parametrize("end", ["rotate", "stop", "crash", "crash in a transaction"])
def test_only_a_file_that_nothing_ends_was_left_by_a_crash(end: str) -> None:
    log, events = BinlogFile.begun()
    if end == "rotate":
        events.append(event(ROTATE, struct.pack("<Q", 4) + b"binlog.000002", end=500))
    elif end == "stop":
        events.append(log.write(STOP, b""))
    elif end == "crash in a transaction":
        events += [log.write(GTID, gtid(1)), log.write(QUERY, query("BEGIN"))]
    events += [rotate("binlog.000002"), format_event(end=126)]
    left = [f for f in parse("mysql", events) if isinstance(f, FileLeft)]
    assert left == ([FileLeft(FILE, "binlog.000002")] if "crash" in end else [])


def test_a_dump_that_begins_behind_the_place_known_has_left_files_unseen() -> None:
    events = [rotate("binlog.000007"), format_event(end=126)]
    assert FileLeft("binlog.000004", "binlog.000007") in parse("mysql", events, file="binlog.000004")
    assert not [f for f in parse("mysql", events, file="binlog.000009") if isinstance(f, FileLeft)]


def test_a_file_that_ends_inside_a_transaction_rolls_it_back() -> None:
    """The server crashed; it will use the GTID again, so the rollback has none."""
    log, events = BinlogFile.begun()
    events += [
        log.write(GTID, gtid(1)),
        log.write(QUERY, query("BEGIN")),
        rotate("binlog.000002"),
        format_event(end=126),
    ]
    assert parse("mysql", events)[2:] == [
        TransactionRollback(None, 0.0),
        FileLeft(FILE, "binlog.000002"),
        Progress(LogOffset("binlog.000002", 4), None),
    ]


def test_heartbeats() -> None:
    """Kind 27: the place is in the header; kind 41: fields 1 (file) and 2 (a length-encoded
    place)."""
    _, events = BinlogFile.begun()
    second = b"\x01" + bytes([len(FILE)]) + FILE.encode() + b"\x02\x09\xfe" + struct.pack("<Q", 5 << 32) + b"\x00"
    beats = [
        event(HEARTBEAT, FILE.encode(), end=1000, time=0),
        event(HEARTBEAT_2, second, end=0, time=0),
        event(HEARTBEAT, struct.pack("<Q", 6 << 32) + FILE.encode(), end=0, time=0),
    ]
    places = [f.at.offset for f in parse("mysql", events + beats) if isinstance(f, Progress)]
    assert places == [4, 1000, 5 << 32, 6 << 32]


def test_a_heartbeat_from_behind_moves_nothing() -> None:
    """Its 32 bits would else be read as a place 4 GiB further on."""
    _, events = BinlogFile.begun()
    beats = [event(HEARTBEAT, FILE.encode(), end=end, time=0) for end in (1000, 900, 1100)]
    places = [f.at.offset for f in parse("mysql", events + beats) if isinstance(f, Progress)]
    assert places == [4, 1000, 1100]


def test_a_heartbeat_inside_a_transaction_moves_nothing() -> None:
    log, events = BinlogFile.begun()
    events += [
        log.write(GTID, gtid(1)),
        log.write(QUERY, query("BEGIN")),
        event(HEARTBEAT, FILE.encode(), end=log.offset, time=0),
    ]
    assert parse("mysql", events) == [START, TransactionBegin(ONE)]


def test_an_incident() -> None:
    """Number 2, length 1, message."""
    _, events = BinlogFile.begun()
    assert parse("mysql", [*events, event(INCIDENT, b"\x01\x00\x04lost")])[1:] == [Incident("incident 1: lost")]


def test_rows_of_unwanted_tables_are_not_looked_at() -> None:
    log, events = BinlogFile.begun()
    broken = table_map(19, [(3, b"")], table="broken", optional=[(1, b"\0\0\0")])
    events += [
        log.write(GTID, gtid(1)),
        log.write(QUERY, query("BEGIN")),
        log.write(TABLE_MAP, broken),
        log.write(WRITE, rows(19, b"no image at all", width=77)),
        log.write(XID, bytes(8)),
    ]
    facts = parse("mysql", events, is_wanted=lambda t: t.name == "t")
    assert [type(f) for f in facts] == [Progress, TransactionBegin, TransactionEnd]
    # the same table is wanted: its rows cannot be used, the others' can
    (rows_event,) = [f for f in parse("mysql", events) if isinstance(f, RowsEvent)]
    assert rows_event.table == TableId("shop", "broken")
    assert rows_event.defect
    assert rows_event.defect.table == "shop.broken"


def test_equal_table_maps_are_one_object() -> None:
    log, events = BinlogFile.begun()
    for number in (1, 2):
        events += [
            log.write(GTID, gtid(number)),
            log.write(QUERY, query("BEGIN")),
            log.write(TABLE_MAP, ID_V),
            log.write(WRITE, rows(18, image(1, "a"), width=2)),
            log.write(XID, bytes(8)),
        ]
    maps = [f.map for f in parse("mysql", events) if isinstance(f, RowsEvent)]
    assert maps[0] is maps[1]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (WRITE, rows(18, image(1, "a"), width=2, present=1)),
        (UPDATE, rows(18, image(1, "a") * 2, width=2, update=True, present=2)),
        (DELETE, rows(18, b"", width=3)),
        (PARTIAL, rows(18, image(1, "a") * 2, width=2, update=True, present=1)),
    ],
)
def test_incomplete_images_are_defects(kind: int, body: bytes) -> None:
    """R10."""
    log, events = BinlogFile.begun()
    events += [
        log.write(GTID, gtid(1)),
        log.write(QUERY, query("BEGIN")),
        log.write(TABLE_MAP, ID_V),
        log.write(kind, body),
    ]
    fact = parse("mysql", events)[-1]
    assert isinstance(fact, RowsEvent)
    assert fact.defect
    assert fact.defect.reason is Reason.ROW_IMAGE_NOT_FULL
    assert fact.defect.table == "shop.t"


@pytest.mark.parametrize("kind", [160, 161, 28, 29, 35, 36, 37, 3, 5, 13, 14])
def test_events_that_say_nothing_are_passed_over(kind: int) -> None:
    _, events = BinlogFile.begun()
    assert parse("mariadb", [*events, event(kind, b"whatever", end=100)]) == [START]


def test_the_padding_of_aurora_is_passed_over_where_it_stands() -> None:
    """Marked as ignorable, asterisks between a transaction's GTID and its BEGIN."""
    log, events = BinlogFile.begun()
    events += [log.write(GTID, gtid(1)), log.write(100, b"*" * 905, flags=0x80)]
    events += [log.write(QUERY, query("BEGIN")), log.write(XID, bytes(8))]
    assert parse("mysql", events)[1:] == [TransactionBegin(ONE), end(log.offset, ONE)]


@pytest.mark.parametrize("flags", [0, 0x80])
@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_an_unknown_event_is_refused_also_where_it_is_marked_as_ignorable(flavor: Flavor, flags: int) -> None:
    """The one of MariaDB 12.3 has a part of a rows event."""
    _, events = BinlogFile.begun()
    for kind in (43, 99, 100, 101, 159, 173, 255):
        with pytest.raises(DecodeError, match=f"unknown kind {kind} "):
            parse(flavor, [*events, event(kind, b"new", flags=flags)])
    with pytest.raises(DecodeError, match="PARTIAL_ROW_DATA, kind 172") as partial:
        parse(flavor, [*events, event(172, bytes(40), flags=flags)])
    assert "binlog_row_event_fragment_threshold" in partial.value.remedy


@pytest.mark.parametrize(
    ("server", "known"),
    [
        (b"5.1.30-debug-log", False),
        (b"5.5.62-log", False),
        (b"5.6.0-m4", False),
        (b"", False),
        (b"5.6.4-m7-debug-log", True),
        (b"5.5.68-MariaDB", True),
        (b"10.6.20-MariaDB-log", True),
    ],
)
def test_servers_without_checksums_are_of_an_unsupported_version(server: bytes, known: bool) -> None:
    """Their format description ends with the length of some event's head, which says nothing about
    checksums."""
    lengths = bytes(26) + b"\x08\x02"
    body = struct.pack("<H50sIB", 4, server, 0, 19) + (lengths + bytes(5) if known else lengths)
    events = [rotate(FILE), event(FORMAT, body)]
    if known:
        assert parse("mysql", events) == [START]
        return
    with pytest.raises(DecodeError) as refused:
        parse("mysql", events)
    assert f"a binlog of the server version {server.decode() or '(none)'}" in refused.value.found
    assert refused.value.needed == "MySQL 8.0 or newer, MariaDB 10.6 or newer"


def test_a_damaged_event_is_refused() -> None:
    log, events = BinlogFile.begun(checksum=True)
    good = log.write(GTID, gtid(1))
    for i in range(len(good)):
        bad = bytearray(good)
        bad[i] ^= 1
        with pytest.raises(DecodeError):
            parse("mysql", [*events, bytes(bad)])


def test_an_open_file_was_checksummed_before_it_was_marked() -> None:
    """Flag 1 (in use) of the format description is set after its checksum was computed."""
    marked = bytearray(format_event(checksum=True))
    marked[17] |= 1
    assert parse("mysql", [rotate(FILE, checksum=True), bytes(marked)]) == [START]


@pytest.mark.parametrize(
    ("message", "events"),
    [
        ("rows outside", [event(TABLE_MAP, ID_V), event(WRITE, rows(18, image(1, "a"), width=2))]),
        (
            "without a TABLE_MAP",
            [event(GTID, gtid(1)), event(QUERY, query("BEGIN")), event(WRITE, rows(18, b"", width=2))],
        ),
        ("inside another", [event(GTID, gtid(1)), event(GTID, gtid(2))]),
        ("has not begun", [event(XID, bytes(8), end=90)]),
        ("whose header gives", [event(XID, bytes(8))[:-1]]),
        ("an event of 3 bytes", [b"abc"]),
        ("compressed transaction", [event(PAYLOAD, b"\x02\x01\x00\x01\x01\x03\x00abc")]),
        ("algorithm 7", [event(PAYLOAD, b"\x02\x01\x07\x01\x01\x03\x00abc")]),
        ("before the one before it", [event(GTID, gtid(1), end=5000), event(QUERY, query("BEGIN"), end=400)]),
        ("place in a binlog", [rotate("no number", 4)]),
    ],
)
def test_nonsense_is_refused_with_its_place(message: str, events: list[bytes]) -> None:
    _, begun = BinlogFile.begun()
    with pytest.raises(DecodeError, match=message) as caught:
        parse("mysql", begun + events)
    assert caught.value.position


def test_a_table_number_means_nothing_in_the_next_file() -> None:
    log, events = BinlogFile.begun()
    events += [log.write(TABLE_MAP, ID_V), rotate("binlog.000002"), format_event(end=126)]
    events += [event(GTID, gtid(1)), event(QUERY, query("BEGIN")), event(WRITE, rows(18, image(1, "a"), width=2))]
    with pytest.raises(DecodeError, match="without a TABLE_MAP"):
        parse("mysql", events)


def test_sql_is_read_in_its_clients_character_set() -> None:
    """Status variables: 0 flags (4 bytes), 1 sql_mode (8), 6 catalog (length 3), 3 auto increment
    (4), 4 character set: latin1 (8), 128 microseconds (3)."""
    status = (
        b"\0" + bytes(4) + b"\1\4" + bytes(7) + b"\6\3std" + b"\3" + bytes(4) + b"\4\x08\0\x08\0\x21\0" + b"\x80???"
    )
    body = query("", status=status) + "DROP TABLE größe".encode("latin-1")
    _, events = BinlogFile.begun()
    facts = parse("mysql", [*events, event(GTID, gtid(1)), event(QUERY, body, end=500)])
    started = Started(TIME, int.from_bytes(b"???", "little"))
    session = Session(ANSI_QUOTES, "latin1", mariadb=False, version=90_704, started=started, connection="latin1")
    assert Statement("shop", "DROP TABLE größe", session) in facts


@pytest.mark.parametrize("count", [0, 2])
def test_default_collations_stand_before_the_clients_character_set(count: int) -> None:
    """MariaDB 11.4: 131, their number, 4 bytes each."""
    status = b"\1" + bytes(8) + b"\6\3std" + bytes([131, count]) + bytes(4 * count) + b"\4\x08\0\x08\0\x08\0"
    body = query("", status=status) + "DROP TABLE größe".encode("latin-1")
    *read, _, connection, _ = parse_query(body)[1:]
    assert (read, connection) == (["DROP TABLE größe", 0, "latin1", "", None], "latin1")


def test_the_time_of_a_statement_and_what_stands_before_it() -> None:
    """5 time zone, 7 and 8 two bytes each, 9 eight, 11 invoker, 12 databases, 13 microseconds, 16
    explicit defaults of TIMESTAMP; then one of a later version."""
    charset = b"\1" + bytes(8) + b"\4\x21\0\x21\0\x21\0"
    before = b"\7ab\x08ab\x09" + bytes(8) + b"\x0b\1u\2ab" + b"\x0c\2a\0bc\0"
    body = query("", status=charset + b"\5\6+05:00" + before + b"\x0d\1\2\3\x10\1" + b"\xc8???") + b"DROP TABLE t"
    *read, _, connection, timestamps = parse_query(body)[4:]
    assert (read, connection, timestamps) == (["+05:00", 0x030201], "utf8mb3", True)
    for damaged in (b"\5\x20+05:00", b"\x0b\x20", b"\x0c\2a", b"\x0d\1"):
        *read, _, connection, timestamps = parse_query(query("", status=charset + damaged) + b"x")[1:]
        assert (read, connection, timestamps) == (["x", 0, "utf8mb3", "", None], "utf8mb3", None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (b"8.0.36", 80_036),
        (b"10.11.19-MariaDB-log", 101_119),
        (b"5.7.44-log", 50_744),
        (b"8.0", 0),
        (b"8.0.360", 0),
        (b"", 0),
    ],
)
def test_the_version_of_the_server_that_wrote_the_file(text: bytes, version: int) -> None:
    assert parse_version(struct.pack("<H50sIB", 4, text, 0, 19)) == version


@pytest.mark.parametrize("group", [False, True])
def test_an_alter_in_two_phases_happens_where_it_is_committed(group: bool) -> None:
    """Flags 32 DDL, 1 alone, 2 a commit's number of 8 bytes; behind it 2 START, 4 COMMIT, 8
    ROLLBACK, the latter two with the START's number."""
    log, events = BinlogFile.begun()
    flags, number = (35, bytes(8)) if group else (33, b"")

    def written(sequence: int, phase: bytes) -> list[bytes]:
        begun = struct.pack("<QIB", sequence, 0, flags) + number + phase
        return [log.write(MARIADB_GTID, begun), log.write(QUERY, query(f"ALTER TABLE t ADD x{sequence} INT"))]

    for sequence, phase in enumerate((b"\2", b"\4" + bytes(8), b"\2", b"\x08" + bytes(8), b"\0"), 1):
        events += written(sequence, phase + bytes(10))
    facts = parse("mariadb", events)
    assert [f.sql for f in facts if isinstance(f, Statement)] == [
        "ALTER TABLE t ADD x2 INT",
        "ALTER TABLE t ADD x5 INT",
    ]
    assert len([f for f in facts if isinstance(f, TransactionEnd)]) == 5
