"""A history table as Delta has it: what its format knows beside that of a replica
(`sinks.history.writer`)."""

from __future__ import annotations

from dataclasses import dataclass

from cdcsync_core.state import TableState
from cdcsync_core.tables.event_columns import EventColumns
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.delta.replica.format import DeltaFormat
from cdcsync_spark.sinks.delta.replica.maintenance import milliseconds
from cdcsync_spark.sinks.delta.table import properties as delta_properties
from cdcsync_spark.sinks.delta.table.features import upgrade
from cdcsync_spark.sinks.delta.table.schema import schema_json
from cdcsync_spark.sinks.delta.table.table_path import STAGED_PREFIX, TablePath
from cdcsync_spark.sinks.delta.table.view import DeltaFile, TableView
from cdcsync_spark.sinks.history.rows import HISTORY, history_schema, mark
from cdcsync_spark.sinks.lake.files.staging import Stamp
from cdcsync_spark.sinks.lake.format import CommitOperation


@dataclass(frozen=True)
class DeltaHistoryFormat(DeltaFormat):
    """See `HistoryFormat`."""

    def publish_copy(self, on: TableView, state: TableState, copy: TableView) -> TableView:
        now, schema = milliseconds(), delta_history_schema(state.schema, columns_of(self.path))
        files = [_moved(file, f"{STAGED_PREFIX}{state.generation}") for file in copy.files.values()]
        actions = [
            *upgrade(on, schema, delta_properties.adapted(on.properties, state.schema), vectors=True),
            *(file.removed(now, data_change=True) for file in on.files.values()),
            *({"add": {**file.add, "modificationTime": now, "dataChange": True}} for file in files),
        ]
        return self._enter(on, state, CommitOperation.REPLACE, actions, now)

    def event_stamp(self, on: TableView, state: TableState) -> Stamp | None:
        """Readers of Delta go by names."""
        return None


def columns_of(path: TablePath) -> EventColumns:
    assert path.events is not None, "a history table's path"
    return path.events


def delta_history_schema(table: TargetSchema, columns: EventColumns) -> str:
    return schema_json(history_schema(table, columns))


def history_metadata(table: TargetSchema, columns: EventColumns) -> dict[str, str]:
    """The properties with which a history table is made, beside those of every table."""
    return {**delta_properties.new_table(table), HISTORY: mark(columns)}


def _moved(file: DeltaFile, folder: str) -> DeltaFile:
    """A staged copy's file as the table names it. A vector's path begins with its folder, too (the
    Delta protocol, "Deletion Vectors": a prefix before the name)."""
    add = {k: v for k, v in file.add.items() if v is not None} | {"path": f"{folder}/{file.log_path}"}
    if file.vector is not None:
        vector = dict(file.add["deletionVector"])
        assert vector["storageType"] == "u", "we write no others"
        add["deletionVector"] = vector | {"pathOrInlineDv": f"{folder}/{vector['pathOrInlineDv']}"}
    return DeltaFile(add)
