"""Rule R6 on another MariaDB: what it must prove, by transactions that are numbered."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cdcsync_core.positions.failover import (
    Copied,
    Diverged,
    MovedPosition,
    Unproved,
    WitnessAnswer,
    WitnessQuestion,
    judge,
    not_numbered,
    numbered_question,
    snapshot_ends,
)
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import Anchor, FilePosition, Place, position_from_dict, position_to_dict
from cdcsync_core.positions.watermark import HighMark
from cdcsync_core.positions.witness import Witness

TABLE = "shop.orders"
END = Anchor(Place("new.000007", 900, "mariadb:2"), 1234)


def witness(number: int) -> Witness:
    return Witness(Gtid("0-1", number), 1_000_000 * number, 0)


WITNESSES = (witness(20), witness(18), witness(11))
POSITION = FilePosition(
    Place("old.000003", 500, "mariadb:1"), MariaDbGtidPos.parse("0-1-20"), 77, WITNESSES, MariaDbGtidPos.parse("0-3-7")
)


def copied(touched: str = "0-1:1-10", high: HighMark | None = None) -> Copied:
    return Copied(TABLE, POSITION, GtidSet.parse(touched), high)


def answer(number: int, last: int, before: str) -> WitnessAnswer:
    committed = 1_000_000 * number
    return WitnessAnswer(committed, GtidSet(), frozenset(), witness(last), END, MariaDbGtidPos.parse(before))


def asked(number: int, last: int) -> WitnessQuestion:
    return numbered_question(POSITION, witness(number), last)


def test_at_the_common_point_the_table_goes_on_behind_the_last_transaction() -> None:
    moved = judge(copied("0-1:1-20"), asked(20, 20), answer(20, 20, "0-3-7,0-1-19"))
    assert isinstance(moved, MovedPosition)
    assert moved.position == FilePosition(END.at, MariaDbGtidPos.parse("0-1-20"), 1234)
    assert isinstance(moved.position, FilePosition)
    assert moved.position.witnesses == WITNESSES
    assert moved.position.others == POSITION.others
    assert not moved.cut


@pytest.mark.parametrize(
    ("touched", "diverged"),
    [("0-1:1-10", ""), ("0-1:1-10:18", ""), ("0-1:1-10:19", "0-1:19"), ("0-1:1-20", "0-1:19-20"), ("0-3:19", "")],
)
def test_a_lost_tail_makes_the_tables_that_it_changed_diverge(touched: str, diverged: str) -> None:
    judged = judge(copied(touched), asked(11, 18), answer(11, 18, "0-1-10"))
    if diverged:
        assert isinstance(judged, Diverged)
        assert judged.divergence.endswith(f"changed by: {diverged}")
        return
    assert isinstance(judged, MovedPosition)
    assert judged.cut == GtidSet.parse("0-1:19-20")
    assert isinstance(judged.position, FilePosition)
    assert judged.position.witnesses[:2] == (witness(18), witness(11))


def test_what_may_have_changed_the_table_is_all_where_it_is_not_recorded() -> None:
    table = replace(copied(), touched=None)
    assert isinstance(judge(table, asked(18, 18), answer(18, 18, "0-1-17")), Diverged)
    assert isinstance(judge(table, asked(20, 20), answer(20, 20, "0-1-19")), MovedPosition)


@pytest.mark.parametrize("before", ["0-1-19,0-2-19", "0-1-19,0-3-8", "0-1-18", "0-1-19,1-1-4"])
def test_what_our_binlog_did_not_have_before_disproves(before: str) -> None:
    """An errant transaction, and one of another domain, whose place in another order is another
    one."""
    judged = judge(copied(), asked(20, 20), answer(20, 20, before))
    assert isinstance(judged, Unproved)
    assert "which the server before did not have there" in judged.found


def test_another_second_disproves() -> None:
    judged = judge(copied(), asked(20, 20), replace(answer(20, 20, "0-1-19"), committed=21_000_000))
    assert isinstance(judged, Unproved)
    assert "other transactions have the same GTIDs" in judged.found


def test_the_stream_has_read_what_another_server_wrote_before() -> None:
    """After a failover: the last transaction of the server before is in `others`."""
    last = Witness(Gtid("0-3", 7), 7_000_000, 0)
    high = HighMark("old.000003", 900, "mariadb:1", GtidSet.parse("0-3:7"), (last,))
    assert snapshot_ends(copied(high=high)) == ()
    later = replace(high, gtids=GtidSet.parse("0-3:8"), ends=(replace(last, gtid=Gtid("0-3", 8)),))
    assert snapshot_ends(copied(high=later)) == later.ends


@pytest.mark.parametrize(("number", "ends"), [(25, (witness(25),)), (20, ())])
def test_a_table_that_is_catching_up_asks_for_the_last_one_that_its_snapshot_may_have_read(
    number: int, ends: tuple[Witness, ...]
) -> None:
    """None where the stream has read it."""
    high = HighMark("old.000003", 900, "mariadb:1", GtidSet.parse(f"0-1:{number}"), (witness(number),))
    assert snapshot_ends(copied(high=high)) == ends


@pytest.mark.parametrize(
    ("position", "why"),
    [
        (replace(POSITION, gtid_pos=MariaDbGtidPos.parse("0-1-20,7-1-21")), "several domains"),
        (replace(POSITION, witnesses=()), "no transaction's commit time is recorded"),
        (replace(POSITION, others=None), "which servers wrote before"),
    ],
)
def test_what_no_server_can_be_asked_for(position: FilePosition, why: str) -> None:
    refusal = not_numbered(position)
    assert refusal is not None
    assert why in refusal.found


def test_the_proof_travels_with_its_position() -> None:
    read = position_from_dict(json.loads(json.dumps(position_to_dict(POSITION))))
    assert isinstance(read, FilePosition)
    assert (read, read.witnesses, read.others) == (POSITION, WITNESSES, POSITION.others)
