"""The state of a table that no run has read."""

from __future__ import annotations

from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TABLE = Capture(SourceTable(TableId("shop", "orders"), (Column("id", SourceType.parse("bigint"), False),)), ("id",))
EMPTY = TableState(
    Identity("default/shop", Lineage.of(f"mysql:{UUID}"), "shop.orders"), TABLE, TargetSchema.of(TABLE), epoch=1
)
