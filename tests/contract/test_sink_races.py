"""R8: one writer at a time by compare-and-set, whatever comes between "open" and "write".

`build` is called between the two, so a test puts the other writer's work there: no delay has to be
guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Append, Change, Commit, Replace, Upsert
from cdcsync_spark.sinks.contract.sink import Sink, Target
from contract.sinkcase import ORDERS, content, first_state, in_order, keys_of, rows_of, stage, stamp, whole_snapshot

CHANGES: dict[str, Callable[[Target], Change]] = {
    "append": lambda target: stage(target, ORDERS, [(5, "zombie")]),
    "merge": lambda target: Upsert(rows_of(ORDERS, [(2, "zombie")]), keys_of(ORDERS, [(1,)])),
    "insert only": lambda target: Upsert(rows_of(ORDERS, [(6, "zombie")]), keys_of(ORDERS, [])),
    "replace": lambda target: Replace(stage(target, ORDERS, [(7, "zombie")]).staged),
    "stamp": lambda target: AdvancePosition(),
}


@pytest.mark.parametrize("own", sorted(CHANGES))
@pytest.mark.parametrize("other", ["merge", "append", "stamp", "replace"])
def test_a_zombie_that_wakes_on_a_stale_handle_loses(target: Target, own: str, other: str) -> None:
    """The zombie has opened the table and decided; its successor commits; the zombie writes."""
    before = whole_snapshot(target, [(1, "a"), (2, "b")])
    change, calls = CHANGES[own](target), 0
    theirs = CHANGES[other](target)

    def successor(found: TableState) -> Commit:
        return Commit(replace(found, commit_number=found.commit_number + 1, epoch=2), theirs)

    def zombie(found: TableState) -> Commit:
        nonlocal calls
        calls += 1
        target.commit(2, successor)
        return Commit(replace(found, commit_number=found.commit_number + 1), change)

    with pytest.raises(PermanentError, match="superseded by epoch 2") as stopped:
        target.commit(1, zombie)
    assert stopped.value.reason is Reason.SINK_CONFLICT
    assert calls == 1
    after = target.last_commit()
    assert after is not None
    assert (after.epoch, after.commit_number) == (2, before.commit_number + 1)
    alone = {"merge": [(2, "zombie")], "append": [(1, "a"), (2, "b"), (5, "zombie")], "stamp": [(1, "a"), (2, "b")]}
    assert content(target) == alone.get(other, [(7, "zombie")])


@pytest.mark.parametrize("own", ["append", "merge", "stamp"])
def test_the_loser_of_a_race_decides_again_on_what_won(target: Target, own: str) -> None:
    """Two writers of one epoch (a task retried, a driver that lost its report): nothing is applied
    twice."""
    whole_snapshot(target, [(1, "a"), (2, "b")])
    change = CHANGES[own](target)
    seen: list[int] = []

    def once(found: TableState) -> Commit | None:
        seen.append(found.commit_number)
        if found.rows == 77:
            return None
        commit = Commit(replace(found, commit_number=found.commit_number + 1, rows=77), change)
        if len(seen) == 1:
            # equal entries of one millisecond count as one commit whose answer was lost
            other = replace(commit, state=replace(commit.state, nulled_dates=1))
            target.commit(1, lambda inner: other)
        return commit

    state = target.commit(1, once)
    assert seen == [state.commit_number - 1, state.commit_number]
    rows = {"append": [(1, "a"), (2, "b"), (5, "zombie")], "merge": [(2, "zombie")], "stamp": [(1, "a"), (2, "b")]}
    assert content(target) == rows[own]


@pytest.mark.parametrize("kind", ["merge", "append"])
def test_writers_in_parallel_serialise(target: Target, kind: str) -> None:
    """Each commit writes the number of the state that it makes: all are there, each once."""
    rounds, writers = 6, 3
    first = whole_snapshot(target, [(0, "start")])

    def build(found: TableState) -> Commit:
        number = found.commit_number + 1
        if kind == "merge":
            change: Change = Upsert(
                rows_of(ORDERS, [(0, f"by {number}"), (number, "new")]), keys_of(ORDERS, [(number - 1,)])
            )
        else:
            change = stage(target, ORDERS, [(number, f"by {number}")])
        return Commit(replace(found, commit_number=number), change)

    def work(_: int) -> None:
        for _ in range(rounds):
            target.commit(1, build)

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(work, range(writers)))
    last = first.commit_number + rounds * writers
    state = target.last_commit()
    assert state is not None
    assert state.commit_number == last
    if kind == "merge":
        assert content(target) == [(0, f"by {last}"), (last, "new")]
    else:
        made = [(n, f"by {n}") for n in range(first.commit_number + 1, last + 1)]
        assert content(target) == in_order([(0, "start"), *made])


def test_a_table_is_made_once_by_many(sink: Sink) -> None:
    states = [first_state(epoch=e) for e in range(1, 5)]
    with ThreadPoolExecutor(len(states)) as pool:
        made = list(pool.map(lambda s: sink.target(ORDERS.id).prepare(s), states))
    assert len({s.epoch for s in made}) == 1
    assert sink.target(ORDERS.id).last_commit() == made[0]


def test_a_claim_ends_a_run_that_stages(target: Target) -> None:
    """A wave staged before and committed after its successor's claim is an orphan."""
    whole_snapshot(target, [(1, "a")])
    late = stage(target, ORDERS, [(2, "late")])
    assert isinstance(late, Append)
    target.commit(2, stamp(epoch=2))
    with pytest.raises(PermanentError, match="superseded"):
        target.commit(1, lambda found: Commit(replace(found, commit_number=found.commit_number + 1), late))
    assert content(target) == [(1, "a")]
