"""A manifest that says nothing of sizes, on a node of two processors: a small snapshot is read by
its driver, and the stream lives in what its pod requests. It prints how long the snapshot took from
the resource's creation: `make test-cluster ARGS='-s -k default_sizes'`.

What is refused (`test_faults`) is begun here, because it takes time and no processor."""

from __future__ import annotations

from datetime import datetime

import pytest
from deltalake import DeltaTable

from cdcsync_kube.client import Object
from support.lake import rows_of
from support.node import ACCESS_KEY, REGION, SECRET_KEY, Node, storage_options, wait_until
from support.node_sync import DRIVER, PASSWORD, make_namespace, make_secret, make_sync, source_part
from support.servers import Server
from support.sync_process import GRANTS

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("refused")]

NAME = "sizes"
_KIND = "cdcsync.io/kind"


def test_a_small_sync_runs_with_the_default_sizes(node: Node, source: Server, store: str) -> None:
    database = source.create_database()
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_1000", db=database)
    source.create_user("cdc", PASSWORD, GRANTS[source.flavor])
    make_namespace(node, NAME)
    make_secret(node, NAME, "source", {"username": "cdc", "password": PASSWORD})
    make_secret(node, NAME, "lake", {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY})
    delta = {"path": f"s3://lake/{NAME}", "credentialsSecretRef": {"name": "lake"}}
    spec = {
        "source": source_part(node, source),
        "tables": {"include": [rf"{database}\..*"]},
        "sink": {"delta": delta | {"options": {"endpoint": store, "region": REGION}}},
    }
    make_sync(node, NAME, NAME, spec)
    path = f"/apis/cdcsync.io/v1alpha1/namespaces/{NAME}/cdcsyncs/{NAME}"
    requested: dict[str, Object] = {}
    executors: set[str] = set()

    def streams() -> bool:
        for pod in node.pods(NAME, DRIVER):
            requested[pod["metadata"]["labels"][_KIND]] = pod["spec"]["containers"][0]["resources"]
        executors.update(p["metadata"]["name"] for p in node.pods(NAME, "spark-role=executor"))
        return bool(node.api.get(path).get("status", {}).get("phase") == "Streaming")

    def described() -> str:
        return node.kubectl("-n", NAME, "describe", "pods") + node.kubectl("-n", NAME, "describe", "cdcsync")

    wait_until(streams, 300, "it streams", described)
    wait_until(
        lambda: node.api.get(path)["status"]["snapshot"].get("finishedAt"), 120, "its snapshot's last report", described
    )
    resource = node.api.get(path)
    created, finished = resource["metadata"]["creationTimestamp"], resource["status"]["snapshot"]["finishedAt"]
    seconds = (datetime.fromisoformat(finished) - datetime.fromisoformat(created)).total_seconds()
    print(f"\nfrom the resource's creation to all rows in the lake: {seconds:.0f} s")
    wait_until(lambda: streams() and "stream" in requested, 60, "the stream has a pod", described)
    source.run("INSERT INTO t VALUES (1001)", db=database)
    uri = f"s3://lake/{NAME}/{database}/t"
    wait_until(
        lambda: rows_of(DeltaTable(uri, storage_options=storage_options(store))).num_rows == 1001,
        120,
        "the change arrives",
        described,
    )
    assert executors == set()
    assert requested["stream"]["requests"] == {"cpu": "250m", "memory": "1Gi", "ephemeral-storage": "1Gi"}
    assert requested["snapshot"]["requests"] == {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "1Gi"}
    (driver,) = node.pods(NAME, f"{DRIVER},{_KIND}=stream")
    assert driver["status"]["containerStatuses"][0]["restartCount"] == 0
    node.api.delete(path)
