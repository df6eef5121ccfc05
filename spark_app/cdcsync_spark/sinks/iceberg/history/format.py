"""A history table as Iceberg has it: what its format knows beside that of a replica
(`sinks.history.writer`).

The staged copy is a branch of the same table, so its publication names files and vectors that the
table has already.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cdcsync_core.state import TableState
from cdcsync_core.tables.event_columns import EventColumns, taken_error
from cdcsync_core.tables.evolve import rewrites
from cdcsync_core.tables.schema_change import Converted, Origin
from cdcsync_spark.sinks.iceberg.replica.commit import VersionPublication
from cdcsync_spark.sinks.iceberg.replica.format import IcebergFormat
from cdcsync_spark.sinks.iceberg.replica.place import TablePlace
from cdcsync_spark.sinks.iceberg.table.schema import file_schema, in_files
from cdcsync_spark.sinks.iceberg.table.view import IcebergVersion
from cdcsync_spark.sinks.lake.files.file_changes import FileChanges
from cdcsync_spark.sinks.lake.files.staging import Stamp
from cdcsync_spark.sinks.lake.format import CommitOperation, FileCommit


@dataclass(frozen=True)
class IcebergHistoryFormat(IcebergFormat):
    """See `HistoryFormat`."""

    def publish_copy(self, on: IcebergVersion, state: TableState, copy: IcebergVersion) -> IcebergVersion:
        commit = FileCommit(state, CommitOperation.REPLACE, FileChanges(removed=tuple(on.files)))
        return VersionPublication(self.place, self.folder, on, commit, copy).publish()

    def event_stamp(self, on: IcebergVersion, state: TableState) -> Stamp:
        """Rows have the field ids of the table."""
        form = file_schema(on.schema, state.schema, events_of(self.place))
        return partial(in_files, schema=form, table=on.schema)

    def rewrites(self, version: IcebergVersion, after: TableState, origins: tuple[Origin, ...]) -> bool:
        """See `TableFormat.rewrites`; raises SpecInvalid for a column with a metadata column's
        name. Names and values stay as they were published."""
        if taken := events_of(self.place).taken(c.name for c in after.capture.captured):
            raise taken_error(taken, after.identity.table)
        before = version.state
        others = before is not None and before.published and rewrites(before.schema, after.schema, origins)
        return super().rewrites(version, after, origins) or others or any(isinstance(o, Converted) for o in origins)


def events_of(place: TablePlace) -> EventColumns:
    """The metadata columns of a history table's place."""
    assert place.events is not None, "a history table's place"
    return place.events
