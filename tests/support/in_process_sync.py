"""A sync on a real API server without a kubelet: a simulated source, drivers simulated by the real
reporter, ends of pods by writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.report import TableParts, TableReport
from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Status
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_kube.client import Api, Object
from cdcsync_operator.cluster.controller import KubeController
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.objects.run_objects import REPORT_TABLES
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy
from cdcsync_operator.cluster.quota.room import Rooms
from cdcsync_operator.cluster.settings import OperatorSettings
from cdcsync_operator.decision.observed import ObservedTable, PreflightResult
from cdcsync_operator.reconcile.preflight import PreflightOutcome, SourceCalls
from cdcsync_spark.run.pod_report import PodReporter

PASSWORD = "hunter2-never-shown"
WHOLE = [{"start": None, "end": None}]


def table(name: str) -> Capture:
    database, _, bare = name.partition(".")
    return Capture(
        SourceTable(TableId(database, bare), (Column("id", SourceType.parse("int"), nullable=False),)), ("id",)
    )


def place(offset: int) -> dict[str, Any]:
    return {"file": "binlog.000001", "offset": offset, "gtidSet": ""}


def ended_container(terminated: Object) -> Object:
    return {
        "name": "driver", "state": {"terminated": terminated}, "image": "x", "imageID": "x", "ready": False,
        "restartCount": 0,
    }  # fmt: skip


class InProcessSync:
    """One resource with its Secret, a simulated source, and the controller under test."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.tables = ["shop.a", "shop.b"]
        self.errors: tuple[CdcError, ...] = ()
        self.policy = PodPolicy()
        #: of the cluster
        self.networks: tuple[str, ...] = ()
        self.passwords: list[str] = []
        self.controllers: list[KubeController] = []
        self.reporters: dict[str, PodReporter] = {}
        #: seconds by which the controllers' clock is ahead of the API server's
        self.clock_ahead = 0.0
        self.create_secret(labelled=True)
        self.spec: Object = {
            "source": {"host": "mysql.shop.svc", "credentialsSecretRef": {"name": "login"}},
            "tables": {"include": [r"shop\..*"]},
            "sink": {"delta": {"path": "s3://lake/cdc"}},
            "autoRestart": {"backoff": {"initial": "100ms", "max": "1s"}},
        }

    def create(self, **spec: Any) -> InProcessSync:
        body = {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": {"name": "shop"}}
        self.api.create(f"{self.syncs}", body | {"spec": self.spec | spec})
        return self

    def create_secret(self, *, labelled: bool) -> None:
        about: Object = {"name": "login", "labels": {"cdcsync.io/source": "true"} if labelled else {}}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": about}
        self.api.create(f"{self.base}/secrets", body | {"stringData": {"username": "cdc", "password": PASSWORD}})

    @property
    def base(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def syncs(self) -> str:
        return f"/apis/cdcsync.io/v1alpha1/namespaces/{self.namespace}/cdcsyncs"

    @property
    def stored(self) -> Status:
        return Status.model_validate(self.api.get(f"{self.syncs}/shop")["status"])

    def change(self, **spec: Any) -> None:
        self.api.merge(f"{self.syncs}/shop", {"spec": spec})

    # -- the operator

    def operator(self, api: Api | None = None, rooms: Rooms | None = None) -> KubeController:
        """A new one, as after a restart; it reaches the server by `api` where one is given."""
        settings = OperatorSettings(Image("cdcsync/spark:test"), self.policy, identity="test")
        calls = SourceCalls(self.preflight, self.current, lambda r, s: nullcontext(self.splits))
        controller = KubeController(
            api or self.api, settings, self.namespace, "shop", calls, self.now, lambda: None, rooms or Rooms(),
            networks=lambda: self.networks,
        )  # fmt: skip
        self.controllers.append(controller)
        return controller

    def now(self) -> float:
        """The controllers' clock, which real time moves, too."""
        return time.time() + self.clock_ahead

    def until(self, controller: KubeController, wanted: Callable[[Status], object], seconds: float = 120) -> Status:
        """Reconciles until the stored status is as wanted."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            controller.reconcile()
            if wanted(self.stored):
                return self.stored
            time.sleep(0.02)
        raise AssertionError(f"not reached; the status is {self.stored!r}")

    # -- the source

    def preflight(self, resource: CdcSync, secrets: Path, unread: frozenset[str] | None) -> PreflightOutcome:
        self.passwords.append((secrets / "login" / "password").read_text())
        found = () if self.errors else tuple(ObservedTable(t) for t in self.tables)
        seen = PreflightResult(resource.metadata.generation, time.time(), self.errors, found, (), {"flavor": "mysql"})
        return PreflightOutcome(seen, {t: table(t) for t in self.tables})

    def current(self, resource: CdcSync, secrets: Path) -> LogOffset:
        return LogOffset("binlog.000001", 1000)

    def splits(self, _: Capture, start: Bound) -> Iterator[Split]:
        for end in [(i * 10,) for i in range(1, 1500)]:
            yield Split(start, end)
            start = end
        yield Split(start, None)

    # -- drivers

    def pods(self) -> dict[str, Object]:
        found = self.api.items(f"{self.base}/pods", labelSelector="cdcsync.io/part=driver")
        return {p["metadata"]["name"]: p for p in found}

    def driver(self, kind: RunKind) -> PodReporter:
        """What the run's driver reports with; a run has one driver process."""
        ref = self.stored.runs.get(kind)
        assert ref is not None
        if ref.id not in self.reporters:
            self.reporters[ref.id] = PodReporter(self.api, self.namespace, ref.id, self.tables, REPORT_TABLES)
        return self.reporters[ref.id]

    def read(self, driver: PodReporter, *names: str) -> None:
        more: TableParts = {"finished": WHOLE, "low": place(100), "high": {"file": "binlog.000001", "offset": 200}}
        entries = [TableReport(name=n, phase="CatchingUp", position=place(100), **more) for n in names]
        driver.report(epoch=1, tables=entries, snapshot={"splitsTotal": 4, "splitsFinished": 4, "rows": 10})

    def flow(self, driver: PodReporter, offset: int = 300) -> None:
        entries = [TableReport(name=n, phase="Streaming", position=place(offset)) for n in self.tables]
        position = place(offset) | {"timestamp": "2026-01-01T00:00:00+00:00"}
        driver.report(epoch=2, tables=entries, position=position, lag_seconds=0.5)

    def end(self, kind: RunKind, code: int = 0, **state: Any) -> None:
        """The pod ends: without a last word unless `state` has one as its message."""
        terminated = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"} | state
        self.show(kind, phase="Failed" if code else "Succeeded", containerStatuses=[ended_container(terminated)])

    def show(self, kind: RunKind, **status: Any) -> str:
        """The status of the run's pod as a kubelet, the scheduler or the node controller would
        write it; the pod's name."""
        ref = self.stored.runs.get(kind)
        assert ref is not None
        self.api.merge(f"{self.base}/pods/{ref.pod}/status", {"status": status})
        return ref.pod

    def executor(self, run: str, number: int) -> None:
        """A pod as Spark makes it from the run's template."""
        labels = {"cdcsync.io/sync": "shop", "cdcsync.io/run": run, "cdcsync.io/part": "executor"}
        driver = self.api.get(f"{self.base}/pods/{run}-driver")["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": driver["name"], "uid": driver["uid"], "controller": True}
        body: Object = {"metadata": {"name": f"{run}-exec-{number}", "labels": labels, "ownerReferences": [owner]}}
        container = {"name": "executor", "image": "cdcsync/spark:test"}
        self.api.create(f"{self.base}/pods", body | {"spec": {"containers": [container]}})

    def bind(self, pod: str, node: str) -> None:
        """To a node without a kubelet: what is deleted there waits for a report that it
        ended."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        self.api.create(f"{self.base}/pods/{pod}/binding", body)

    def gone(self, pod: str) -> None:
        """What a kubelet does at last with a pod that was asked to go."""
        self.api.delete(f"{self.base}/pods/{pod}", {"gracePeriodSeconds": 0})

    def to_streaming(self, controller: KubeController) -> None:
        self.until(controller, lambda s: s.runs.snapshot and self.pods())
        self.read(self.driver(RunKind.SNAPSHOT), *self.tables)
        self.end(RunKind.SNAPSHOT)
        self.until(controller, lambda s: s.runs.stream and s.runs.stream.pod in self.pods())
        self.flow(self.driver(RunKind.STREAM))
        self.until(controller, lambda s: s.phase == "Streaming" and s.condition("Ready").status == "True")
