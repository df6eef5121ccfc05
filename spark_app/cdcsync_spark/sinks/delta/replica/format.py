"""Delta as a table format (`sinks.lake.format`), by native commits: entries that we write in a
table's Delta log.

The compare-and-set is that of a name: the next entry is written only if that version has none yet.
Where the table's protocol asks for more than native commits honour, or allows no deletion vectors,
delta-rs commits, and `WriterStatus.fallback` says why. A table with a feature that neither honours
stops. Which rows go and which files come is the lake's; deletion vectors are durable before the
entry that names them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyroaring import BitMap

from cdcsync_core.errors import CdcError
from cdcsync_core.gates import gate
from cdcsync_core.state import TableState
from cdcsync_core.tables.schema_change import Origin
from cdcsync_spark.sinks.contract.changes import Commit, Empty, Evolve
from cdcsync_spark.sinks.contract.writer import MaintenanceStep
from cdcsync_spark.sinks.delta.replica import evolution
from cdcsync_spark.sinks.delta.replica.maintenance import DeltaExpiry, max_idle_seconds, milliseconds
from cdcsync_spark.sinks.delta.table import properties as delta_properties
from cdcsync_spark.sinks.delta.table import refusals
from cdcsync_spark.sinks.delta.table.features import (
    VECTORS_ENABLED,
    deletion_vectors_unavailable,
    unsupported_reason,
    unwritable_features,
    upgrade,
)
from cdcsync_spark.sinks.delta.table.log import head
from cdcsync_spark.sinks.delta.table.open import catch_up
from cdcsync_spark.sinks.delta.table.schema import delta_schema
from cdcsync_spark.sinks.delta.table.table_path import TablePath
from cdcsync_spark.sinks.delta.table.vector_files import Descriptor, VectorFile
from cdcsync_spark.sinks.delta.table.view import Action, DeltaFile, TableView, new_file
from cdcsync_spark.sinks.lake.compaction import uncompacted
from cdcsync_spark.sinks.lake.files.file_changes import AddedFile
from cdcsync_spark.sinks.lake.files.row_lineage import NO_LINEAGE, RowLineage
from cdcsync_spark.sinks.lake.files.staging import Stamp
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit, LostRace, Writing
from cdcsync_spark.sinks.lake.policy import POLICY, MaintenancePolicy

#: what the Delta log calls a commit
_NAMES = {
    CommitOperation.APPEND: "WRITE",
    CommitOperation.MERGE: "MERGE",
    CommitOperation.REPLACE: "WRITE",
    CommitOperation.STATE: "WRITE",
    CommitOperation.EVOLVE: "CHANGE COLUMNS",
    CommitOperation.EMPTY: "TRUNCATE",
    CommitOperation.COMPACT: "OPTIMIZE",
}


@dataclass(frozen=True)
class DeltaFormat:
    """See `TableFormat`."""

    path: TablePath
    policy: MaintenancePolicy = POLICY

    def open(self) -> TableView | None:
        return self.path.view()

    def follow(self, version: TableView) -> TableView | None:
        """In place. Where the Delta log was cut behind us, or is gone, no reader gets past a hole
        in it; where another program wrote over the newest entry, what that brought is gone."""
        log = self.path.log()
        if not log.still_has(version.version, version.digest):
            return None
        catch_up(log, version)
        return version

    def has_news(self, version: TableView, *, or_loss: bool) -> bool:
        log, number, digest = self.path.log(), version.version, version.digest
        return log.has_entry(number + 1) or (or_loss and not log.still_has(number, digest))

    def publish(self, on: TableView, commit: FileCommit) -> TableView:
        now = milliseconds()
        vectors, written = self._vectors(commit.changes.deleted_rows)
        if commit.operation is CommitOperation.MERGE:
            gate("vectors-written")
        try:
            return self._enter(on, commit.state, commit.operation, self._actions(on, commit, vectors, now), now)
        except LostRace:
            with suppress(OSError):  # a later run's maintenance removes it
                self.path.remove(written)
            raise

    def lineage(self, scratch: Path) -> RowLineage:
        return NO_LINEAGE

    def _enter(
        self, on: TableView, state: TableState, operation: CommitOperation, actions: list[Action], now: int
    ) -> TableView:
        """The Delta log's next entry, or LostRace. A program may have written over the one before
        it while the files of this commit were written."""
        if on.digest and not self.path.log().still_has(on.version, on.digest):
            raise LostRace
        entry = [*head(state, _NAMES[operation], now), *actions]
        digest = self.path.put_entry(on.version + 1, entry, on)
        if digest is None:
            raise LostRace
        gate("entry-written")
        on.apply(on.version + 1, entry, state, digest)
        return on

    def _vectors(self, deleted: Mapping[str, BitMap]) -> tuple[dict[str, Descriptor], list[str]]:
        """Writes the vectors of a commit to one file: a descriptor for each, and the file's
        path."""
        file = VectorFile(uuid.uuid4())
        vectors = {name: file.add(rows) for name, rows in deleted.items()}
        if not vectors:
            return {}, []
        with self.path.store.new_file(file.path) as local:
            local.write_bytes(file.content)
        return vectors, [file.path]

    def _actions(self, on: TableView, commit: FileCommit, vectors: Mapping[str, Descriptor], now: int) -> list[Action]:
        changes, moved = commit.changes, commit.data_change
        gone = [on.files[name] for name in (*changes.removed, *changes.rewritten, *vectors)]
        added = [_new(new, now, None, data_change=moved) for new in commit.adding()]
        added += [_new(new, now, on.files[name].vector, data_change=moved) for name, new in changes.rewritten.items()]
        with_vectors = [on.files[n].with_vector(v, changes.rows[n], data_change=moved) for n, v in vectors.items()]
        return [
            *self._metadata(on, commit),
            *(file.removed(now, data_change=moved) for file in gone),
            *({"add": dict(file.add)} for file in (*with_vectors, *added)),
        ]

    def _metadata(self, on: TableView, commit: FileCommit) -> list[Action]:
        """What the table's schema, properties and protocol become; nothing where they stay."""
        if commit.operation is CommitOperation.MERGE:
            return upgrade(on, on.metadata["schemaString"], {VECTORS_ENABLED: "true"}, vectors=True)
        target = commit.state.schema
        if commit.operation is CommitOperation.REPLACE:
            schema = delta_schema(target)
        elif commit.operation is CommitOperation.EVOLVE:
            schema = evolution.schema(on, commit.state, commit.origins, rewritten=commit.rewritten)
        else:
            return []
        return upgrade(on, schema, delta_properties.adapted(on.properties, target), vectors=False)

    def stamp(self, on: TableView, after: TableState, origins: tuple[Origin, ...]) -> Stamp | None:
        return self.path.stamp

    def expiry(self, writing: Writing[TableView]) -> Mapping[str, Callable[[TableView], MaintenanceStep | None]]:
        return DeltaExpiry(self.path, writing, self.policy).steps

    # -- what keeps commits away

    def unsupported_reason(self, version: TableView, *, merging: bool) -> str:
        if not merging:
            return unsupported_reason(version)
        if not self.path.vectors:
            return "spec.sink.delta.options.deletionVectors is false"
        return deletion_vectors_unavailable(version)

    def publish_otherwise(self, on: TableView, commit: Commit, reason: str) -> None:
        """Commits by delta-rs, which would write a history's rows without the metadata columns."""
        table, events = str(self.path.table), self.path.events is not None
        if isinstance(commit.change, Evolve | Empty) and (self.path.staged or not events):
            raise evolution.not_native(commit.state, reason)
        if events:
            raise refusals.history_not_writable(table, reason)
        if features := unwritable_features(on):
            raise refusals.not_writable(table, features)
        from cdcsync_spark.sinks.delta.fallback import delta_rs

        delta_rs.publish(self.path, on, commit)

    def refuse_altered(self, version: TableView) -> None:
        assert version.state is not None
        refusals.refuse_other_columns(version, version.state)

    def beside(self, version: TableView, ours: Collection[str]) -> Sequence[pa.Field]:
        if others := sorted(set(version.names).difference(ours)):
            raise uncompacted(str(self.path.table), others[0], "columns of the source alone")
        return ()

    def rewrites(self, version: TableView, after: TableState, origins: tuple[Origin, ...]) -> bool:
        self.path.refuse_taken_names(after.capture)
        return evolution.rewrites_files(version, after, origins)

    def max_idle_seconds(self, version: TableView) -> float:
        return max_idle_seconds(version.properties)

    def foreign_table_error(self) -> CdcError:
        return self.path.foreign_table_error()


def _new(new: AddedFile, now: int, vector: Descriptor | None, *, data_change: bool) -> DeltaFile:
    """A new file; `vector` is that of the file whose rows it has in the same order."""
    file = new_file(new.path, new.file, now, data_change=data_change)
    return file if vector is None else file.with_vector(vector, new.file.rows, data_change=data_change)
