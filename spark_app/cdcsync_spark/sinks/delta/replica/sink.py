"""Tables of the lake as Delta tables, written by native commits to their Delta logs: no JVM, no
Spark, one process.

How a commit is made is in `sinks.delta.replica.format`; here is where tables lie, how they are
made, and how they are read. A table's first entry, with its first state, is written like any other:
only if there is none yet.

A staged copy lies in `_resnapshot-<generation>/` below its table and is a Delta table of its own;
its publication is one commit of the main table that names the copy's files where they lie.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.rows.arrow_types import arrow_schema
from cdcsync_spark.sinks.contract.changes import Build, Staged
from cdcsync_spark.sinks.contract.checks import no_copy_error, refuse_other_identity
from cdcsync_spark.sinks.contract.sink import Capabilities
from cdcsync_spark.sinks.contract.writer import Outcome, Writer, commit_each
from cdcsync_spark.sinks.delta.replica.commit import DeltaWriter
from cdcsync_spark.sinks.delta.replica.maintenance import remove_staged_copy
from cdcsync_spark.sinks.delta.table import properties as delta_properties
from cdcsync_spark.sinks.delta.table import refusals
from cdcsync_spark.sinks.delta.table.features import VECTORS_ENABLED, protocol_for
from cdcsync_spark.sinks.delta.table.log import head, parsing
from cdcsync_spark.sinks.delta.table.schema import delta_schema
from cdcsync_spark.sinks.delta.table.statistics import bounds_of
from cdcsync_spark.sinks.delta.table.table_path import STAGED_PREFIX, TablePath
from cdcsync_spark.sinks.delta.table.view import Action, DeltaFile, TableView
from cdcsync_spark.sinks.lake.files.snapshot import LakeSnapshot
from cdcsync_spark.sinks.lake.files.staging import DataFile, stage
from cdcsync_spark.sinks.lake.policy import LIMITS, POLICY, CommitLimits, MaintenancePolicy
from cdcsync_spark.sinks.lake.storage.store import Store


@dataclass(frozen=True)
class DeltaSink:
    """The lake at `place`, for the sync `namespace/name`; `vectors` false: tables without deletion
    vectors, whose files every MERGE rewrites."""

    store: Store
    sync: str
    vectors: bool = True
    policy: MaintenancePolicy = POLICY
    limits: CommitLimits = LIMITS

    @property
    def capabilities(self) -> Capabilities:
        return DeltaWriter.capabilities()

    def target(self, table: TableId, *, generation: int = 0) -> DeltaTarget:
        folder = f"{STAGED_PREFIX}{generation}" if generation else ""
        return DeltaTarget(TablePath(self.store, self.sync, table, folder, self.vectors), self.policy, self.limits)

    def commit_all(self, epoch: int, parts: Sequence[tuple[Writer, Build]]) -> Iterator[Outcome]:
        return commit_each(epoch, parts)

    def discard(self, table: TableId, generation: int) -> None:
        """Only the copy's Delta log goes once its files have been published: they belong to the
        table then."""
        main, staged = self.target(table).path, self.target(table, generation=generation).path
        with self.store.translating_errors(str(table), "removing a staged copy"):
            remove_staged_copy(main.view(), staged)


@dataclass(frozen=True)
class DeltaTarget:
    """One table's target."""

    path: TablePath
    policy: MaintenancePolicy = POLICY
    limits: CommitLimits = LIMITS

    @property
    def uri(self) -> str:
        return self.path.store.uri

    def prepare(self, state: TableState) -> TableState:
        with self.path.translating_errors("making the table"):
            view = self.path.view()
            if view is None:
                self.path.refuse_other_files()
                self._create(state)
                gate("table-created")
                view = self.path.view()
        if view is None or view.state is None:
            raise self.path.foreign_table_error()
        refuse_other_identity(view.state, state)
        return view.state

    def _create(self, state: TableState) -> None:
        """The second of two runs finds the table made."""
        self.path.store.make_folder("_delta_log")
        self.path.put_entry(0, self._first_entry(state))

    def _first_entry(self, state: TableState) -> list[Action]:
        now, schema = time.time_ns() // 1_000_000, delta_schema(state.schema)
        vectors = {VECTORS_ENABLED: "true"} if self.path.vectors else {}
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema,
            "partitionColumns": [],
            "createdTime": now,
            "configuration": {**delta_properties.new_table(state.schema), **vectors},
        }
        protocol = protocol_for(schema, vectors=self.path.vectors)
        return [*head(state, "CREATE TABLE", now), protocol, {"metaData": metadata}]

    def version(self) -> TableView | None:
        """The newest version; None where there is no table."""
        with self.path.translating_errors("opening the table"):
            return self.path.view()

    def last_commit(self) -> TableState | None:
        return self.writer().last_commit()

    def stage(self, table: Capture, batches: Iterable[pa.RecordBatch], name: str) -> Staged:
        with self.path.translating_errors("staging rows"):
            root = self.path.lake.below(self.path.root)
            files = stage(root, self.path.staged, TargetSchema.of(table), batches, name, self.path.stamp)
        gate("staged")
        return tuple(file.as_part() for file in files)

    def commit(self, epoch: int, build: Build) -> TableState:
        writer = self.writer()
        state = writer.commit(epoch, build)
        writer.maintain()
        return state

    def writer(self, scratch: Path | None = None) -> DeltaWriter:
        return DeltaWriter(self.path, scratch or Path(tempfile.gettempdir()), self.policy, self.limits)

    def staged(self) -> Staged:
        with self.path.translating_errors("listing staged files"):
            view = self.path.view()
            if view is None:
                raise no_copy_error(str(self.path.table))
            if view.state is None:
                raise self.path.foreign_table_error()
            schema = arrow_schema(view.state.schema)
            return tuple(_staged(self.path.prefix, schema, file).as_part() for file in view.files.values())

    def open_snapshot(self) -> LakeSnapshot:
        with self.path.translating_errors("opening the table"):
            view = self.path.view()
            if view is None:
                raise self.path.foreign_table_error()
            refusals.refuse_unreadable(str(self.path.table), view)
            return self.path.snapshot(view)


def _staged(prefix: str, schema: pa.Schema, file: DeltaFile) -> DataFile:
    with parsing(file.log_path):
        bounds = bounds_of(str(file.add.get("stats") or ""), schema)
    return DataFile(prefix + file.path, file.size, file.rows or 0, bounds)
