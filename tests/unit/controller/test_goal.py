"""When `cdcsync run` is done, judged by what was stream_reported in this run only."""

from __future__ import annotations

from typing import Any

import pytest

from cdcsync_core.positions.position import LogOffset
from cdcsync_core.runs.run import ExitCode, TablePhase
from cdcsync_core.runs.status import Phase, RunRef, Runs, Status, only_tables, with_condition
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.decision.summary.goal import GoalProgress, Until, verdict

DONE, RETRY, ACT = ExitCode.DONE, ExitCode.RETRY, ExitCode.USER_MUST_ACT


def status(phase: Phase = Phase.STREAMING, offset: int = 500, failed: int = 0, reason: str = "") -> Status:
    place = {"file": "b.000001", "offset": offset, "gtidSet": ""}
    tables = [TableStatus(name="t0", phase=TablePhase.STREAMING, position=place)]
    tables += [TableStatus(name=f"f{i}", phase=TablePhase.FAILED) for i in range(failed)]
    found = only_tables(Status(phase=phase), tables)
    found = with_condition(found, "SnapshotComplete", True, "Complete", "", 0)
    return with_condition(found, "Stalled", bool(reason), reason or "Streaming", "", 0)


def progress(**parts: Any) -> GoalProgress:
    return GoalProgress(
        **(
            {"status": status(), "preflight_done": True, "stream_reported": True, "log_end": LogOffset("b.000001", 500)}
            | parts
        )
    )


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ({}, DONE),
        ({"status": status(offset=499)}, None),
        ({"stream_reported": False}, None),
        ({"preflight_done": False}, None),
        ({"log_end": None}, None),
        ({"status": status(failed=1)}, ACT),
        ({"status": status(Phase.FAILED, reason="PositionLost")}, ACT),
        ({"status": status(Phase.FAILED, reason="DriverLost")}, RETRY),
        ({"status": status(Phase.COMPLETED)}, DONE),
    ],
)
def test_caught_up(parts: dict[str, Any], code: ExitCode | None) -> None:
    assert verdict(Until.CAUGHT_UP, progress(**parts)) == code


@pytest.mark.parametrize(("run", "reader", "code"), [("t-2", 500, DONE), ("t-2", 499, None), ("c-3", 500, None)])
def test_an_idle_table_is_where_the_reader_of_its_stream_is(run: str, reader: int, code: ExitCode | None) -> None:
    """Rule R5: not where the reader of another run is, as of a table that is resnapshotted beside
    the stream."""
    found = status(offset=100)
    tables = [t.model_copy(update={"run": run}) for t in found.table_status]
    place = StatusPosition(file="b.000001", offset=reader, gtid_set="", timestamp="")
    found = only_tables(found, tables).with_(runs=Runs(stream=RunRef(id="t-2", epoch=2)), position=place)
    assert verdict(Until.CAUGHT_UP, progress(status=found)) == code


@pytest.mark.parametrize(("binlog", "code"), [("mysql:a", DONE), ("mysql:b", None), ("", None)])
def test_only_a_position_in_the_same_binlog_has_reached_its_end(binlog: str, code: ExitCode | None) -> None:
    """Offsets in two binlogs have no order (R6); an earlier version did not name them."""
    [table] = status(offset=9000).table_status
    assert table.position is not None
    place = table.position.model_copy(update={"binlog": binlog})
    found = only_tables(status(), [table.model_copy(update={"position": place})])
    end = LogOffset("b.000001", 500).in_binlog("mysql:a")
    assert verdict(Until.CAUGHT_UP, progress(status=found, log_end=end)) == code


def test_a_source_that_is_not_ready_ends_the_command() -> None:
    """The sync would wait until it is fixed."""
    not_ready = with_condition(
        status(Phase.PENDING, reason="BinlogDisabled"), "SourceReady", False, "BinlogDisabled", "", 0
    )
    for until in Until:
        assert verdict(until, progress(status=not_ready)) is ACT
    away = with_condition(status(Phase.PENDING), "SourceReady", False, "SourceUnreachable", "", 0)
    assert verdict(Until.FOREVER, progress(status=away)) is None


def test_the_other_goals() -> None:
    assert verdict(Until.FOREVER, progress()) is None
    assert verdict(Until.SNAPSHOT, progress(stream_reported=False, log_end=None)) is DONE
    assert verdict(Until.SNAPSHOT, progress(preflight_done=False)) is None
    assert verdict(Until.FOREVER, progress(status=status(Phase.FAILED, reason="PositionLost"))) is ACT
