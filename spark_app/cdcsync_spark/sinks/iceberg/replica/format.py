"""Iceberg as a table format (`sinks.lake.format`): format version 3 with deletion vectors, or 2
with files of positions in their place, by manifests of our own and a compare-and-set of the table's
catalog.

Which rows go and which files come is the lake's. A table is followed by its metadata, which the
catalog gives as a whole; manifests that are known are not read again. What other programs do
between our commits is part of the next version: rows of theirs are noted in the state, a branch
that was taken back is refused (`sinks.iceberg.table.state`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, TransientError, fail
from cdcsync_core.remedies import RESNAPSHOT
from cdcsync_core.state import TableState
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.schema_change import Converted, Filled, Origin
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.changes import Commit
from cdcsync_spark.sinks.contract.writer import MaintenanceStep
from cdcsync_spark.sinks.history.rows import snapshot_rows
from cdcsync_spark.sinks.iceberg.replica.commit import VersionPublication
from cdcsync_spark.sinks.iceberg.replica.lineage import IcebergLineage
from cdcsync_spark.sinks.iceberg.replica.maintenance import IcebergExpiry
from cdcsync_spark.sinks.iceberg.replica.place import IcebergFolder, TablePlace
from cdcsync_spark.sinks.iceberg.replica.schemas import next_schema
from cdcsync_spark.sinks.iceberg.table.metadata import FORMAT_VERSION, MAIN, TableMetadata, parsing
from cdcsync_spark.sinks.iceberg.table.schema import (
    TableSchema,
    all_columns,
    fields_beside,
    file_schema,
    in_files,
    same_type,
    widens,
)
from cdcsync_spark.sinks.iceberg.table.state import recorded_field_ids
from cdcsync_spark.sinks.iceberg.table.view import IcebergVersion, branch_schema
from cdcsync_spark.sinks.lake.compaction import uncompacted
from cdcsync_spark.sinks.lake.files.row_ids import without_identity
from cdcsync_spark.sinks.lake.files.row_lineage import NO_LINEAGE, RowLineage
from cdcsync_spark.sinks.lake.files.staging import Stamp
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit, Writing
from cdcsync_spark.sinks.lake.policy import POLICY, MaintenancePolicy


class TableMoved(TransientError):
    """The table lies elsewhere than it did: another program moved it, or made one of its name."""


@dataclass(frozen=True)
class IcebergFormat:
    """See `TableFormat`; `folder` is where the table's files are as long as its `location` is this
    one."""

    place: TablePlace
    folder: IcebergFolder
    location: str
    policy: MaintenancePolicy = POLICY

    @property
    def _has_vectors(self) -> bool:
        """Whether the format has deletion vectors, row ids and defaults."""
        return self.place.format_version >= FORMAT_VERSION

    def open(self) -> IcebergVersion | None:
        loaded = self.place.load()
        return None if loaded is None else self.version(loaded.metadata)

    def version(self, metadata: TableMetadata, before: IcebergVersion | None = None) -> IcebergVersion | None:
        """None where there is no such branch."""
        ref = self.place.ref
        if ref != MAIN and ref not in metadata.refs:
            return None
        self._refuse_moved(metadata)
        with parsing(f"the metadata of {self.place}"):
            schema = branch_schema(metadata, ref, MAIN)
        return self.folder.reader.version(metadata, ref, schema, before)

    def _refuse_moved(self, metadata: TableMetadata) -> None:
        if metadata.location != self.location:
            raise TableMoved(
                Reason.SINK_UNREACHABLE,
                f"the table {self.place} has moved to {metadata.location}",
                remedy="wait: the run begins again there",
                table=str(self.place.table),
            )

    def follow(self, version: IcebergVersion) -> IcebergVersion | None:
        loaded = self.place.load()
        if loaded is None or loaded.metadata.uuid != version.metadata.uuid:
            return None
        after = loaded.metadata
        self._refuse_moved(after)
        if after.head(version.ref) is not None and _same(version, after):
            return replace(version, metadata=after)
        return self.version(after, version)

    def has_news(self, version: IcebergVersion, *, or_loss: bool) -> bool:
        loaded = self.place.load()
        if loaded is None or loaded.metadata.uuid != version.metadata.uuid:
            return True
        return not _same(version, loaded.metadata)

    def publish(self, on: IcebergVersion, commit: FileCommit) -> IcebergVersion:
        return VersionPublication(self.place, self.folder, on, commit).publish()

    def stamp(self, on: IcebergVersion, after: TableState, origins: tuple[Origin, ...]) -> Stamp:
        """Rows with the field ids that the table has for them then."""
        operation = CommitOperation.EVOLVE if origins else CommitOperation.MERGE
        schema = next_schema(on, FileCommit(after, operation, origins=origins))
        return stamp(schema, after.schema, self.place.events)

    def lineage(self, scratch: Path) -> RowLineage:
        return IcebergLineage(self.folder, scratch) if self._has_vectors else NO_LINEAGE

    def expiry(
        self, writing: Writing[IcebergVersion]
    ) -> Mapping[str, Callable[[IcebergVersion], MaintenanceStep | None]]:
        return IcebergExpiry(self.place, self.folder, writing, self.policy).steps

    # -- what keeps commits away

    def unsupported_reason(self, version: IcebergVersion, *, merging: bool) -> str:
        return "the table was partitioned" if version.metadata.partitioned else ""

    def publish_otherwise(self, on: IcebergVersion, commit: Commit, reason: str) -> None:
        raise self._unsupported(reason)

    def refuse_unreadable(self, version: IcebergVersion) -> None:
        """Also where the table lacks a column of ours: its rows would be read with NULL."""
        self._refuse_changed(version)
        if reason := self.unsupported_reason(version, merging=False):
            raise self._unsupported(reason)

    def _unsupported(self, reason: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            reason,
            needed="a table without partitions: files are added to it as they are",
            remedy=f"drop the table and its files, {RUN_AGAIN}",
            table=str(self.place.table),
        )

    def refuse_altered(self, version: IcebergVersion) -> None:
        """Columns of the source that are missing or others; an additional one is another
        program's."""
        self._refuse_changed(version)
        assert version.state is not None
        for field in all_columns(version.state.schema, self.place.events):
            if version.schema.by_name[field.name].get("required") and field.name not in version.state.schema.key:
                raise self._altered(f"the target's column {field.name!r} was made NOT NULL")

    def _refuse_changed(self, version: IcebergVersion) -> None:
        """A column without the values that ours has there."""
        assert version.state is not None
        columns = all_columns(version.state.schema, self.place.events)
        for field in columns:
            stored = version.schema.by_name.get(field.name)
            if stored is None or not same_type(stored, field.type):
                raise self._altered(f"the target's column {field.name!r} is missing or has another type")
        self._refuse_other_ids(version, columns.names)

    def _refuse_other_ids(self, version: IcebergVersion, names: Sequence[str]) -> None:
        """A column that was dropped and added again has a new id, and so no values of before; one
        that got the name of another has that one's values."""
        recorded = recorded_field_ids(version.metadata, version.ref)
        for name, before, now in zip(names, recorded or (), version.schema.ids_of(names), strict=False):
            if now != before:
                raise self._altered(f"the target's column {name!r} is another: its field id was {before}, and is {now}")

    def _altered(self, found: str) -> CdcError:
        return fail(
            Reason.SINK_CONFLICT,
            found,
            needed="the columns that the table was made with, which take NULL except for the key",
            remedy=f"{RESNAPSHOT}; or undo the change of the target table, {RUN_AGAIN}",
            table=str(self.place.table),
        )

    def beside(self, version: IcebergVersion, ours: Collection[str]) -> Sequence[pa.Field]:
        fields = fields_beside(version.schema, ours)
        for name in version.schema.names:
            if name not in ours and name not in fields:
                needed = "columns of the source, and others of types that columns of a source may have"
                raise uncompacted(str(self.place.table), name, needed)
        return tuple(fields.values())

    def rewrites(self, version: IcebergVersion, after: TableState, origins: tuple[Origin, ...]) -> bool:
        """Only for values that become others: columns come, go, move and get other names by their
        field ids. Format version 2 has no defaults for rows that are there. Raises SpecInvalid for
        a column that readers would take for a metadata column."""
        self.place.refuse_reserved(after.schema)
        columns = zip(origins, all_columns(after.schema, None), strict=True)
        return any(self._becomes_another(version, origin, field.type) for origin, field in columns)

    def _becomes_another(self, version: IcebergVersion, origin: Origin, kind: pa.DataType) -> bool:
        """Whether rows that are there have another value of a column than readers give for it."""
        if isinstance(origin, Converted):
            return not widens(version.schema.by_name[origin.source], kind)
        return isinstance(origin, Filled) and origin.value is not None and not self._has_vectors

    def max_idle_seconds(self, version: IcebergVersion) -> float:
        """The state is a property, and stays."""
        return math.inf

    def foreign_table_error(self) -> CdcError:
        return self.place.foreign_table_error()


def stamp(schema: TableSchema, target: TargetSchema, events: EventColumns | None = None) -> Stamp:
    """What gives rows of `target` the form of the table's files: to rows of a snapshot the metadata
    columns `events` of a history table, too."""
    return partial(_in_files, schema=file_schema(schema, target, events), table=schema, events=events)


def _in_files(rows: pa.Table, schema: pa.Schema, table: TableSchema, events: EventColumns | None) -> pa.Table:
    return in_files(with_events(rows, events) if events else rows, schema, table)


def with_events(rows: pa.Table, events: EventColumns) -> pa.Table:
    """Rows of a snapshot with the metadata columns before those of identity."""
    ours = without_identity(rows.schema).names
    extended = snapshot_rows(rows.select(ours), events)
    for name in rows.schema.names:
        if name not in ours:
            extended = extended.append_column(name, rows[name])
    return extended


def _same(version: IcebergVersion, metadata: TableMetadata) -> bool:
    """Whether a branch has the same newest snapshot and schema."""
    head = metadata.head(version.ref)
    before = version.snapshot.id if version.snapshot else None
    if (head.id if head else None) != before or (version.ref != MAIN and version.ref not in metadata.refs):
        return False
    return version.ref != MAIN or metadata.current_schema.id == version.schema.id
