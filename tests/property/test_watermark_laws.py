"""What a watermark of each kind promises (rule R2): a table that has reached the join of two has
reached both, and a reader that goes on never loses what it has reached."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.errors import PermanentError
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import MariaDbGtid, MariaDbGtidPos
from cdcsync_core.positions.position import FilePosition, GtidPosition, LogOffset, Watermark
from cdcsync_core.positions.watermark import join, watermark_from_dict, watermark_to_dict
from support.strategies import file_positions, gtid_positions, gtid_sets, log_offsets, position_pairs

domains = st.dictionaries(st.integers(0, 3), st.tuples(st.integers(1, 3), st.integers(1, 9)), max_size=4)
gtid_pos = domains.map(lambda found: MariaDbGtidPos(tuple(MariaDbGtid(d, s, n) for d, (s, n) in found.items())))
watermarks: st.SearchStrategy[Watermark] = log_offsets | gtid_sets | gtid_pos


@given(watermarks)
def test_a_watermark_comes_back(high: Watermark) -> None:
    assert watermark_from_dict(json.loads(json.dumps(watermark_to_dict(high)))) == high


@given(gtid_pos)
def test_a_gtid_position_comes_back_from_its_text_in_any_order(found: MariaDbGtidPos) -> None:
    parts = str(found).split(",")
    assert MariaDbGtidPos.parse(",".join(reversed(parts))) == MariaDbGtidPos.parse(", ".join(parts)) == found


@given(file_positions, log_offsets, log_offsets)
def test_offsets_joined_are_reached_where_both_are(p: FilePosition, a: LogOffset, b: LogOffset) -> None:
    assert p.has_reached(join(a, b)) is (p.has_reached(a) and p.has_reached(b))


@given(gtid_positions, gtid_sets, gtid_sets)
def test_gtid_sets_joined_are_reached_where_both_are(p: GtidPosition, a: GtidSet, b: GtidSet) -> None:
    assert p.has_reached(join(a, b)) is (p.has_reached(a) and p.has_reached(b))


@given(log_offsets, gtid_pos, gtid_pos, gtid_pos)
def test_gtid_positions_joined_are_reached_where_both_are(
    at: LogOffset, here: MariaDbGtidPos, a: MariaDbGtidPos, b: MariaDbGtidPos
) -> None:
    p = FilePosition(at, here)
    assert p.has_reached(join(a, b)) is (p.has_reached(a) and p.has_reached(b))


@given(position_pairs, gtid_sets, log_offsets)
def test_what_was_reached_stays_reached(
    two: tuple[FilePosition | GtidPosition, FilePosition | GtidPosition], gtids: GtidSet, at: LogOffset
) -> None:
    a, b = two
    high: Watermark = gtids if isinstance(a, GtidPosition) else at
    if a.has_reached(high):
        assert a.join(b).has_reached(high)


def test_two_kinds_are_not_compared() -> None:
    """`gtid_mode` was changed: neither yes nor no would be true."""
    at, gtids, pos = LogOffset("binlog.000001", 4), GtidSet(), MariaDbGtidPos.parse("0-1-7")
    for a, b in ((at, gtids), (gtids, pos), (pos, at)):
        with pytest.raises(PermanentError):
            join(a, b)
    with pytest.raises(PermanentError):
        FilePosition(at).has_reached(gtids)
    with pytest.raises(PermanentError):
        GtidPosition(gtids).has_reached(pos)


def test_text_that_is_no_gtid_is_refused() -> None:
    with pytest.raises(ValueError, match="domain-server-sequence"):
        MariaDbGtidPos.parse("0-1")


def test_a_position_is_good_in_the_newest_binlog_of_its_lineage_only() -> None:
    moved = Lineage(("mysql:a", "mysql:b"))
    assert [moved.accepts(binlog) for binlog in ("mysql:a", "mysql:b", "mysql:c")] == [False, True, False]
    assert Lineage.of("mysql:a").accepts("mysql:a")
    with pytest.raises(ValueError, match="at least one"):
        Lineage(())
