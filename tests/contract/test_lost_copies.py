"""R5: a resnapshot replaces a table by the staged copy that its run has filled, or not at all. A
copy that goes away after the last wave, or comes back as another, is not taken for an empty one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdcsync_core.errors import PermanentError
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.position import FilePosition
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import Commit, Replace
from cdcsync_spark.sinks.contract.checks import Superseded
from cdcsync_spark.sinks.contract.sink import Sink, Target
from cdcsync_spark.sinks.delta.history.target import HistorySink
from cdcsync_spark.sinks.delta.replica.staging_table import DeltaStaging
from cdcsync_spark.sinks.iceberg.history.target import IcebergHistorySink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from cdcsync_spark.snapshot.table import SnapshotTable
from contract.sinkcase import ORDERS, SYNC, WATERMARK, content, first_state, stage, stamp, whole_snapshot
from support.folder_catalog import iceberg_sink
from support.lost_copies import LOST, opened, read_again, refuse
from support.memory_target import MemorySink
from support.snapshots import wave

OTHER = "the staged copy is not as the snapshot left it: it has 0 rows of 0 splits, and had 1 of 1"
HISTORIES: dict[str, Callable[[Path], Sink]] = {
    "memory": lambda folder: MemorySink(sync=SYNC, events=True),
    "delta-history": lambda folder: HistorySink(open_store(str(folder / "lake")), SYNC),
    "iceberg-history": lambda folder: IcebergHistorySink(iceberg_sink(open_store(str(folder)), SYNC)),
}


def lose(sink: Sink, table: SnapshotTable) -> None:
    sink.discard(ORDERS.id, table.state.generation)


def make_again(sink: Sink, table: SnapshotTable) -> None:
    lose(sink, table)
    state = replace(first_state(epoch=2, nonce=1), early=table.state.early)
    table.target = sink.target(ORDERS.id, generation=table.state.generation)
    assert table.target.prepare(state).splits == 0


@pytest.mark.parametrize(("fault", "error"), [(lose, LOST), (make_again, OTHER)])
def test_a_copy_that_is_lost_before_it_is_published_leaves_the_table_as_it_was(
    sink: Sink, target: Target, tmp_path: Path, fault: Callable[[Sink, SnapshotTable], None], error: str
) -> None:
    before = whole_snapshot(target, [(1, "old"), (2, "old")])
    table = read_again(sink, tmp_path)
    fault(sink, table)
    refuse(table, error)
    assert (target.last_commit(), content(target)) == (before, [(1, "old"), (2, "old")])
    again = read_again(sink, tmp_path)
    again.publish(2)
    assert (again.published, content(target)) == (True, [(1, "new")])


@pytest.mark.parametrize("kind", HISTORIES)
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(("fault", "error"), [(lose, LOST), (make_again, OTHER)])
def test_a_table_of_events_keeps_its_state_where_the_copy_is_lost(
    tmp_path: Path, kind: str, early: bool, fault: Callable[[Sink, SnapshotTable], None], error: str
) -> None:
    sink = HISTORIES[kind](tmp_path)
    target = sink.target(ORDERS.id)
    before = whole_snapshot(target, [(1, "old"), (2, "old")])
    table = read_again(sink, tmp_path, early=early)
    fault(sink, table)
    refuse(table, error)
    assert target.last_commit() == before


@pytest.mark.parametrize("kind", [kind for kind in HISTORIES if kind != "memory"])
def test_a_history_refuses_a_copy_that_changes_while_it_is_published(tmp_path: Path, kind: str) -> None:
    """Publishes by early delivery, where the commit that claims the copy names its files."""
    sink = HISTORIES[kind](tmp_path)
    target = sink.target(ORDERS.id)
    before = whole_snapshot(target, [(1, "old")])
    table = read_again(sink, tmp_path, early=True)
    staged = table.target.staged()

    def build(found: TableState) -> Commit:
        return Commit(replace(table.state, commit_number=found.commit_number + 1), Replace(staged))

    make_again(sink, table)
    with pytest.raises(PermanentError, match=OTHER):
        target.commit(2, build)
    assert target.last_commit() == before


def test_a_copy_that_another_run_has_published_is_not_missed(sink: Sink, target: Target, tmp_path: Path) -> None:
    whole_snapshot(target, [(1, "old")])
    table = read_again(sink, tmp_path)
    other = opened(sink, tmp_path)
    other.publish(3)
    published = target.last_commit()
    table.publish(2)
    assert (table.published, table.state) == (True, published)
    assert content(target) == [(1, "new")]


def test_a_copy_that_a_newer_run_has_is_left_to_it(sink: Sink, target: Target, tmp_path: Path) -> None:
    before = whole_snapshot(target, [(1, "old")])
    table = read_again(sink, tmp_path)
    table.target.commit(3, stamp(3))
    with pytest.raises(Superseded):
        table.publish(2)
    assert target.last_commit() == before


def test_a_copy_whose_rows_are_sent_is_never_empty_for_want_of_it(tmp_path: Path) -> None:
    copy = DeltaStaging(open_store(str(tmp_path / "lake")), SYNC).copy(ORDERS.id, 1)
    with pytest.raises(PermanentError, match=LOST):
        copy.staged()
    copy.prepare(first_state(nonce=1))
    assert copy.staged() == ()
    assert copy.last_commit().position is None  # type: ignore[union-attr]
    state = copy.commit(1, wave(Split(), stage(copy, ORDERS, [])))
    assert (state.position, copy.staged()) == (FilePosition(WATERMARK), ())
