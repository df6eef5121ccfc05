"""Commits to a history table: rows are appended as they are, and none of them ever changes.

Why it is right. A commit is the compare-and-set of every Delta table (`sinks.delta.commit`); an
`Emit` is one file of rows and the state that counts them in one entry, without a key index and
without deletion vectors, so it costs what an append costs. While the state is not consistent the
snapshot is in a staged copy, which `sinks.delta.history_target` fills; `Publication` is the commit
that names the copy's files, with their deletion vectors, where they lie. Until then the table has
what it had: nothing, or the history before a resnapshot. With early delivery a wave is an `Append`
to the table itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from cdcsync_core.capture import Capture
from cdcsync_core.event_columns import EventColumns
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Append, Commit, Emit, Evolve, Replace
from cdcsync_spark.sinks.delta import properties as delta_properties
from cdcsync_spark.sinks.delta import refusals
from cdcsync_spark.sinks.delta.batch import Batch
from cdcsync_spark.sinks.delta.commit import DeltaWriter
from cdcsync_spark.sinks.delta.evolution import write_evolution
from cdcsync_spark.sinks.delta.features import unsupported_reason, upgrade
from cdcsync_spark.sinks.delta.history_maintenance import HistoryMaintenance
from cdcsync_spark.sinks.delta.history_rows import HISTORY, event_rows, history_schema, mark
from cdcsync_spark.sinks.delta.log import Log
from cdcsync_spark.sinks.delta.maintenance import milliseconds
from cdcsync_spark.sinks.delta.policy import LIMITS, POLICY, Limits, MaintenancePolicy
from cdcsync_spark.sinks.delta.schema import schema_json
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import Action, LiveFile, TableView, new_file
from cdcsync_spark.sinks.lake.file_changes import AddedFile, FileChanges
from cdcsync_spark.sinks.lake.staging import SIZES, stage_groups


@dataclass(frozen=True)
class Publication(Replace):
    """A staged copy becomes the table's content: `files` are the copy's, which lies in `folder`
    below the table."""

    files: tuple[LiveFile, ...] = ()
    folder: str = ""


class HistoryWriter(DeltaWriter):
    """Writes the table itself; `Replace` is the claim of a staged copy, not published yet."""

    def __init__(
        self, table_path: TablePath, scratch: Path, policy: MaintenancePolicy = POLICY, limits: Limits = LIMITS
    ) -> None:
        super().__init__(table_path, scratch, policy, limits)
        self._maintenance = HistoryMaintenance(table_path, self._index, self, policy)

    @property
    def last_known(self) -> TableState | None:
        """The state as of the last use."""
        return self._view.state if self._view is not None else None

    def publish(self, epoch: int, staged: TableState, files: tuple[LiveFile, ...], folder: str) -> TableState:
        """The table as of `staged`, whose copy lies in `folder`; what it has where it is published
        already."""

        def build(found: TableState) -> Commit | None:
            if found.published or found.generation != staged.generation:
                return None
            state = replace(staged, epoch=epoch, commit_number=found.commit_number + 1)
            return Commit(state, Publication((), files, folder))

        gate("before-publish")
        published = self.commit(epoch, build)
        gate("published")
        return published

    def _publish(self, log: Log, view: TableView, commit: Commit) -> None:
        reason = unsupported_reason(view)
        if reason:
            raise refusals.history_not_writable(str(self._path.table), reason)
        now = milliseconds()
        self._enter_batch(view, commit.state, "WRITE", now, self._made(view, commit, now))

    def _made(self, view: TableView, commit: Commit, now: int) -> Batch:
        change = commit.change
        if isinstance(change, Publication):
            return Batch(self._published(view, commit.state.schema, change, now))
        if isinstance(change, Evolve):
            return self._schema_changed(view, commit.state, change, now)
        if isinstance(change, Emit):
            return self._emitted(commit.state.capture, change, now)
        if isinstance(change, Append):
            return Batch(self._adds(change, now))
        assert isinstance(change, Replace | AdvancePosition), change
        return Batch()

    def _emitted(self, table: Capture, change: Emit, now: int) -> Batch:
        columns = columns_of(self._path)
        rows = event_rows(change.events, columns)
        store = self._path.lake.below(self._path.root)
        files = stage_groups(store, "", _groups(rows), (*table.key, columns.seq), "stream")
        gate("data-written")
        actions: list[Action] = [
            {"add": dict(new_file(f.path, f.size, f.stats, now, data_change=True).add)} for f in files
        ]
        none = pa.table({})
        return Batch(actions, FileChanges(tuple(AddedFile(f.path, f, none) for f in files)))

    def _schema_changed(self, view: TableView, after: TableState, change: Evolve, now: int) -> Batch:
        """The schema alone."""
        batch = write_evolution(self._path, view, after, change, now, 0)
        gate("step-staged")
        return batch

    def _published(self, view: TableView, table: TargetSchema, change: Publication, now: int) -> list[Action]:
        schema = delta_history_schema(table, columns_of(self._path))
        return [
            *upgrade(view, schema, delta_properties.adapted(view.properties, table), vectors=True),
            *(file.removed(now, data_change=True) for file in view.files.values()),
            *({"add": _moved(file, change.folder, now)} for file in change.files),
        ]


def columns_of(path: TablePath) -> EventColumns:
    assert path.events is not None, "a history table's path"
    return path.events


def delta_history_schema(table: TargetSchema, columns: EventColumns) -> str:
    return schema_json(history_schema(table, columns))


def history_metadata(table: TargetSchema, columns: EventColumns) -> dict[str, str]:
    """The properties with which a history table is made, beside those of every table."""
    return {**delta_properties.new_table(table), HISTORY: mark(columns)}


def _groups(rows: pa.Table) -> Iterator[pa.Table]:
    for first in range(0, rows.num_rows, SIZES.group_rows):
        yield rows.slice(first, SIZES.group_rows)


def _moved(file: LiveFile, folder: str, now: int) -> Action:
    """A staged copy's file as the table names it. A vector's path begins with its folder, too (the
    Delta protocol, "Deletion Vectors": a prefix before the name)."""
    add = {k: v for k, v in file.add.items() if v is not None}
    add |= {"path": f"{folder}/{file.log_path}", "modificationTime": now, "dataChange": True}
    if file.vector is not None:
        vector = dict(file.add["deletionVector"])
        assert vector["storageType"] == "u", "we write no others"
        add["deletionVector"] = vector | {"pathOrInlineDv": f"{folder}/{vector['pathOrInlineDv']}"}
    return add
