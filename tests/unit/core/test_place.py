"""An offset means nothing in another server's binlog: no answer is given that takes two of them for
one order (rule R6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import (
    Anchor,
    FilePosition,
    GtidPosition,
    LogOffset,
    Place,
    Position,
    TransactionId,
    furthest,
    meet_all,
    position_from_dict,
    position_to_dict,
)
from cdcsync_core.positions.watermark import join, watermark_from_dict, watermark_to_dict
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.target_schema import TargetSchema
from support.statements import ORDERS

HERE, THERE = "mysql:3e11fa47", "mysql:71ca11e1"
OURS, THEIRS = Place("binlog.000002", 400, HERE), Place("binlog.000007", 900, THERE)
PLAIN = LogOffset("binlog.000001", 4)
GTIDS = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")


def _positions(at: LogOffset) -> tuple[FilePosition, GtidPosition]:
    return FilePosition(at), GtidPosition(GTIDS, at, Anchor(at, 1_700_000_000))


_OURS, _BY_GTID = _positions(OURS)
_THEIRS, _THEIRS_BY_GTID = _positions(THEIRS)
_LINEAGE = Lineage((THERE, HERE))
_STATE = TableState(Identity("shop/orders", _LINEAGE, str(ORDERS.id)), ORDERS, TargetSchema.of(ORDERS), epoch=1)

QUESTIONS: dict[str, Callable[[], Any]] = {
    "which place is further": lambda: OURS.covers(THEIRS),
    "which is further, asked the other way": lambda: THEIRS.covers(OURS),
    "a place and an offset of a connection": lambda: OURS.covers(PLAIN),
    "an offset of a connection and a place": lambda: PLAIN.covers(OURS),
    "the furthest": lambda: furthest([OURS, THEIRS]),
    "two high watermarks": lambda: join(OURS, THEIRS),
    "a transaction of the other": lambda: _OURS.covers(TransactionId(THEIRS)),
    "a high watermark of the other": lambda: _OURS.has_reached(THEIRS),
    "the same by the reader's place": lambda: _BY_GTID.has_reached(THEIRS),
    "what is included": lambda: _OURS.includes(_THEIRS),
    "a join": lambda: _OURS.join(_THEIRS),
    "a join of readers' places": lambda: _BY_GTID.join(_THEIRS_BY_GTID),
    "a join of anchors": lambda: replace(_BY_GTID, at=None).join(replace(_THEIRS_BY_GTID, at=None)),
    "a meet": lambda: meet_all([_OURS, _THEIRS]),
    "a meet of anchors": lambda: _BY_GTID.meet(_THEIRS_BY_GTID),
    "a name in place of another": lambda: OURS.in_binlog(THERE),
    "the same of a position": lambda: _BY_GTID.in_binlog(THERE),
    "a dictionary that says otherwise": lambda: position_from_dict(position_to_dict(_OURS), THERE),
    "a state's position": lambda: replace(_STATE, position=_THEIRS),
    "a state's low watermark": lambda: replace(_STATE, low=_THEIRS_BY_GTID),
    "a state's high watermark": lambda: replace(_STATE, high=THEIRS),
    "what a state replays": lambda: replace(_STATE, replaying=_THEIRS),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_offsets_of_two_binlogs_are_never_compared(question: Callable[[], Any]) -> None:
    with pytest.raises(PermanentError) as error:
        question()
    assert error.value.reason is Reason.POSITION_LOST
    assert "no order" in error.value.message


@pytest.mark.parametrize("position", [_OURS, _BY_GTID, replace(_BY_GTID, at=None)])
def test_a_position_comes_back_with_its_binlog(position: Position) -> None:
    """Beside its lineage, which names it, or alone."""
    assert position.binlog == HERE
    assert position_from_dict(position_to_dict(position)) == position
    assert position_from_dict(position.to_dict(), HERE) == position
    assert "binlog" not in position.to_dict(), "the form of a state is as it was"


def test_a_state_comes_back_with_places_in_the_binlog_that_its_lineage_ends_with() -> None:
    assert watermark_from_dict(watermark_to_dict(OURS), HERE) == OURS
    state = replace(_STATE, low=_BY_GTID, high=OURS, position=_BY_GTID, replaying=_BY_GTID)
    assert TableState.from_dict(state.to_dict()) == state


def test_within_one_binlog_places_are_ordered_as_offsets_are() -> None:
    later = replace(OURS, file="binlog.000010", offset=4)
    assert later.covers(OURS)
    assert not OURS.covers(later)
    assert LogOffset(later.file, later.offset).covers(LogOffset(OURS.file, OURS.offset))
    assert (later.binlog, str(later)) == (HERE, "binlog.000010:4")
