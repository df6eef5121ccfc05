"""Copies that are reread, and lost before they are published."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.errors import PermanentError, Reason
from cdcsync_core.positions.chunk import Split
from cdcsync_core.runs.run import TableAssignment
from cdcsync_spark.sinks.contract.sink import Sink
from cdcsync_spark.snapshot.plan_reader import PlanFeed
from cdcsync_spark.snapshot.table import SnapshotTable, open_table
from contract.sinkcase import ORDERS, SYNC, first_state, stage
from support.snapshots import wave

LOST = "the staged copy of the snapshot is gone"


def opened(sink: Sink, folder: Path, *, early: bool = False) -> SnapshotTable:
    """As a snapshot's run does for a resnapshot that was asked for once."""
    feed = PlanFeed(lambda _, __, ___: iter([Split()]), folder, 0, ORDERS, 10, lambda _: None)
    lineage = first_state().identity.lineage
    return open_table(TableAssignment(ORDERS, 1), sink, SYNC, lineage, 2, feed, early=early)


def read_again(sink: Sink, folder: Path, *, early: bool = False) -> SnapshotTable:
    """Reads the table again, with one row, to the end; it is not published yet."""
    table = opened(sink, folder, early=early)
    assert not table.published
    table.state = table.target.commit(2, wave(Split(), stage(table.target, ORDERS, [(1, "new")]), 2))
    assert table.state.snapshot_complete
    return table


def refuse(table: SnapshotTable, error: str) -> None:
    with pytest.raises(PermanentError, match=error) as stopped:
        table.publish(2)
    assert (stopped.value.reason, stopped.value.table) == (Reason.SINK_CONFLICT, str(ORDERS.id))
    assert "then run again" in stopped.value.remedy
    assert not table.published
