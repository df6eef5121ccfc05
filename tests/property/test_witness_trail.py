"""A trail of witnesses is what `with_newest` makes after each transaction, whatever the times of
their commits: in one second, long after, or before those of the ones that came earlier."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.positions.gtid import Gtid
from cdcsync_core.positions.witness import Witness, WitnessTrail, with_newest

SECOND = 1_000_000
STEPS = st.one_of(
    st.integers(-2 * SECOND, 12 * SECOND),
    st.sampled_from((0, 1, SECOND, 10 * SECOND, 10 * SECOND - 1, 90 * SECOND, 100 * SECOND, 1000 * SECOND)),
    st.integers(-2000 * SECOND, 2000 * SECOND),
)


@given(st.lists(st.tuples(STEPS, st.integers(1, 3), st.booleans()), max_size=80), st.integers(0, 80))
def test_a_trail_is_the_fold_by_with_newest(steps: list[tuple[int, int, bool]], taken_up: int) -> None:
    """Also one that begins with the witnesses of a position, and with a transaction that comes
    twice."""
    trail, folded, committed = WitnessTrail(), tuple[Witness, ...](), 10**15
    for number, (step, others, again) in enumerate(steps):
        if number == taken_up:
            trail = WitnessTrail(trail.witnesses)
        committed += step
        if not again or not folded:
            newest = Witness(Gtid("a", number + 1), committed, others)
        else:
            newest, committed = folded[-1], folded[-1].committed
        folded = with_newest(newest, folded)
        trail.add(newest.gtid, newest.committed, newest.others)
        assert trail.witnesses == folded


def test_transactions_of_one_time_are_in_the_steady_times() -> None:
    """MariaDB's have whole seconds: `with_newest` is called for the first two of them only."""
    trail = WitnessTrail()
    for number in range(1, 4):
        trail.add(Gtid("a", number), SECOND, 0)
    first = trail._behind
    for number in range(4, 1000):
        trail.add(Gtid("a", number), SECOND, 0)
        assert trail._behind is first
    assert trail.witnesses == (Witness(Gtid("a", 999), SECOND, 0), Witness(Gtid("a", 1), SECOND, 0))


def test_most_transactions_of_a_busy_second_are_in_the_steady_times() -> None:
    trail = WitnessTrail()
    for number in range(1, 4):
        trail.add(Gtid("a", number), number * SECOND, 0)
    behind = trail.witnesses[1:]
    for number in range(4, 10_000):
        trail.add(Gtid("a", number), 4 * SECOND + number, 0)
    assert trail.witnesses == (Witness(Gtid("a", 9_999), 4 * SECOND + 9_999, 0), *behind)
    trail.clear()
    assert trail.witnesses == ()


@given(st.lists(st.integers(0, 3000), max_size=5), st.lists(st.integers(-5, 2000), max_size=20))
def test_it_goes_on_from_any_witnesses(ages: list[int], steps: list[int]) -> None:
    """Also from those of a position that `with_newest` did not make."""
    begun = tuple(Witness(Gtid("b", n + 1), (10**9 - age) * SECOND, 0) for n, age in enumerate(ages))
    trail, folded, committed = WitnessTrail(begun), begun, 10**9
    for number, step in enumerate(steps):
        committed += step
        trail.add(Gtid("a", number + 1), committed * SECOND, 0)
        folded = with_newest(Witness(Gtid("a", number + 1), committed * SECOND, 0), folded)
        assert trail.witnesses == folded
