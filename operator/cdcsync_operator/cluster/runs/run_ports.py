"""Runs as they are found on a cluster: pods and reports, read together, judged without side
effects.

A run exists if a pod or a report of it does: the report is created first and deleted last. Pods
are read before reports, so the report of a pod that has ended is complete. Pure but for
`find`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from cdcsync_core.errors import Reason
from cdcsync_core.runs.report import TableReport, table_report
from cdcsync_core.runs.run import ExitCode, Report, RunKind
from cdcsync_core.timestamps import unix_time
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.objects.owned import is_owned_by
from cdcsync_operator.cluster.objects.pod_outcome import outcome, waiting
from cdcsync_operator.cluster.objects.run_objects import (
    KIND_LABEL,
    PART_LABEL,
    PLANNED,
    RUN_LABEL,
    STOP_ASKED,
    SYNC_LABEL,
    report_names,
)
from cdcsync_operator.cluster.quota.report_bounds import ReportBounds
from cdcsync_operator.cluster.runs.report_content import ReportedExit, RunHead, RunStart, entries_since, part_of
from cdcsync_operator.decision.observed import Exit, ObservedRun, RunState
from cdcsync_operator.decision.runs.kinds import RUNS

#: objects asked for at once: each may have 1 MiB
_PAGE = 20
#: objects of which the metadata is read: more than all shards of all runs of the largest sync
_MOST_OBJECTS = 5_000
_MOST_PODS = 200
#: shards of one run; 50,000 tables have some 800
_MOST_SHARDS = 1_000
#: runs that the status does not name, as an operator that died leaves them: the next ones are found
#: when these are cleared away
_UNNAMED = 8
#: shards up to which each is asked for by itself
_FEW = 4
#: of the bytes of a plan; who may change ConfigMaps may write anything there
_MOST_DIGITS = 9


@dataclass(frozen=True)
class FoundRun:
    """One run's traces; `reports` are its shards in order, `pending` its executors' pods that wait.
    What the driver reported raises ValueError where no driver can have written it."""

    id: str
    pod: Object | None = None
    reports: tuple[Object, ...] = ()
    pending: tuple[Object, ...] = ()

    @property
    def about(self) -> RunStart:
        """How it was started; nothing is known of that where it cannot be read."""
        return RunStart() if isinstance(self._start, ValueError) else self._start

    @cached_property
    def _start(self) -> RunStart | ValueError:
        """Its tables may be in several shards."""
        try:
            parts = [RunStart.model_validate(part_of(shard, "run")) for shard in self.reports]
        except ValueError as error:
            return error
        tables = [table for part in parts for table in part.tables]
        return parts[0].model_copy(update={"tables": tables}) if parts else RunStart()

    @property
    def unknown(self) -> list[TableReport]:
        """Entries of the tables that it was started without."""
        return [table_report(entry) for entry in self.about.unknown if "name" in entry]

    @cached_property
    def head(self) -> RunHead:
        return RunHead.model_validate(part_of(self.reports[0], "head")) if self.reports else RunHead()

    @property
    def number(self) -> int:
        """That of the last report. Raises ValueError also where it cannot be read how the run was
        started."""
        if isinstance(self._start, ValueError):
            raise self._start
        return self.head.number

    @property
    def kind(self) -> RunKind:
        label = self.pod["metadata"]["labels"].get(KIND_LABEL) if self.pod else None
        return self.about.kind or (RunKind(label) if label in set(RunKind) else RunKind.STREAM)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.about.tables)

    @property
    def stop_asked(self) -> bool:
        """Whether this operator asked for it. A pod that is deleted otherwise is a failure of its
        run, however well it drained."""
        return self._annotated(STOP_ASKED)

    @property
    def ending(self) -> bool:
        return bool(self.pod and self.pod["metadata"].get("deletionTimestamp"))

    @property
    def planned(self) -> bool:
        return self._annotated(PLANNED)

    @property
    def plan_bytes(self) -> int:
        """The bytes of the ConfigMaps of a plan that is whole."""
        text = str(self._annotations.get(PLANNED, ""))
        return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0

    @property
    def _annotations(self) -> Object:
        return (self.reports[0]["metadata"].get("annotations") or {}) if self.reports else {}

    def without_content(self) -> FoundRun:
        """Keeps the metadata of the first of its reports; what they hold is in the status by
        now."""
        return FoundRun(self.id, self.pod, tuple({"metadata": r["metadata"], "data": {}} for r in self.reports[:1]))

    def without_report(self) -> FoundRun:
        """As if its driver had reported nothing; how it was started stays."""
        data = [{k: v for k, v in (r.get("data") or {}).items() if k == "run"} for r in self.reports]
        return replace(self, reports=tuple(r | {"data": d} for r, d in zip(self.reports, data, strict=True)))

    def _annotated(self, name: str) -> bool:
        return name in self._annotations

    def seen(self, now: float) -> ObservedRun:
        about, head = self.about, self.head
        ended = self._exit(now)
        draining = self.stop_asked or self.ending
        state = RunState.ENDED if ended else RunState.DRAINING if draining else RunState.RUNNING
        created = (self.reports[0] if self.reports else self.pod or {})["metadata"].get("creationTimestamp")
        return ObservedRun(
            self.kind,
            self.id,
            tuple(about.tables),
            about.fingerprint,
            state,
            unix_time(created) or now,
            self.stop_asked,
            head.at,
            ended,
            ("", "") if ended or draining else waiting(self.pod, self.pending, now),
            head.flow,
            appeared=head.appeared,
            stop_at=about.stop_at,
        )

    def _exit(self, now: float) -> Exit | None:
        reported = _read_exit(self.head.exit) if self.head.exit else None
        if self.pod is None:
            return self._unasked(reported) if reported else Exit(ExitCode.DONE) if self.stop_asked else _VANISHED
        exit_outcome = outcome(self.pod, now, reported)
        return self._unasked(exit_outcome) if exit_outcome and self.ending else exit_outcome

    def _unasked(self, ended: Exit) -> Exit:
        """The exit of a driver that drained before it was done, and was not asked to by this
        operator."""
        if ended.code != ExitCode.DONE:
            return ended
        message = "the driver's pod was deleted or evicted; it drained"
        # it would count as caught up
        if self.about.stop_at or self.kind is RunKind.CATCH_UP:
            return Exit(ExitCode.RETRY, Reason.DRIVER_LOST, message)
        return replace(ended, message=message)

    def report_since(self, since: int) -> Report | None:
        """What the driver reported after its report number `since`; None where that is nothing."""
        head = self.head
        if head.number <= since:
            return None
        tables = [table_report(entry) for shard in self.reports for entry in entries_since(shard, since)]
        parts = head.model_dump(include={"snapshot", "position", "lag_seconds", "epoch"}, exclude_none=True)
        return Report(self.id, tables=tables, **parts)


_VANISHED = Exit(ExitCode.RETRY, "DriverLost", "the driver's pod is gone: deleted, or lost with its node")


@dataclass
class RunFinder:
    """Reads the runs of one sync, whose resource has this uid.

    A label alone makes no object a run's: a right to create ConfigMaps is one to write any label.
    What counts is owned by the resource and has the name that this program gives it. Who may write
    ConfigMaps can write the owner and such names, too, so only what is on record is read: of a run
    that the status names as many shards as its tables can have, of a few others the first. They
    are cleared away, each by some calls, and then others are found: so however many there are, one
    reconciliation takes its time and memory for a few.
    """

    api: Api
    namespace: str
    name: str
    uid: str
    bounds: ReportBounds

    def find(self, named: frozenset[str], most_shards: int) -> Mapping[str, FoundRun]:
        """The runs by id: those on record, `named`, each of which has at most `most_shards`
        reports, and a few of the others, first those with a pod, and of these the newest."""
        selector = f"{SYNC_LABEL}={self.name},{PART_LABEL}"
        pods = self._pods(f"{selector}=driver", named)
        shards = self._shards(f"{selector}=report")
        ids = pods.keys() | shards.keys()
        unnamed = sorted(ids - named, key=lambda run: (run in pods, _created(shards.get(run, {}))), reverse=True)
        return {
            run: self._with_pending(
                FoundRun(
                    run, pods.get(run), self._reports(run, shards.get(run, {}), most_shards if run in named else 1)
                )
            )
            for run in sorted(ids & {*named, *unnamed[:_UNNAMED]})
        }

    @property
    def _maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    def _pods(self, selector: str, named: frozenset[str]) -> dict[str, Object]:
        """The drivers' pods by their runs; of those that are not on record a few."""
        path, pods, others = f"/api/v1/namespaces/{self.namespace}/pods", dict[str, Object](), 0
        for pod in itertools.islice(self.api.items(path, page=_PAGE, labelSelector=selector), _MOST_PODS):
            run, is_ours = _run(pod["metadata"]), self._is_ours(pod["metadata"], _DRIVER_NAME)
            others += is_ours and run not in named
            if is_ours and (run in named or others <= _UNNAMED):
                pods[run] = pod
        return pods

    def _shards(self, selector: str) -> dict[str, dict[int, Object]]:
        """The metadata of each run's reports, by their numbers."""
        shards: dict[str, dict[int, Object]] = {}
        for about in itertools.islice(self.api.metadata(self._maps, labelSelector=selector), _MOST_OBJECTS):
            if self._is_ours(about, _REPORT_NAME):
                shards.setdefault(_run(about), {})[_shard_number(about)] = about
        return shards

    def _reports(self, run: str, shards: Mapping[int, Object], most: int) -> tuple[Object, ...]:
        """The first `most` reports in order, with their content, or as many as the tables that the
        first one names can have. Without a first one only the metadata of one, by which the run is
        cleared away. Raises QuotaExceeded."""
        first = self._report(f"{run}-report-0") if 0 in shards else None
        if first is None:
            return tuple({"metadata": shards[number], "data": {}} for number in sorted(shards)[:1])
        most = max(most, len(report_names(run, _listed_tables(first))) if most > 1 else most)
        numbers = [number for number in sorted(shards) if 0 < number < min(most, _MOST_SHARDS)]
        if len(numbers) >= _FEW and len(numbers) == len(shards) - 1:
            return _ordered(self.bounds.read(run, self._all_reports(run)))
        further = (self._report(f"{run}-report-{number}") for number in numbers)
        return _ordered(self.bounds.read(run, itertools.chain([first], filter(None, further))))

    def _all_reports(self, run: str) -> Iterator[Object]:
        """The reports of a run, by pages, where nothing else has their names."""
        selector = f"{SYNC_LABEL}={self.name},{PART_LABEL}=report,{RUN_LABEL}={run}"
        reports = self.api.items(self._maps, page=_PAGE, labelSelector=selector)
        return (report for report in reports if self._is_ours(report["metadata"], _REPORT_NAME))

    def _report(self, name: str) -> Object | None:
        try:
            report = self.api.get(f"{self._maps}/{name}")
        except ApiError as error:
            if error.gone:
                return None
            raise
        return report if self._is_ours(report["metadata"], _REPORT_NAME) else None

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

    def _is_ours(self, about: Object, named: re.Pattern[str]) -> bool:
        match = named.fullmatch(about["name"])
        return (
            match is not None
            and is_owned_by(self.uid, about)
            and match["run"] == _run(about)
            and match["run"].startswith(f"{self.name}-")
        )


def _read_exit(reported: ReportedExit) -> Exit:
    return Exit(reported.code, reported.reason, " ".join(reported.message.split()))


def _listed_tables(report: Object) -> int:
    """How many tables the first report of a run names."""
    try:
        return len(RunStart.model_validate(part_of(report, "run")).tables)
    except ValueError:
        return 0


_DRIVER_NAME = re.compile(r"(?P<run>.+)-driver")
_REPORT_NAME = re.compile(r"(?P<run>.+)-report-(0|[1-9][0-9]{0,6})")


def _run(about: Object) -> str:
    return str((about.get("labels") or {}).get(RUN_LABEL, ""))


def _shard_number(about: Object) -> int:
    return int(about["name"].rpartition("-")[2])


def _created(shards: Mapping[int, Object]) -> str:
    return max((str(about.get("creationTimestamp", "")) for about in shards.values()), default="")


def _ordered(reports: Iterable[Object]) -> tuple[Object, ...]:
    return tuple(sorted(reports, key=lambda report: _shard_number(report["metadata"])))
