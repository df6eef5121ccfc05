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
- A stop is two calls, a mark and a deletion; a mark without a deletion is a stop that was
  interrupted, and is finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import TypeVar

from cdcsync_core.chunk import Bound, Split
from cdcsync_core.errors import CdcError, PermanentError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.run import ExitCode, Report, RunConfig, RunKind, TableAssignment
from cdcsync_core.spec import CdcSync
from cdcsync_core.status import Status, merge_report
from cdcsync_core.table import Table
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster import run_objects
from cdcsync_operator.cluster.driver_pod import (
    EXECUTOR_TEMPLATE,
    SCRATCH_DIR,
    SECRETS_DIR,
    Image,
    driver_pod,
    executor_pod,
    executor_template,
    mounted_secrets,
    spark_settings,
)
from cdcsync_operator.cluster.plan_maps import PlanMaps
from cdcsync_operator.cluster.pod_outcome import in_grace
from cdcsync_operator.cluster.room import PLANS, Room
from cdcsync_operator.cluster.run_objects import PART_LABEL, PLANNED, RUN_LABEL, STOP_ASKED, SYNC_LABEL
from cdcsync_operator.cluster.runs import FoundRun, RunFinder
from cdcsync_operator.decision.assignment import owned_tables
from cdcsync_operator.decision.observed import Exit, ForgetRun, ObservedRun, RunState, StartRun, StopRun
from cdcsync_operator.reconcile.planning import Planner, table_plans

_T = TypeVar("_T")
_JOIN_SECONDS = 2.0
#: seconds before something is asked for again that the API server would not do just then
_PAUSES = (0.1, 0.3, 1.0)
_UNFINISHED = "status.phase!=Failed,status.phase!=Succeeded"
#: the last failed driver's pod is kept under this part's name, for its log
_KEPT = "kept-driver"


