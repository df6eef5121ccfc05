"""What a cluster refuses ends as a reason in the status, and is tried again. No Spark starts here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdcsync_core.status import Status
from cdcsync_kube.client import Object
from support.node import NODE_IP, Node, wait_until
from support.servers import Server
from support.sync_process import GRANTS

PASSWORD = "hunter2-never-shown"
#: what is wrong, objects beside the sync, a part of its spec, the reason
CASES: dict[str, tuple[list[Object], Object, str]] = {
    "quota": (
        [{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}],
        {},
        "QuotaExceeded",
    ),
    "image": ([], {"image": "localhost/no-such-image:1"}, "ImagePullFailed"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_the_cluster_refuses_is_told(node: Node, source: Server, case: str) -> None:
    beside, spec, reason = CASES[case]
    base = _prepared(node, source, f"refused-{case}", beside, spec)

    def status() -> Status:
        return Status.model_validate(node.api.get(f"{base}/refused")["status"])

    wait_until(lambda: status().restarts.reason == reason, 180, reason, lambda: repr(status()))
    found = status()
    assert found.condition("Ready").reason == reason
    assert found.condition("Stalled").status == "False"
    assert found.restarts.next_attempt_at or found.runs.snapshot
    node.api.delete(f"{base}/refused")
    wait_until(_gone(node, base), 60, "it is gone")


def _prepared(node: Node, source: Server, namespace: str, beside: list[Object], spec: Object) -> str:
    """The path of the namespace's syncs, with one in it called `refused`."""
    database = source.create_database()
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    source.create_user("cdc", PASSWORD, GRANTS[source.flavor])
    node.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    for name, values in (("source", {"username": "cdc", "password": PASSWORD}),):
        about: Any = {"name": name, "labels": {"cdcsync.io/source": "true"}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": about, "stringData": values}
        node.api.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    for thing in beside:
        node.api.create(f"/api/v1/namespaces/{namespace}/{thing['kind'].lower()}s", thing)
    path = f"/apis/cdcsync.io/v1alpha1/namespaces/{namespace}/cdcsyncs"
    full = {
        "source": {
            "host": NODE_IP,
            "port": source.port,
            "credentialsSecretRef": {"name": "source"},
            "tls": {"mode": "disabled"},
        },
        "tables": {"include": [rf"{database}\..*"]},
        "sink": {"delta": {"path": "/scratch/lake"}},
        "autoRestart": {"backoff": {"initial": "1s", "max": "5s"}},
    }
    about = {"name": "refused"}
    node.api.create(
        path, {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": about, "spec": full | spec}
    )
    return path


def _gone(node: Node, path: str) -> Callable[[], bool]:
    return lambda: not list(node.api.items(path))
