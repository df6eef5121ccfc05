"""The port `Drivers` on a cluster: a run is a pod with its ConfigMaps and its rights.

Why it is right:
- Every object has a name that follows from the run's id, so doing a step again meets the object of
  the first time.
- The report is created first and deleted last: whatever dies in between, a run that left anything
  is found, and one that the status does not name is cleared away by the shared decisions.
- Reports are numbered, and the status says up to which number they are in it, so none is merged
  twice, not even by the next operator; an old report can therefore not undo what was
  decided since.
- A run whose chunk plan was being made when the operator died is drained and started again: its
  driver would wait for the rest.
- A run has ended when its driver has, also one whose start or plan failed here: until then its
  successor would run concurrently with it.
- A stream whose driver hangs is stopped as one that failed. Should it yet write, the targets refuse
  that: its successor takes a higher epoch there (rule R8).
- A stop is two calls, a mark and a deletion; a mark without a deletion is a stop that was
  interrupted, and is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from secrets import token_hex

from cdcsync_core.errors import CdcError, PermanentError, Reason
from cdcsync_core.gates import gate
from cdcsync_core.resource.quantity import show_seconds
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.report import TableReport, failed_table
from cdcsync_core.runs.report_merge import merge_report
from cdcsync_core.runs.run import ExitCode, Report, RunConfig, TableAssignment
from cdcsync_core.runs.status import Status
from cdcsync_core.tables.capture import Capture
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.objects import run_objects
from cdcsync_operator.cluster.objects.driver_pod import (
    EXECUTOR_TEMPLATE,
    SCRATCH_DIR,
    SECRETS_DIR,
    Image,
    as_driven,
    driver_pod,
    executor_pod,
    executor_template,
    mounted_secrets,
    networks_text,
    spark_settings,
)
from cdcsync_operator.cluster.objects.owned import is_owned_by, uid_only
from cdcsync_operator.cluster.objects.pod_outcome import in_grace
from cdcsync_operator.cluster.objects.run_objects import NETWORKS, PART_LABEL, PLANNED, RUN_LABEL, STOP_ASKED
from cdcsync_operator.cluster.quota.report_bounds import ReportBounds
from cdcsync_operator.cluster.quota.room import Rooms
from cdcsync_operator.cluster.runs.plan_maps import MOST_SPLITS, PlanMaps
from cdcsync_operator.cluster.runs.report_content import defect
from cdcsync_operator.cluster.runs.report_times import ReportTimes
from cdcsync_operator.cluster.runs.run_calls import RunCalls, explained, translating_api_errors
from cdcsync_operator.cluster.runs.run_ports import FoundRun, RunFinder
from cdcsync_operator.cluster.runs.run_removal import KEPT, RunRemoval
from cdcsync_operator.decision.data_flow import is_lost
from cdcsync_operator.decision.observed import Exit, ForgetRun, ObservedRun, RunState, StartRun, StopRun
from cdcsync_operator.decision.runs.kinds import RUNS
from cdcsync_operator.decision.tables.assignment import assigning, owned_tables
from cdcsync_operator.reconcile.planning import Planner, Splits, table_plans
from cdcsync_operator.reconcile.ports import Observation

_JOIN_SECONDS = 2.0


@dataclass
class _ClusterRun:
    """What this process knows of a run: its traces (None: there are none), when its reports came,
    the thread that makes its chunk plan, and why its start, its plan or its driver failed here."""

    id: str
    observed: FoundRun | None = None
    times: ReportTimes = field(default_factory=ReportTimes)
    planner: Planner | None = None
    failed: tuple[StartRun, Exit] | None = None

    @property
    def pod(self) -> Object | None:
        return self.observed.pod if self.observed else None

    def take(self, observed: FoundRun | None, now: float) -> None:
        """The traces as they are now. A report that cannot be read counts as a failure of the run:
        what is in it is needed."""
        self.observed = observed
        try:
            self.times.note(observed.number if observed else 0, now)
        except ValueError as error:
            self.refuse_report(error, now)

    def refuse_report(self, error: ValueError, now: float) -> None:
        assert self.observed is not None
        self.observed = self.observed.without_report()
        found = f"the report of the run {self.id} cannot be read: {defect(error)}"
        why = Exit(ExitCode.RETRY, Reason.INTERNAL_ERROR.value, found)
        self.failed = self.failed or (_action(self.observed.seen(now)), why)

    def seen(self, now: float) -> ObservedRun:
        """Its last report has a time of this process' clock."""
        assert self.observed is not None
        run = self.observed.seen(now)
        return run if run.reported_at is None else replace(run, reported_at=self.times.bounded(run.reported_at))

    def give_up_silent(self, run: ObservedRun, now: float) -> None:
        silent = self.times.silent_seconds(now)
        if is_lost(run, silent):
            found = f"the stream's driver has not reported for {show_seconds(silent)}"
            self.failed = self.failed or (_action(run), Exit(ExitCode.RETRY, Reason.DRIVER_LOST.value, found))

    def failed_start(self, now: float) -> ObservedRun:
        """A run that failed here, for the reason that is known here."""
        assert self.failed is not None
        a, why = self.failed
        return ObservedRun(a.kind, a.id, a.tables, a.fingerprint, RunState.ENDED, now, exit=why)


