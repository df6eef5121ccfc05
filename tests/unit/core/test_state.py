"""The state of a table as its commits carry it (rule R4): whole, small, and never ahead of its
rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Place, Position, Watermark
from cdcsync_core.positions.watermark import HighMark
from cdcsync_core.positions.witness import Witness
from cdcsync_core.state import STATE_VERSION, LastChange, TableState
from cdcsync_core.tables.logical_type import LogicalType
from cdcsync_core.tables.schema_change import Kind
from cdcsync_core.tables.target_schema import TargetColumn, TargetSchema
from support.states import EMPTY, UUID

FIRST, SECOND, LAST = Split(None, (10,)), Split((10,), (20,)), Split((20,), None)


def at(offset: int, file: int = 1) -> LogOffset:
    return Place(f"binlog.{file:06d}", offset, f"mysql:{UUID}")


def gtid(ranges: str, place: LogOffset | None = None) -> GtidPosition:
    return GtidPosition(GtidSet.parse(f"{UUID}:{ranges}"), place)


def test_a_table_has_no_position_before_all_of_it_is_read() -> None:
    """The stream must not touch a table whose snapshot is not complete."""
    state = EMPTY.after_wave([FIRST, SECOND], gtid("1-5"), at(500), rows=20, nulled_dates=1)
    assert not state.snapshot_complete
    assert state.position is None
    assert not state.consistent
    assert state.finished.frontier == (20,)


def test_a_complete_table_goes_on_from_the_meet_of_its_lows() -> None:
    """Rule R2: from min(LOW); what one wave's LOW lacks, that wave's rows may lack."""
    state = EMPTY.after_wave([FIRST], gtid("1-5:9"), at(500), rows=10, nulled_dates=0)
    state = state.after_wave([SECOND, LAST], gtid("1-8"), at(300), rows=20, nulled_dates=2)
    assert state.snapshot_complete
    assert state.low == state.position == gtid("1-5")
    assert state.high == at(500)
    assert (state.splits, state.rows, state.nulled_dates, state.commit_number) == (3, 30, 2, 2)


def test_by_offset_the_earliest_low_counts() -> None:
    state = EMPTY.after_wave([FIRST], FilePosition(at(4, file=2)), at(500, file=2), rows=0, nulled_dates=0)
    state = state.after_wave([SECOND, LAST], FilePosition(at(900, file=2)), at(100, file=3), rows=0, nulled_dates=0)
    assert state.position == FilePosition(at(4, file=2))
    assert state.high == at(100, file=3)


def test_waves_before_and_after_a_change_of_gtid_mode_do_not_mix() -> None:
    state = EMPTY.after_wave([FIRST], FilePosition(at(400)), at(500), rows=0, nulled_dates=0)
    with pytest.raises(PermanentError, match="gtid_mode"):
        state.after_wave([SECOND], gtid("1-5"), at(600), rows=0, nulled_dates=0)


def test_a_table_is_consistent_when_the_log_has_passed_every_high() -> None:
    """Rule R2: until then a row may be newer than the position says."""
    state = EMPTY.after_wave([FIRST], gtid("1-5"), at(500), rows=0, nulled_dates=0)
    state = state.after_wave([SECOND, LAST], gtid("1-8"), at(300), rows=0, nulled_dates=0)
    assert not state.after_batch(gtid("1-9", at(499))).consistent
    assert state.after_batch(gtid("1-9", at(500))).consistent


def test_a_batch_adds_what_the_reader_has_passed() -> None:
    """The reader began with what all its tables had; a table may have more."""
    state = replace(EMPTY, position=gtid("1-5:9", at(200)))
    after = state.after_batch(gtid("1-7", at(400)), nulled_dates=3)
    assert after.position == gtid("1-7:9", at(400))
    assert (after.commit_number, after.nulled_dates) == (1, 3)


def test_a_slower_reader_takes_nothing_away() -> None:
    state = replace(EMPTY, position=FilePosition(at(900)))
    assert state.after_batch(FilePosition(at(100))).position == FilePosition(at(900))


def test_the_application_id_is_the_same_for_every_run() -> None:
    """Rule R8: else two runs could both commit."""
    first = EMPTY.identity.app_id
    assert first == replace(EMPTY, epoch=9, resnapshot_nonce=3).identity.app_id
    assert first != replace(EMPTY.identity, table="shop.items").app_id
    assert first != replace(EMPTY.identity, sync="other/shop").app_id


@pytest.mark.parametrize(
    "position",
    [
        None,
        FilePosition(at(400), MariaDbGtidPos.parse("0-1-7,1-1-3"), 1_700_000_000),
        FilePosition(at(400)),
        gtid("1-5:7"),
        gtid("1-5", at(400)),
    ],
)
def test_a_state_comes_back_from_its_commit(position: Position | None) -> None:
    state = replace(
        EMPTY.after_wave([FIRST], gtid("1-5"), at(500), rows=10, nulled_dates=4),
        low=position,
        position=position,
        resnapshot_nonce=2,
        generation=2,
        change=LastChange(2, 5.5, "ALTER", Kind.FILL, unproved=True, shown=True, unseen=("the default of x",)),
    )
    assert TableState.from_dict(json.loads(json.dumps(state.to_dict()))) == state


@pytest.mark.parametrize("high", [at(500), GtidSet.parse(f"{UUID}:1-7"), MariaDbGtidPos.parse("0-1-7,1-1-3")])
def test_each_kind_of_watermark_comes_back(high: Watermark) -> None:
    state = replace(EMPTY, high=high)
    assert TableState.from_dict(json.loads(json.dumps(state.to_dict()))) == state


def test_the_binlogs_of_a_lineage_come_back() -> None:
    moved = replace(EMPTY, identity=replace(EMPTY.identity, lineage=Lineage(("mysql:a", "mysql:b"))))
    assert TableState.from_dict(json.loads(json.dumps(moved.to_dict()))) == moved


def test_an_untouched_state_comes_back_too() -> None:
    assert TableState.from_dict(json.loads(json.dumps(EMPTY.to_dict()))) == EMPTY


def test_a_schema_that_follows_from_the_capture_is_not_repeated_in_every_commit() -> None:
    assert "schema" not in EMPTY.to_dict()
    assert TableState.from_dict(EMPTY.to_dict()).schema == EMPTY.schema


def test_a_schema_that_does_not_follow_from_the_capture_comes_back() -> None:
    columns = (
        *EMPTY.schema.columns,
        TargetColumn("gone", LogicalType("decimal128", 20, 2), None),
        TargetColumn("name", LogicalType("string"), "id"),
    )
    state = replace(EMPTY, schema=TargetSchema(columns, ("id",)))
    assert TableState.from_dict(json.loads(json.dumps(state.to_dict()))) == state


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"v": 1}, "has version 1"),
        ({"v": STATE_VERSION + 1}, f"has version {STATE_VERSION + 1}"),
        ({"newer": True}, "has newer, which this release does not know"),
        ({"identity": EMPTY.identity.to_dict() | {"newer": "x"}}, "has identity.newer, which"),
    ],
)
def test_a_state_of_another_form_is_refused(change: dict[str, Any], words: str) -> None:
    """Read in part, it would be misread, or lose what a newer release knows."""
    with pytest.raises(CdcError, match=words) as caught:
        TableState.from_dict(EMPTY.to_dict() | change)
    assert caught.value.reason is Reason.SINK_CONFLICT
    assert "run the release that wrote it, or a newer one" in caught.value.remedy


def test_a_key_without_a_value_says_nothing() -> None:
    """An earlier release may have written what this one leaves out."""
    assert TableState.from_dict(EMPTY.to_dict() | {"older": False, "events": 0}) == EMPTY


def test_a_hundred_thousand_splits_leave_a_small_state() -> None:
    """Rule R7: merged intervals, whatever the table's size."""
    state = EMPTY
    bounds = [None, *((n,) for n in range(0, 100_000 * 50_000, 50_000))]
    for first in range(0, 100_000, 1000):
        wave = [
            Split(a, b) for a, b in zip(bounds[first : first + 1000], bounds[first + 1 : first + 1001], strict=True)
        ]
        state = state.after_wave(wave, gtid("1-5"), at(500), rows=50_000_000, nulled_dates=0)
    assert (state.splits, len(state.finished.parts)) == (100_000, 1)
    assert len(json.dumps(state.to_dict())) < 1500


