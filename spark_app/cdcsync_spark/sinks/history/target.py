"""History tables: append-only targets that hold every change, from a snapshot without a false row.

A table's snapshot goes through a staged copy, a keyed table of the same lake: waves are appended to
it and the changes since LOW are folded in, as in a replica. When its state is consistent, one
commit of the history names the copy's files. From then on the history itself takes events.

Why it is right: whose turn it is, the copy's or the history's, follows from the history's own state
(`sinks.staged_copy`). The rows of a history stay while a resnapshot's copy is filled. A publication
is a commit of the history, which takes the copy's state and files from one version.

With early delivery (`TableState.early`) there is no copy: the history takes the waves and, from
LOW on, the events, each with the state in one commit. Only a resnapshot reads its waves to a copy
first; its `Replace` is the publication. The state says which way a table goes, not the resource of
the moment, so a change of the resource never leaves a half-made snapshot of the other way.

A format gives what differs (`LakeHistory`): where its tables and their copies lie, how they are
made and opened, and how a copy's files become the table's (`HistoryFormat`).
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Generic, Protocol

import pyarrow as pa

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.remedies import resnapshot
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.event_columns import EventColumns, taken_error
from cdcsync_spark.sinks.contract.changes import Build, Commit, Replace, Staged
from cdcsync_spark.sinks.contract.checks import refuse_other_copy, refuse_other_identity, refuse_superseded
from cdcsync_spark.sinks.contract.sink import Target
from cdcsync_spark.sinks.contract.snapshot import TargetSnapshot
from cdcsync_spark.sinks.contract.writer import Writer, WriterStatus
from cdcsync_spark.sinks.history.snapshot import HistorySnapshot
from cdcsync_spark.sinks.history.writer import CopyPublication
from cdcsync_spark.sinks.lake.files.snapshot import LakeSnapshot
from cdcsync_spark.sinks.lake.format import TableVersion, V, V_co
from cdcsync_spark.sinks.staged_copy import Copies, CopyThenPublish, Recorded

#: the metadata columns' names where none are chosen
NAMES = EventColumns()


class TableWriter(Writer, Protocol):
    """The writer of the history itself."""

    @property
    def last_known(self) -> TableState | None:
        """The state as of the last use."""
        ...


class LakeTable(Target, Protocol[V_co]):
    """The history itself as a table of rows, or a staged copy of it."""

    def version(self) -> V_co | None:
        """The newest version; None where there is no table."""
        ...


class LakeHistory(ABC, Generic[V]):
    """One table's history in a lake. Picklable."""

    @property
    @abstractmethod
    def events(self) -> EventColumns:
        """The metadata columns."""

    @property
    @abstractmethod
    def table(self) -> LakeTable[V]:
        """The history itself: early waves are staged for it."""

    @abstractmethod
    def copy(self, generation: int) -> LakeTable[V]:
        """The staged copy of a generation."""

    @abstractmethod
    def copy_name(self, generation: int) -> str:
        """What users find it by."""

    @abstractmethod
    def create(self, state: TableState) -> None:
        """Makes the history, with its first state. The second of two runs finds the table made."""

    @abstractmethod
    def own_writer(self, scratch: Path) -> TableWriter:
        """Writes the history itself, by `HistoryWriter`."""

    @abstractmethod
    def rows(self, version: V) -> LakeSnapshot:
        """All rows of a version of the history. Raises SinkConflict for one that cannot be
        read."""

    @abstractmethod
    def remove_copies(self, generation: int) -> bool:
        """See `MainWriter.remove_copies`."""

    @abstractmethod
    def foreign_table_error(self) -> CdcError:
        """There is no table with a state of this sync."""

    def prepare(self, state: TableState) -> TableState:
        """See `TableTarget.prepare`."""
        self.refuse_taken_names(state.capture)
        version = self.table.version()
        if version is None:
            self.create(state)
            gate("table-created")
            version = self.table.version()
        if version is None or version.state is None:
            raise self.foreign_table_error()
        refuse_other_identity(version.state, state)
        if version.state.published:
            return version.state
        copy = self.copy(version.state.generation)
        if version.state.position is not None and copy.last_commit() is None:
            raise self.lost_copy(version.state)
        return copy.prepare(replace(state, early=False))

    def refuse_taken_names(self, table: Capture) -> None:
        """A history would hide a captured column of a metadata column's name."""
        taken = self.events.taken(c.name for c in table.captured)
        if taken:
            raise taken_error(taken, str(table.id))

    def last_commit(self) -> TableState | None:
        """Where the copy of a resnapshot is gone, what that was begun with: another resnapshot goes
        on from it, and nothing else (`prepare`, `CopyThenPublish.last_commit`)."""
        return self.writer().newest()[0]

    def stage(self, table: Capture, batches: Iterable[pa.RecordBatch], name: str) -> Staged:
        """See `TableTarget.stage`."""
        state = self._state()
        target = self.table if state.early else self.copy(state.generation)
        return target.stage(table, batches, name)

    def staged(self) -> Staged:
        """There is nothing to be published of a history."""
        return ()

    def _state(self) -> TableState:
        version = self.table.version()
        if version is None or version.state is None:
            raise self.foreign_table_error()
        return version.state

    def commit(self, epoch: int, build: Build) -> TableState:
        """See `TableTarget.commit`."""
        writer = self.writer()
        state = writer.commit(epoch, build)
        writer.maintain()
        return state

    def writer(self, scratch: Path | None = None) -> CopyThenPublish:
        """See `TableTarget.writer`."""
        return CopyThenPublish(HistoryMain(self, scratch or Path(tempfile.gettempdir())))

    def open_snapshot(self) -> TargetSnapshot:
        """The table that the history ends with; before it is published, the copy."""
        version = self.table.version()
        if version is None or version.state is None:
            raise self.foreign_table_error()
        if version.state.published:
            return HistorySnapshot(self.rows(version), self.events)
        copy = self.copy(version.state.generation)
        if copy.version() is None:
            raise self.lost_copy(version.state)
        return copy.open_snapshot()

    def lost_copy(self, main: TableState) -> CdcError:
        """The history waits for it."""
        return fail(
            Reason.SINK_CONFLICT,
            f"the staged copy {self.copy_name(main.generation)} of the snapshot is gone",
            needed="the copy until it is published",
            remedy=resnapshot(main.identity.table),
            table=main.identity.table,
        )


