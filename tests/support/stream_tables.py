"""A resource and a table of a stream."""

from __future__ import annotations

from typing import Any

from cdcsync_core.positions.chunk import WHOLE, Intervals
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, LogOffset
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.stream.apply.stream_table import StreamTable
from support.memory_target import MemoryTarget


def resource(name: str, **source: Any) -> CdcSync:
    spec = {
        "source": {"host": "127.0.0.1", "credentialsSecretRef": {"name": "x"}} | source,
        "tables": {"include": ["a.b"]},
        "sink": {"delta": {"path": "/lake"}},
    }
    metadata = {"namespace": "shops", "name": name}
    return CdcSync.model_validate(
        {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": metadata, "spec": spec}
    )


def at(offset: int) -> FilePosition:
    return FilePosition(LogOffset("binlog.000001", offset))


def stream_table(name: str) -> StreamTable:
    """Read as of offset 100, consistent there."""
    table = Capture(SourceTable(TableId("shop", name), (Column("id", SourceType.parse("int"), False),)), ("id",))
    identity, done = Identity("shops/shop", Lineage.of("mariadb:1"), str(table.id)), Intervals().add(WHOLE)
    state = TableState(
        identity, table, TargetSchema.of(table), 1, finished=done, low=at(100), high=at(100).at, position=at(100)
    )
    return StreamTable(str(table.id), MemoryTarget(state), state, committed=0.0)