# -- another server

NEW = "7e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_a_table_knows_which_transactions_changed_it() -> None:
    """Any transaction of its snapshot may have; then its own have. Many are spanned but for the
    latest."""
    state = EMPTY.after_wave([Split(None, None)], gtid("1-8"), at(300), rows=0, nulled_dates=0)
    assert state.touched == GtidSet.parse(f"{UUID}:1-8")
    assert state.after_batch(gtid("1-20", at(900))).touched == state.touched
    for number in range(10, 30, 2):
        state = state.after_batch(gtid(f"1-{number}"), changing=GtidSet.parse(f"{UUID}:{number}"))
    assert state.touched == GtidSet.parse(f"{UUID}:1-22:24:26:28")
    assert TableState.from_dict(json.loads(json.dumps(state.to_dict()))).touched == state.touched


def test_a_state_of_before_does_not_know_it() -> None:
    state = EMPTY.after_wave([Split(None, None)], gtid("1-8"), at(300), rows=0, nulled_dates=0)
    data = state.to_dict()
    del data["touched"]
    before = TableState.from_dict(data)
    assert before.touched is None
    assert before.copied.touched is None
    assert before.after_batch(gtid("1-9")).touched is None
    later = before.after_batch(gtid("1-9"), changing=GtidSet.parse(f"{UUID}:9"))
    assert later.touched == GtidSet.parse(f"{UUID}:1-9")


