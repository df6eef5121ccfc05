"""What a target has, as `verify` believes it: an idle table's own commit is old, the stream's word
goes further (rule R5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcsync_core.positions.chunk import WHOLE, Intervals
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, LogOffset, position_to_dict
from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import RunRef, Runs, Status, only_tables
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.verify.target_position import position_of


def at(offset: int) -> FilePosition:
    return FilePosition(LogOffset("binlog.000001", offset))


TABLE = Capture(SourceTable(TableId("shop", "a"), (Column("id", SourceType.parse("int"), False),)), ("id",))
STATE = TableState(
    Identity("shops/shop", Lineage.of("mariadb:1"), "shop.a"),
    TABLE,
    TargetSchema.of(TABLE),
    1,
    resnapshot_nonce=1,
    generation=1,
    finished=Intervals().add(WHOLE),
    low=at(100),
    position=at(100),
)
#: the stream named the table at 200, its reader has passed 300
ENTRY = TableStatus(
    name="shop.a", phase=TablePhase.STREAMING, nonce=1, generation=1, position=at(200).to_dict(), run="t-2"
)
RUNNING = Status(runs=Runs(stream=RunRef(id="t-2", epoch=2)), position=at(300).to_dict() | {"timestamp": ""})


@pytest.mark.parametrize(
    ("change", "offset"),
    [
        ({}, 300),
        ({"run": "c-3"}, 200),
        ({"phase": TablePhase.FAILED}, 100),
        # it was resnapshotted since
        ({"nonce": 0, "generation": 0}, 100),
    ],
)
def test_a_target_has_what_its_stream_has_passed(change: dict[str, object], offset: int) -> None:
    status = only_tables(RUNNING, [ENTRY.model_copy(update=change)])
    assert position_of(STATE, status, "shop.a") == at(offset)


def test_a_status_of_another_server_says_nothing_of_a_target() -> None:
    """Offsets in two binlogs have no order (R6): what the target has stays what it says."""
    here, there = (at(n).in_binlog(log) for n, log in ((100, "mariadb:1"), (900, "mariadb:2")))
    state = replace(STATE, low=here, position=here)
    passed = position_to_dict(there)
    status = only_tables(
        Status(runs=RUNNING.runs, position=passed | {"timestamp": ""}),
        [TableStatus(name="shop.a", phase=TablePhase.STREAMING, nonce=1, position=passed, run="t-2")],
    )
    assert position_of(state, status, "shop.a") == here


def test_without_a_status_or_a_stream_a_target_has_what_it_says() -> None:
    assert position_of(STATE, Status(), "shop.a") == at(100)
    ended = only_tables(RUNNING.with_(runs=Runs()), [ENTRY])
    assert position_of(STATE, ended, "shop.a") == at(200)
