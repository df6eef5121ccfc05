"""The port `Drivers` on this machine: runs are child processes, their plans threads, their traces
folders.

Why it is right: a run's folder is its own and its driver's lock lies in it, so what an earlier
controller left is judged by facts: a driver that still lives is waited for (it drains, because its
reports are not read any more) and then killed; one that is gone counts as drained, since its work
is in the targets. Reports of a run count only for the tables that no newer run has.
"""

from __future__ import annotations

import math
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from cdcsync_core.errors import CdcError, PermanentError
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.report import failed_table
from cdcsync_core.runs.report_merge import merge_report
from cdcsync_core.runs.run import ExitCode, Flow, Report, RunConfig, RunKind, TableAssignment
from cdcsync_core.runs.status import Status
from cdcsync_core.tables.capture import Capture
from cdcsync_operator.decision.observed import Exit, ForgetRun, ObservedRun, RunState, StartRun, StopRun
from cdcsync_operator.decision.runs.kinds import RUNS
from cdcsync_operator.decision.tables.assignment import assigning, owned_tables
from cdcsync_operator.local.driver_process import DriverProcess, RunFiles, kill_orphan, still_alive
from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.reconcile.files import write_whole
from cdcsync_operator.reconcile.planning import PlanFolder, Planner, Splits, table_plans
from cdcsync_operator.reconcile.ports import Observation

#: how long a driver may drain beyond the longest split
_GRACE = 30.0
_KEPT_LOGS = 20
_JOIN_SECONDS = 2.0


