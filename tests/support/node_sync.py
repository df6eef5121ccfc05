"""One sync of a database under writers on the node, in a namespace of its own, as a user makes and
watches it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deltalake import DeltaTable

from cdcsync_core.runs.status import Status
from cdcsync_kube.client import Object
from cdcsync_spark.sinks.lake.layout import segment
from support.compare import compare, source_rows
from support.lake import rows_of
from support.node import ACCESS_KEY, REGION, SECRET_KEY, SYSTEM, Node, ready, storage_options, wait_until
from support.servers import Server
from support.sync_process import GRANTS
from support.workload import Pace, Workload
from support.workload_tables import KEYS

PASSWORD = "hunter2-never-shown"
_SMALL = {"requests": {"cpu": "50m"}}
DRIVER = "cdcsync.io/part=driver"
EXECUTORS = "spark-role=executor"


def small(container: str) -> Object:
    """A podTemplate: two processors are the whole node."""
    return {"spec": {"containers": [{"name": container, "resources": _SMALL}]}}


class NodeSync:
    """`name` is that of the sync, of its namespace and of its folder in the bucket."""

    def __init__(self, node: Node, server: Server, store: str, name: str, pace: Pace, executors: int) -> None:
        self.node, self.server, self.store, self.name = node, server, store, name
        self.database = server.create_database()
        self.workload = Workload(server, self.database, seed=7, pace=pace)
        self.path = f"/apis/cdcsync.io/v1alpha1/namespaces/{name}/cdcsyncs"
        self._executors = executors

    def create(self) -> None:
        self.workload.prepare()
        self.server.create_user("cdc", PASSWORD, GRANTS[self.server.flavor])
        make_namespace(self.node, self.name)
        make_secret(self.node, self.name, "source", {"username": "cdc", "password": PASSWORD})
        make_secret(
            self.node, self.name, "lake", {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        )
        make_sync(self.node, self.name, self.name, self._spec())

    def _sink(self) -> Object:
        return {"delta": {"path": f"s3://lake/{self.name}", **self._store()}}

    def _store(self) -> Object:
        return {"credentialsSecretRef": {"name": "lake"}, "options": {"endpoint": self.store, "region": REGION}}

    def _spec(self) -> Object:
        return {
            "source": source_part(self.node, self.server) | {"heartbeatInterval": "1s"},
            "tables": {"include": [rf"{self.database}\..*"]},
            "snapshot": {"chunkSize": 500, "parallelism": 2},
            "sink": self._sink(),
            "driver": {"memory": "768Mi", "podTemplate": small("driver")},
            "executors": {"instances": self._executors, "memory": "512Mi", "podTemplate": small("executor")},
            "autoRestart": {"backoff": {"initial": "1s", "max": "5s"}},
        }

    def change(self, **spec: Any) -> None:
        self.node.api.merge(f"{self.path}/{self.name}", {"spec": spec})

    def kill_an_executor(self) -> None:
        self.node.kill(self.name, self.pods(EXECUTORS)[0])

    def kill_everything(self) -> None:
        """The operator, too."""
        for pod in self.pods(EXECUTORS) + self.pods(DRIVER):
            self.node.kill(self.name, pod)
        self.node.kill_operator()

    # -- what is seen

    @property
    def resource(self) -> Object:
        return self.node.api.get(f"{self.path}/{self.name}")

    @property
    def status(self) -> Status:
        return Status.model_validate(self.resource["status"])

    def pods(self, selector: str) -> list[str]:
        """Names of those that run."""
        found = self.node.pods(self.name, selector)
        return [p["metadata"]["name"] for p in found if p["status"]["phase"] == "Running"]

    def numbers(self) -> dict[str, float]:
        """The driver's metrics, without their labels; none while there is no driver to be
        asked."""
        pods = [p for p in self.node.pods(self.name, DRIVER) if ready(p)]
        try:
            lines = [line for p in pods for line in self.node.page(p, 8090).splitlines() if not line.startswith("#")]
        except OSError:
            return {}
        return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def is_read(self) -> bool:
        return self.status.condition("SnapshotComplete").status == "True"

    def is_half_read(self) -> bool:
        """Whether executors have read a part of the snapshot."""
        numbers = self.numbers()
        finished = numbers.get("cdcsync_driver_snapshot_splits_finished", 0)
        return bool(self.pods(EXECUTORS)) and 0 < finished < numbers["cdcsync_driver_snapshot_splits"]

    def driver(self) -> str:
        """The pod of the stream; "" while there is none."""
        ref = self.status.runs.stream
        return ref.pod if ref else ""

    def describe(self) -> str:
        return "\n".join(
            self.node.kubectl("-n", self.name, *arguments)
            for arguments in (
                ("get", "cdcsync,pods", "-o", "wide"),
                ("get", "events", "--sort-by=.lastTimestamp"),
                ("logs", "-l", f"cdcsync.io/sync={self.name}", "--tail=60", "--prefix"),
                ("get", "cdcsync", self.name, "-o", "jsonpath={.status.conditions}"),
            )
        ) + self.node.kubectl("-n", SYSTEM, "logs", "deploy/cdcsync", "--tail=40")

    def until(self, wanted: Any, seconds: float, what: str) -> Status:
        wait_until(lambda: wanted(self.status), seconds, what, self.describe)
        return self.status

    def flows(self) -> Status:
        return self.until(lambda s: s.condition("Ready").status == "True", 240, "it flows")

    def observed(self, seconds: float = 240) -> Status:
        """After a change of the spec: the operator has seen it."""
        generation = self.resource["metadata"]["generation"]
        return self.until(lambda s: s.observed_generation == generation, seconds, "the change is seen")

    # -- the copy

    def differences(self) -> Iterator[str]:
        """How targets differ from the source, which must be at rest; table by table, as it costs
        processor time."""
        for table in self.workload.tables:
            target = self.target(table)
            rows = source_rows(self.server, self.database, table, target.schema)
            if found := compare(table, rows, target, KEYS[table]):
                yield str(found)

    def target(self, table: str) -> Any:
        uri = f"s3://lake/{self.name}/{segment(self.database)}/{segment(table)}"
        return rows_of(DeltaTable(uri, storage_options=storage_options(self.store)))

    def arrives(self) -> None:
        """The copy becomes equal to the source, which is at rest."""
        wait_until(
            lambda: not next(self.differences(), None),
            400,
            "the copy is equal",
            lambda: "\n".join(self.differences()) + self.describe(),
        )

    def left(self, *, kept: bool = True) -> list[str]:
        """Names of all that the sync made, its tables aside; `kept`: with the pod of the last
        driver that failed, which is kept for its log."""
        made = "app.kubernetes.io/name=cdcsync"
        selector = made if kept else f"{made},cdcsync.io/part!=kept-driver"
        base, rbac = f"/api/v1/namespaces/{self.name}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.name}"
        paths = [f"{base}/{k}" for k in ("pods", "configmaps", "serviceaccounts")]
        return [
            o["metadata"]["name"]
            for path in (*paths, f"{rbac}/roles", f"{rbac}/rolebindings")
            for o in self.node.api.items(path, labelSelector=selector)
        ]


def source_part(node: Node, server: Server) -> Object:
    return {
        "host": node.address,
        "port": server.port,
        "credentialsSecretRef": {"name": "source"},
        "tls": {"mode": "disabled", "allowUnverified": True},
    }


def make_namespace(node: Node, name: str, enforced: str = "restricted") -> None:
    """This standard is enforced in it, so that a pod that breaks it is refused."""
    about = {"name": name, "labels": {"pod-security.kubernetes.io/enforce": enforced}}
    node.namespaces.append(name)
    node.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": about})


def make_secret(node: Node, namespace: str, name: str, values: dict[str, str]) -> None:
    """For the servers of the tests' machine, which are not verified."""
    annotations = {"cdcsync.io/hosts": node.address, "cdcsync.io/allow-unverified": "true"}
    about: Object = {"name": name, "labels": {"cdcsync.io/source": "true"}, "annotations": annotations}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": values}
    node.api.create(f"/api/v1/namespaces/{namespace}/secrets", body)


def make_sync(node: Node, namespace: str, name: str, spec: Object) -> None:
    body: Object = {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": {"name": name}, "spec": spec}
    node.api.create(f"/apis/cdcsync.io/v1alpha1/namespaces/{namespace}/cdcsyncs", body)