class HistoryMain(Generic[V]):
    """The history beside its staged copies; see `MainWriter`."""

    #: a publication names the files of the copy where they lie
    sends_rows = False

    def __init__(self, history: LakeHistory[V], scratch: Path) -> None:
        self.history = history
        self.copies = Copies(lambda generation: history.copy(generation).writer(scratch))
        self._writer = history.own_writer(scratch)

    def newest(self, *, wait: bool) -> Recorded | None:
        return _recorded(self._writer.last_commit(wait=wait))

    def recorded(self) -> Recorded:
        recorded = self.newest(wait=True)
        if recorded is None:
            raise self.history.foreign_table_error()
        return recorded

    def last_known(self) -> Recorded | None:
        return _recorded(self._writer.last_known)

    def commit(self, epoch: int, build: Build) -> TableState:
        return self._writer.commit(epoch, lambda state: self._as_publication(build(state)))

    def _as_publication(self, commit: Commit | None) -> Commit | None:
        """A copy that is consistent as soon as it is claimed, or of early delivery, is published by
        the same commit: a history whose state is published has its content."""
        if commit is None or not isinstance(commit.change, Replace) or not commit.state.published:
            return commit
        copy, state = self._copy(commit.state)
        refuse_other_copy(state, commit.state)
        return Commit(commit.state, CopyPublication((), copy))

    def _copy(self, state: TableState) -> tuple[TableVersion, TableState]:
        """The copy of a state's generation, and the state that it has."""
        copy = self.history.copy(state.generation).version()
        if copy is None:
            raise self.history.lost_copy(state)
        if copy.state is None:
            raise self.history.foreign_table_error()
        return copy, copy.state

    def publish(self, epoch: int, copy: TableState) -> TableState:
        """The copy's state and files are of one version of it; the state that the table has where
        it is published already."""
        version, staged = self._copy(copy)
        refuse_superseded(staged, epoch)

        def build(before: TableState) -> Commit | None:
            if before.published or before.generation != staged.generation:
                return None
            state = replace(staged, epoch=epoch, commit_number=before.commit_number + 1)
            return Commit(state, CopyPublication((), version))

        gate("before-publish")
        published = self._writer.commit(epoch, build)
        gate("published")
        return published

    def lost_copy(self, state: TableState) -> CdcError:
        return self.history.lost_copy(state)

    def remove_copies(self, generation: int) -> bool:
        return self.history.remove_copies(generation)

    def has_news(self, copy: Writer | None) -> bool:
        return self._writer.has_news() or (copy is not None and copy.has_news())

    def maintain(self) -> str:
        return self._writer.maintain()

    def close(self) -> None:
        self._writer.close()

    @property
    def status(self) -> WriterStatus:
        return self._writer.status


def _recorded(state: TableState | None) -> Recorded | None:
    return None if state is None else Recorded(state, state.published)