class _Inbox:
    """Reports of one run between the thread that reads them and the controller that merges them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._reports: list[Report] = []
        self.reported_at: float | None = None
        self.flow: Flow | None = None
        self.appeared = 0

    def put(self, report: Report) -> None:
        with self._lock:
            self._reports.append(report)
            self.reported_at = self._clock()
            self.flow = self.flow if report.flow is None else Flow.from_dict(report.flow)
            self.appeared = self.appeared if report.appeared is None else report.appeared

    def take(self) -> list[Report]:
        with self._lock:
            reports, self._reports = self._reports, []
            return reports


@dataclass
class _LocalRun:
    action: StartRun
    process: DriverProcess
    inbox: _Inbox
    planner: Planner | None
    started_at: float
    grace: float
    drained_at: float | None = None
    error: CdcError | None = None

    def seen(self, now: float) -> ObservedRun:
        a, asked = self.action, self.drained_at is not None
        unplanned = self.plan_error is not None and not asked
        state = RunState.DRAINING if asked or unplanned else RunState.RUNNING
        outcome = self.process.exit
        if outcome is not None:
            state = RunState.ENDED
            if self.error is not None:
                asked, outcome = False, _exit_of(self.error)
        inbox = self.inbox
        return ObservedRun(
            a.kind,
            a.id,
            a.tables,
            a.fingerprint,
            state,
            self.started_at,
            asked,
            inbox.reported_at,
            outcome,
            flow=inbox.flow,
            appeared=inbox.appeared,
            stop_at=a.stop_at,
            unfit=outcome is None and (unplanned or self.is_overdue(now)),
        )

    @property
    def plan_error(self) -> CdcError | None:
        return self.planner.error if self.planner else None

    def is_overdue(self, now: float) -> bool:
        """Whether it was asked to drain, and has had the time for it."""
        return self.drained_at is not None and now - self.drained_at > self.grace

    def stop(self, now: float) -> None:
        """Asks it to drain the first time, and ends it when it is overdue."""
        if self.drained_at is None:
            self.error, self.drained_at = self.plan_error, now
            self.process.drain()
        elif self.is_overdue(now):
            self.process.kill()


def _exit_of(error: CdcError) -> Exit:
    code = ExitCode.USER_MUST_ACT if isinstance(error, PermanentError) else ExitCode.RETRY
    return Exit(code, error.reason.value, error.message)


@dataclass
class LocalDrivers:
    """`table(name)` gives the recorded definition of a table, `planning` is that of a `Planner`;
    `wake` is called after changes."""

    folder: StateFolder
    secrets_dir: Path
    command: Sequence[str]
    clock: Callable[[], float]
    wake: Callable[[], None]
    table: Callable[[str], Capture]
    planning: Callable[[CdcSync], AbstractContextManager[Splits]]
    _runs: dict[str, _LocalRun] = field(default_factory=dict)
    _orphans: dict[str, float] = field(default_factory=dict)

    # -- the port

    def observe(self, status: Status) -> Observation:
        """How the runs are is read before what they have reported: the last report of one that has
        ended is there by then."""
        runs = (*(r.seen(self.clock()) for r in self._runs.values()), *self._seen_orphans(status))
        return Observation(runs, self._merge(status))

    def start(self, resource: CdcSync, action: StartRun, status: Status) -> None:
        if action.id in self._runs:
            return
        files = self._files(action.id)
        files.plan.mkdir(parents=True, exist_ok=True)
        inbox = _Inbox(self.clock)
        assignments = tuple(self._assignments(resource, action, status, inbox))
        self._drop_old_logs()

        def write_config(report_fd: int) -> None:
            config = RunConfig(
                action.id, action.epoch, action.kind, resource.to_dict(), assignments,
                str(files.plan), str(self.secrets_dir), str(files.scratch), report_fd, action.stop_at,
                followed=resource.spec.source.followed,
                status_file="" if action.kind.copies else str(self.folder.state_file),
            )  # fmt: skip
            write_whole(files.config, config.to_json())

        process = DriverProcess(self.command, files, write_config, inbox.put, self.wake)
        planner = self._begin_plan(resource, action, assignments, status, files.plan)
        grace = _GRACE + (resource.spec.snapshot.max_split_seconds if RUNS[action.kind].by_splits else 0)
        self._runs[action.id] = _LocalRun(action, process, inbox, planner, self.clock(), grace)

    def stop(self, action: StopRun) -> None:
        run = self._runs.get(action.id)
        if run is not None:
            run.stop(self.clock())
        elif self._is_overdue_orphan(action.id):
            kill_orphan(self.folder.runs / action.id)

    def forget(self, action: ForgetRun) -> None:
        run = self._runs.pop(action.id, None)
        if run is not None and run.planner is not None:
            run.planner.stop()
            run.planner.join(_JOIN_SECONDS)
        self._orphans.pop(action.id, None)
        shutil.rmtree(self.folder.runs / action.id, ignore_errors=True)

    # -- beyond the port

    def kill(self) -> None:
        """Ends all drivers at once; what they had not committed is lost and done again."""
        for run in self._runs.values():
            run.process.kill()

    def log_of(self, run: str) -> Path:
        return self.folder.logs / f"{run}.log"

    # -- inside

    def _merge(self, status: Status) -> Status:
        named = [r for r in self._runs.values() if status.runs.kind_of(r.action.id)]
        owned = owned_tables(r.seen(self.clock()) for r in named)
        for run in named:
            tables = frozenset(name for name, _ in run.action.tables)
            for report in run.inbox.take():
                status = merge_report(status, report, tables, tables - owned[run.action.id])
        return status

    def _files(self, run: str) -> RunFiles:
        return RunFiles(self.folder.runs / run, self.log_of(run))

    def _assignments(
        self, resource: CdcSync, action: StartRun, status: Status, inbox: _Inbox
    ) -> Iterator[TableAssignment]:
        """The tables with their definitions; one whose definition is not known is reported
        in the driver's stead."""
        assignment = assigning(resource.spec, status)
        for name, generation in action.tables:
            try:
                yield assignment(self.table(name), generation)
            except CdcError as error:
                inbox.put(Report(action.id, tables=[failed_table(name, error)]))

    def _begin_plan(
        self, resource: CdcSync, action: StartRun, tables: tuple[TableAssignment, ...], status: Status, folder: Path
    ) -> Planner | None:
        if not RUNS[action.kind].by_splits:
            return None
        plans = table_plans(status, tables)
        planner = Planner(action.id, PlanFolder(folder), plans, lambda: self.planning(resource))
        planner.start()
        return planner

    def _seen_orphans(self, status: Status) -> Iterator[ObservedRun]:
        """The runs of an earlier controller: those that the status names, and those that left a
        folder."""
        named = {ref.id: kind for kind in RunKind if (ref := status.runs.get(kind)) and ref.id not in self._runs}
        left = {p.name: RunKind.STREAM for p in self.folder.runs.iterdir() if p.name not in self._runs}
        for run, kind in (left | named).items():
            alive = still_alive(self.folder.runs / run)
            since = self._orphans.setdefault(run, self.clock())
            state, outcome = (RunState.DRAINING, None) if alive else (RunState.ENDED, Exit(ExitCode.DONE))
            unfit = alive and self._is_overdue_orphan(run)
            yield ObservedRun(kind, run, (), "", state, since, stop_asked=True, exit=outcome, unfit=unfit)

    def _is_overdue_orphan(self, run: str) -> bool:
        return self.clock() - self._orphans.get(run, math.inf) > _GRACE

    def _drop_old_logs(self) -> None:
        logs = sorted(self.folder.logs.glob("*.log"), key=lambda p: p.stat().st_mtime)
        for path in logs[:-_KEPT_LOGS]:
            path.unlink()
