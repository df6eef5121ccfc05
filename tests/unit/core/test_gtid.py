"""GTID sets read what servers print, tags included, and refuse what they cannot mean."""

from __future__ import annotations

import random

import pytest

from cdcsync_core.positions.gtid import Gtid, GtidSet

A = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
B = "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" \n ", ""),
        (f"{A}:1", f"{A}:1"),
        (f"{A}:1-1", f"{A}:1"),
        (f"{A}:1-3:4-5", f"{A}:1-5"),
        (f"{A}:7:1-3", f"{A}:1-3:7"),
        (f"{A.upper()}:1-3", f"{A}:1-3"),
        (f"{B}:1,\n{A}:2", f"{A}:2,{B}:1"),
        (f"{A}:1-3,{A}:3-9", f"{A}:1-9"),
        (f" {A} : 1-3 : 5 ", f"{A}:1-3:5"),
        # a tag holds for the intervals after it, until the next tag (MySQL 8.3, "GTID Format and
        # Storage")
        (f"{A}:1-3:batch:4-5:7", f"{A}:1-3,{A}:batch:4-5:7"),
        (f"{A}:batch:1:Other_2:2-3", f"{A}:batch:1,{A}:other_2:2-3"),
        (f"{A}:batch:1-9,{A}:10", f"{A}:10,{A}:batch:1-9"),
        # numbers go to 2^63 - 1
        (f"{A}:1-9223372036854775807", f"{A}:1-9223372036854775807"),
    ],
)
def test_a_servers_text_is_read_and_printed_in_one_form(text: str, canonical: str) -> None:
    """Rule R5: the set in a target and the set of the server are compared by value."""
    assert str(GtidSet.parse(text)) == canonical
    assert GtidSet.parse(canonical) == GtidSet.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        A,
        f"{A}:",
        f"{A}:0",
        f"{A}:5-3",
        f"{A}:-3",
        f"{A}:1-2-3",
        f"{A}:1-",
        f"{A}:9tag:1",
        f"{A}:batch",
        f"{A}:1-3:batch",
        f"{A}:{'t' * 33}:1",
        f"{A[:-1]}:1",
        "0-1-57",
    ],
)
def test_what_is_no_gtid_set_is_refused(text: str) -> None:
    """A MariaDB position or a cut text must not pass for an empty set: then everything would be
    reread, or nothing."""
    with pytest.raises(ValueError, match="not a"):
        GtidSet.parse(text)


def test_the_same_number_under_another_tag_is_another_transaction() -> None:
    tagged = GtidSet.parse(f"{A}:batch:5")
    assert Gtid(f"{A}:batch", 5) in tagged
    assert Gtid(A, 5) not in tagged
    assert not tagged.covers(GtidSet.parse(f"{A}:5"))


def test_a_gap_is_not_covered() -> None:
    """Rule R5: sets have gaps; what is after a gap says nothing about what is in it."""
    found = GtidSet.parse(f"{A}:1-10:12-20")
    assert Gtid(A, 11) not in found
    assert not found.covers(GtidSet.parse(f"{A}:1-20"))
    assert found.with_gtids([Gtid(A, 11)]) == GtidSet.parse(f"{A}:1-20")


def test_a_set_is_not_changed_by_its_operations() -> None:
    first = GtidSet.parse(f"{A}:1-3")
    first.union(GtidSet.parse(f"{B}:1"))
    first.with_gtids([Gtid(A, 4)])
    assert str(first) == f"{A}:1-3"


@pytest.mark.parametrize("text", ["", "7", f"{A}:", f"{A}:x", f":{7}", f"{A}:-1"])
def test_what_is_no_gtid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a GTID"):
        Gtid.parse(text)


def test_a_tagged_gtid_is_read() -> None:
    assert Gtid.parse(f"{A.upper()}:batch:7") == Gtid(f"{A}:batch", 7)


def test_subtraction_leaves_what_the_other_lacks() -> None:
    ours = GtidSet.parse(f"{A}:1-10:20-30,{B}:5")
    assert ours.subtract(GtidSet.parse(f"{A}:3-4:9-21:30,{B}:1-9")) == GtidSet.parse(f"{A}:1-2:5-8:22-29")
    assert ours.subtract(GtidSet()) == ours
    assert not ours.subtract(ours)


def test_the_transactions_since_one_are_of_its_source() -> None:
    ours = GtidSet.parse(f"{A}:1-10:20-30,{B}:5-50")
    assert ours.since(Gtid(A, 9)) == GtidSet.parse(f"{A}:9-10:20-30")
    assert ours.count() == 67
    assert ours.count(without=A) == 46


def test_a_filled_set_keeps_the_latest_intervals() -> None:
    ours = GtidSet.parse(f"{A}:1:3:5:7:9,{B}:2:4")
    assert ours.filled(3) == GtidSet.parse(f"{A}:1-5:7:9,{B}:2:4")
    assert ours.filled(5) == ours
    assert ours.filled(3).covers(ours)


def test_subtraction_is_that_of_the_numbers() -> None:
    drawn = random.Random(7)
    for _ in range(300):
        ours, theirs = (set(drawn.sample(range(1, 25), drawn.randint(1, 20))) for _ in range(2))
        sets = [GtidSet({A: [(n, n) for n in numbers]}) for numbers in (ours, theirs, ours - theirs)]
        assert sets[0].subtract(sets[1]) == sets[2]