def test_a_table_that_moves_has_its_places_on_the_new_server() -> None:
    state = EMPTY.after_wave([Split(None, None)], gtid("1-8"), at(300), rows=0, nulled_dates=0)
    state = replace(state.after_batch(gtid("1-20", at(900))), replaying=gtid("1-30", at(990)))
    place = Place("other.000001", 77, f"mysql:{NEW}")
    position = GtidPosition(GtidSet.parse(f"{UUID}:1-18"), place)
    moved = state.moved(f"mysql:{NEW}", position, GtidSet.parse(f"{UUID}:1-25,{NEW}:1-3"))
    assert moved.identity.lineage == Lineage((f"mysql:{UUID}", f"mysql:{NEW}"))
    assert moved.commit_number == state.commit_number + 1
    assert moved.consistent
    assert moved.replaying == gtid("1-25"), "what the server never had does not come again"
    assert TableState.from_dict(json.loads(json.dumps(moved.to_dict()))) == moved
    assert state.moved(f"mysql:{NEW}", position, position.gtids).replaying is None


def test_a_table_whose_snapshot_goes_on_has_no_set_with_its_high_watermark() -> None:
    """Another table of the wave has ended; an earlier release can go on with this one."""
    ends = (Witness(Gtid(UUID, 15), 15_000_000, 0),)
    high = HighMark("binlog.000001", 500, f"mysql:{UUID}", GtidSet.parse(f"{UUID}:1-15"), ends)
    state = EMPTY.after_wave([FIRST], gtid("1-8"), high, rows=0, nulled_dates=0)
    assert state.high == high.place
    assert "highSet" not in state.to_dict()


def test_a_table_that_is_catching_up_takes_along_what_its_snapshot_may_have_read() -> None:
    """Once it is consistent the state is small again."""
    ends = (Witness(Gtid(UUID, 15), 15_000_000, 0),)
    high = HighMark("binlog.000001", 500, f"mysql:{UUID}", GtidSet.parse(f"{UUID}:1-15"), ends)
    state = EMPTY.after_wave([Split(None, (1,))], gtid("1-8"), at(400), rows=0, nulled_dates=0)
    state = state.after_wave([Split((1,), None)], gtid("1-8"), high, rows=0, nulled_dates=0)
    state = state.after_batch(gtid("1-11", at(450)))
    assert TableState.from_dict(json.loads(json.dumps(state.to_dict()))) == state
    assert state.copied.unread == GtidSet.parse(f"{UUID}:12-15")
    before = TableState.from_dict({k: v for k, v in state.to_dict().items() if k != "highSet"})
    assert (before.copied.high, before.copied.unread) == (high.place, GtidSet()), "a state of before has a place alone"

    binlog = f"mysql:{NEW}"
    position = GtidPosition(GtidSet.parse(f"{UUID}:1-10"), Place("other.000001", 77, binlog))
    moved = state.moved(binlog, position, GtidSet.parse(f"{UUID}:1-10:12-15"), Place("other.000001", 90, binlog))
    assert moved.copied.unread == GtidSet.parse(f"{UUID}:12-15"), "not what was lost and never changed the table"
    assert not moved.consistent
    assert TableState.from_dict(json.loads(json.dumps(moved.to_dict()))) == moved
    passed = moved.after_batch(gtid("1-15", Place("other.000001", 95, binlog)))
    assert passed.consistent
    assert passed.high == Place("other.000001", 90, binlog)
    assert "highSet" not in passed.to_dict()
