"""From facts to whole transactions: what counts, what is dropped, what stops a table and where it
stands then."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from cdcsync_core.errors import PermanentError, Reason, fail
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.mariadb_gtid import UNKNOWN, MariaDbGtidPos
from cdcsync_core.positions.position import FilePosition, GtidPosition, Position, TransactionId
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_spark.binlog.assembly.open_transaction import OpenTransaction
from cdcsync_spark.binlog.assembly.plain_transactions import TRANSACTION_BYTES
from cdcsync_spark.binlog.assembly.sealed import PrepareNeeded, SealedTransactions
from cdcsync_spark.binlog.assembly.spool import EVENT_BYTES, Spool
from cdcsync_spark.binlog.assembly.transactions import TransactionAssembler
from cdcsync_spark.binlog.schema.definitions import Definitions
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.binlog.facts import Fact, Progress, RollbackTo, Savepoint, TransactionRollback
from cdcsync_spark.wire.sql.syntax.text import Statement, Thread
from cdcsync_spark.wire.sql.syntax.tokens import Session
from support.facts import UUID, Pen, at, rows
from support.traced import traced

ORDERS, ITEMS, NOTES = (TableId("shop", n) for n in ("orders", "items", "notes"))
XID, OTHER_XID = "X'6162',X'',1", "X'6163',X'',1"


def definition(table: TableId) -> Capture:
    return Capture(SourceTable(table, (Column("id", SourceType.parse("int"), False),)), ("id",))


def file(offset: int) -> FilePosition:
    return FilePosition(at(offset))


def gtid(ranges: str, offset: int | None = None) -> GtidPosition:
    text = f"{UUID}:{ranges}" if ranges else ""
    return GtidPosition(GtidSet.parse(text), None if offset is None else at(offset))


class OrdersReader:
    """An assembler for orders and items, and its binlog."""

    def __init__(
        self,
        folder: Path,
        start: Position | None = None,
        ahead: Mapping[TableId, Position] | None = None,
        memory: int = 1 << 20,
        **limits: int,
    ) -> None:
        start = start or file(100)
        self.pen = Pen(gtids=isinstance(start, GtidPosition))
        self.spool = Spool(str(folder), memory)
        self.assembler = TransactionAssembler(
            Definitions({t: definition(t) for t in (ORDERS, ITEMS)}), start, ahead or {}, self.spool, **limits
        )

    def feed(self, *fed: Fact | Iterable[Fact]) -> OrdersReader:
        for one in fed:
            for fact in [one] if isinstance(one, facts.RowsEvent) or not isinstance(one, Iterable) else one:
                self.assembler.feed(fact)
        return self

    def transaction(self, *inside: Fact) -> OrdersReader:
        return self.feed(self.pen.transaction(*inside))

    def seal(self) -> SealedTransactions:
        return self.assembler.seal()


@pytest.fixture
def reader(tmp_path: Path) -> OrdersReader:
    return OrdersReader(tmp_path)


def bodies(sealed: SealedTransactions, table: TableId) -> list[tuple[int, bytes]]:
    return [(i, item.event().body) for i, item in sealed.rows.get(table, [])]


# -- whole transactions


def test_rows_count_when_their_transaction_has_ended(reader: OrdersReader) -> None:
    """Rule R9."""
    reader.feed(reader.pen.begin(), rows(ORDERS, b"1"))
    assert not reader.assembler.reached.moved
    assert reader.seal().rows == {}
    reader.feed(reader.pen.commit())
    sealed = reader.seal()
    assert bodies(sealed, ORDERS) == [(0, b"1")]
    assert (sealed.start, sealed.end) == (file(100), file(200))


def test_a_batch_ends_after_its_last_whole_transaction(reader: OrdersReader) -> None:
    reader.transaction(rows(ORDERS, b"1")).feed(reader.pen.begin(), rows(ORDERS, b"2"))
    first = reader.seal()
    assert bodies(first, ORDERS) == [(0, b"1")]
    assert first.end == file(200)
    reader.feed(rows(ORDERS, b"3"), reader.pen.commit())
    second = reader.seal()
    assert second.start == first.end
    assert bodies(second, ORDERS) == [(0, b"2"), (0, b"3")]


def test_rows_know_their_transaction(reader: OrdersReader) -> None:
    """A table may have one transaction of a batch by membership and lack the one before it (rule
    R5)."""
    reader.transaction(rows(ORDERS, b"1"), rows(ITEMS, b"a"))
    reader.transaction()
    reader.transaction(rows(ITEMS, b"b"), rows(ORDERS, b"2"), rows(ITEMS, b"c"))
    sealed = reader.seal()
    assert sealed.transactions == [TransactionId(at(200)), TransactionId(at(400))]
    assert bodies(sealed, ORDERS) == [(0, b"1"), (1, b"2")]
    assert bodies(sealed, ITEMS) == [(0, b"a"), (1, b"b"), (1, b"c")]


def test_transactions_with_rows_keep_their_commit_times(reader: OrdersReader) -> None:
    reader.feed(reader.pen.begin(), rows(ORDERS, b"1"), reader.pen.commit(10.5))
    reader.feed(reader.pen.begin(), reader.pen.commit(11.5))
    reader.feed(reader.pen.begin(), rows(ITEMS, b"a"), reader.pen.commit(12.5))
    sealed = reader.seal()
    assert (len(sealed.transactions), sealed.committed_at) == (2, [10.5, 12.5])
    assert reader.seal().committed_at == []


def test_a_batch_says_the_commit_time_of_its_last_transaction(reader: OrdersReader) -> None:
    for timestamp in (10.5, 11.5):
        reader.feed(reader.pen.begin(), reader.pen.commit(timestamp))
    assert reader.seal().timestamp == 11.5
    assert reader.seal().timestamp is None


def test_a_rolled_back_transaction_leaves_its_place_and_no_rows(reader: OrdersReader) -> None:
    reader.feed(reader.pen.begin(), rows(ORDERS, b"1"), Statement("shop", "ALTER TABLE orders ADD x INT"))
    reader.feed(reader.pen.rollback())
    sealed = reader.seal()
    assert (sealed.rows, sealed.stops, sealed.end) == ({}, {}, file(200))


def test_a_transaction_that_the_servers_crash_cut_off_did_not_happen(tmp_path: Path) -> None:
    """Its GTID will be used again, by another transaction."""
    reader = OrdersReader(tmp_path, gtid("", 100))
    reader.feed(reader.pen.begin(), rows(ORDERS, b"1"), TransactionRollback(None, 1.0))
    assert not reader.assembler.reached.moved
    reader.pen.number = 0
    reader.transaction(rows(ORDERS, b"2"))
    sealed = reader.seal()
    assert bodies(sealed, ORDERS) == [(0, b"2")]
    assert sealed.end == gtid("1", 200)


def test_heartbeats_and_rotations_move_the_reader(reader: OrdersReader) -> None:
    reader.feed(Progress(at(150), 7.0))
    assert reader.assembler.reached.moved
    reader.feed(Progress(at(4, file=2)))
    sealed = reader.seal()
    assert (sealed.end, sealed.timestamp) == (FilePosition(at(4, file=2)), 7.0)
    assert not reader.assembler.reached.moved


def test_a_dump_that_begins_in_an_earlier_file_takes_the_reader_nowhere_back(tmp_path: Path) -> None:
    """A server that has GTIDs begins with the first file that may hold something new, and says
    so."""
    reader = OrdersReader(tmp_path, gtid("1-3", 400))
    reader.feed(Progress(at(4), 1.0))
    assert reader.assembler.reached.position == gtid("1-3", 400)
    reader.pen.number, reader.pen.offset = 3, 400
    reader.transaction()
    assert reader.assembler.reached.position == gtid("1-4", 500)


def test_the_mark_is_the_one_after_the_last_transaction_or_none(tmp_path: Path) -> None:
    """Rule R6: a GTID position of an earlier place would prove that the binlog is another one."""
    reader = OrdersReader(tmp_path, FilePosition(at(100), MariaDbGtidPos.parse("0-1-7")))
    reader.feed(reader.pen.begin(), facts.TransactionEnd(reader.pen.id(), 1.0, "0-1-8"))
    assert reader.assembler.reached.position == FilePosition(at(200), MariaDbGtidPos.parse("0-1-8"))
    reader.feed(Progress(at(4, file=2)))
    assert reader.assembler.reached.position == FilePosition(at(4, file=2), MariaDbGtidPos.parse("0-1-8"))
    reader.feed(reader.pen.begin(), TransactionRollback(TransactionId(at(300, file=2)), 1.0, ""))
    assert reader.assembler.reached.position == FilePosition(at(300, file=2))


def test_a_file_that_begins_with_another_mark_has_that_one(tmp_path: Path) -> None:
    """Rule R6: a domain that was deleted is not in BINLOG_GTID_POS of its places any more; after
    all of them there is none."""
    reader = OrdersReader(tmp_path, FilePosition(at(100), MariaDbGtidPos.parse("0-1-7,5-1-2")))
    reader.feed(Progress(at(4, file=2)), Progress(at(299, file=2), gtid_pos="0-1-7"))
    assert reader.assembler.reached.position == FilePosition(at(299, file=2), MariaDbGtidPos.parse("0-1-7"))
    reader.seal()
    reader.feed(Progress(at(339, file=2), 5.0))
    assert reader.assembler.reached.position == FilePosition(at(339, file=2), MariaDbGtidPos.parse("0-1-7"))
    reader.feed(Progress(at(280, file=3), gtid_pos=""))
    assert reader.assembler.reached.position == FilePosition(at(280, file=3))


def test_the_files_birth_is_kept_until_the_next_file(tmp_path: Path) -> None:
    """Rule R6."""
    reader = OrdersReader(tmp_path, FilePosition(at(100), UNKNOWN, 1_700_000_000))
    reader.transaction()
    assert reader.assembler.reached.position == FilePosition(at(200), UNKNOWN, 1_700_000_000)
    reader.feed(Progress(at(4, file=2)))
    assert reader.assembler.reached.position == FilePosition(at(4, file=2))
    reader.assembler.reached.begin_file(1_700_000_500)
    assert reader.seal().end == FilePosition(at(4, file=2), UNKNOWN, 1_700_000_500)
    assert reader.assembler.reached.position == FilePosition(at(4, file=2), UNKNOWN, 1_700_000_500)


# -- savepoints


def test_rows_since_a_savepoint_are_dropped(reader: OrdersReader) -> None:
    reader.feed(reader.pen.begin(), rows(ORDERS, b"1"), Savepoint("a"), rows(ORDERS, b"2"), rows(ITEMS, b"x"))
    reader.feed(RollbackTo("a"), rows(ORDERS, b"3"), reader.pen.commit())
    sealed = reader.seal()
    assert bodies(sealed, ORDERS) == [(0, b"1"), (0, b"3")]
    assert bodies(sealed, ITEMS) == []


def test_one_savepoint_serves_many_rollbacks(reader: OrdersReader) -> None:
    reader.feed(reader.pen.begin(), Savepoint("a"))
    for body in (b"1", b"2"):
        reader.feed(rows(ORDERS, body), RollbackTo("a"))
    reader.feed(rows(ORDERS, b"3"), reader.pen.commit())
    assert bodies(reader.seal(), ORDERS) == [(0, b"3")]


def test_a_savepoint_of_the_same_name_replaces_the_older_one(reader: OrdersReader) -> None:
    """Names are compared without case, as the server does."""
    reader.feed(reader.pen.begin(), Savepoint("Sp"), rows(ORDERS, b"1"), Savepoint("sP"), rows(ORDERS, b"2"))
    reader.feed(RollbackTo("SP"), reader.pen.commit())
    assert bodies(reader.seal(), ORDERS) == [(0, b"1")]


def test_an_outer_savepoint_drops_what_inner_ones_kept(reader: OrdersReader) -> None:
    reader.feed(reader.pen.begin(), Savepoint("outer"), rows(ORDERS, b"1"), Savepoint("inner"), rows(ORDERS, b"2"))
    reader.feed(RollbackTo("inner"), RollbackTo("outer"), rows(ORDERS, b"3"), reader.pen.commit())
    assert bodies(reader.seal(), ORDERS) == [(0, b"3")]


def test_savepoints_end_with_their_transaction(reader: OrdersReader) -> None:
    reader.transaction(Savepoint("a"))
    reader.feed(reader.pen.begin(), rows(ORDERS, b"1"))
    with pytest.raises(PermanentError) as caught:
        reader.feed(RollbackTo("a"))
    assert caught.value.reason is Reason.LOG_INCOMPLETE


def test_savepoints_that_only_the_servers_collation_tells_apart_are_not_guessed(reader: OrdersReader) -> None:
    """To the server e and é are one name, so a guess could drop rows that count."""
    reader.feed(reader.pen.begin(), Savepoint("e"), rows(ORDERS, b"1"), Savepoint("é"), rows(ORDERS, b"2"))
    with pytest.raises(PermanentError) as caught:
        reader.feed(RollbackTo("e"))
    assert caught.value.reason is Reason.LOG_INCOMPLETE


def test_spilled_rows_are_dropped_to_a_savepoint_too(tmp_path: Path) -> None:
    """On disk successive events are one; a savepoint between them keeps them apart."""
    reader = OrdersReader(tmp_path, memory=0)
    reader.feed(reader.pen.begin(), rows(ORDERS, b"1"), rows(ORDERS, b"2"), Savepoint("a"), rows(ORDERS, b"3"))
    reader.feed(rows(ORDERS, b"4"), RollbackTo("a"), rows(ORDERS, b"5"), rows(ORDERS, b"6"), reader.pen.commit())
    assert bodies(reader.seal(), ORDERS) == [(0, b"12"), (0, b"56")]


# -- tables that are ahead


def test_a_table_that_has_a_transaction_drops_its_rows(tmp_path: Path) -> None:
    """Rule R5: each table skips what its position has; so rows of an older definition are never
    examined."""
    reader = OrdersReader(tmp_path, file(100), {ORDERS: file(200), ITEMS: file(100)})
    old = fail(Reason.ROW_IMAGE_NOT_FULL, "an image of the old definition")
    reader.transaction(rows(ORDERS, b"", defect=old), rows(ITEMS, b"a"))
    reader.transaction(rows(ORDERS, b"2"), rows(ITEMS, b"b"))
    sealed = reader.seal()
    assert bodies(sealed, ORDERS) == [(1, b"2")]
    assert bodies(sealed, ITEMS) == [(0, b"a"), (1, b"b")]
    assert sealed.stops == {}


def test_a_transaction_that_nobody_needs_is_not_listed(tmp_path: Path) -> None:
    reader = OrdersReader(tmp_path, file(100), {ORDERS: file(200)})
    reader.transaction(rows(ORDERS, b"1"))
    assert reader.seal().transactions == []


def test_sets_with_gaps_decide_transaction_by_transaction(tmp_path: Path) -> None:
    """The table has 2 and 4, not 3."""
    reader = OrdersReader(tmp_path, gtid("1", 100), {ORDERS: gtid("1-2:4", 350)})
    reader.pen.number = 1
    for body in (b"2", b"3", b"4", b"5"):
        reader.transaction(rows(ORDERS, body))
    sealed = reader.seal()
    assert [body for _, body in bodies(sealed, ORDERS)] == [b"3", b"5"]
    assert sealed.end == gtid("1-5", 500)


def test_a_table_stays_ahead_over_several_batches(tmp_path: Path) -> None:
    reader = OrdersReader(tmp_path, file(100), {ORDERS: file(300)})
    kept = []
    for body in (b"1", b"2", b"3"):
        reader.transaction(rows(ORDERS, body))
        kept += [b for _, b in bodies(reader.seal(), ORDERS)]
    assert kept == [b"3"]


def test_a_ddl_before_a_tables_position_does_not_stop_it(tmp_path: Path) -> None:
    """It was read after that DDL; the table that is not ahead stops."""
    reader = OrdersReader(tmp_path, file(100), {ORDERS: file(200)})
    reader.transaction(Statement("shop", "RENAME TABLE orders TO o, items TO i"))
    assert set(reader.seal().stops) == {ITEMS}


def test_a_log_without_gtids_cannot_serve_a_table_with_them(tmp_path: Path) -> None:
    """gtid_mode was switched off on the source."""
    reader = OrdersReader(tmp_path, gtid("1", 100), {ORDERS: gtid("1-2", 200)})
    reader.pen.gtids = False
    with pytest.raises(PermanentError) as caught:
        reader.transaction(rows(ORDERS, b"1"))
    assert caught.value.reason is Reason.POSITION_LOST


# -- stops


@pytest.mark.parametrize(
    ("sql", "stopped"),
    [
        ("ALTER TABLE orders ADD COLUMN x INT", {ORDERS}),
        ("ALTER TABLE `shop`.`orders` DROP COLUMN v", {ORDERS}),
        ("TRUNCATE orders", {ORDERS}),
        ("DROP TABLE other, items", {ITEMS}),
        ("RENAME TABLE orders TO items", {ORDERS, ITEMS}),
        ("DROP DATABASE shop", {ORDERS, ITEMS}),
        ("CREATE TABLE elsewhere (id INT)", set()),
        ("GRANT SELECT ON shop.orders TO reporter", set()),
        ("CREATE VIEW recent AS SELECT * FROM orders", set()),
    ],
)
def test_a_statement_stops_the_tables_that_it_may_change(reader: OrdersReader, sql: str, stopped: set[TableId]) -> None:
    """Rule R9."""
    reader.transaction(Statement("shop", sql))
    stops = reader.seal().stops
    assert set(stops) == stopped
    assert {s.error.reason for s in stops.values()} <= {Reason.SCHEMA_CHANGE_REFUSED}
    assert {s.error.table for s in stops.values()} == {str(t) for t in stopped}


def test_dml_as_a_statement_stops_the_tables_and_says_why(reader: OrdersReader) -> None:
    """Rule R10: a session in statement format; no rows event will come."""
    reader.transaction(Statement("shop", "UPDATE orders SET v = 1"))
    stop = reader.seal().stops[ORDERS]
    assert stop.error.reason is Reason.LOG_INCOMPLETE
    assert "binlog_format=ROW" in stop.error.message


def test_a_stopped_table_keeps_what_came_before_and_nothing_after(tmp_path: Path) -> None:
    """Rule R9: it stands after the last transaction before the DDL, the reader further."""
    reader = OrdersReader(tmp_path, gtid("", 100))
    reader.transaction(rows(ORDERS, b"1"), rows(ITEMS, b"a"))
    reader.transaction(rows(ITEMS, b"b"))
    reader.transaction(Statement("shop", "ALTER TABLE orders ADD x INT"))
    reader.transaction(rows(ORDERS, b"2"), rows(ITEMS, b"c"))
    sealed = reader.seal()
    assert bodies(sealed, ORDERS) == [(0, b"1")]
    assert [b for _, b in bodies(sealed, ITEMS)] == [b"a", b"b", b"c"]
    assert sealed.stops[ORDERS].upto == gtid("1-2", 300)
    assert sealed.end == gtid("1-4", 500)


def test_rows_beside_the_ddl_in_its_transaction_are_not_kept(reader: OrdersReader) -> None:
    """CREATE TABLE ... SELECT on MySQL is one transaction of a statement and rows."""
    reader.transaction(
        rows(ORDERS, b"0"), Statement("shop", "CREATE TABLE orders (id INT) START TRANSACTION"), rows(ORDERS, b"1")
    )
    sealed = reader.seal()
    assert bodies(sealed, ORDERS) == []
    assert sealed.stops[ORDERS].upto == file(100)


def test_a_stopped_table_is_not_wanted_any_more(reader: OrdersReader) -> None:
    """The parser then spares its rows."""
    assert reader.assembler.rows.wanted(ORDERS)
    assert not reader.assembler.rows.wanted(NOTES)
    reader.transaction(Statement("shop", "TRUNCATE orders"))
    reader.seal()
    assert not reader.assembler.rows.wanted(ORDERS)
    assert reader.transaction(rows(ORDERS, b"1")).seal().rows == {}
    assert reader.transaction(Statement("shop", "TRUNCATE orders")).seal().stops == {}


def test_an_event_that_cannot_be_used_stops_its_table_before_its_transaction(reader: OrdersReader) -> None:
    """Rule R10: an incomplete image is an error, never skipped."""
    defect = fail(Reason.ROW_IMAGE_NOT_FULL, "an image without all columns", table="shop.orders")
    reader.transaction(rows(ORDERS, b"1"))
    reader.transaction(rows(ORDERS, b"2"), rows(ITEMS, b"a"), rows(ORDERS, b"", defect=defect), rows(ORDERS, b"3"))
    sealed = reader.seal()
    assert bodies(sealed, ORDERS) == [(0, b"1")]
    assert bodies(sealed, ITEMS) == [(1, b"a")]
    assert (sealed.stops[ORDERS].error, sealed.stops[ORDERS].upto) == (defect, file(200))


def test_an_event_that_cannot_be_used_in_a_rolled_back_transaction_harms_nobody(reader: OrdersReader) -> None:
    defect = fail(Reason.ROW_IMAGE_NOT_FULL, "an image without all columns")
    reader.feed(reader.pen.begin(), rows(ORDERS, b"", defect=defect), reader.pen.rollback())
    assert reader.seal().stops == {}


def test_an_incident_stops_everything(reader: OrdersReader) -> None:
    """Rule R10: the server itself says that changes are missing."""
    with pytest.raises(PermanentError) as caught:
        reader.feed(facts.Incident("incident 1: LOST_EVENTS"))
    assert caught.value.reason is Reason.LOG_INCOMPLETE


# -- XA


def test_prepared_rows_count_with_their_commit(reader: OrdersReader) -> None:
    """Rule R9: at the place of the commit, in the order of the log, however many batches lie
    between."""
    reader.transaction(rows(ORDERS, b"1"), facts.XaPrepare(XID))
    prepared = reader.seal()
    assert (prepared.rows, prepared.stops, prepared.end) == ({}, {}, file(200))
    reader.transaction(rows(ORDERS, b"2")).transaction(facts.XaEnd(XID, True)).transaction(rows(ORDERS, b"3"))
    sealed = reader.seal()
    assert bodies(sealed, ORDERS) == [(0, b"2"), (1, b"1"), (2, b"3")]
    assert sealed.transactions[1] == TransactionId(at(400))


def test_rows_that_are_rolled_back_never_count(reader: OrdersReader) -> None:
    reader.transaction(rows(ORDERS, b"1"), facts.XaPrepare(XID)).transaction(facts.XaEnd(XID, False))
    assert reader.seal().rows == {}


def test_a_later_prepare_of_one_name_replaces_the_earlier(reader: OrdersReader) -> None:
    """A server that crashed may have forgotten the first."""
    reader.transaction(rows(ORDERS, b"1"), facts.XaPrepare(XID))
    reader.transaction(rows(ORDERS, b"2"), facts.XaPrepare(XID)).transaction(facts.XaEnd(XID, True))
    assert bodies(reader.seal(), ORDERS) == [(0, b"2")]


def test_what_a_prepared_transaction_cannot_show_stops_with_its_commit(reader: OrdersReader) -> None:
    """Rule R10: a statement, or an event that cannot be used."""
    defect = fail(Reason.ROW_IMAGE_NOT_FULL, "an image without all columns")
    ddl = Statement("shop", "ALTER TABLE items ADD x INT")
    reader.transaction(ddl, rows(ORDERS, b"", defect=defect), facts.XaPrepare(XID))
    assert reader.seal().stops == {}
    reader.transaction(facts.XaEnd(XID, True))
    assert {t: s.upto for t, s in reader.seal().stops.items()} == {ORDERS: file(200), ITEMS: file(200)}


def test_a_commit_whose_prepare_was_not_read_asks_for_it_and_changes_nothing(
    reader: OrdersReader, tmp_path: Path
) -> None:
    reader.transaction(rows(ORDERS, b"1"))
    number = reader.pen.number, reader.pen.offset
    with pytest.raises(PrepareNeeded) as needed:
        reader.transaction(facts.XaEnd(XID, True))
    assert (needed.value.xid, needed.value.end) == (XID, at(300))
    assert reader.assembler.reached.position == file(200)
    reader.assembler.abandon()
    found = OpenTransaction()
    found.add(rows(ITEMS, b"a"), Spool(str(tmp_path), 0))
    reader.assembler.prepared.learn(XID, found)
    reader.pen.number, reader.pen.offset = number
    reader.transaction(facts.XaEnd(XID, True))
    sealed = reader.seal()
    assert (bodies(sealed, ORDERS), bodies(sealed, ITEMS)) == ([(0, b"1")], [(1, b"a")])
    assert sealed.end == file(300)


def test_a_commit_whose_prepare_is_nowhere_stops_all_tables(reader: OrdersReader) -> None:
    """Its rows may be anything."""
    reader.assembler.prepared.learn(XID, "is in no binlog file of the server")
    reader.transaction(facts.XaPrepare(OTHER_XID)).transaction(facts.XaEnd(XID, True))
    stops = reader.seal().stops
    assert {t: (s.error.reason, s.upto) for t, s in stops.items()} == {
        t: (Reason.XA_UNSUPPORTED, file(200)) for t in (ORDERS, ITEMS)
    }


def test_an_xa_rollback_whose_beginning_was_not_read_harms_nobody(reader: OrdersReader) -> None:
    reader.transaction(facts.XaEnd(XID, False))
    assert reader.seal().stops == {}


def test_one_name_may_be_prepared_again_after_its_end(reader: OrdersReader) -> None:
    for number in (b"1", b"2"):
        reader.transaction(rows(ORDERS, number), facts.XaPrepare(XID)).transaction(facts.XaEnd(XID, True))
    assert bodies(reader.seal(), ORDERS) == [(0, b"1"), (1, b"2")]
    with pytest.raises(PrepareNeeded):
        reader.transaction(facts.XaEnd(XID, True))


@pytest.mark.parametrize(("ahead", "counts"), [(200, True), (300, False)])
def test_a_table_that_was_read_between_prepare_and_commit(tmp_path: Path, ahead: int, counts: bool) -> None:
    """Rule R1: its LOW covers the PREPARE, whose rows its SELECT could not see; at 300 LOW covers
    the COMMIT too."""
    reader = OrdersReader(tmp_path, file(100), {ORDERS: file(ahead)})
    reader.transaction(rows(ORDERS, b"1"), facts.XaPrepare(XID)).transaction(facts.XaEnd(XID, True))
    sealed = reader.seal()
    assert sealed.stops == {}
    assert bodies(sealed, ORDERS) == ([(0, b"1")] if counts else [])


def test_prepared_rows_outlive_batches_in_bounded_memory(tmp_path: Path) -> None:
    """Many that never end take disk, and few files."""
    reader = OrdersReader(tmp_path, memory=64 << 10)
    for number in range(100):
        reader.transaction(rows(ORDERS, bytes([number]) * 4000), facts.XaPrepare(f"X'{number:02x}',X'',1"))
        reader.seal()

    def prepare_more() -> int:
        for number in range(100):
            reader.transaction(rows(ORDERS, bytes([number]) * 4000), facts.XaPrepare(f"X'{number:02x}',X'',2"))
            reader.seal()
        grown = tracemalloc.get_traced_memory()[0]
        assert len(list(Path("/proc/self/fd").iterdir())) < 100
        reader.transaction(facts.XaEnd("X'07',X'',1", True))
        assert bodies(reader.seal(), ORDERS) == [(0, b"\7" * 4000)]
        return grown

    assert traced(prepare_more) < 200_000


def test_a_commit_fills_its_batch_as_its_rows_do(reader: OrdersReader) -> None:
    reader.transaction(rows(ORDERS, b"1" * 5000), facts.XaPrepare(XID))
    reader.seal()
    reader.transaction(facts.XaEnd(XID, True))
    assert reader.assembler.rows.size >= 5000


# -- lost connections


def test_what_was_being_read_comes_again_after_a_lost_connection(reader: OrdersReader) -> None:
    """A reader goes on after the last whole transaction."""
    reader.transaction(rows(ORDERS, b"1")).feed(reader.pen.begin(), rows(ORDERS, b"2"), Savepoint("a"))
    assert reader.assembler.reached.position == file(200)
    reader.assembler.abandon()
    assert reader.assembler.reached.position == file(200)
    reader.transaction(rows(ORDERS, b"2"), rows(ORDERS, b"3"))
    assert [b for _, b in bodies(reader.seal(), ORDERS)] == [b"1", b"2", b"3"]


def test_a_batch_may_be_sealed_between_the_loss_and_the_new_connection(reader: OrdersReader) -> None:
    reader.transaction(rows(ORDERS, b"1")).feed(reader.pen.begin(), rows(ORDERS, b"2"))
    first = reader.seal()
    reader.assembler.abandon()
    reader.transaction(rows(ORDERS, b"2"))
    second = reader.seal()
    assert [b for _, b in (*bodies(first, ORDERS), *bodies(second, ORDERS))] == [b"1", b"2"]
    assert (first.end, second.start) == (file(200), file(200))


def test_an_abandoned_transactions_disk_space_is_given_back(tmp_path: Path) -> None:
    """A large transaction that is reread again and again must not fill the disk."""
    reader = OrdersReader(tmp_path, memory=0)
    segments = set()
    for _ in range(3):
        reader.feed(reader.pen.begin(), rows(ORDERS, b"x" * 1000))
        (item,) = reader.assembler._open.rows
        segments.add(id(item.segment))
        assert item.offset == 0
        reader.assembler.abandon()


def test_the_size_of_a_batch_counts_what_was_read_since_the_last_one(reader: OrdersReader) -> None:
    """The bytes of the log, and what Python keeps of each event and transaction."""
    reader.transaction(rows(ORDERS, b"1", size=70)).transaction(rows(ITEMS, b"1", size=50), rows(ITEMS, b"2", size=50))
    assert reader.assembler.rows.size == 170 + 3 * EVENT_BYTES + 2 * TRANSACTION_BYTES
    reader.seal()
    assert reader.assembler.rows.size == 0


@pytest.mark.parametrize("start", [file(100), gtid("", 100)])
@pytest.mark.parametrize("events", [1, 20])
def test_the_size_of_small_events_is_what_they_take_in_memory(tmp_path: Path, start: Position, events: int) -> None:
    """A batch of rows that are changed one by one took ten times its size, and the driver's
    memory. What Python allocates once, for the first batch of a process, is not counted."""
    readers = [OrdersReader(tmp_path, start, memory=1 << 30) for _ in range(2)]

    def feed() -> float:
        for reader in readers:
            tracemalloc.clear_traces()
            for number in range(3000 // events):
                reader.transaction(*(rows(ORDERS, b"%030d" % number, size=30) for _ in range(events)))
        return tracemalloc.get_traced_memory()[0] / readers[-1].assembler.rows.size

    assert 0.5 < traced(feed) < 1.0


def test_transactions_without_rows_of_ours_take_no_memory(tmp_path: Path) -> None:
    """While no batch is taken, for an hour perhaps, thousands of them come every second."""
    reader = OrdersReader(tmp_path, gtid("", 100))

    def feed() -> int:
        for _ in range(20_000):
            reader.transaction()
        held_bytes = tracemalloc.get_traced_memory()[0]
        assert reader.seal().end == gtid("1-20000", 2_000_100)
        return held_bytes

    assert traced(feed) < 1_500_000


def test_the_position_has_all_gtids_however_many_were_joined(tmp_path: Path) -> None:
    """They may come in any order, so that what is known is a set with gaps (rule R5)."""
    reader = OrdersReader(tmp_path, gtid("1-2", 100), gtids_at_once=3)
    seen = [1, 2]
    for number in (9, 4, 3, 20, 5, 8, 7, 30, 6, 10, 11):
        reader.pen.number = number - 1
        reader.feed(reader.pen.begin(), reader.pen.rollback() if number % 2 else reader.pen.commit())
        seen.append(number)
        assert reader.assembler.reached.position == gtid(":".join(map(str, seen)), reader.pen.offset)
        if number in (5, 10):
            assert reader.seal().end == gtid(":".join(map(str, seen)), reader.pen.offset)


def test_many_batches_hold_the_whole_log_once(tmp_path: Path) -> None:
    """Wherever it is cut, every transaction is in exactly one batch, in order, and batches join
    without a gap."""
    reader = OrdersReader(tmp_path, gtid("", 100))
    seen: list[bytes] = []
    previous: Position = gtid("", 100)
    for number in range(30):
        reader.feed(reader.pen.begin(), rows(ORDERS, b"%d" % number))
        if number % 3 == 0:
            sealed = reader.seal()
            assert sealed.start == previous
            previous = sealed.end
            seen += [b for _, b in bodies(sealed, ORDERS)]
        reader.feed(reader.pen.commit())
    seen += [b for _, b in bodies(reader.seal(), ORDERS)]
    assert seen == [b"%d" % n for n in range(30)]
    assert reader.assembler.reached.position == gtid("1-30", 3100)
    assert Gtid(UUID, 30) in reader.assembler.reached.position.gtids  # type: ignore[union-attr]


# -- changes of a definition


def follower(tmp_path: Path, ahead: Mapping[TableId, Position] | None = None) -> OrdersReader:
    """It follows what orders and items become."""
    following = OrdersReader(tmp_path, ahead=ahead)
    policies = dict.fromkeys((ORDERS, ITEMS), FollowPolicy(follow=True))
    definitions = Definitions({t: definition(t) for t in (ORDERS, ITEMS)}, policies)
    following.assembler = TransactionAssembler(definitions, file(100), ahead or {}, following.spool)
    return following


def ddl(sql: str) -> Statement:
    return Statement("shop", sql, Session(1 << 21, "utf8mb4", True, 101100))


def test_a_followed_statement_ends_a_batch_before_it_and_after_it(tmp_path: Path) -> None:
    """R9: all rows of a batch are of one definition."""
    reader = follower(tmp_path).transaction(rows(ORDERS, b"1"))
    begin, end = reader.pen.begin(), reader.pen.commit()
    assert not reader.assembler.cuts(begin)
    reader.feed(begin, ddl("ALTER TABLE orders ADD v INT DEFAULT 3"))
    assert reader.assembler.cuts(end)
    before = reader.seal()
    assert (bodies(before, ORDERS), before.steps, before.end) == ([(0, b"1")], {}, file(200))
    reader.feed(end)
    assert reader.assembler.rows.stepped
    step = reader.seal()
    assert (step.rows, list(step.steps), step.start, step.end) == ({}, [ORDERS], file(200), file(300))
    assert step.steps[ORDERS].transaction == end.id
    assert not reader.assembler.rows.stepped
    reader.transaction(rows(ORDERS, b"2"))
    assert bodies(reader.seal(), ORDERS) == [(0, b"2")]


@pytest.mark.parametrize("sql", ["ALTER TABLE orders COMMENT ''", "ALTER TABLE notes ADD v INT", "DROP TABLE orders"])
def test_other_statements_end_no_batch(tmp_path: Path, sql: str) -> None:
    reader = follower(tmp_path)
    reader.feed(reader.pen.begin(), ddl(sql))
    assert not reader.assembler.cuts(reader.pen.commit())


def test_a_table_that_has_the_statement_is_not_changed_again(tmp_path: Path) -> None:
    """R5: its definition is that after it."""
    reader = follower(tmp_path, {ORDERS: file(200)})
    reader.feed(reader.pen.begin(), ddl("ALTER TABLE orders ADD v INT"))
    end = reader.pen.commit()
    assert not reader.assembler.cuts(end)
    assert reader.feed(end).seal().steps == {}


def test_each_statement_is_read_with_the_definition_before_it(tmp_path: Path) -> None:
    reader = follower(tmp_path).transaction(ddl("ALTER TABLE orders ADD v INT"))
    reader.seal()
    reader.transaction(ddl("ALTER TABLE orders ADD v INT"))
    assert reader.seal().stops[ORDERS].upto == file(200)


def test_rows_of_the_transaction_that_changes_their_table_stop_it(tmp_path: Path) -> None:
    """Which definition they have is not known."""
    reader = follower(tmp_path).transaction(rows(ORDERS, b"1"), ddl("ALTER TABLE orders ADD v INT"), rows(ITEMS, b"a"))
    sealed = reader.seal()
    assert (list(sealed.stops), sealed.steps, bodies(sealed, ITEMS)) == ([ORDERS], {}, [(0, b"a")])


# -- temporary tables


def _of_session(sql: str) -> Statement:
    return Statement("shop", sql, Session(sql_mode=0, charset="utf8mb4"), Thread(1, 7, specific=True))


def test_statements_on_a_temporary_table_are_nothing(reader: OrdersReader) -> None:
    """Also in a transaction that is read once more, or rolled back: temporary tables stay."""
    reader.transaction(_of_session("CREATE TEMPORARY TABLE items (id INT)"))
    reader.feed(reader.pen.begin(), _of_session("CREATE TEMPORARY TABLE orders (id INT)"), reader.pen.rollback())
    reader.feed(reader.pen.begin(), _of_session("DROP TEMPORARY TABLE orders"))
    reader.assembler.abandon()
    reader.transaction(_of_session("TRUNCATE orders"), _of_session("INSERT INTO items VALUES (1)"), rows(ORDERS, b"1"))
    sealed = reader.seal()
    assert sealed.stops == {}
    assert bodies(sealed, ORDERS) == [(0, b"1")]


def test_a_started_server_has_no_temporary_tables(reader: OrdersReader) -> None:
    reader.transaction(_of_session("CREATE TEMPORARY TABLE orders (id INT)"))
    reader.feed(facts.ServerStarted(1))
    reader.assembler.abandon()
    reader.transaction(_of_session("TRUNCATE orders"))
    assert reader.seal().stops.keys() == {ORDERS}
