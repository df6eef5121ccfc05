"""The position of a table that has no changes, committed before its last commit becomes useless."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from cdcsync_core.gates import gate
from cdcsync_core.positions.position import Position
from cdcsync_core.state import TableState
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Commit
from cdcsync_spark.stream.apply.stream_table import StreamTable
from cdcsync_spark.stream.apply.table_commits import TableCommits


@dataclass
class IdleCheckpoints:
    """`events` is whether the sink takes events."""

    commits: TableCommits
    events: bool

    def commit(self, tables: Iterable[StreamTable], reader: Position, older_than: float) -> None:
        """Commits the position of flowing tables whose last commit is older than this (on the
        commits' clock), or than their target lets it be."""
        now = self.commits.clock()
        for table in tables:
            due = table.committed < max(older_than, now - table.target.status.max_idle_seconds)
            if table.flowing and (due or self._publishes(table, reader)):
                gate("before-stamp")
                with self.commits.stopping_alone(table):
                    self.commits.commit(table, partial(self._advance, table, reader))
                # also where there was nothing to commit: it is not opened again for each batch
                table.committed = self.commits.clock()

    def _publishes(self, table: StreamTable, reader: Position) -> bool:
        """Whether a commit of the position alone makes a table of a sink that takes events
        consistent, and so published."""
        high = table.state.high
        return self.events and not table.state.consistent and high is not None and reader.has_reached(high)

    def _advance(self, table: StreamTable, reader: Position, state: TableState) -> Commit | None:
        if not self.commits.continues(table, state) or state.position is None:
            return None
        if state.position.join(reader) == state.position and table.change == table.state.change:
            return None
        return Commit(replace(state.after_batch(reader), epoch=self.commits.epoch), AdvancePosition())
