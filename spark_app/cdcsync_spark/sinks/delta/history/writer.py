"""Commits to a history table: rows are appended as they are, and none of them ever changes.

Why it is right. A commit is the compare-and-set of every Delta table
(`sinks.delta.replica.format`); an `Emit` is one file of rows and the state that counts them in one
entry, without a key index and without deletion vectors, so it costs what an append costs. While the
state is not consistent the snapshot is in a staged copy, which `sinks.delta.history.target` fills;
`Publication` is the commit that names the copy's files, with their deletion vectors, where they
lie. Until then the table has what it had: nothing, or the history before a resnapshot. With early
delivery a wave is an `Append` to the table itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.changes import AdvancePosition, Append, Change, Commit, Emit, Evolve, Replace
from cdcsync_spark.sinks.contract.writer import Step
from cdcsync_spark.sinks.delta.history.maintenance import gathered
from cdcsync_spark.sinks.delta.replica.commit import DeltaWriter
from cdcsync_spark.sinks.delta.replica.format import DeltaFormat
from cdcsync_spark.sinks.delta.table import properties as delta_properties
from cdcsync_spark.sinks.delta.table.history_rows import HISTORY, event_rows, history_schema, mark
from cdcsync_spark.sinks.delta.table.schema import schema_json
from cdcsync_spark.sinks.delta.table.table_path import TablePath
from cdcsync_spark.sinks.delta.table.view import DeltaFile, TableView
from cdcsync_spark.sinks.lake.file_changes import AddedFile
from cdcsync_spark.sinks.lake.format import FileCommit, Operation
from cdcsync_spark.sinks.lake.policy import LIMITS, POLICY, Limits, MaintenancePolicy
from cdcsync_spark.sinks.lake.staging import SIZES, stage_groups


@dataclass(frozen=True)
class Publication(Replace):
    """A staged copy becomes the table's content: `files` are the copy's, which lies in `folder`
    below the table."""

    files: tuple[DeltaFile, ...] = ()
    folder: str = ""


class HistoryWriter(DeltaWriter):
    """Writes the table itself; `Replace` is the claim of a staged copy, not published yet."""

    def __init__(
        self, table_path: TablePath, scratch: Path, policy: MaintenancePolicy = POLICY, limits: Limits = LIMITS
    ) -> None:
        # its rows stay as they are published
        super().__init__(table_path, scratch, policy, replace(limits, rewritten_bytes=0))
        self._path = table_path
        self._delta = DeltaFormat(table_path, policy)

    @property
    def last_known(self) -> TableState | None:
        """The state as of the last use."""
        return self._version.state if self._version is not None else None

    def publish(self, epoch: int, staged: TableState, files: tuple[DeltaFile, ...], folder: str) -> TableState:
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

    def _enter_copy(self, version: TableView, commit: Commit) -> None:
        """The staged copy's files are the content from now on."""
        change = commit.change
        assert isinstance(change, Publication)
        schema = delta_history_schema(commit.state.schema, columns_of(self._path))
        moved = (_moved(file, change.folder) for file in change.files)
        self._version = self._delta.publish_copy(version, commit.state, schema, moved)

    def _enter_events(self, version: TableView, commit: Commit) -> None:
        change, columns = commit.change, columns_of(self._path)
        assert isinstance(change, Emit)
        rows = event_rows(change.events, columns)
        store = self._path.lake.below(self._path.root)
        files = stage_groups(store, "", _groups(rows), (*commit.state.capture.key, columns.seq), "stream")
        gate("data-written")
        added = tuple(AddedFile(f.path, f) for f in files)
        self._enter(version, FileCommit(commit.state, Operation.APPEND, adding=lambda: added))

    _ENTER: ClassVar[Mapping[type[Change], Callable[[Any, Any, Commit], None]]] = {
        Publication: _enter_copy,
        Emit: _enter_events,
        Append: DeltaWriter._enter_wave,
        Evolve: DeltaWriter._enter_schema,
        Replace: DeltaWriter._enter_position,
        AdvancePosition: DeltaWriter._enter_position,
    }

    def has_written(self) -> bool:
        """See `Writing`."""
        return True

    def _compact(self, version: TableView) -> Step | None:
        if self._format.unsupported_reason(version, merging=False):
            return None
        compaction = gathered(self._path, version, self._policy)
        return self._enter_compaction(version, compaction) if compaction else None


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


def _moved(file: DeltaFile, folder: str) -> DeltaFile:
    """A staged copy's file as the table names it. A vector's path begins with its folder, too (the
    Delta protocol, "Deletion Vectors": a prefix before the name)."""
    add = {k: v for k, v in file.add.items() if v is not None} | {"path": f"{folder}/{file.log_path}"}
    if file.vector is not None:
        vector = dict(file.add["deletionVector"])
        assert vector["storageType"] == "u", "we write no others"
        add["deletionVector"] = vector | {"pathOrInlineDv": f"{folder}/{vector['pathOrInlineDv']}"}
    return DeltaFile(add)
