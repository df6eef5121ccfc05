"""Runs as they are found on a cluster: pods and reports, read together, judged without side
effects.

A run exists if a pod or a report of it does: the report is created first and deleted last. Pods
are read before reports, so the report of a pod that has ended is complete. Pure but for
`find`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from cdcsync_core.errors import Reason
from cdcsync_core.report import TableReport, table_report
from cdcsync_core.run import ExitCode, Flow, Report, RunKind
from cdcsync_core.timestamps import unix_time
from cdcsync_kube.client import Api, Object
from cdcsync_operator.cluster.owned import is_owned_by
from cdcsync_operator.cluster.pod_outcome import outcome, waiting
from cdcsync_operator.cluster.run_objects import (
    KIND_LABEL,
    PART_LABEL,
    PLANNED,
    RUN_LABEL,
    STOP_ASKED,
    SYNC_LABEL,
)
from cdcsync_operator.decision.observed import Exit, ObservedRun, RunState
from cdcsync_operator.decision.runs import RUNS

#: objects asked for at once: each may have 1 MiB
_PAGE = 20
#: an operator before this one wrote the time there
_PLAN_DIGITS = 9


@dataclass(frozen=True)
class FoundRun:
    """One run's traces; `reports` are its shards in order, `pending` its executors' pods that
    wait."""

    id: str
    pod: Object | None = None
    reports: tuple[Object, ...] = ()
    pending: tuple[Object, ...] = ()

    @cached_property
    def about(self) -> Object:
        """How it was started; its tables may be in several shards."""
        if not self.reports:
            return {}
        first, *further = (_json(shard, "run") for shard in self.reports)
        return first | {"tables": [t for part in (first, *further) for t in part.get("tables", [])]}

    @property
    def unknown(self) -> list[TableReport]:
        """Entries of the tables that it was started without."""
        return list(self.about.get("unknown", []))

    @cached_property
    def head(self) -> Object:
        """The driver's report of the run as a whole; its `number` grows with each report."""
        return _json(self.reports[0], "head") if self.reports else {}

    @property
    def kind(self) -> RunKind:
        labels = self.pod["metadata"]["labels"] if self.pod else {}
        return RunKind(self.about.get("kind") or labels.get(KIND_LABEL) or RunKind.STREAM)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.about.get("tables", []))

    @property
    def stop_asked(self) -> bool:
        """By this operator. A pod that is deleted otherwise is a failure of its run, however well
        it drained."""
        return self._annotated(STOP_ASKED)

    @property
    def ending(self) -> bool:
        return bool(self.pod and self.pod["metadata"].get("deletionTimestamp"))

    @property
    def planned(self) -> bool:
        return self._annotated(PLANNED)

    @property
    def plan_bytes(self) -> int:
        """Of the ConfigMaps of a plan that is whole."""
        text = str(self._annotations.get(PLANNED, ""))
        return int(text) if text.isdecimal() and len(text) < _PLAN_DIGITS else 0

    @property
    def _annotations(self) -> Object:
        return (self.reports[0]["metadata"].get("annotations") or {}) if self.reports else {}

    def _annotated(self, name: str) -> bool:
        return name in self._annotations

    def seen(self, now: float) -> ObservedRun:
        about = self.about
        ended = self._exit(now)
        draining = self.stop_asked or self.ending
        state = RunState.ENDED if ended else RunState.DRAINING if draining else RunState.RUNNING
        created = (self.reports[0] if self.reports else self.pod or {})["metadata"].get("creationTimestamp")
        return ObservedRun(
            self.kind,
            self.id,
            tuple((name, generation) for name, generation in about.get("tables", [])),
            about.get("fingerprint", ""),
            state,
            unix_time(created) or now,
            self.stop_asked,
            self.head.get("at"),
            ended,
            ("", "") if ended or draining else waiting(self.pod, self.pending, now),
            Flow.from_dict(self.head["flow"]) if self.head.get("flow") else None,
            appeared=self.head.get("appeared", 0),
            stop_at=self.about.get("stopAt", ""),
        )

    def _exit(self, now: float) -> Exit | None:
        exit_report = self.head.get("exit")
        reported = _read_exit(exit_report) if exit_report else None
        if self.pod is None:
            return self._unasked(reported) if reported else Exit(ExitCode.DONE) if self.stop_asked else _VANISHED
        found = outcome(self.pod, now, reported)
        return self._unasked(found) if found and self.ending else found

    def _unasked(self, ended: Exit) -> Exit:
        """The exit of a driver that drained before it was done, and was not asked to by this
        operator."""
        if ended.code != ExitCode.DONE:
            return ended
        message = "the driver's pod was deleted or evicted; it drained"
        # it would count as caught up; a driver of an earlier version reports nothing else
        if self.about.get("stopAt") or self.kind is RunKind.CATCH_UP:
            return Exit(ExitCode.RETRY, Reason.DRIVER_LOST, message)
        return replace(ended, message=message)

    def report_since(self, since: int) -> Report | None:
        """What the driver reported after its report number `since`; None where that is nothing."""
        head = self.head
        if head.get("number", 0) <= since:
            return None
        tables = [
            table_report(entry)
            for shard in self.reports
            for entry in _json(shard, "tables").get("entries", [])
            if entry["number"] > since
        ]
        parts = {k: head[k] for k in ("snapshot", "position", "lag_seconds", "epoch") if head.get(k) is not None}
        return Report(self.id, tables=tables, **parts)


