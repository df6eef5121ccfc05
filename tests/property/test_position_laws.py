"""Positions form a partial order with joins and meets (rule R5); what is concluded from them must
follow from that alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.position import (
    FilePosition,
    GtidPosition,
    LogOffset,
    Place,
    Position,
    TransactionId,
    furthest,
    meet_all,
    position_from_dict,
)
from support.strategies import (
    file_positions,
    gtid_positions,
    gtids,
    log_offsets,
    position_pairs,
    position_triples,
    positions,
)

transactions = st.builds(TransactionId, log_offsets, gtids)


@given(log_offsets, log_offsets)
def test_places_are_ordered_by_the_files_number_then_the_offset(a: LogOffset, b: LogOffset) -> None:
    """As text binlog.1000000 sorts before binlog.999999."""
    key_a = (int(a.file.rpartition(".")[2]), a.offset)
    key_b = (int(b.file.rpartition(".")[2]), b.offset)
    assert a.covers(b) is (key_a >= key_b)


@given(log_offsets)
def test_a_place_comes_back_from_its_text_and_dictionary(place: LogOffset) -> None:
    named = place.in_binlog("mysql:a")
    assert Place.parse(str(named), "mysql:a") == named
    assert Place.from_dict(json.loads(json.dumps(named.to_dict())), "mysql:a") == named


@given(st.lists(log_offsets, min_size=1))
def test_the_furthest_place_is_one_of_them_and_covers_all(places: list[LogOffset]) -> None:
    found = furthest(places)
    assert found in places
    assert all(found.covers(p) for p in places)


@given(positions)
def test_every_position_includes_itself(p: Position) -> None:
    assert p.includes(p)


@given(position_triples)
def test_includes_is_transitive(three: tuple[Position, Position, Position]) -> None:
    a, b, c = three
    if a.includes(b) and b.includes(c):
        assert a.includes(c)


@given(position_pairs)
def test_the_join_includes_both(two: tuple[Position, Position]) -> None:
    a, b = two
    assert a.join(b).includes(a)
    assert a.join(b).includes(b)


@given(position_pairs)
def test_both_include_the_meet(two: tuple[Position, Position]) -> None:
    a, b = two
    assert a.includes(a.meet(b))
    assert b.includes(a.meet(b))


@given(position_triples)
def test_the_join_is_the_least_and_the_meet_the_greatest(three: tuple[Position, Position, Position]) -> None:
    a, b, c = three
    assert (c.includes(a) and c.includes(b)) is c.includes(a.join(b))
    assert (a.includes(c) and b.includes(c)) is a.meet(b).includes(c)


@given(position_pairs)
def test_join_and_meet_have_the_same_transactions_whoever_is_asked(two: tuple[Position, Position]) -> None:
    a, b = two
    for one, other in ((a.join(b), b.join(a)), (a.meet(b), b.meet(a))):
        assert one.includes(other)
        assert other.includes(one)


@given(position_pairs)
def test_absorption(two: tuple[Position, Position]) -> None:
    a, b = two
    for found in (a.join(a.meet(b)), a.meet(a.join(b))):
        assert found.includes(a)
        assert a.includes(found)


@given(position_pairs, transactions)
def test_a_transaction_is_in_the_join_if_it_is_in_one_and_in_the_meet_if_in_both(
    two: tuple[Position, Position], transaction: TransactionId
) -> None:
    """A reader that starts at the meet sends every transaction that one of its tables lacks,
    once."""
    a, b = two
    assert a.join(b).covers(transaction) is (a.covers(transaction) or b.covers(transaction))
    assert a.meet(b).covers(transaction) is (a.covers(transaction) and b.covers(transaction))


@given(position_pairs, transactions)
def test_what_includes_a_position_covers_its_transactions(
    two: tuple[Position, Position], transaction: TransactionId
) -> None:
    a, b = two
    if a.includes(b) and b.covers(transaction):
        assert a.covers(transaction)


@given(position_pairs, log_offsets)
def test_a_join_reaches_what_one_reaches_and_a_meet_nothing_more_than_both(
    two: tuple[Position, Position], high: LogOffset
) -> None:
    """Rule R2: a high watermark must not count as passed because two positions were met."""
    a, b = two
    assert a.join(b).has_reached(high) is (a.has_reached(high) or b.has_reached(high))
    if a.meet(b).has_reached(high):
        assert a.has_reached(high)
        assert b.has_reached(high)


@given(st.lists(file_positions, min_size=1, max_size=5) | st.lists(gtid_positions, min_size=1, max_size=5))
def test_every_table_has_what_is_before_the_common_start(found: list[Position]) -> None:
    start = meet_all(found)
    assert all(p.includes(start) for p in found)


@given(positions)
def test_a_position_comes_back_from_status(p: Position) -> None:
    """Rule R4: a target's commit carries it as JSON; the kind must come back too, `status` adds a
    timestamp."""
    assert position_from_dict(json.loads(json.dumps(p.to_dict() | {"timestamp": "now"}))) == p


@given(file_positions, gtid_positions)
def test_positions_of_two_kinds_are_never_compared(file: FilePosition, gtid: GtidPosition) -> None:
    """A changed gtid_mode needs the user, not a guess."""
    for a, b in ((file, gtid), (gtid, file)):
        for operation in (a.join, a.meet, a.includes):
            with pytest.raises(PermanentError) as caught:
                operation(b)
            assert caught.value.reason is Reason.POSITION_LOST


@given(gtid_positions, gtids)
def test_where_a_reader_stood_says_nothing_about_which_transactions_it_has(p: GtidPosition, gtid: Gtid) -> None:
    far = TransactionId(LogOffset("binlog.000001", 4), gtid)
    assert p.covers(far) is (gtid in p.gtids)
