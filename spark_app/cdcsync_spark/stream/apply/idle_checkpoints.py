"""The position of a table that has no changes, committed before its last commit becomes useless:
because it is old, or because the source is about to purge the binlog file that it names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from cdcsync_core.gates import gate
from cdcsync_core.positions.position import GtidPosition, LogOffset, Position, binlog_of
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Commit
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.stream.apply.table_commits import TableCommits

#: a table is committed for the sake of its binlog file after so long at least: a reader that lags
#: passes file after file
_LEAST_SECONDS = 600.0


@dataclass
class IdleCheckpoints:
    """`commits` is how a table is committed."""

    commits: TableCommits

    def commit(
        self,
        tables: Iterable[StreamTable],
        reader: Position,
        older_than: float,
        safe_from: int = 0,
        until: float = float("inf"),
    ) -> bool:
        """Commits the position of flowing tables whose last commit is older than this (on the
        commits' clock), or than their target lets it be, or names a binlog file before the number
        `safe_from`; and of those that become consistent by it. Begins no commit after `until`;
        returns whether none was left out."""
        now = self.commits.clock()
        for table in tables:
            due = table.committed < max(older_than, now - table.target.status.max_idle_seconds)
            due = due or (table.committed < now - _LEAST_SECONDS and _leaves(table, reader, safe_from))
            if table.flowing and (due or _becomes_consistent(table, reader)):
                if self.commits.clock() >= until:
                    return False
                gate("before-stamp")
                with self.commits.stopping_alone(table):
                    self.commits.commit(table, partial(self._advance, table, reader))
                # also where there was nothing to commit: it is not opened again for each batch
                table.committed = self.commits.clock()
        return True

    def _advance(self, table: StreamTable, reader: Position, state: TableState) -> Commit | None:
        if not self.commits.continues(table, state) or state.position is None:
            return None
        if state.position.join(reader) == state.position and table.change == table.state.change:
            return None
        return Commit(replace(state.after_batch(reader), epoch=self.commits.epoch), AdvancePosition())


def _becomes_consistent(table: StreamTable, reader: Position) -> bool:
    """Whether a commit of the position alone makes it so. A sink that takes events publishes the
    table by that; and after a failover nothing more counts as read by the snapshot alone."""
    high = table.state.high
    return not table.state.consistent and high is not None and reader.has_reached(high)


def _leaves(table: StreamTable, reader: Position, safe_from: int) -> bool:
    """Whether a commit takes the table's position out of a binlog file before `safe_from`."""
    at, end = _place(table.state.position), _place(reader)
    if at is None or end is None or binlog_of(at) != binlog_of(end):
        return False
    return at.number < min(safe_from, end.number)


def _place(position: Position | None) -> LogOffset | None:
    """Where a GTID set has none, that of its proof."""
    if isinstance(position, GtidPosition) and position.at is None:
        return position.anchor.at if position.anchor else None
    return position.at if position else None
