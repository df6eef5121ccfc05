"""Rule R6 on another server: what it must prove, as a function of what it has."""

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
    judge_ends,
    question,
    snapshot_ends,
)
from cdcsync_core.positions.gtid import Gtid, GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import (
    Anchor,
    FilePosition,
    GtidPosition,
    Place,
    Position,
    Watermark,
    position_from_dict,
    position_to_dict,
)
from cdcsync_core.positions.watermark import HighMark
from cdcsync_core.positions.witness import Witness, with_newest

OLD, NEW = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "7e11fa47-71ca-11e1-9e33-c80aa9429562"
NONE = GtidSet()
TABLE = "shop.orders"
END = Anchor(Place("new.000007", 900, f"mysql:{NEW}"), 1234)


def old(ranges: str) -> GtidSet:
    return GtidSet.parse(f"{OLD}:{ranges}")


def new(ranges: str) -> GtidSet:
    return GtidSet.parse(f"{NEW}:{ranges}")


def witness(number: int, source: str = OLD, others: int = 0) -> Witness:
    return Witness(Gtid(source, number), 1_000_000 * number, others)


def copied(ranges: str, touched: str = "1-4", *witnesses: Witness, high: Watermark | None = None) -> Copied:
    place = Place("old.000003", 500, f"mysql:{OLD}")
    position = GtidPosition(old(ranges), place, Anchor(place, 77), witnesses)
    return Copied(TABLE, position, old(touched), high)


def high(ranges: str, *ends: Witness) -> HighMark:
    return HighMark("old.000003", 900, f"mysql:{OLD}", old(ranges), ends)


def asked(table: Copied, executed: GtidSet, purged: GtidSet = NONE) -> WitnessQuestion:
    found = question(table, executed, purged)
    assert isinstance(found, WitnessQuestion), found
    return found


def answer(committed: int | None = 11_000_000, **parts: object) -> WitnessAnswer:
    whole = WitnessAnswer(committed, NONE, frozenset(), witness(11), END)
    return replace(whole, **parts)  # type: ignore[arg-type]


def why(table: Copied, executed: GtidSet, purged: GtidSet = NONE) -> str:
    found = question(table, executed, purged)
    assert not isinstance(found, WitnessQuestion)
    return f"{type(found).__name__}: {found.found}"


def test_at_the_common_point_the_last_transaction_alone_is_asked_for() -> None:
    table = copied("1-11", "1-4", witness(11), witness(9))
    found = asked(table, old("1-11").union(new("1-5")))
    assert (found.after, found.awaited, found.witness) == (old("1-10"), old("11"), witness(11))
    moved = judge(table, found, answer())
    assert isinstance(moved, MovedPosition)
    assert moved.position == GtidPosition(old("1-11"), END.at, END)
    assert moved.position.witnesses == (witness(11), witness(9))
    assert not moved.cut


def test_a_tail_that_did_not_touch_the_table_is_cut() -> None:
    """The proof begins at the last witness that the server has, and is of all that follows it."""
    table = copied("1-13", "1-4", witness(13), witness(9), witness(2))
    found = asked(table, old("1-11").union(new("1-5")))
    assert (found.after, found.awaited, found.witness) == (old("1-8"), old("9-11"), witness(9))
    moved = judge(table, found, answer(committed=9_000_000))
    assert isinstance(moved, MovedPosition)
    assert (moved.position.gtids, moved.cut) == (old("1-11"), old("12-13"))
    assert moved.position.witnesses == (witness(11), witness(9), witness(2))


