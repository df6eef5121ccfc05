"""A sync on a real node, from `kubectl apply` to the resource's end: two executors, writers all the time, kills, and the same rows.

The tests are chapters of one story and run in their order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable

from cdcsync_core.status import Status
from cdcsync_kube.client import ApiError, Object
from cdcsync_spark.sinks.place import segment
from support.compare import compare, diagnose_walk, source_rows
from support.lake import rows_of
from support.node import (
    ACCESS_KEY,
    CHART,
    NODE_IP,
    OPERATOR,
    REGION,
    SECRET_KEY,
    SYSTEM,
    Node,
    ready,
    storage_options,
    wait_until,
)  # fmt: skip
from support.servers import Server
from support.sync_process import GRANTS
from support.workload import Pace, Workload
from support.workload_tables import KEYS, WALK

NAMESPACE = "shop"
PASSWORD = "hunter2-never-shown"
PACE = Pace(rows=40_000, writers=4, per_second=40)
SMALL = {"requests": {"cpu": "50m"}}

pytestmark = pytest.mark.timeout(900)


def small(container: str) -> Object:
    """Two processors are the whole node."""
    return {"spec": {"containers": [{"name": container, "resources": SMALL}]}}


class Shop:
    """One sync of a database under writers."""

    def __init__(self, node: Node, server: Server, store: str) -> None:
        self.node, self.server, self.store = node, server, store
        self.database = server.create_database()
        self.workload = Workload(server, self.database, seed=7, pace=PACE)
        self.path = f"/apis/cdcsync.io/v1alpha1/namespaces/{NAMESPACE}/cdcsyncs"

    def create(self) -> None:
        self.workload.prepare()
        self.server.create_user("cdc", PASSWORD, GRANTS[self.server.flavor])
        # the restricted standard is enforced, so that a pod that breaks it is refused
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        about: Object = {"name": NAMESPACE, "labels": labels}
        self.node.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": about})
        self._secret("source", {"username": "cdc", "password": PASSWORD})
        self._secret("lake", {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY})
        body: Object = {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": {"name": "shop"}}
        self.node.api.create(self.path, body | {"spec": self._spec()})

    def _secret(self, name: str, values: dict[str, str]) -> None:
        about: Object = {"name": name, "labels": {"cdcsync.io/source": "true"}}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": values}
        self.node.api.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", body)

    def _spec(self) -> Object:
        delta = {"path": "s3://lake/cdc", "credentialsSecretRef": {"name": "lake"}}
        return {
            "source": {
                "host": NODE_IP,
                "port": self.server.port,
                "credentialsSecretRef": {"name": "source"},
                "tls": {"mode": "disabled"},
                "heartbeatInterval": "1s",
            },
            "tables": {"include": [rf"{self.database}\..*"]},
            "snapshot": {"chunkSize": 2000, "parallelism": 2},
            "sink": {"delta": delta | {"options": {"endpoint": self.store, "region": REGION}}},
            "driver": {"memory": "768Mi", "podTemplate": small("driver")},
            "executors": {"instances": 2, "memory": "512Mi", "podTemplate": small("executor")},
            "autoRestart": {"backoff": {"initial": "1s", "max": "5s"}},
        }

    # -- what is seen

    @property
    def status(self) -> Status:
        return Status.model_validate(self.node.api.get(f"{self.path}/shop")["status"])

    def describe(self) -> str:
        return "\n".join(
            self.node.kubectl("-n", NAMESPACE, *arguments)
            for arguments in (
                ("get", "cdcsync,pods", "-o", "wide"),
                ("get", "events", "--sort-by=.lastTimestamp"),
                ("logs", "-l", "cdcsync.io/sync=shop", "--tail=60", "--prefix"),
                ("get", "cdcsync", "shop", "-o", "jsonpath={.status.conditions}"),
            )
        ) + self.node.kubectl("-n", SYSTEM, "logs", "deploy/cdcsync", "--tail=40")

    def until(self, wanted: Any, seconds: float, said: str) -> Status:
        wait_until(lambda: wanted(self.status), seconds, said, self.describe)
        return self.status

    def flows(self) -> Status:
        return self.until(lambda s: s.condition("Ready").status == "True", 240, "it flows")

    def driver(self) -> str:
        ref = self.status.runs.stream
        return ref.pod if ref else ""

    def differences(self) -> list[str]:
        """How targets differ from the source, which must be at rest."""
        found = []
        for table in self.workload.tables:
            target = self.target(table)
            found.append(
                compare(table, source_rows(self.server, self.database, table, target.schema), target, KEYS[table])
            )
        return [str(f) for f in found if f]

    def target(self, table: str) -> Any:
        uri = f"s3://lake/cdc/{segment(self.database)}/{segment(table)}"
        return rows_of(DeltaTable(uri, storage_options=storage_options(self.store)))

    def arrives(self) -> None:
        """The copy becomes equal to the source, which is at rest."""
        wait_until(
            lambda: not self.differences(),
            120,
            "the copy is equal",
            lambda: "\n".join(self.differences()) + self.describe(),
        )


@pytest.fixture(scope="module")
def shop(node: Node, source: Server, store: str) -> Iterator[Shop]:
    made = Shop(node, source, store)
    made.create()
    yield made
    made.workload.stop()


def test_the_operator_has_its_rights(node: Node) -> None:
    assert "Phase:          Succeeded" in node.helm("test", "cdcsync", "-n", SYSTEM, "--timeout", "60s")


def test_snapshot_and_stream_under_writers(shop: Shop) -> None:
    executors: set[str] = set()

    def read_to_the_end(status: Status) -> bool:
        executors.update(p["metadata"]["name"] for p in shop.node.pods(NAMESPACE, "spark-role=executor"))
        return status.condition("SnapshotComplete").status == "True"

    with shop.workload:
        began = time.monotonic()
        shop.until(read_to_the_end, 300, "the snapshot is complete")
        print(f"snapshot complete after {time.monotonic() - began:.0f} s, executors {sorted(executors)}")
        shop.flows()
        print(f"flows after {time.monotonic() - began:.0f} s")
        shop.workload.wait(5)
    shop.arrives()
    target = shop.target(WALK)
    counters = dict(zip(target["id"].to_pylist(), target["counter"].to_pylist(), strict=True))
    assert not diagnose_walk(shop.workload.walked(), counters), "not what was committed"
    assert len(executors) == 2
    all_of_them = f"{len(shop.workload.tables)}/{len(shop.workload.tables)}"
    shop.until(lambda s: s.tables.ready == all_of_them, 60, "the status says so, too")


def test_kills_while_it_flows(shop: Shop) -> None:
    with shop.workload.__class__(shop.server, shop.database, seed=8, pace=PACE) as writers:
        before = shop.driver()
        shop.node.kill(NAMESPACE, before)
        shop.until(lambda s: s.runs.stream and s.runs.stream.pod != before, 60, "a new driver after a kill")
        shop.flows()
        for pod in shop.node.pods(SYSTEM, OPERATOR):
            shop.node.kill(SYSTEM, pod["metadata"]["name"])
        kept = shop.driver()
        writers.wait(10)
        assert shop.driver() == kept, "the driver does not care for the operator"
        for pod in shop.node.pods(SYSTEM, OPERATOR):
            shop.node.kill(SYSTEM, pod["metadata"]["name"])
        shop.node.kill(NAMESPACE, kept)
        shop.until(lambda s: s.runs.stream and s.runs.stream.pod != kept, 180, "a new driver after both were killed")
        shop.flows()
    shop.arrives()
    live = shop.node.pods(NAMESPACE, "cdcsync.io/part=driver")
    assert [p["metadata"]["name"] for p in live] == [shop.driver()]


def test_the_operator_and_the_api_server_may_go_without_the_stream_noticing(shop: Shop) -> None:
    """An upgrade of the chart, then an API server that is killed and comes back."""
    before = shop.driver()
    values = ("--reuse-values", "--set", "podAnnotations.upgraded=yes")
    shop.node.helm("upgrade", "cdcsync", str(CHART), "-n", SYSTEM, *values)
    wait_until(
        lambda: [p for p in shop.node.pods(SYSTEM, OPERATOR) if ready(p) and p["metadata"].get("annotations")],
        120,
        "the upgraded operator is ready",
    )
    shop.server.run(f"UPDATE {WALK} SET counter = counter + 100", db=shop.database)
    shop.node.restart_api_server()
    shop.flows()
    shop.arrives()
    assert shop.driver() == before


def test_a_table_is_added_and_another_one_read_again(shop: Shop) -> None:
    """R5: the others keep flowing."""
    shop.server.run(
        "CREATE TABLE added (id INT PRIMARY KEY, word TEXT)", "INSERT INTO added VALUES (1, 'a')", db=shop.database
    )
    again = [{"table": f"{shop.database}.{WALK}", "nonce": 1}]
    shop.node.api.merge(f"{shop.path}/shop", {"spec": {"resnapshot": again}})
    names = {f"{shop.database}.added": 0, f"{shop.database}.{WALK}": 1}

    def taken_in(status: Status) -> bool:
        entries = [t for n in names if (t := status.table(n))]
        return len(entries) == 2 and all(t.phase == "Streaming" and t.nonce >= names[t.name] for t in entries)

    shop.until(taken_in, 400, "the added table and the one read again flow")
    shop.server.run("INSERT INTO added VALUES (2, 'b')", db=shop.database)
    wait_until(lambda: shop.target("added").num_rows == 2, 60, "the added table flows", shop.describe)
    shop.arrives()


def test_pause_and_resume(shop: Shop) -> None:
    shop.node.api.merge(f"{shop.path}/shop", {"spec": {"state": "paused"}})
    status = shop.until(lambda s: s.phase == "Paused", 120, "it is paused")
    assert status.restarts.consecutive == 0
    wait_until(lambda: not shop.node.pods(NAMESPACE, "cdcsync.io/part=driver"), 60, "the driver is gone", shop.describe)
    shop.server.run(f"DELETE FROM {WALK} WHERE id % 2 = 0", db=shop.database)
    shop.node.api.merge(f"{shop.path}/shop", {"spec": {"state": "running"}})
    shop.flows()
    shop.arrives()


def test_no_secret_in_logs_or_objects(shop: Shop) -> None:
    for text in (
        shop.describe(),
        shop.node.kubectl("-n", NAMESPACE, "get", "all,configmaps,cdcsyncs,events", "-o", "yaml"),
    ):
        assert PASSWORD not in text
        assert SECRET_KEY not in text


def test_deleting_it_leaves_the_tables_and_nothing_else(shop: Shop) -> None:
    rows = shop.target(WALK).num_rows
    shop.node.api.delete(f"{shop.path}/shop")

    def left() -> list[str]:
        base, rbac = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        paths = [f"{base}/{k}" for k in ("pods", "configmaps", "serviceaccounts")] + [
            f"{rbac}/roles",
            f"{rbac}/rolebindings",
        ]
        return [
            o["metadata"]["name"]
            for path in paths
            for o in shop.node.api.items(path, labelSelector="app.kubernetes.io/name=cdcsync")
        ]

    wait_until(lambda: not left(), 120, "everything it owned is gone", lambda: str(left()))
    with pytest.raises(ApiError):
        shop.node.api.get(f"{shop.path}/shop")
    assert shop.target(WALK).num_rows == rows
