"""Definitions of tables are kept for a sync within its share of memory."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId, memory_of
from cdcsync_operator.cluster.quota.room import Room, RoomBounds
from cdcsync_operator.reconcile.preflight import DefinitionRecord


def _tables(count: int, columns: int) -> dict[str, Capture]:
    made = tuple(Column(f"c{n}", SourceType.parse("int"), nullable=False) for n in range(columns))
    return {f"d.t{n}": Capture(SourceTable(TableId("d", f"t{n}"), made), ("c0",)) for n in range(count)}


def test_what_has_no_room_is_refused_and_what_is_known_stays() -> None:
    room = Room(RoomBounds(total=10 * memory_of(5), own=0, namespaces=1))
    record = DefinitionRecord(refuse=lambda size: room.refuse("lake", "shop", size))
    record.update(_tables(4, 5))
    with pytest.raises(CdcError, match="more tables than the operator has memory for") as caught:
        record.update(_tables(11, 5))
    assert caught.value.reason is Reason.SPEC_INVALID
    assert caught.value.needed.startswith("at most 0.0 MiB for a namespace")
    assert "spec.tables.include" in caught.value.remedy
    assert record.get("d.t3").columns
    with pytest.raises(CdcError, match="no definition"):
        record.get("d.t4")
    record.update(_tables(10, 5))
    assert record.get("d.t9").columns
    assert room.held("lake") == 10 * memory_of(5)
