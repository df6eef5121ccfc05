"""One table's way through a snapshot run: where its waves go, what is unread, and how a
resnapshot is published.

A resnapshot is written to a staging table by the same steps and commits, and replaces the
old content in one commit that carries the new state (R5); until then its readers and the stream
know nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cdcsync_core.chunk import Split
from cdcsync_core.gates import gate
from cdcsync_core.lineage import Lineage
from cdcsync_core.run import TableAssignment
from cdcsync_core.state import Identity, TableState
from cdcsync_core.target_schema import TargetSchema
from cdcsync_spark.sinks.base import Commit, Replace, Sink, Target
from cdcsync_spark.snapshot.plan_reader import PlanFeed


@dataclass
class SnapshotTable:
    """`target` takes the waves; it is `main`, or for a resnapshot the staging table."""

    assignment: TableAssignment
    sink: Sink
    main: Target
    target: Target
    state: TableState
    feed: PlanFeed
    published: bool

    @property
    def name(self) -> str:
        return str(self.assignment.table.id)

    def unread_splits(self) -> Iterator[Split]:
        """In key order from where the target ends; its plan is the table's as recorded in the
        target."""
        if self.state.snapshot_complete:
            return iter(())
        return self.feed.splits(self.state.finished.frontier)

    def publish(self, epoch: int) -> None:
        """Replaces the table's old content by what was staged, all of it."""
        fresh, staged = self.state, self.target.staged()
        # the stream may use a higher epoch than this run knows of; the publication takes the table
        # over from it
        found = self.main.last_commit()
        epoch = max(epoch, found.epoch + 1) if found else epoch

        def build(found: TableState) -> Commit | None:
            if found.resnapshot_nonce >= fresh.resnapshot_nonce:
                return None
            return Commit(replace(fresh, epoch=epoch, commit_number=found.commit_number + 1), Replace(staged))

        gate("before-publish")
        self.state = self.main.commit(epoch, build)
        gate("published")
        self.sink.discard(self.assignment.table.id, self.assignment.nonce)
        self.published = True


def open_table(
    assignment: TableAssignment, sink: Sink, sync: str, lineage: Lineage, epoch: int, feed: PlanFeed
) -> SnapshotTable:
    """Asks the target what it has, creating it if absent. `sync` is namespace/name, `lineage`
    the source's.

    Raises SinkConflict for a table that is not this sync's.
    """
    table = assignment.table
    first = TableState(
        Identity(sync, lineage, str(table.id)), table, TargetSchema.of(table), epoch, resnapshot_nonce=assignment.nonce
    )
    main = sink.target(table.id)
    found = main.last_commit()
    again = found is not None and assignment.nonce > found.resnapshot_nonce
    if found is not None and 0 < assignment.nonce == found.resnapshot_nonce:
        sink.discard(table.id, assignment.nonce)  # a run that died after the publication left its log
    target = sink.target(table.id, generation=assignment.nonce) if again else main
    state = target.prepare(first)
    feed.table, feed.planned_before, feed.frontier = state.capture, state.splits, state.finished.frontier
    gate("table-prepared")
    return SnapshotTable(assignment, sink, main, target, state, feed, published=not again)