_VANISHED = Exit(ExitCode.RETRY, "DriverLost", "the driver's pod is gone: deleted, or lost with its node")


@dataclass
class RunFinder:
    """Reads the runs of one sync, whose resource has this uid.

    A label alone makes no object a run's: a right to create ConfigMaps is one to write any label.
    What counts is owned by the resource and has the name that this program gives it.
    """

    api: Api
    namespace: str
    name: str
    uid: str

    def find(self) -> Mapping[str, FoundRun]:
        """By id."""
        base, mine = f"/api/v1/namespaces/{self.namespace}", f"{SYNC_LABEL}={self.name},{PART_LABEL}"
        pods = {_run(p): p for p in self._ours(f"{base}/pods", f"{mine}=driver", _DRIVER_NAME)}
        maps: dict[str, list[Object]] = {}
        for found in self._ours(f"{base}/configmaps", f"{mine}=report", _REPORT_NAME):
            maps.setdefault(_run(found), []).append(found)
        found = {
            run: FoundRun(run, pods.get(run), tuple(sorted(maps.get(run, []), key=_shard_number)))
            for run in sorted(pods.keys() | maps.keys())
        }
        return {name: self._with_pending(run) for name, run in found.items()}

    def _with_pending(self, run: FoundRun) -> FoundRun:
        """Only a snapshot that has begun has executors."""
        if not RUNS[run.kind].by_splits or ((run.pod or {}).get("status") or {}).get("phase") != "Running":
            return run
        assert run.pod is not None
        executors = f"{RUN_LABEL}={run.id},{PART_LABEL}=executor"
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        pending = self.api.items(path, labelSelector=executors, fieldSelector="status.phase=Pending")
        driver = run.pod["metadata"]["uid"]
        return replace(run, pending=tuple(p for p in pending if is_owned_by(driver, p["metadata"])))

    def _ours(self, path: str, selector: str, named: re.Pattern[str]) -> Iterator[Object]:
        for found in self.api.items(path, page=_PAGE, labelSelector=selector):
            about = found["metadata"]
            match = named.fullmatch(about["name"])
            if (
                is_owned_by(self.uid, about)
                and match
                and match["run"] == _run(found)
                and match["run"].startswith(f"{self.name}-")
            ):
                yield found


def _read_exit(report: Object) -> Exit:
    return Exit(int(report["code"]), str(report["reason"]), " ".join(str(report["message"]).split()))


_DRIVER_NAME = re.compile(r"(?P<run>.+)-driver")
_REPORT_NAME = re.compile(r"(?P<run>.+)-report-[0-9]+")


def _run(found: Object) -> str:
    return str(found["metadata"]["labels"].get(RUN_LABEL, ""))


def _shard_number(found: Object) -> int:
    return int(found["metadata"]["name"].rpartition("-")[2])


def _json(config_map: Object, key: str) -> Object:
    try:
        return dict(json.loads((config_map.get("data") or {}).get(key) or "{}"))
    except ValueError:
        return {}
