"""Places and positions: made well or not at all, and never ordered as text."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import (
    FilePosition,
    GtidPosition,
    LogOffset,
    Place,
    Position,
    TransactionId,
    meet_all,
    position_from_dict,
)

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_file_one_million_comes_after_file_999999() -> None:
    """Ordered as text, a reader would go back a million files, or skip the rest of the binlog."""
    earlier, later = LogOffset("binlog.999999", 1 << 30), LogOffset("binlog.1000000", 4)
    assert later.covers(earlier)
    assert not earlier.covers(later)


def test_file_names_may_hold_dots_and_colons() -> None:
    place = LogOffset("db-1.example.com:log.000007", 8123)
    assert place.number == 7
    assert Place.parse(str(place), "mysql:a") == place.in_binlog("mysql:a")
    assert Place.parse(f"mysql:b/{place}", "mysql:a") == place.in_binlog("mysql:b")


@pytest.mark.parametrize(
    ("file", "offset"), [("binlog", 4), ("binlog.", 4), (".000001", 4), ("binlog.00a", 4), ("binlog.000001", 3)]
)
def test_what_is_no_place_in_a_log_is_refused(file: str, offset: int) -> None:
    with pytest.raises(ValueError, match="not a place in a binlog"):
        LogOffset(file, offset)


def test_a_place_covers_the_transaction_that_ends_there() -> None:
    position = FilePosition(LogOffset("binlog.000002", 500))
    assert position.covers(TransactionId(LogOffset("binlog.000002", 500)))
    assert not position.covers(TransactionId(LogOffset("binlog.000002", 501)))


def test_gtid_membership_counts_and_offsets_do_not() -> None:
    """Rule R5: a transaction may come late in the binlog, or long before the place where a reader
    stands."""
    position = GtidPosition(GtidSet.parse(f"{UUID}:1-10:12"), LogOffset("binlog.000009", 4))
    end = LogOffset("binlog.000001", 4)
    assert position.covers(TransactionId(end, Gtid(UUID, 12)))
    assert not position.covers(TransactionId(end, Gtid(UUID, 11)))


def test_a_transaction_without_gtid_in_a_log_with_gtids_needs_the_user() -> None:
    """Whether the table has it is not known; guessing would lose or double it."""
    with pytest.raises(PermanentError) as caught:
        GtidPosition(GtidSet()).covers(TransactionId(LogOffset("binlog.000001", 400)))
    assert caught.value.reason is Reason.POSITION_LOST


def test_nothing_is_reached_where_no_reader_has_been() -> None:
    """A low watermark of MySQL knows its transactions and no place; it must not count as past a
    high watermark."""
    assert not GtidPosition(GtidSet.parse(f"{UUID}:1-99")).has_reached(LogOffset("binlog.000001", 4))


def test_a_reader_needs_a_table_to_start_from() -> None:
    with pytest.raises(ValueError, match="no position"):
        meet_all([])


def test_tables_from_before_and_after_a_change_of_gtid_mode_share_no_reader() -> None:
    both: list[Position] = [FilePosition(LogOffset("binlog.000001", 4)), GtidPosition(GtidSet())]
    with pytest.raises(PermanentError) as caught:
        meet_all(both)
    assert "gtid_mode" in caught.value.message


def test_mariadbs_mark_is_no_gtid_set() -> None:
    """It proves a history (rule R6) and never decides membership: its numbers may go backwards."""
    position = FilePosition(LogOffset("binlog.000001", 4), MariaDbGtidPos.parse("0-1-57,1-1-3"), 1700000000)
    data = position.to_dict()
    assert data["gtidSet"] == "0-1-57,1-1-3"
    assert position_from_dict(data) == position


@pytest.mark.parametrize("data", [{}, {"file": "", "offset": 0, "gtidSet": "0-1-57"}])
def test_a_position_without_a_place_or_exact_gtids_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a position"):
        position_from_dict(data)


def test_the_empty_gtid_position_of_a_new_server_is_a_position() -> None:
    empty = GtidPosition(GtidSet())
    assert position_from_dict(empty.to_dict()) == empty