@dataclass
class KubeDrivers:
    """`uid()` is the resource's; `table(name)` gives the recorded definition of a table, `planning`
    is that of a `Planner`; `wake` is called when something has changed; `policies`: runs get a
    NetworkPolicy, for egress where `refused_egress` has the networks that they may not connect
    with; `release` is the operator's. `untouched()`: there is nothing of a run yet, so
    none has to be searched for; `networks` are those of the cluster, as they are now."""

    api: Api
    namespace: str
    name: str
    uid: Callable[[], str]
    image: Image
    clock: Callable[[], float]
    wake: Callable[[], None]
    table: Callable[[str], Capture]
    planning: Callable[[CdcSync], AbstractContextManager[Splits]]
    policies: bool = False
    rooms: Rooms = field(default_factory=Rooms)
    most_splits: int = MOST_SPLITS
    untouched: Callable[[], bool] = lambda: False
    release: str = ""
    refused_egress: tuple[str, ...] | None = None
    networks: Callable[[], tuple[str, ...]] = tuple
    _runs: dict[str, _ClusterRun] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._bounds = ReportBounds(self.rooms, self.namespace)

    # -- the port

    def observe(self, status: Status) -> Observation:
        """Reads the traces of all runs once, and takes from them both how the runs are and what
        they have reported."""
        try:
            if status.runs.named or self._runs or not self.untouched():
                self._find(status)
            self._pass_networks()
            merged = self._merge(status)
            runs = tuple(self._classify(run) for run in self._runs.values() if run.observed or run.failed)
            return Observation(runs, merged)
        finally:
            for run in self._runs.values():
                run.observed = run.observed and run.observed.without_content()
            self._bounds.merged()

    def start(self, resource: CdcSync, action: StartRun, status: Status) -> None:
        try:
            self._make(resource, action, status)
        except CdcError as error:
            self._run(action.id).failed = (action, _exit_of(error))
        except ApiError as error:
            self._run(action.id).failed = (action, _exit_of(explained(error)))

    def stop(self, action: StopRun) -> None:
        """The annotation comes first: a pod that was asked to go leaves no exit code."""
        self._calls.annotate(_report(action.id), STOP_ASKED, str(int(self.clock())))
        gate("stop-marked")
        self._delete_pod(action.id)

    def forget(self, action: ForgetRun) -> None:
        run = self._run(action.id)
        run.failed = None
        removal = self._removal
        removal.executors(action.id, run.pod)  # before the pod, by which they are found
        self._clear_pod(run)
        removal.rights(action.id)
        if run.planner is not None:
            run.planner.stop()
            run.planner.join(_JOIN_SECONDS)
            if run.planner.is_alive():
                return  # what it still writes would be left over; the run is found again by the next reconcile
        self._runs.pop(action.id)
        removal.maps(action.id)
        self._free(action.id)

    def api_failed(self) -> None:
        """The API server may have refused the drivers' reports as well."""
        for run in self._runs.values():
            run.times.count_anew(self.clock())

    def close(self) -> None:
        """Ends the plans that are made here, which no reconcile would wait for any more."""
        for run in self._runs.values():
            if run.planner is not None:
                run.planner.stop()
            self._free(run.id)  # its maps go with the resource

    # -- inside

    def _free(self, run: str) -> None:
        """The room that its maps took."""
        self.rooms.plans.free(self.namespace, run)
        self._bounds.removed(run)

    @property
    def _calls(self) -> RunCalls:
        return RunCalls(self.api, self._base)

    @property
    def _image(self) -> Image:
        return replace(self.image, cluster_networks=self.networks())

    @property
    def _base(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def _access(self) -> tuple[str, ...]:
        """The folders of a run's rights."""
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
        network = f"/apis/networking.k8s.io/v1/namespaces/{self.namespace}/networkpolicies"
        folders = (f"{rbac}/rolebindings", f"{rbac}/roles", f"{self._base}/serviceaccounts")
        return (*folders, network) if self.policies else folders

    @property
    def _removal(self) -> RunRemoval:
        return RunRemoval(self.api, self.namespace, self.name, self.uid(), self.policies)

    def _delete_pod(self, run: str, **options: int) -> None:
        """The pod that was found, and not one of its name that came after it."""
        pod = self._run(run).pod
        if pod is None:
            self._removal.driver(run)
        else:
            self.api.delete(f"{self._base}/pods/{run}-driver", uid_only(pod["metadata"]) | options)

    def _run(self, run: str) -> _ClusterRun:
        return self._runs.setdefault(run, _ClusterRun(run))

    def _find(self, status: Status) -> None:
        """A run of which nothing is left, and nothing is known here either, is no longer one."""
        started = (run.id for run in self._runs.values() if run.planner or run.failed)
        recorded = frozenset((*(ref.id for ref in status.runs.named), *started))
        shards = len(run_objects.report_names("", len(status.table_status)))
        finder = RunFinder(self.api, self.namespace, self.name, self.uid(), self._bounds)
        observed = finder.find(recorded, shards)
        for run in sorted(observed.keys() | self._runs.keys()):
            self._run(run).take(observed.get(run), self.clock())
            self._hold_plan(self._run(run))
        left = {name: run for name, run in self._runs.items() if run.observed or run.failed or run.planner}
        for gone in self._runs.keys() - left.keys():
            self._free(gone)
        self._runs = left

    def _pass_networks(self) -> None:
        """The pods of a run get the networks of the cluster where there are some that they lack."""
        text = networks_text(self.networks())
        for run in self._runs.values():
            passed = ((run.pod or {}).get("metadata") or {}).get("annotations", {}).get(NETWORKS)
            if passed not in (None, text) and not set(text.split()) <= set(passed.split()):
                for pod in self._pods_of(run.id, run.pod or {}):
                    self._calls.annotate(f"pods/{pod}", NETWORKS, text)

    def _pods_of(self, run: str, driver: Object) -> Iterator[str]:
        """The driver, by which it is decided whether they are up to date, is the last one."""
        executors = f"{RUN_LABEL}={run},{PART_LABEL}=executor"
        for about in self.api.metadata(f"{self._base}/pods", labelSelector=executors):
            if is_owned_by(driver["metadata"]["uid"], about):
                yield about["name"]
        yield driver["metadata"]["name"]

    def _hold_plan(self, run: _ClusterRun) -> None:
        """The room of a plan that the operator before this one made."""
        if run.observed is not None and run.observed.planned and run.planner is None:
            self.rooms.plans.hold(self.namespace, run.id, run.observed.plan_bytes)

    def _classify(self, run: _ClusterRun) -> ObservedRun:
        """As the decisions see it."""
        if run.observed is None:
            return run.failed_start(self.clock())
        seen = run.seen(self.clock())
        run.give_up_silent(seen, self.clock())
        if run.planner is not None and run.planner.error is not None and not seen.stop_asked and seen.live:
            run.failed = run.failed or (_action(seen), _exit_of(run.planner.error))
        if not seen.live:
            return run.failed_start(self.clock()) if run.failed else seen
        unplanned = RUNS[seen.kind].by_splits and run.planner is None and not run.observed.planned
        unfit = run.failed is not None or seen.stop_asked or unplanned
        return _draining(seen, unfit=not run.observed.ending) if unfit else seen

    def _merge(self, status: Status) -> Status:
        """Takes what the named runs have reported since."""
        named = [run for run in self._runs.values() if run.observed and status.runs.kind_of(run.id)]
        owned = owned_tables(run.observed.seen(self.clock()) for run in named if run.observed)
        for run in named:
            assert run.observed is not None
            try:
                status = _with_reports(status, run.observed, owned[run.id])
            except ValueError as error:
                run.refuse_report(error, self.clock())
        return status

    def _make(self, resource: CdcSync, action: StartRun, status: Status) -> None:
        assignments, unknown = self._assignments(resource, action, status)
        bodies = run_objects.reports(resource, action, unknown)
        self._bounds.start(action.id, bodies)
        reports = [self._calls.create("configmaps", body) for body in bodies]
        gate("report-made")
        account = self._make_access(resource, action, reports[0], len(status.table_status))
        configs = run_objects.config_maps(
            resource, action.id, self._config(resource, action, assignments), self._extra(resource, action)
        )
        for config in configs:
            self._calls.create("configmaps", config)
        names = [c["metadata"]["name"] for c in configs]
        gate("rights-made")
        self._calls.create("pods", driver_pod(resource, action, self._image, account, names))
        gate("pod-made")
        if RUNS[action.kind].by_splits and self._run(action.id).planner is None:
            self._begin_plan(resource, action, status, assignments)

    def _make_access(self, resource: CdcSync, action: StartRun, report: Object, tables: int) -> str:
        """The run's rights, its secret and its NetworkPolicy; the name of its account."""
        bindings, roles, accounts, *network = self._access
        chosen = resource.spec.driver.service_account_name
        account = chosen or run_objects.account_name(action.id)
        if not chosen:
            self._calls.create(accounts, run_objects.account(resource, action.id))
        mounted: set[str] = set()
        if action.executors:
            self._calls.create("secrets", run_objects.auth_secret(resource, action.id, token_hex(32), report))
            mounted = mounted_secrets(executor_pod(resource, action, self.image))
        self._calls.create(roles, run_objects.role(resource, action, sorted(mounted), self.release, tables))
        self._calls.create(bindings, run_objects.binding(resource, action.id, account))
        for path in network:
            self._calls.create(path, run_objects.network_policy(resource, action.id, self.refused_egress))
        return account

    def _assignments(
        self, resource: CdcSync, action: StartRun, status: Status
    ) -> tuple[tuple[TableAssignment, ...], list[TableReport]]:
        """The tables with their definitions, and entries, in the driver's stead, of those without
        one."""
        assignments: list[TableAssignment] = []
        unknown: list[TableReport] = []
        assignment = assigning(resource.spec, status)
        for name, generation in action.tables:
            try:
                assignments.append(assignment(self.table(name), generation))
            except CdcError as error:
                unknown.append(failed_table(name, error))
        return tuple(assignments), unknown

    def _config(self, resource: CdcSync, action: StartRun, tables: tuple[TableAssignment, ...]) -> str:
        settings = spark_settings(resource, action, self.image) if action.executors else {}
        return RunConfig(
            action.id, action.epoch, action.kind, as_driven(resource, action).to_dict(), tables,
            f"{SCRATCH_DIR}/plan", SECRETS_DIR, f"{SCRATCH_DIR}/run", stop_at=action.stop_at, spark=settings,
            followed=resource.spec.source.followed,
        ).to_json()  # fmt: skip

    def _extra(self, resource: CdcSync, action: StartRun) -> dict[str, str]:
        if not action.executors:
            return {}
        return {EXECUTOR_TEMPLATE: executor_template(resource, action, self._image)}

    def _begin_plan(
        self, resource: CdcSync, action: StartRun, status: Status, tables: tuple[TableAssignment, ...]
    ) -> None:
        sink = PlanMaps(
            resource,
            action.id,
            self.rooms.plans,
            self.clock,
            self._create_of_plan,
            lambda size: self._mark_planned(action.id, size),
            self.most_splits,
        )
        planner = Planner(action.id, sink, table_plans(status, tables), lambda: self.planning(resource))
        planner.start()
        self._run(action.id).planner = planner

    def _create_of_plan(self, body: Object) -> None:
        with translating_api_errors():
            self._calls.create("configmaps", body)

    def _mark_planned(self, run: str, size: int) -> None:
        with translating_api_errors():
            self._calls.annotate(_report(run), PLANNED, str(size))

    def _clear_pod(self, run: _ClusterRun) -> None:
        """A pod that failed is kept for its log, until the next one fails."""
        observed, pod = run.observed, run.pod
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            if not in_grace(pod, self.clock()):
                self._delete_pod(run.id, gracePeriodSeconds=0)
            return
        if pod is None or observed is None or observed.stop_asked or (pod.get("status") or {}).get("phase") != "Failed":
            self._delete_pod(run.id)
            return
        self._removal.kept_pods()
        about = {"uid": pod["metadata"]["uid"], "labels": {PART_LABEL: KEPT}}
        self.api.merge(f"{self._base}/pods/{run.id}-driver", {"metadata": about})


def _with_reports(status: Status, observed: FoundRun, owned: frozenset[str]) -> Status:
    """Takes what a named run has reported since the report whose number is in the status; `owned`
    are the tables of which its reports count."""
    kind, names = observed.kind, observed.names
    ref = status.runs.get(kind)
    assert ref is not None
    if observed.unknown and not ref.report:  # later they are in the status with what the driver reported
        status = merge_report(status, Report(observed.id, tables=observed.unknown), owned)
    report = observed.report_since(ref.report)
    if report is None:
        return status
    status = merge_report(status, report, names, names - owned)
    ref = status.runs.get(kind)
    assert ref is not None
    return status.with_(runs=status.runs.put(kind, ref.model_copy(update={"report": observed.head.number})))


def _report(run: str) -> str:
    return f"configmaps/{run}-report-0"


def _exit_of(error: CdcError) -> Exit:
    code = ExitCode.USER_MUST_ACT if isinstance(error, PermanentError) else ExitCode.RETRY
    return Exit(code, error.reason.value, error.message)


def _action(run: ObservedRun) -> StartRun:
    return StartRun(run.kind, run.id, 0, run.tables, run.fingerprint, run.stop_at)


def _draining(run: ObservedRun, *, unfit: bool) -> ObservedRun:
    return replace(run, state=RunState.DRAINING, stop_asked=True, exit=None, unfit=unfit)
