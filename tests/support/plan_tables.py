"""The path of the API in which plans are kept, and a table whose plan is written."""

from __future__ import annotations

from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId

BASE = "/api/v1/namespaces/lake"


def planned_table(name: str) -> Capture:
    return Capture(
        SourceTable(TableId(*name.split(".")), (Column("id", SourceType.parse("int"), nullable=False),)), ("id",)
    )
