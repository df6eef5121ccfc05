"""Numbers for Prometheus from what the operator knows anyway. Names are an interface: see
docs/operator.md."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from cdcsync_core.runs.status import Phase, Status
from cdcsync_core.timestamps import unix_time
from cdcsync_kube.pages import exposition, family
from cdcsync_operator.cluster.settings import SAMPLE_LIMIT
from cdcsync_operator.cluster.syncs.work_queue import Key
from cdcsync_operator.cluster.table_metrics import Labels, table_families


@dataclass(frozen=True)
class SyncMetric:
    name: str
    kind: str
    help: str
    value: Callable[[Status], float | None]


#: a row is a metric of each sync
OF_SYNC = (
    SyncMetric("cdcsync_ready", "gauge", "1 while data flows and nothing fails", lambda s: _true(s, "Ready")),
    SyncMetric("cdcsync_stalled", "gauge", "1 when only the user can help", lambda s: _true(s, "Stalled")),
    SyncMetric("cdcsync_lag_seconds", "gauge", "seconds behind the source", lambda s: s.lag_seconds),
    SyncMetric(
        "cdcsync_position_timestamp_seconds", "gauge", "what was committed up to then is applied",
        lambda s: s.position.seconds if s.position else None,
    ),
    SyncMetric(
        "cdcsync_schedule_next_timestamp_seconds", "gauge", "the first time of the schedule that is not caught up",
        lambda s: unix_time(s.schedule.next_time) if s.schedule else None,
    ),
    SyncMetric("cdcsync_tables", "gauge", "tables that are captured", lambda s: s.tables.total),
    SyncMetric("cdcsync_tables_consistent", "gauge", "tables that are consistent", lambda s: s.tables.streaming),
    SyncMetric("cdcsync_tables_failed", "gauge", "tables that were stopped", lambda s: s.tables.failed),
    SyncMetric("cdcsync_tables_unassigned", "gauge", "tables that match and are not captured", lambda s: s.tables.unassigned),
    SyncMetric(
        "cdcsync_tables_resnapshotting", "gauge", "tables that are resnapshotted without a request of the user",
        lambda s: sum(t.is_resnapshotted for t in s.table_status),
    ),
    SyncMetric("cdcsync_snapshot_splits", "gauge", "splits of the snapshot", lambda s: s.snapshot.splits_total),
    SyncMetric("cdcsync_snapshot_splits_finished", "gauge", "splits read", lambda s: s.snapshot.splits_finished),
    SyncMetric("cdcsync_snapshot_rows", "gauge", "rows read by the snapshot", lambda s: s.snapshot.rows),
    SyncMetric("cdcsync_failures_in_a_row", "gauge", "failed runs since the last stable one", lambda s: s.restarts.consecutive),
)  # fmt: skip


#: conditions that are served with their reason
CONDITIONS = ("Ready", "SourceReady", "SinkReady", "Consistent")
#: of the operator itself, and of a sync at most
_OWN_SAMPLES, _SYNC_SAMPLES = 10, len(OF_SYNC) + len(Phase) + len(CONDITIONS)


def _served(syncs: Mapping[Key, Status], most: int) -> list[tuple[Key, Status]]:
    """Syncs that need attention come first, where there is no room for all."""
    by_name = sorted(syncs.items())
    if len(by_name) <= most:
        return by_name
    by_name.sort(key=lambda entry: (-_true(entry[1], "Stalled"), _true(entry[1], "Ready"), entry[0]))
    return sorted(by_name[: max(0, most)], key=lambda entry: entry[0])


def _true(status: Status, condition: str) -> float:
    return 1.0 if status.condition(condition).status == "True" else 0.0


def _conditions(syncs: Iterable[tuple[Labels, Status]]) -> list[tuple[Labels, float]]:
    """One that is Unknown has no value."""
    return [
        (labels | {"condition": name, "reason": condition.reason}, float(condition.status == "True"))
        for labels, status in syncs
        for name in CONDITIONS
        if (condition := status.condition(name)).status != "Unknown"
    ]


@dataclass
class Metrics:
    """Counters of the operator itself; thread safe. A page has at most `most` samples: Prometheus
    takes none of one that has more than it was allowed. Of a sync it has at most `tables_of_sync`
    tables, where the syncs leave room for them."""

    most: int = SAMPLE_LIMIT
    tables_of_sync: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    reconciliations: int = 0
    failed: int = 0
    seconds: float = 0.0

    def reconciled(self, seconds: float, *, failed: bool) -> None:
        with self._lock:
            self.reconciliations += 1
            self.failed += failed
            self.seconds += seconds

    def text(self, syncs: Mapping[Key, Status], *, calls: int, leading: bool) -> str:
        """The whole page."""
        families = [
            family("cdcsync_reconcile_total", "counter", "reconciliations of all syncs", [({}, self.reconciliations)]),
            family("cdcsync_reconcile_errors_total", "counter", "reconciliations that failed", [({}, self.failed)]),
            family(
                "cdcsync_reconcile_seconds_total", "counter", "seconds spent in reconciliations", [({}, self.seconds)]
            ),
            family("cdcsync_api_calls_total", "counter", "requests to the API server", [({}, calls)]),
            family("cdcsync_leading", "gauge", "1 in the operator that acts", [({}, float(leading))]),
        ]
        served = _served(syncs, (self.most - _OWN_SAMPLES) // _SYNC_SAMPLES)
        families.append(family("cdcsync_syncs", "gauge", "CdcSyncs that this operator has", [({}, len(syncs))]))
        left = len(syncs) - len(served)
        families.append(
            family("cdcsync_syncs_left_out", "gauge", "CdcSyncs that this page has no room for", [({}, left)])
        )
        named: list[tuple[Labels, Status]] = [({"namespace": n, "name": name}, s) for (n, name), s in served]
        for metric in OF_SYNC:
            values = [(labels, metric.value(status)) for labels, status in named]
            given = [(la, v) for la, v in values if v is not None]
            families.append(family(metric.name, metric.kind, metric.help, given))
        phases = [(labels | {"phase": p.value}, float(s.phase is p)) for labels, s in named for p in Phase]
        families.append(family("cdcsync_phase", "gauge", "1 for the phase that a sync is in", phases))
        families.append(
            family("cdcsync_condition", "gauge", "1 while a condition is True, 0 while it is False", _conditions(named))
        )
        if self.tables_of_sync:
            room = self.most - _OWN_SAMPLES - len(served) * _SYNC_SAMPLES
            families += table_families(named, self.tables_of_sync, room)
        return exposition(families)
