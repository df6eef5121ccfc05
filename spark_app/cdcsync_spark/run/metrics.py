"""Numbers of one driver for Prometheus: what it reports to its controller, as it is reported.

Names are an interface (docs/reference/metrics.md). Why it is right: nothing is counted here, so
what is shown and what is reported cannot differ; a metric of which nothing was reported yet is left
out. A page that cannot be served costs the run nothing; one that is not asked for, not even the
import of a server.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Unpack

from cdcsync_core.runs.report import ReportParts
from cdcsync_core.runs.run import RunConfig, TablePhase
from cdcsync_core.timestamps import unix_time
from cdcsync_spark.run.progress import Reports

#: where to serve: a port on all addresses (in a pod), or ADDRESS:PORT; nothing is served without it
VARIABLE = "CDCSYNC_METRICS"


@dataclass(frozen=True)
class RunMetric:
    """`value` takes what was reported so far: the parts of `Report`, each as it was reported
    last."""

    name: str
    kind: str
    help: str
    value: Callable[[Mapping[str, Any]], float | None]


def _of(part: str, name: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda reported: (reported.get(part) or {}).get(name)


def _ago(reported: Mapping[str, Any], name: str) -> float | None:
    """A time of an age in `flow`. Before the run has received anything, no age is that of something
    received."""
    flow = reported.get("flow") or {}
    age = flow.get(name)
    return None if age is None or (name == "seconds_since_event" and not flow["connected"]) else reported["at"] - age


OF_RUN = (
    RunMetric("cdcsync_driver_epoch", "gauge", "the run's epoch: each start of a driver has a higher one", lambda s: s.get("epoch")),
    RunMetric("cdcsync_driver_reported_timestamp_seconds", "gauge", "when the driver reported last", lambda s: s.get("at")),
    RunMetric("cdcsync_driver_lag_seconds", "gauge", "seconds behind the source", lambda s: s.get("lag_seconds")),
    RunMetric(
        "cdcsync_driver_received_timestamp_seconds", "gauge", "when an event or heartbeat of the source came last",
        lambda s: _ago(s, "seconds_since_event"),
    ),
    RunMetric("cdcsync_driver_committed_timestamp_seconds", "gauge", "when the stream last committed", lambda s: _ago(s, "commit")),
    RunMetric("cdcsync_driver_waiting_seconds", "gauge", "how long the oldest received change waits", _of("flow", "waiting")),
    RunMetric(
        "cdcsync_driver_position_timestamp_seconds", "gauge", "what was committed up to then is applied",
        lambda s: unix_time((s.get("position") or {}).get("timestamp")),
    ),
    RunMetric("cdcsync_driver_rows_total", "counter", "rows read by the snapshot, or upserted and deleted by the stream",
              _of("done", "rows")),
    RunMetric("cdcsync_driver_commits_total", "counter", "commits to targets", _of("done", "commits")),
    RunMetric("cdcsync_driver_records_total", "counter", "records that brokers have acknowledged", _of("done", "records")),
    RunMetric("cdcsync_driver_snapshot_splits", "gauge", "splits of the snapshot as far as planned", _of("snapshot", "splitsTotal")),
    RunMetric("cdcsync_driver_snapshot_splits_finished", "gauge", "splits read", _of("snapshot", "splitsFinished")),
    RunMetric("cdcsync_driver_maintenance_steps_total", "counter", "steps of maintenance of the targets", _of("maintenance", "steps")),
    RunMetric("cdcsync_driver_maintenance_seconds_total", "counter", "time spent on maintenance", _of("maintenance", "seconds")),
    RunMetric("cdcsync_driver_maintenance_bytes_total", "counter", "bytes written by maintenance", _of("maintenance", "bytes")),
    RunMetric("cdcsync_driver_maintenance_files_removed_total", "counter", "files removed by maintenance",
              _of("maintenance", "filesRemoved")),
)  # fmt: skip


@dataclass
class DriverMetrics:
    """The page of one run; thread safe. `labels` are on every line."""

    labels: Mapping[str, str]
    _reported: dict[str, Any] = field(default_factory=dict)
    _phases: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, parts: Mapping[str, Any], now: float) -> None:
        """The parts of a `Report`, made at `now` (unix seconds)."""
        with self._lock:
            # a lag of None: the binlog is silent; None of another part: it is unchanged
            self._reported |= {k: v for k, v in parts.items() if v is not None or k == "lag_seconds"} | {"at": now}
            # a verification reports tables without their phases, which are the stream's
            self._phases |= {e["name"]: str(e["phase"]) for e in parts.get("tables", []) if "phase" in e}

    def text(self) -> str:
        """The whole page."""
        from cdcsync_kube.pages import exposition, family

        with self._lock:
            reported, phases = dict(self._reported), Counter(self._phases.values())
        families = []
        for metric in OF_RUN:
            value = metric.value(reported)
            samples = [] if value is None else [(self.labels, value)]
            families.append(family(metric.name, metric.kind, metric.help, samples))
        tables = [({**self.labels, "phase": p.value}, float(phases[p.value])) for p in TablePhase]
        families.append(family("cdcsync_driver_tables", "gauge", "tables of the run by their phase", tables))
        return exposition(families)


@dataclass(frozen=True)
class ShownReporter:
    """A reporter whose reports are also shown."""

    reporter: Reports
    metrics: DriverMetrics

    def report(self, **parts: Unpack[ReportParts]) -> None:
        self.metrics.take(parts, time.time())
        self.reporter.report(**parts)


def shown(config: RunConfig, reporter: Reports) -> Reports:
    """`reporter`, with a page of its reports where the environment asks for one."""
    address, _, port = os.environ.get(VARIABLE, "").rpartition(":")
    if not port:
        return reporter
    from cdcsync_kube.pages import serve

    about = config.resource["metadata"]
    labels = {"namespace": about.get("namespace", "default"), "name": about["name"], "kind": config.kind.value}
    metrics = DriverMetrics(labels)
    try:
        serve(int(port), {"/metrics": lambda: (200, metrics.text())}, address)
    except (OSError, ValueError, OverflowError) as error:
        sys.stderr.write(f"no metrics are served at {VARIABLE}={address}:{port}: {error}\n")
    return ShownReporter(reporter, metrics)
