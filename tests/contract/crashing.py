"""A small sync whose whole knowledge is in its targets: run it, kill it anywhere, run it again,
until it ends by itself.

Creates a table, reads it in three waves, merges four batches, reads it again under nonce 1 beside
itself, publishes, merges two more batches. `EXPECTED` is what the table must hold whenever the
program has ended well, however often it was killed before.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable
from dataclasses import replace

from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Commit, Replace, Upsert
from cdcsync_spark.sinks.contract.sink import Sink, Target
from contract.crash_sinks import Place, sink_of
from contract.sinkcase import ORDERS, WATERMARK, Row, batch, first_state, keys_of, rows_of, stage

BOUNDS = (None, (10,), (20,), None)
SPLITS = tuple(Split(start, end) for start, end in itertools.pairwise(BOUNDS))
OLD: tuple[list[Row], ...] = ([(1, "old"), (2, "old")], [(11, "old")], [(21, "old"), (22, "old")])
NEW: tuple[list[Row], ...] = ([(1, "new"), (3, "new")], [], [(21, "new"), (29, "new")])
#: per batch of the stream: upserts and deleted keys; 1 to 4 come before the table's resnapshot, 5
#: and 6 after
BATCHES: dict[int, tuple[list[Row], list[Row]]] = {
    1: ([(30, "1")], [(2,)]),
    2: ([(1, "2"), (31, "2")], []),
    3: ([], [(30,), (11,)]),
    4: ([(30, "4")], [(99,)]),
    5: ([(1, "5"), (40, "5")], [(3,)]),
    6: ([(3, "6")], [(40,)]),
}
EXPECTED: list[Row] = [(1, "5"), (21, "new"), (29, "new"), (3, "6")]


def fill(target: Target, waves: tuple[list[Row], ...], nonce: int, epoch: int) -> TableState:
    """The snapshot from where the target says that it ended."""
    state = target.prepare(first_state(epoch=epoch, nonce=nonce))
    for split, rows in zip(SPLITS, waves, strict=True):
        if state.snapshot_complete or state.finished.frontier != split.start:
            continue
        append = stage(target, ORDERS, rows, f"wave-{nonce}")
        after = replace(state.after_wave([split], FilePosition(WATERMARK), WATERMARK, len(rows), 0), epoch=epoch)
        state = target.commit(
            epoch, _once(lambda found, after=after: found.finished == after.finished, Commit(after, append))
        )
    return state


def _once(done: Callable[[TableState], bool], commit: Commit) -> Callable[[TableState], Commit | None]:
    def build(found: TableState) -> Commit | None:
        return (
            None if done(found) else replace(commit, state=replace(commit.state, commit_number=found.commit_number + 1))
        )

    return build


def stream(target: Target, numbers: range, epoch: int) -> None:
    for number in numbers:
        upserts, deletes = BATCHES[number]
        target.commit(epoch, batch(number, Upsert(rows_of(ORDERS, upserts), keys_of(ORDERS, deletes)), epoch))


def read_again(sink: Sink, main: Target, epoch: int) -> None:
    found = main.last_commit()
    if found is not None and found.resnapshot_nonce < 1:
        side = sink.target(ORDERS.id, generation=1)
        fresh = fill(side, NEW, 1, epoch)
        files = side.staged()
        commit = Commit(replace(fresh, epoch=epoch), Replace(files))
        main.commit(epoch, _once(lambda found: found.resnapshot_nonce >= 1, commit))
    sink.discard(ORDERS.id, 1)


def run(sink: Sink, epoch: int) -> None:
    main = sink.target(ORDERS.id)
    found = main.last_commit()
    if found is None or found.resnapshot_nonce < 1:
        fill(main, OLD, 0, epoch)
        stream(main, range(1, 5), epoch)
    read_again(sink, main, epoch)
    stream(main, range(5, 7), epoch)


def run_armed(place: Place, epoch: int, gate: str, kind: str) -> None:
    """A process's work: the sync, which ends at the gate (as `CDCSYNC_GATE` has it), or by any
    warning."""
    warnings.simplefilter("error")
    os.environ["CDCSYNC_GATE"] = gate
    run(sink_of(kind, place), epoch)