@dataclass
class KubeDrivers:
    """`uid()` is the resource's; `table(name)` gives the recorded definition of a table, `splits`
    plans one (see `Planner`); `wake` is called when something has changed; `policies`: runs get a
    NetworkPolicy; `plan_room` is shared by all syncs."""

    api: Api
    namespace: str
    name: str
    uid: Callable[[], str]
    image: Image
    clock: Callable[[], float]
    wake: Callable[[], None]
    table: Callable[[str], Table]
    splits: Callable[[CdcSync, Table, Bound], Iterator[Split]]
    policies: bool = False
    plan_room: Room = field(default_factory=lambda: Room(PLANS))
    _found: Mapping[str, FoundRun] = field(default_factory=dict)
    _planners: dict[str, Planner] = field(default_factory=dict)
    _failed: dict[str, tuple[StartRun, Exit]] = field(default_factory=dict)
    #: run -> the number of its last report, and when it was first seen
    _last_reports: dict[str, tuple[int, float]] = field(default_factory=dict)

    # -- the port

    def seen(self, status: Status) -> tuple[ObservedRun, ...]:
        self._found = RunFinder(self.api, self.namespace, self.name, self.uid()).find()
        self._last_reports = {run: self._last_report(run) for run in self._found}
        for run in self._found.values():
            if run.planned and run.id not in self._planners:  # by the operator before this one
                self.plan_room.hold(self.namespace, run.id, run.plan_bytes)
        runs = [self._classify(run) for run in self._found.values()]
        traceless = self._failed.keys() - self._found.keys()
        return (*runs, *(self._failed_start(run) for run in sorted(traceless)))

    def merged(self, status: Status) -> Status:
        now = self.clock()
        named = {r.id: r for r in (run.seen(now) for run in self._found.values()) if status.runs.kind_of(r.id)}
        owned = owned_tables(named.values())
        for run in named.values():
            ref, unknown = status.runs.get(run.kind), self._found[run.id].unknown
            if (
                unknown and ref is not None and not ref.report
            ):  # later they are in the status, with the driver's reports
                status = merge_report(status, Report(run.id, tables=unknown), owned[run.id])
            report = self._found[run.id].report_since(ref.report) if ref else None
            if report is None:
                continue
            status = merge_report(status, report, run.names, run.names - owned[run.id])
            ref = status.runs.get(run.kind)
            assert ref is not None
            number = self._found[run.id].head["number"]
            status = status.with_(runs=status.runs.put(run.kind, ref.model_copy(update={"report": number})))
        return status

    def start(self, resource: CdcSync, action: StartRun, status: Status) -> None:
        try:
            self._make(resource, action, status)
        except CdcError as error:
            self._failed[action.id] = (action, _exit_of(error))
        except ApiError as error:
            self._failed[action.id] = (action, _exit_of(_explained(error)))

    def stop(self, action: StopRun) -> None:
        """The mark comes first: a pod that was asked to go leaves no exit code."""
        self._annotate(action.id, STOP_ASKED, str(int(self.clock())))
        gate("stop-marked")
        self._delete_pod(action.id)

    def forget(self, action: ForgetRun) -> None:
        self._failed.pop(action.id, None)
        self._clear_pod(action.id)
        # Those that ended go with the driver's pod; one that still waits for a node would do so as
        # long as that is kept.
        executors = f"{RUN_LABEL}={action.id},{PART_LABEL}=executor"
        self.api.delete(f"{self._base}/pods", labelSelector=executors, fieldSelector=_UNFINISHED)
        for path in self._access:  # by label, so that an object that is not this run's is left alone
            self.api.delete(path, labelSelector=self._selector(action.id))
        planner = self._planners.get(action.id)
        if planner is not None:
            planner.stop()
            planner.join(_JOIN_SECONDS)
            if planner.is_alive():
                return  # what it still writes would remain; the next reconciliation finds the run again
        self._planners.pop(action.id, None)
        self.api.delete(f"{self._base}/configmaps", labelSelector=self._selector(action.id))
        self.plan_room.free(self.namespace, action.id)

    def close(self) -> None:
        """Ends the plans: nothing reads them any more."""
        for planner in self._planners.values():
            planner.stop()
        for run in self._planners.keys() | self._found.keys():  # their maps go with the resource
            self.plan_room.free(self.namespace, run)

    # -- inside

    @property
    def _base(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def _access(self) -> tuple[str, ...]:
        """The folders of a run's rights, in the order in which they go."""
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
        network = f"/apis/networking.k8s.io/v1/namespaces/{self.namespace}/networkpolicies"
        found = (f"{rbac}/rolebindings", f"{rbac}/roles", f"{self._base}/serviceaccounts")
        return (*found, network) if self.policies else found

    def _selector(self, run: str) -> str:
        return f"{SYNC_LABEL}={self.name},{RUN_LABEL}={run}"

    def _delete_pod(self, run: str, body: Object | None = None) -> None:
        """The pod that was found, and not one of its name that came after it."""
        found = self._found.get(run)
        pod = found.pod if found else None
        uid = {"preconditions": {"uid": pod["metadata"]["uid"]}} if pod and "uid" in pod["metadata"] else {}
        self.api.delete(f"{self._base}/pods/{run}-driver", {**uid, **(body or {})} or None)

    def _last_report(self, run: str) -> tuple[int, float]:
        number, before = self._found[run].head.get("number", 0), self._last_reports.get(run)
        return before if before and before[0] == number else (number, self.clock())

    def _timed(self, run: FoundRun) -> ObservedRun:
        """Its last report came when it was first seen, at the latest: a driver whose clock is ahead
        does not seem current for longer."""
        seen = run.seen(self.clock())
        if seen.reported_at is None:
            return seen
        return replace(seen, reported_at=min(seen.reported_at, self._last_reports[run.id][1]))

    def _classify(self, run: FoundRun) -> ObservedRun:
        seen = self._timed(run)
        planner = self._planners.get(run.id)
        if planner is not None and planner.error is not None and not seen.stop_asked and seen.live:
            self._failed.setdefault(run.id, (_action(seen), _exit_of(planner.error)))
        unwanted = run.id in self._failed or seen.stop_asked
        unplanned = seen.kind is RunKind.SNAPSHOT and planner is None and not run.planned
        if seen.live and not run.ending and (unwanted or unplanned):
            self.stop(StopRun(seen.kind, run.id))
            return _draining(seen)
        if run.id in self._failed:
            return _draining(seen) if seen.live else self._failed_start(run.id)
        return seen

    def _failed_start(self, run: str) -> ObservedRun:
        """A run that failed here, for the reason that is known here."""
        action, why = self._failed[run]
        return ObservedRun(
            action.kind, action.id, action.tables, action.fingerprint, RunState.ENDED, self.clock(), exit=why
        )

    def _make(self, resource: CdcSync, action: StartRun, status: Status) -> None:
        assignments, unknown = self._assignments(action)
        reports = [self._create("configmaps", r) for r in run_objects.reports(resource, action, unknown)]
        gate("report-made")
        account = self._make_access(resource, action, reports[0])
        configs = run_objects.config_maps(
            resource, action.id, self._config(resource, action, assignments), self._extra(resource, action)
        )
        for config in configs:
            self._create("configmaps", config)
        names = [c["metadata"]["name"] for c in configs]
        gate("rights-made")
        self._create("pods", driver_pod(resource, action, self.image, account, names))
        gate("pod-made")
        if action.kind is RunKind.SNAPSHOT and action.id not in self._planners:
            self._begin_plan(resource, action, status, assignments)

    def _make_access(self, resource: CdcSync, action: StartRun, report: Object) -> str:
        """The run's rights, its secret and its NetworkPolicy; the name of its account."""
        bindings, roles, accounts, *network = self._access
        chosen = resource.spec.driver.service_account_name
        account = chosen or run_objects.account_name(action.id)
        if not chosen:
            self._create(accounts, run_objects.account(resource, action.id))
        mounted: set[str] = set()
        if action.kind is RunKind.SNAPSHOT:
            self._create("secrets", run_objects.auth_secret(resource, action.id, token_hex(32), report))
            mounted = mounted_secrets(executor_pod(resource, action, self.image))
        self._create(roles, run_objects.role(resource, action, sorted(mounted)))
        self._create(bindings, run_objects.binding(resource, action.id, account))
        for path in network:
            self._create(path, run_objects.network_policy(resource, action.id))
        return account

    def _assignments(self, action: StartRun) -> tuple[tuple[TableAssignment, ...], list[Object]]:
        """The tables with their definitions, and entries of those whose definition is
        not known, in the driver's stead."""
        known: list[TableAssignment] = []
        unknown: list[Object] = []
        for name, nonce in action.tables:
            try:
                known.append(TableAssignment(self.table(name), nonce))
            except CdcError as error:
                entry = {"name": name, "phase": "Failed", "reason": error.reason.value, "message": error.message}
                unknown.append(entry)
        return tuple(known), unknown

    def _config(self, resource: CdcSync, action: StartRun, tables: tuple[TableAssignment, ...]) -> str:
        settings = spark_settings(resource, action, self.image) if action.kind is RunKind.SNAPSHOT else {}
        return RunConfig(
            action.id, action.epoch, action.kind, resource.to_dict(), tables,
            f"{SCRATCH_DIR}/plan", SECRETS_DIR, f"{SCRATCH_DIR}/run", stop_at=action.stop_at, spark=settings,
        ).to_json()  # fmt: skip

    def _extra(self, resource: CdcSync, action: StartRun) -> dict[str, str]:
        if action.kind is not RunKind.SNAPSHOT:
            return {}
        return {EXECUTOR_TEMPLATE: executor_template(resource, action, self.image)}

    def _begin_plan(
        self, resource: CdcSync, action: StartRun, status: Status, tables: tuple[TableAssignment, ...]
    ) -> None:
        sink = PlanMaps(
            resource,
            action.id,
            self.plan_room,
            self.clock,
            self._create_of_plan,
            lambda size: self._mark_planned(action.id, size),
        )
        planner = Planner(
            action.id,
            sink,
            table_plans(status, tables),
            lambda table, frontier: self.splits(resource, table, frontier),
        )
        planner.start()
        self._planners[action.id] = planner

    def _create(self, where: str, body: Object) -> Object:
        """What is there already was created here: its name holds the run's id. So a creation whose
        answer was lost can be repeated."""
        path = where if where.startswith("/") else f"{self._base}/{where}"
        try:
            return _with_retry(lambda: self.api.create(path, body))
        except ApiError as error:
            if not (error.conflict and error.reason == "AlreadyExists"):
                raise
        if where != "configmaps":
            return body
        return _with_retry(lambda: self.api.get(f"{path}/{body['metadata']['name']}"))

    def _create_of_plan(self, body: Object) -> None:
        with translating_api_errors():
            self._create("configmaps", body)

    def _mark_planned(self, run: str, size: int) -> None:
        with translating_api_errors():
            self._annotate(run, PLANNED, str(size))

    def _annotate(self, run: str, name: str, value: str) -> None:
        try:
            body = {"metadata": {"annotations": {name: value}}}
            _with_retry(lambda: self.api.merge(f"{self._base}/configmaps/{run}-report-0", body))
        except ApiError as error:
            if not error.gone:
                raise

    def _clear_pod(self, run: str) -> None:
        """A pod that failed is kept for its log, until the next one fails."""
        found = self._found.get(run)
        pod = found.pod if found else None
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            if not in_grace(pod, self.clock()):
                self._delete_pod(run, {"gracePeriodSeconds": 0})
            return
        if pod is None or found is None or found.stop_asked or (pod.get("status") or {}).get("phase") != "Failed":
            self._delete_pod(run)
            return
        mine = f"{SYNC_LABEL}={self.name},{PART_LABEL}={_KEPT}"
        self.api.delete(f"{self._base}/pods", labelSelector=mine)
        self.api.merge(f"{self._base}/pods/{run}-driver", {"metadata": {"labels": {PART_LABEL: _KEPT}}})


def _with_retry(call: Callable[[], _T]) -> _T:
    """What may be asked for twice is, where the API server cannot do it just then or its answer is
    lost. Raises ApiError."""
    for pause in _PAUSES:
        try:
            return call()
        except ApiError as error:
            if not error.transient or error.conflict:
                raise
        time.sleep(pause)
    return call()


class translating_api_errors:
    """Turns a refusal of the API server into the product's error."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, ApiError):
            raise _explained(error) from None


def _explained(error: ApiError) -> CdcError:
    if error.status == 403 and "exceeded quota" in error.message:
        return fail(Reason.QUOTA_EXCEEDED, error.message, remedy="raise the namespace's quota, or ask for less")
    if error.status == 403:
        return fail(Reason.INTERNAL_ERROR, f"the API server refused a driver: {error.message}")
    if error.status in (400, 422):
        return fail(Reason.SPEC_INVALID, f"the API server refused a driver: {error.message}", remedy="see podTemplate")
    return fail(Reason.INTERNAL_ERROR, f"a driver could not be created: {error}")


def _exit_of(error: CdcError) -> Exit:
    code = ExitCode.USER_MUST_ACT if isinstance(error, PermanentError) else ExitCode.RETRY
    return Exit(code, error.reason.value, error.message)


def _action(run: ObservedRun) -> StartRun:
    return StartRun(run.kind, run.id, 0, run.tables, run.fingerprint)


def _draining(run: ObservedRun) -> ObservedRun:
    return replace(run, state=RunState.DRAINING, stop_asked=True, exit=None)