def test_a_tail_of_several_sources_is_cut() -> None:
    """Transactions of one server with a tag and without are of two: the three last ones of the tag
    have come since the witness, or before it."""
    place, tagged = Place("old.000003", 500, f"mysql:{OLD}"), f"{OLD}:app"
    ours = GtidSet.parse(f"{OLD}:1-13,{tagged}:1-9,{NEW}:1-100")
    witnesses = (witness(9, tagged, others=113), witness(9, OLD, others=106))
    table = Copied(TABLE, GtidPosition(ours, place, Anchor(place, 77), witnesses), old("1-4"))
    executed, purged = GtidSet.parse(f"{OLD}:1-12,{tagged}:1-8,{NEW}:1-100"), GtidSet.parse(f"{OLD}:1-3,{NEW}:1-99")
    question = asked(table, executed, purged)
    assert question.witness == witnesses[1]
    assert question.awaited == GtidSet.parse(f"{OLD}:9-12,{tagged}:7-8,{NEW}:100")
    last = witness(8, tagged, others=112)
    moved = judge(table, question, answer(committed=9_000_000, last=last))
    assert isinstance(moved, MovedPosition)
    assert (moved.position.gtids, moved.cut) == (executed, GtidSet.parse(f"{OLD}:13,{tagged}:9"))
    touching = replace(table, touched=GtidSet.parse(f"{tagged}:9"))
    assert f"{tagged}:9" in diverged(touching, executed, answer(committed=9_000_000, last=last))


def diverged(table: Copied, executed: GtidSet, found: WitnessAnswer) -> str:
    judged = judge(table, asked(table, executed), found)
    assert isinstance(judged, Diverged), judged
    return judged.divergence


def test_a_tail_that_touched_the_table_makes_it_diverge() -> None:
    table = copied("1-13", "1-4:12", witness(13), witness(9))
    proof = answer(committed=9_000_000)
    assert f"{OLD}:12" in diverged(table, old("1-11"), proof)
    assert f"{OLD}:12-13" in diverged(replace(table, touched=None), old("1-11"), proof), "any may have touched it"
    errant = replace(proof, between=frozenset({TABLE}))
    assert f"{OLD}:12" in diverged(table, old("1-11"), errant)


def test_of_a_table_that_is_catching_up_all_that_its_snapshot_may_have_read_is_asked_for() -> None:
    """Each of these may have changed the table, because the stream has not read them."""
    place = Place("old.000003", 900, f"mysql:{OLD}")
    for unknown in (place, high("1-15", witness(14)), high("1-15")):
        only = snapshot_ends(copied("1-11", "1-4", witness(11), high=unknown))
        assert isinstance(only, Diverged)
        assert "no transaction's commit time is recorded" in only.divergence
    table = copied("1-11", "1-4", witness(11), high=high("1-15", witness(15)))
    assert (table.unread, table.gtids) == (old("12-15"), old("1-15"))
    assert snapshot_ends(table) == (witness(15),)
    assert judge_ends((witness(15),), NONE, {witness(15).gtid: 15_000_000}) is None
    absent = judge_ends((witness(15),), NONE, {})
    assert absent is not None
    assert absent.divergence.endswith(f"may have read: {OLD}:15")
    other = judge_ends((witness(15),), NONE, {witness(15).gtid: 15_000_001})
    assert other is not None
    assert "other transactions have the same GTIDs" in other.divergence
    lost = judge_ends((), old("14-15"), {})
    assert lost is not None
    assert lost.divergence.endswith(f"{OLD}:14-15")


def test_what_the_snapshot_may_have_read_and_the_stream_has_is_not_asked_for() -> None:
    table = copied("1-15", "1-4", witness(15), high=high("1-15", witness(15)))
    assert not table.unread
    assert snapshot_ends(table) == ()


@pytest.mark.parametrize("ahead", [None, high("1-15", witness(15))])
def test_a_server_that_has_nothing_to_do_with_ours_makes_no_table_diverge(ahead: HighMark | None) -> None:
    """Else a wrong name would replace the copy by its rows, without being asked."""
    table = copied("1-13", "1-13", witness(13), witness(9), high=ahead)
    assert why(table, new("1-500")).startswith("Unproved")
    assert why(table, old("1-5").union(new("1-500"))).startswith("Unproved"), "a backup of long ago"
    other = judge(table, asked(table, old("1-11")), answer(committed=9_000_001))
    assert isinstance(other, Unproved), "it gave our GTIDs to other transactions"


