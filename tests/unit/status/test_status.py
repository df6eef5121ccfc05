"""The status is a small view of the truth, under fixed names (R4, R7)."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from cdcsync_core.positions.chunk import Intervals, Split
from cdcsync_core.positions.failover import Diverged, found_diverged
from cdcsync_core.runs.report_merge import merge_report
from cdcsync_core.runs.run import Report, RunKind, TablePhase
from cdcsync_core.runs.status import MAX_MESSAGE, RunRef, Runs, Status, effective_lag, only_tables, with_condition
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import ResnapshotStatus, TableStatus, count_tables

WHOLE = ({"start": None, "end": None},)
RUNNING = Status(
    observed_generation=3,
    runs=Runs(snapshot=RunRef(id="s-1", epoch=1), stream=RunRef(id="t-2", epoch=2)),
    table_status=(TableStatus(name="shop.a"), TableStatus(name="shop.b")),
)
BOTH = frozenset({"shop.a", "shop.b"})


def test_the_names_are_those_of_the_interface() -> None:
    data = Status(table_status=(TableStatus(name="shop.a"),)).to_dict()
    assert list(data) == [
        "observedGeneration", "phase", "conditions", "runs", "restarts", "source", "tables", "snapshot", "position",
        "lagSeconds", "schedule", "verification", "tableDigest", "tableStatus",
    ]  # fmt: skip
    assert data["observedGeneration"] == -1
    assert data["phase"] == "Pending"
    assert list(data["runs"]) == ["snapshot", "stream", "catchUp", "verify"]
    assert list(data["restarts"]) == ["consecutive", "reason", "message", "nextAttemptAt"]
    assert list(data["tables"]) == [
        "total", "pending", "snapshotting", "catchingUp", "streaming", "failed", "unassigned", "ready",
    ]  # fmt: skip
    assert list(data["snapshot"]) == [
        "splitsTotal", "splitsFinished", "rows", "rowsPerSecond", "startedAt", "finishedAt", "maxRowsPerSecond",
        "maxBytesPerSecond", "throttled", "percent",
    ]  # fmt: skip
    assert Status.model_validate(json.loads(json.dumps(data))).to_dict() == data


def test_a_table_of_a_million_splits_has_a_small_status() -> None:
    """R7: finished splits are merged intervals. The waves here end out of order, as several tables'
    tasks do."""
    bounds = [None, *((i * 50_000,) for i in range(1, 1_000_000)), None]
    finished = Intervals()
    for start, end in itertools.pairwise(bounds):
        finished = finished.add(Split(start, end))
        assert len(finished.parts) == 1
    table = TableStatus(name="shop.a", splits_total=10**6, splits_finished=10**6, finished=tuple(finished.to_list()))
    assert len(json.dumps(only_tables(Status(), [table]).to_dict())) < 2000


def test_ten_thousand_tables_are_counted() -> None:
    phases = list(TablePhase)
    tables = [TableStatus(name=f"d.t{i}", phase=random.Random(i).choice(phases)) for i in range(10_000)]
    counts = count_tables(tables)
    assert counts.total + counts.unassigned == 10_000
    assert counts.total == sum(
        (counts.pending, counts.snapshotting, counts.catching_up, counts.streaming, counts.failed)
    )


def test_only_the_named_run_is_heard() -> None:
    report = Report("s-0", tables=[{"name": "shop.a", "phase": "Snapshotting"}])
    assert merge_report(RUNNING, report, BOTH) == RUNNING


def test_a_report_replaces_what_it_names_and_nothing_else() -> None:
    report = Report("s-1", tables=[{"name": "shop.a", "phase": "Snapshotting", "rows": 7, "nulledDates": 1}], epoch=9)
    after = merge_report(RUNNING, report, BOTH)
    a, b = after.table_status
    assert (a.phase, a.rows, a.nulled_dates) == (TablePhase.SNAPSHOTTING, 7, 1)
    assert b == RUNNING.table_status[1]
    assert after.tables.snapshotting == 1
    assert after.runs.snapshot is not None
    assert after.runs.snapshot.epoch == 9
    again = merge_report(after, Report("s-1", tables=[{"name": "shop.a", "rows": 8}], snapshot={"rows": 8}), BOTH)
    assert again.table_status[0].phase is TablePhase.SNAPSHOTTING
    assert again.snapshot.rows == 8
    assert merge_report(again, Report("s-1", snapshot={"splitsTotal": 4}), BOTH).snapshot.rows == 8


def test_a_run_speaks_of_its_own_tables_only() -> None:
    report = Report("t-2", tables=[{"name": "shop.a", "phase": "Streaming"}, {"name": "shop.x", "phase": "Streaming"}])
    after = merge_report(RUNNING, report, BOTH, foreign=frozenset({"shop.a"}))
    assert after.table_status == RUNNING.table_status


def test_position_and_lag_are_the_streams() -> None:
    place = {"file": "binlog.000001", "offset": 5, "gtidSet": ""}
    assert merge_report(RUNNING, Report("s-1", position=place, lag_seconds=1.0), BOTH).position is None
    after = merge_report(RUNNING, Report("t-2", position=place, lag_seconds=1.0), BOTH)
    assert (after.to_dict()["position"], after.lag_seconds) == (place, 1.0)
    assert RUNNING.runs.kind_of("t-2") is RunKind.STREAM


def test_a_dead_driver_does_not_look_fresh() -> None:
    status = Status(lag_seconds=0.2, position={"timestamp": "2026-01-01T00:00:00.000+00:00"})
    at = 1767225600.0
    assert effective_lag(status, reported_at=at, interval=1.0, now=at + 3) == 0.2
    assert effective_lag(status, reported_at=at, interval=1.0, now=at + 60) == 60.0
    assert effective_lag(status, reported_at=None, interval=1.0, now=at + 60) == 60.0


def test_a_table_has_what_the_reader_of_its_stream_has_passed() -> None:
    """Rule R5: as long as it flows there, and no other run reports it."""

    def place(offset: int) -> dict[str, object]:
        return {"file": "binlog.000001", "offset": offset, "gtidSet": ""}

    def passed(status: Status) -> list[list[int]]:
        return [[p.offset for p in status.covered_positions(t)] for t in status.table_status]

    entries = [
        {"name": n, "phase": p, "position": place(4)} for n, p in (("shop.a", "Streaming"), ("shop.b", "Failed"))
    ]
    began = merge_report(RUNNING, Report("t-2", tables=entries, position=place(5)), BOTH)
    later = merge_report(began, Report("t-2", position=place(9)), BOTH)
    assert passed(later) == [[4, 9], [4]]
    again = merge_report(later, Report("s-1", tables=[entries[0] | {"position": place(7)}]), BOTH)
    assert passed(again) == [[7], [4]]
    assert passed(later.with_(runs=Runs(stream=RunRef(id="t-3", epoch=3)))) == [[4], [4]], "which may have read less"


STAMP = "2026-01-01T00:00:00.000+00:00"
AT = 1767225600.0


def reported(status: Status, stamp: str, lag: float | None) -> Status:
    """The stream reports a place as of `stamp`; its way is the pipe's or a ConfigMap's, which say
    nothing of None."""
    place = {"file": "binlog.000001", "offset": 5, "gtidSet": "", "timestamp": stamp}
    return merge_report(status, Report.from_json(Report("t-2", position=place, lag_seconds=lag).to_json()), BOTH)


def test_a_log_that_fell_silent_has_a_lag_of_none() -> None:
    """A driver that was down for three hours has caught up, and receives heartbeats alone."""
    behind = reported(RUNNING, STAMP, 10800.0)
    assert behind.lag_seconds == 10800.0
    silent = reported(behind, STAMP, 0.0)
    assert effective_lag(silent, reported_at=AT, interval=1.0, now=AT + 9) == 0.0, "its stream is live"
    assert effective_lag(silent, reported_at=AT, interval=1.0, now=AT + 3600) == 3600
    assert effective_lag(silent, reported_at=None, interval=1.0, now=AT + 3600) == 3600, "its run is gone"


def test_a_new_run_has_the_lag_of_the_position_and_not_its_own_age() -> None:
    """It has applied nothing yet, so it does not know the time of the place where it begins."""
    again = reported(reported(RUNNING, STAMP, 0.5), "", None)
    assert effective_lag(again, reported_at=AT + 890, interval=1.0, now=AT + 890) == 890
    assert effective_lag(again, reported_at=None, interval=1.0, now=AT + 20000) == 20000
    assert reported(again, "", 93.0).lag_seconds == 93.0, "it has waited in vain for the source"


def test_a_lag_ages_from_the_last_report_where_nothing_has_a_time() -> None:
    begun = reported(RUNNING, "", None)
    assert effective_lag(begun, reported_at=AT, interval=1.0, now=AT + 3) is None
    assert effective_lag(begun, reported_at=AT, interval=1.0, now=AT + 60) == 60.0
    assert effective_lag(begun, reported_at=None, interval=1.0, now=AT + 60) is None


def test_consistency_is_the_position_beyond_the_high_watermark() -> None:
    table = TableStatus(name="t", finished=WHOLE, high={"file": "b.000010", "offset": 4})
    assert not table.passed_high
    assert not table.model_copy(update={"position": StatusPosition(file="b.000009", offset=99)}).passed_high
    assert table.model_copy(update={"position": StatusPosition(file="b.000010", offset=4)}).passed_high


def test_a_condition_keeps_its_time_until_it_turns() -> None:
    first = with_condition(RUNNING, "Ready", False, "Planning", "", 1000.0)
    second = with_condition(first, "Ready", False, "Snapshotting", "", 2000.0)
    third = with_condition(second, "Ready", True, "Streaming", "", 3000.0)
    times = [s.condition("Ready").last_transition_time for s in (first, second, third)]
    assert times == ["1970-01-01T00:16:40Z", "1970-01-01T00:16:40Z", "1970-01-01T00:50:00Z"]
    assert third.condition("Ready").observed_generation == 3
    assert len(third.conditions) == 1
    assert len(with_condition(RUNNING, "Ready", False, "X", "m" * 9999, 0).condition("Ready").message) == MAX_MESSAGE


@pytest.mark.parametrize("run", ["t-2", "s-1"])
def test_no_run_takes_a_failure_back_that_it_does_not_know_of(run: str) -> None:
    """A catch-up has failed, while the snapshot that has read the table still reads others."""
    failed = TableStatus(name="shop.a", phase=TablePhase.FAILED, reason="PositionLost", message="m")
    known = only_tables(RUNNING, [failed])
    entry = {"name": "shop.a", "phase": "Streaming", "reason": "", "message": "", "rows": 7}
    merged = merge_report(known, Report(run, tables=[entry]), BOTH).table("shop.a")
    assert merged == failed.model_copy(update={"rows": 7})


def test_the_binlog_that_is_followed_is_that_of_most_tables() -> None:
    def table(name: str, binlog: str, phase: TablePhase = TablePhase.STREAMING) -> TableStatus:
        place = StatusPosition(file="binlog.000001", offset=5, binlog=binlog)
        return TableStatus(name=name, phase=phase, position=place)

    tables = [table("a", "mysql:x", TablePhase.FAILED), table("b", "mysql:x", TablePhase.FAILED), table("c", "mysql:y")]
    assert Status(table_status=tuple(tables)).followed == "mysql:y"
    assert Status(table_status=(*tables, table("d", "mysql:z"), table("e", "mysql:z"))).followed == "mysql:z"
    decided = {"phase": TablePhase.PENDING, "resnapshot": ResnapshotStatus(generation=1)}
    left = [table(name, "mysql:x").model_copy(update=decided) for name in "fghi"]
    assert Status(table_status=(*left, *tables)).followed == "mysql:y"
    assert Status(table_status=tuple(left)).followed == "mysql:x"


def test_a_table_that_has_diverged_is_read_on_the_server_on_which_it_has() -> None:
    """Not on the one that it was on, which may come back; its new content counts once it is
    begun."""
    place = StatusPosition(file="binlog.000001", offset=5, binlog="mysql:x")
    message = f"a: {found_diverged('mysql:y', Diverged('the server lacks mysql:x:7'))}; needed: a copy"
    decided = ResnapshotStatus(generation=1, reason="HistoryDiverged", message=message)
    table = TableStatus(name="a", phase=TablePhase.PENDING, position=place, resnapshot=decided)
    assert Status(table_status=(table,)).followed == "mysql:y"
    begun = table.model_copy(update={"generation": 1, "position": place.model_copy(update={"binlog": "mysql:z"})})
    assert Status(table_status=(begun,)).followed == "mysql:z"
    other = decided.model_copy(update={"message": "the source is now something else: x"})
    assert Status(table_status=(table.model_copy(update={"resnapshot": other}),)).followed == "mysql:x"


def test_no_binlog_is_followed_where_no_table_is_in_one() -> None:
    assert Status(table_status=(TableStatus(name="a"),)).followed == ""
