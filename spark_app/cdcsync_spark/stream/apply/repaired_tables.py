"""The tables that a crash of the source concerns, repaired where the reader leaves the file that
the crash ended; why that is right is in `crash_repair`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.positions.position import Position
from cdcsync_core.positions.watermark import join
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_spark.binlog.batch import BinlogBatch
from cdcsync_spark.delivery.changelog import Changelog
from cdcsync_spark.delivery.events import unrepairable
from cdcsync_spark.delivery.projection import folded
from cdcsync_spark.logs import get_logger
from cdcsync_spark.sinks.contract.changes import Commit, Upsert
from cdcsync_spark.stream.apply.crash_repair import Piece, Repair
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.stream.apply.table_commits import TableCommits
from cdcsync_spark.wire.binlog.facts import FileLeft

_log = get_logger()


@dataclass
class CrashRepair:
    """`repair` compares with the source what a crash of it may have taken back; `events` is whether
    the sink takes events. `doubtful` are the names of the tables that are being repaired."""

    commits: TableCommits
    repair: Repair | None
    events: bool
    doubtful: frozenset[str] = frozenset()

    def run(self, tables: Iterable[StreamTable], batch: BinlogBatch, left: FileLeft) -> None:
        """Before anything behind the file's end is applied. A table that has passed the end was
        repaired, or read later."""
        at = batch.end.at
        assert at is not None, "the reader stands behind the file that it left"
        place = replace(at, file=left.next, offset=4)
        concerned = {t.state.capture.id: t for t in tables if t.flowing and not t.has_passed(place)}
        self.doubtful = frozenset(t.name for t in concerned.values())
        if not concerned:
            return
        assert self.repair is not None, "an applier of a stream has one"
        lost = self.repair.keys(left, {i: t.state.capture for i, t in concerned.items()})
        gate("crash-tail-read")
        passed = self.repair.passed(batch.start, place) if lost else batch.start
        for table_id, keys in lost.items():
            with self.commits.stopping_alone(concerned[table_id]):
                self._repair_table(self.repair, concerned[table_id], keys, passed)
        self.doubtful = frozenset()

    def _repair_table(self, repair: Repair, table: StreamTable, keys: pa.Table | CdcError, passed: Position) -> None:
        """The last piece moves the position behind the file's end; until then the next run begins
        the repair again, also of a table that another session locks."""
        if isinstance(keys, CdcError):
            raise keys
        if self.events and table.state.published:
            raise unrepairable(table.name)
        if table.state.capture.chunk_key is None:
            raise _unindexed(table.name)
        _log.warning("the source crashed: keys are reread", table=table.name, keys=keys.num_rows)
        for piece in repair.pieces(table.state.capture, keys, passed):
            self.commits.commit(table, partial(self._repaired, table, piece, passed))
            gate("crash-repaired")

    def _repaired(self, table: StreamTable, piece: Piece, passed: Position, state: TableState) -> Commit | None:
        if not self.commits.continues(table, state):
            return None
        assert state.position is not None
        rows = folded(Changelog(piece.changes), state)
        # what a consistent table has passed counts no more, and may be of another kind
        high = piece.high if state.consistent or state.high is None else join(state.high, piece.high)
        after = state.after_batch(passed if piece.last else state.position, piece.nulled)
        self.commits.expect(table, rows.num_rows)
        return Commit(replace(after, high=high, epoch=self.commits.epoch), Upsert(rows.upserts, rows.deletes))


def _unindexed(table: str) -> CdcError:
    """Each query of keys would read the whole table."""
    return fail(
        Reason.POSITION_LOST,
        "the source crashed and may have lost transactions, and no index of it has the declared key",
        needed="an index by which the rows are reread",
        remedy=resnapshot(table),
        table=table,
    )
