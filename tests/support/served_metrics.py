"""Both pages that Prometheus reads, operator's and driver's, of a sync and a run of which
everything is known."""

from __future__ import annotations

from cdcsync_core.runs.run import Flow, TablePhase
from cdcsync_core.runs.status import ScheduleStatus, SnapshotProgress, Status, with_condition
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_core.runs.table_status import TableCounts, TableStatus
from cdcsync_operator.cluster.metrics import Metrics
from cdcsync_spark.run.metrics import DriverMetrics


def served() -> str:
    operator = Metrics(tables_of_sync=1)
    return operator.text({("n", "s"): status_of_all_metrics()}, calls=1, leading=True) + driver_page()


def driver_page() -> str:
    driver = DriverMetrics({"namespace": "n", "name": "s", "kind": "stream"})
    flow = Flow(connected=True, seconds_since_event=1.0, waiting=0.0, commit=2.0).to_dict()
    parts = {"position": {"timestamp": "2026-01-01T00:00:00Z"}, "epoch": 1, "lag_seconds": 0.5, "flow": flow}
    work = {
        "rows": 1,
        "commits": 1,
        "records": 1,
        "steps": 1,
        "seconds": 1.0,
        "bytes": 1,
        "filesRemoved": 1,
        "splitsTotal": 1,
        "splitsFinished": 1,
    }
    driver.take(parts | {"done": work, "snapshot": work, "maintenance": work}, 0.0)
    return driver.text()


def status_of_all_metrics() -> Status:
    """From it every metric of the operator has a value."""
    times = ScheduleStatus(
        next_time="2026-01-01T02:00:00Z", last_start="2026-01-01T00:00:00Z", caught_up_at="2026-01-01T00:00:09Z"
    )
    position = StatusPosition(timestamp="2026-01-01T00:00:00.250Z")
    table = TableStatus(name="shop.a", phase=TablePhase.FAILED, reason="NoPrimaryKey", position=position)
    snapshot, tables = SnapshotProgress(splits_total=2, splits_finished=1), TableCounts(total=1, failed=1)
    status = Status(lag_seconds=1.0, position=position, schedule=times, snapshot=snapshot)
    status = status.with_(table_status=(table,), tables=tables)
    return with_condition(status, "Ready", False, "NoPrimaryKey", "", 0.0)
