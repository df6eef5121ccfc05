"""Commits to a history table: rows are appended as they are, and none of them ever changes.

Why it is right. A commit is the compare-and-set of every table of a lake (`sinks.lake.writer`); an
`Emit` is one file of rows and the state that counts them in one commit, without a key index and
without deletion vectors, so it costs what an append costs. While the state is not consistent the
snapshot is in a staged copy, which `sinks.history.target` fills; `CopyPublication` is the commit
that names the copy's files, with their deletion vectors, where they lie. Until then the table has
what it had: nothing, or the history before a resnapshot. With early delivery a wave is an `Append`
to the table itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Append, Change, Commit, Emit, Evolve, Replace
from cdcsync_spark.sinks.contract.writer import MaintenanceStep
from cdcsync_spark.sinks.history.gathering import gathered, next_gathering, write_rows
from cdcsync_spark.sinks.history.rows import event_rows, history_schema
from cdcsync_spark.sinks.lake.files.staging import SIZES, Stamp
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit, TableFormat, TableVersion, V
from cdcsync_spark.sinks.lake.policy import LIMITS, POLICY, CommitLimits, MaintenancePolicy
from cdcsync_spark.sinks.lake.table_folder import TableFolder
from cdcsync_spark.sinks.lake.writer import LakeWriter


@dataclass(frozen=True)
class CopyPublication(Replace):
    """A staged copy becomes the table's content: `copy` is a version of it with our state."""

    copy: TableVersion | None = None


class HistoryFormat(TableFormat[V], Protocol[V]):
    """What a format knows of its history tables beside all others."""

    def publish_copy(self, on: V, state: TableState, copy: V) -> V:
        """The next version, whose content is the staged copy's: its schema, files and deletion
        vectors, where they lie. Raises LostRace."""
        ...

    def event_stamp(self, on: V, state: TableState) -> Stamp | None:
        """What gives rows with metadata columns the form that the table's files have; None where
        they have it."""
        ...


class HistoryWriter(LakeWriter[V]):
    """Writes the table itself; `Replace` is the claim of a staged copy, not published yet."""

    def __init__(
        self,
        table_format: HistoryFormat[V],
        folder: TableFolder,
        columns: EventColumns,
        scratch: Path,
        policy: MaintenancePolicy = POLICY,
        limits: CommitLimits = LIMITS,
    ) -> None:
        # its rows stay as they are published
        super().__init__(table_format, folder, scratch, policy, replace(limits, rewritten_bytes=0))
        self._history = table_format
        self._columns = columns

    def _enter_copy(self, version: V, commit: Commit) -> None:
        """The staged copy's files are the content from now on."""
        change = commit.change
        assert isinstance(change, CopyPublication)
        self._version = self._history.publish_copy(version, commit.state, cast(V, change.copy))

    def _enter_events(self, version: V, commit: Commit) -> None:
        change, columns = commit.change, self._columns
        assert isinstance(change, Emit)
        rows, stamp = event_rows(change.events, columns), self._history.event_stamp(version, commit.state)
        bounded = (*commit.state.capture.key, columns.seq)
        added = write_rows(self._folder, stamp(rows) if stamp else rows, bounded, "stream", SIZES.group_rows)
        gate("data-written")
        self._enter(version, FileCommit(commit.state, CommitOperation.APPEND, adding=lambda: added))

    _ENTER: ClassVar[Mapping[type[Change], Callable[[Any, Any, Commit], None]]] = {
        CopyPublication: _enter_copy,
        Emit: _enter_events,
        Append: LakeWriter._enter_wave,
        Evolve: LakeWriter._enter_schema,
        Replace: LakeWriter._enter_position,
        AdvancePosition: LakeWriter._enter_position,
    }

    def has_written(self) -> bool:
        """See `Writing`."""
        return True

    def _compact(self, version: V) -> MaintenanceStep | None:
        due, state = next_gathering(version.files, self._policy), version.state
        if due is None or state is None or self._format.unsupported_reason(version, merging=False):
            return None
        beside = self._beside(version, history_schema(state.schema, self._columns).names)
        if beside is None:
            return None
        stamp = self._history.event_stamp(version, state)
        compaction = gathered(self._folder, version, due, self._columns, stamp, self._lineage, beside)
        return self._enter_compaction(version, compaction)
