"""Which views of a table without a key are exact: those that the binlog has nothing of the table
for between the view's position and HIGH, and no statement until the table is locked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.position import FilePosition, GtidPosition
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.positions.view import View
from cdcsync_spark.snapshot.splits.exact_view import may_differ
from cdcsync_spark.wire.binlog import facts
from cdcsync_spark.wire.sql.syntax.text import Statement
from support.facts import Pen, at, rows

BAG, OTHER = TableId("shop", "bag"), TableId("shop", "other")
#: the transactions of a `Pen` end at 200, 300, 400, ...
PLACE = View(FilePosition(at(200)), at(300))
LOCKED = at(400)
SET = View(GtidPosition(GtidSet.parse("")), at(300))


def _read(*inside: tuple[facts.Fact, ...]) -> Iterator[facts.Fact]:
    pen = Pen()
    for transaction in inside:
        yield from pen.transaction(*transaction)


def _statement() -> Statement:
    return Statement("CREATE TABLE a (b INT)", "shop")


@pytest.mark.parametrize(
    ("transactions", "view", "differs"),
    [
        pytest.param([(), ()], PLACE, False, id="nothing"),
        pytest.param([(), (rows(OTHER, b""),)], PLACE, False, id="another table"),
        pytest.param([(), (rows(BAG, b""),)], PLACE, True, id="between position and HIGH"),
        pytest.param([(rows(BAG, b""),), ()], PLACE, False, id="before the position"),
        pytest.param([(), (), (rows(BAG, b""),)], PLACE, False, id="behind HIGH"),
        pytest.param([(rows(BAG, b""),)], SET, True, id="not in the set"),
        pytest.param([(), (), (rows(BAG, b""),)], SET, False, id="not in the set, behind HIGH"),
        pytest.param([(), (facts.Incident("lost"),)], PLACE, True, id="an incident"),
        pytest.param([(facts.XaEnd("x", True),), ()], PLACE, True, id="an XA COMMIT that the position covers"),
        pytest.param([(), (), (facts.XaEnd("x", True),)], PLACE, False, id="an XA COMMIT behind HIGH"),
        pytest.param([(), (_statement(),)], PLACE, True, id="a statement"),
        pytest.param([(), (), (_statement(),)], PLACE, True, id="a statement before the lock"),
        pytest.param([(), (), (), (_statement(),)], PLACE, False, id="a statement behind the lock"),
        pytest.param([(_statement(),), ()], PLACE, False, id="a statement before the position"),
    ],
)
def test_what_the_binlog_has_up_to_high(transactions: list[tuple[facts.Fact, ...]], view: View, differs: bool) -> None:
    assert may_differ(_read(*transactions), BAG, view, LOCKED) is differs


def test_a_change_whose_end_has_not_come_counts() -> None:
    pen = Pen()
    assert may_differ([*pen.transaction(), pen.begin(), rows(BAG, b"")], BAG, PLACE, LOCKED)


def test_an_exact_view_is_consistent_at_its_position() -> None:
    for position in (PLACE.position, GtidPosition(GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9"))):
        assert position.has_reached(position.reached)
