"""One table's way through a snapshot run: where its waves go, what is unread, and how a
resnapshot is published.

A resnapshot is written to a staging table by the same steps and commits, and replaces the
old content in one commit that carries the new state (R5); until then its readers and the stream
know nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cdcsync_core.errors import PermanentError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.positions.chunk import Split
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.remedies import resnapshot
from cdcsync_core.runs.run import TableAssignment
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.changes import Commit, Replace, Staged
from cdcsync_spark.sinks.contract.checks import refuse_other_copy, refuse_other_identity, refuse_superseded
from cdcsync_spark.sinks.contract.sink import Sink, Target
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
    #: generations that were begun and given up since that which is published
    abandoned: tuple[int, ...] = ()

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
        """Replaces the table's old content by what was staged, all of it.

        Raises SinkConflict for a copy that is gone, or is not as this run left it.
        """
        try:
            staged, fresh = self._copy(epoch)
        except PermanentError:
            if not self._is_published_by_another():
                raise
            return
        # the stream may use a higher epoch than this run knows of; the publication takes the table
        # over from it
        published = self.main.last_commit()
        epoch = max(epoch, published.epoch + 1) if published else epoch

        def build(state: TableState) -> Commit | None:
            if state.generation >= fresh.generation:
                return None
            return Commit(replace(fresh, epoch=epoch, commit_number=state.commit_number + 1), Replace(staged))

        gate("before-publish")
        self.state = self.main.commit(epoch, build)
        gate("published")
        for generation in (*self.abandoned, fresh.generation):
            self.sink.discard(self.assignment.table.id, generation)
        self.published = True

    def _copy(self, epoch: int) -> tuple[Staged, TableState]:
        """The copy's rows, and the state to publish with them. The state is read after the rows, so
        one that is as it was left is theirs."""
        staged, copy = self.target.staged(), self.target.last_commit()
        if copy is not None:
            refuse_superseded(copy, epoch)
        refuse_other_copy(copy, self.state)
        return staged, replace(self.state, written=copy.written if copy else None)

    def _is_published_by_another(self) -> bool:
        """Whether another run has published this copy meanwhile, and removed it."""
        state = self.main.last_commit()
        if state is None or state.generation < self.state.generation:
            return False
        self.state, self.published = state, True
        return True


def open_table(
    assignment: TableAssignment,
    sink: Sink,
    sync: str,
    lineage: Lineage,
    epoch: int,
    feed: PlanFeed,
    *,
    early: bool = False,
) -> SnapshotTable:
    """Asks the target what it has, creating it if absent. `sync` is namespace/name, `lineage`
    the source's; `early` is the delivery of a snapshot that begins now.

    Raises SinkConflict for a table that is not this sync's.
    """
    table = assignment.table
    first = _first_state(assignment, Identity(sync, lineage, str(table.id)), epoch, early)
    main = sink.target(table.id)
    last = main.last_commit()
    if last is None or _satisfies(last, assignment):
        if last is not None and last.generation > 0:
            sink.discard(table.id, last.generation)  # of a run that died after the publication
        target, state, published = main, _begun(main, last, first), True
    else:
        target, state = _staged_copy(sink, first, last)
        published = False
    feed.table, feed.planned_before, feed.frontier = state.capture, state.splits, state.finished.frontier
    feed.stale = state.capture != table
    gate("table-prepared")
    abandoned = () if published or last is None else tuple(range(last.generation + 1, state.generation))
    return SnapshotTable(assignment, sink, main, target, state, feed, published, abandoned)


def _begun(main: Target, last: TableState | None, first: TableState) -> TableState:
    """The state of the content that is asked for. What is complete stays as it is where it is from
    another server's binlog: a run of the stream proves whether this one leads on from there."""
    if last is None:
        return main.prepare(first)
    if last.snapshot_complete and not last.identity.lineage.accepts(first.identity.lineage.newest):
        there = replace(first.identity, lineage=last.identity.lineage)
        refuse_other_identity(last, replace(first, identity=there))
        return last
    _refuse_other_lineage(last, first)
    return main.prepare(first)


def _refuse_other_lineage(state: TableState, expected: TableState) -> None:
    """Content of this very copy from another server's binlog: its position is lost (R6)."""
    has, needs = state.identity, expected.identity
    moved = has.lineage.newest != needs.lineage.newest
    if moved and replace(has, lineage=needs.lineage) == needs:
        raise fail(
            Reason.POSITION_LOST,
            f"the target is of the binlog {has.lineage.newest}, and the server's is {needs.lineage.newest}",
            needed="the server that the target was copied from",
            remedy=resnapshot(needs.table),
            table=needs.table,
        )


def _satisfies(state: TableState, assignment: TableAssignment) -> bool:
    return state.resnapshot_nonce >= assignment.nonce and state.generation >= assignment.generation


def unpublished(assignment: TableAssignment, sink: Sink) -> TableState | None:
    """What a run before has read of the content that is asked for, if it has not published it."""
    published = sink.target(assignment.table.id).last_commit()
    if published is None or _satisfies(published, assignment):
        return None if published is None or published.snapshot_complete else published
    generation = max(assignment.generation, published.generation + 1)
    while True:
        begun = sink.target(assignment.table.id, generation=generation).last_commit()
        if begun is None or begun.resnapshot_nonce >= max(assignment.nonce, published.resnapshot_nonce):
            return begun
        generation += 1


def _first_state(assignment: TableAssignment, identity: Identity, epoch: int, early: bool) -> TableState:
    """That of a target of which nothing is read yet."""
    return TableState(
        identity,
        assignment.table,
        TargetSchema.of(assignment.table),
        epoch,
        resnapshot_nonce=assignment.nonce,
        generation=assignment.generation,
        early=early,
    )


def _staged_copy(sink: Sink, first: TableState, published: TableState) -> tuple[Target, TableState]:
    """The staged copy that is to be filled: one that was begun goes on, unless it was begun before
    the user asked again.

    The number of one that is given up is never used again, because the run that filled it may live
    yet. It follows from what is in the sink, so every later run finds the same copy.
    """
    nonce = max(first.resnapshot_nonce, published.resnapshot_nonce)
    generation = max(first.generation, published.generation + 1)
    while True:
        fresh = replace(first, resnapshot_nonce=nonce, generation=generation)
        target = sink.target(first.capture.id, generation=generation)
        begun = target.last_commit()
        if begun is None or begun.resnapshot_nonce >= nonce:
            if begun is not None:
                _refuse_other_lineage(begun, fresh)
            return target, target.prepare(fresh)
        generation += 1
