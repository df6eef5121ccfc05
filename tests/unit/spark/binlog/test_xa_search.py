"""What one binlog file says last of each XA transaction: the rule by which the PREPARE of a commit
is found."""

from __future__ import annotations

from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.search.xa_search import FileXa, Known, PreparePlace
from cdcsync_spark.wire.binlog.facts import Fact, Progress, TransactionRollback, XaEnd, XaPrepare
from support.facts import Pen, at, rows

ONE, TWO = "X'61',X'',1", "X'62',X'',1"
ORDERS = TableId("shop", "orders")


def _read(*transactions: list[Fact], upto: int | None = None) -> FileXa:
    """Transactions of 100 bytes each, the first of which begins at 100."""
    found, pen = FileXa(at(4), None if upto is None else at(upto)), Pen()
    found.feed(Progress(at(100)))
    for inside in transactions:
        for fact in pen.transaction(*inside):
            if not found.done:
                found.feed(fact)
    return found


def test_a_prepare_is_known_by_the_place_of_its_transaction() -> None:
    assert _read([], [rows(ORDERS, b"1"), XaPrepare(ONE)]).last == {ONE: PreparePlace(at(200), at(300))}


def test_the_first_transaction_of_a_file_begins_at_its_head() -> None:
    found = FileXa(at(4))
    for fact in Pen().transaction(XaPrepare(ONE)):
        found.feed(fact)
    assert found.last == {ONE: PreparePlace(at(4), at(200))}


def test_the_last_word_counts() -> None:
    again = _read([XaPrepare(ONE)], [XaEnd(ONE, True)], [XaPrepare(ONE)])
    assert again.last == {ONE: PreparePlace(at(300), at(400))}
    assert _read([XaPrepare(ONE)], [XaPrepare(TWO)], [XaEnd(ONE, False)]).last[ONE] is Known.ENDED


def test_only_what_ends_up_to_the_place_counts() -> None:
    """The commit for which the search is done is not a word about itself."""
    log: tuple[list[Fact], ...] = ([XaPrepare(ONE)], [XaEnd(ONE, True)], [XaPrepare(TWO)])
    assert isinstance(_read(*log, upto=299).last[ONE], PreparePlace)
    assert _read(*log, upto=300).last == {ONE: Known.ENDED}
    assert _read(*log, upto=299).done


def test_a_transaction_that_a_crash_cut_did_not_happen() -> None:
    found, pen = FileXa(at(4)), Pen()
    for fact in (pen.begin(), rows(ORDERS, b"1"), TransactionRollback(None, 1.0), Progress(at(4, 2))):
        found.feed(fact)
    assert found.last == {}
    assert found.done
