"""Both pages that Prometheus reads, operator's and driver's, of a sync and a run of which
everything is known."""

from __future__ import annotations

from cdcsync_core.runs.run import Flow
from cdcsync_core.runs.status import ScheduleStatus, Status
from cdcsync_core.runs.status_part import StatusPosition
from cdcsync_operator.cluster.metrics import Metrics
from cdcsync_spark.run.metrics import DriverMetrics


def served() -> str:
    driver = DriverMetrics({"namespace": "n", "name": "s", "kind": "stream"})
    flow = Flow(heard=True, silence=1.0, waiting=0.0, commit=2.0).to_dict()
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
    return Metrics().text({("n", "s"): _known()}, calls=1, leading=True) + driver.text()


def _known() -> Status:
    times = ScheduleStatus(
        next_time="2026-01-01T02:00:00Z", last_start="2026-01-01T00:00:00Z", caught_up_at="2026-01-01T00:00:09Z"
    )
    return Status(lag_seconds=1.0, position=StatusPosition(timestamp="2026-01-01T00:00:00.250Z"), schedule=times)
