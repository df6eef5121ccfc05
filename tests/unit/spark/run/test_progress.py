"""Reports to the controller: whole lines from several threads, and a driver that notices when
they are not read."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace

import pytest

from cdcsync_core.errors import Reason, fail
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.position import FilePosition, LogOffset
from cdcsync_core.runs.run import Report, TablePhase
from cdcsync_core.state import Identity, LastChange, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Kind
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.run.progress import ControllerGone, Reporter, failed_entry, position_entry, schema_part, table_entry

TABLE = Capture(SourceTable(TableId("shop", "orders"), (Column("id", SourceType.parse("int"), False),)), ("id",))
STATE = TableState(
    Identity("default/shop", Lineage.of("mariadb:1"), "shop.orders"),
    TABLE,
    TargetSchema.of(TABLE),
    epoch=1,
    rows=7,
    nulled_dates=2,
    resnapshot_nonce=3,
    generation=3,
)


def test_lines_of_several_threads_do_not_mix() -> None:
    """A pipe takes 64 KiB at once; a longer report is written in pieces."""
    read, write = os.pipe()
    reporter = Reporter("run-1", write)
    tables = [[{"name": f"shop.t{n}", "message": str(n) * 30_000}] for n in range(8)]
    threads = [threading.Thread(target=reporter.report, kwargs={"tables": t}) for t in tables]
    lines: list[str] = []
    with os.fdopen(read) as pipe:
        reader = threading.Thread(target=lambda: lines.extend(pipe.readline() for _ in tables))
        for thread in [reader, *threads]:
            thread.start()
        for thread in [*threads, reader]:
            thread.join(120)
    os.close(write)
    assert sorted(json.loads(line)["tables"][0]["name"] for line in lines) == [f"shop.t{n}" for n in range(8)]
    assert {Report.from_json(line).run for line in lines} == {"run-1"}


def test_a_driver_without_a_controller_is_told() -> None:
    read, write = os.pipe()
    os.close(read)
    with pytest.raises(ControllerGone):
        Reporter("run-1", write).report(epoch=1)
    os.close(write)


def test_without_a_descriptor_reports_go_nowhere() -> None:
    """A write to a wrong descriptor would raise OSError."""
    Reporter("run-1", -1).report(epoch=1)


def test_a_tables_entry_is_a_view_of_its_state() -> None:
    """Rule R4: status follows the target."""
    position = FilePosition(LogOffset("binlog.000001", 400))
    entry = table_entry("shop.orders", TablePhase.STREAMING, replace(STATE, position=position))
    assert (entry["rows"], entry["nulledDates"], entry["nonce"]) == (7, 2, 3)
    assert table_entry("shop.orders", TablePhase.STREAMING, replace(STATE, events=5))["events"] == 5
    assert entry["position"] == position.to_dict()
    assert (entry["phase"], entry["reason"], entry["low"], entry["high"]) == ("Streaming", "", None, None)


def test_a_stopped_tables_entry_says_why() -> None:
    error = fail(Reason.SCHEMA_CHANGE_REFUSED, "ALTER TABLE", remedy="read it again", table="shop.orders")
    entry = failed_entry("shop.orders", error, STATE)
    assert (entry["phase"], entry["reason"]) == ("Failed", "SchemaChangeRefused")
    assert entry["message"] == "shop.orders: ALTER TABLE; remedy: read it again"
    assert entry["rows"] == 7


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0.0, "1970-01-01T00:00:00.000+00:00"), (1.5, "1970-01-01T00:00:01.500+00:00")]
)
def test_times_go_out_in_utc(seconds: float | None, text: str) -> None:
    position = FilePosition(LogOffset("binlog.000001", 400))
    assert position_entry(position, seconds) == position.to_dict() | {"timestamp": text}


def test_the_last_change_of_a_definition_is_reported() -> None:
    change = LastChange(
        3, 1_700_000_000.5, "ALTER TABLE orders ADD v INT", Kind.RESHAPE, unproved=True, unconfirmed=True
    )
    entry = table_entry("shop.orders", TablePhase.STREAMING, replace(STATE, change=change))
    assert entry["schema"] == {
        "version": 3,
        "at": "2023-11-14T22:13:20.500+00:00",
        "statement": "ALTER TABLE orders ADD v INT",
        "step": "reshape",
        "proof": "Pending",
        "proofMessage": "",
    }
    assert "schema" not in table_entry("shop.orders", TablePhase.STREAMING, STATE)


@pytest.mark.parametrize(
    ("unproved", "unconfirmed", "shown", "proof", "message"),
    [
        (True, True, True, "Pending", "why"),
        (False, True, True, "Rows", "rows do not carry the default of x; why"),
        (False, True, False, "Pending", "rows do not carry the default of x; why"),
        (True, False, True, "Catalog", ""),
        (False, False, False, "Catalog", ""),
    ],
)
def test_what_has_confirmed_a_change_is_reported(
    unproved: bool, unconfirmed: bool, shown: bool, proof: str, message: str
) -> None:
    """Rows confirm only what they show."""
    change = LastChange(1, unproved=unproved, unconfirmed=unconfirmed, shown=shown, unseen=("the default of x",))
    part = schema_part(change, "why")
    assert (part["proof"], part["proofMessage"]) == (proof, message)