@pytest.mark.parametrize(
    ("table", "executed", "purged", "refusal", "lacking"),
    [
        (copied("1-11", "1-4", witness(11)), old("1-10"), new("1"), "transactions that the copy lacks", False),
        (copied("1-11", "1-4", witness(11)), old("1-12"), old("1-11"), f"purged {OLD}:11 from its binlog", False),
        (copied("1-11", "1-4", witness(11), witness(9)), old("1-10"), old("1-9"), f"purged {OLD}:9 from", True),
        (copied("1-11"), old("1-10"), NONE, "no transaction's commit time is recorded", False),
        (copied("1-11", "1-4", witness(11)), old("1-10"), NONE, "none of the transactions whose commit times", True),
        (copied("1-11", "1-4", witness(8, others=3)), old("1-10"), NONE, "lacks transactions of other servers", False),
    ],
)
def test_what_cannot_be_proved_stops(
    table: Copied, executed: GtidSet, purged: GtidSet, refusal: str, lacking: bool
) -> None:
    """`lacking`: a replica that gets more may prove it."""
    reason = question(table, executed, purged)
    assert isinstance(reason, Unproved)
    assert refusal in reason.found
    assert reason.lacking == lacking


def test_an_offset_without_gtids_proves_nothing() -> None:
    table = replace(copied("1-11"), position=FilePosition(Place("old.000003", 500, f"mysql:{OLD}")))
    assert why(table, old("1-11")).startswith("Unproved")


@pytest.mark.parametrize(
    ("answered", "found"),
    [
        (answer(committed=None), f"does not send {OLD}:11"),
        (answer(missing=old("11")), f"does not send {OLD}:11"),
        (answer(committed=11_000_001), "other transactions have the same GTIDs"),
        (answer(between=frozenset({TABLE})), "change the table before the last one of ours"),
    ],
)
def test_an_answer_that_disproves_stops(answered: WitnessAnswer, found: str) -> None:
    table = copied("1-11", "1-4", witness(11))
    judged = judge(table, asked(table, old("1-11")), answered)
    assert isinstance(judged, Unproved)
    assert found in judged.found


def test_what_lies_between_ours_in_other_tables_disproves_nothing() -> None:
    table = copied("1-11", "1-4", witness(11))
    other = answer(between=frozenset({"shop.items"}))
    assert isinstance(judge(table, asked(table, old("1-11")), other), MovedPosition)


def test_of_witnesses_one_stays_in_each_tenfold_of_age() -> None:
    kept: tuple[Witness, ...] = ()
    for number in range(1, 5000):
        kept = with_newest(witness(number), kept)
    ages = [4999 - w.gtid.number for w in kept]
    assert ages[0] == 0
    assert len(ages) == 4
    assert 0 < ages[1] < 10 <= ages[2] < 100 <= ages[3] < 1000


def test_the_witnesses_are_of_the_position_that_has_all() -> None:
    """A position that neither has, has no last transaction."""
    less = GtidPosition(old("1-5"), witnesses=(witness(5),))
    more = GtidPosition(old("1-9"), witnesses=(witness(9),))
    other = GtidPosition(old("1-7:20"), witnesses=(witness(20),))
    assert less.join(more).witnesses == more.join(less).witnesses == (witness(9),)
    assert less.meet(more).witnesses == (witness(5),)
    assert more.join(other).witnesses == ()


def test_witnesses_travel_with_their_position() -> None:
    position: Position = GtidPosition(old("1-9"), witnesses=(witness(9), witness(2, NEW, others=7)))
    read = position_from_dict(json.loads(json.dumps(position_to_dict(position))))
    assert isinstance(read, GtidPosition)
    assert read.witnesses == (witness(9), witness(2, NEW, others=7))
    assert read == position


def test_a_lineage_keeps_where_it_was() -> None:
    first = Lineage.of("mysql:a")
    moved = first.moved_to("mysql:b")
    assert moved.binlogs == ("mysql:a", "mysql:b")
    assert moved.accepts("mysql:b")
    assert not moved.accepts("mysql:a")
    assert first.leads_to(moved)
    assert first.leads_to(first)
    assert not first.leads_to(Lineage.of("mysql:b"))
    assert not moved.leads_to(first)
    for number in range(40):
        moved, before = moved.moved_to(f"mysql:{number}"), moved
        assert before.leads_to(moved)
    assert len(moved.binlogs) == 16
