"""What is a run's own on the node: what its driver and executors send each other, and what its
token may create.

The image of a tenant is admitted here, and his namespace has no Pod Security admission: what is
left is the operator's Role and the chart's ValidatingAdmissionPolicy.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdcsync_kube.client import Object
from cdcsync_operator.cluster.objects.driver_pod import BLOCK_PORT, DRIVER_PORT
from support import attempts
from support.apiserver import minor_version
from support.forbidden_pods import forbidden_on
from support.node import ACCESS_KEY, REGION, SECRET_KEY, Node, wait_until
from support.node_sync import DRIVER, PASSWORD, make_namespace, make_secret, make_sync, small, source_part
from support.servers import Server
from support.sync_process import GRANTS
from support.tap import tapped

pytestmark = pytest.mark.timeout(600)


def _sync(node: Node, source: Server, store: str, name: str, **spec: Any) -> str:
    """A snapshot of a table of a thousand rows, in a namespace of its name; the path of its
    resource."""
    database = source.create_database()
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_1000", db=database)
    source.create_user("cdc", PASSWORD, GRANTS[source.flavor])
    make_secret(node, name, "source", {"username": "cdc", "password": PASSWORD})
    make_secret(node, name, "lake", {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY})
    delta = {"path": f"s3://lake/{name}", "credentialsSecretRef": {"name": "lake"}}
    base: Object = {
        "source": source_part(node, source),
        "tables": {"include": [rf"{database}\..*"]},
        "snapshot": {"only": True, "chunkSize": 100, "parallelism": 1},
        "sink": {"delta": delta | {"options": {"endpoint": store, "region": REGION}}},
        "driver": {"memory": "768Mi", "podTemplate": small("driver")},
        "executors": {"instances": 1, "memory": "512Mi", "podTemplate": small("executor")},
    }
    make_sync(node, name, name, base | spec)
    return f"/apis/cdcsync.io/v1alpha1/namespaces/{name}/cdcsyncs/{name}"


def test_what_driver_and_executors_send_each_other_is_encrypted(own_node: Node, source: Server, store: str) -> None:
    """Spark's messages name its classes; one who reads along sees none."""
    make_namespace(own_node, "tapped")
    with tapped(DRIVER_PORT, BLOCK_PORT) as tap:
        path = _sync(own_node, source, store, "tapped")
        wait_until(
            lambda: own_node.api.get(path).get("status", {}).get("phase") == "Completed",
            400,
            "the snapshot is made",
            lambda: own_node.kubectl("-n", "tapped", "logs", "-l", "cdcsync.io/sync=tapped", "--tail=60", "--prefix"),
        )
    sent = bytes(tap.payloads[DRIVER_PORT])
    assert len(sent) > 10_000, "an executor that has read rows has spoken with its driver"
    assert b"org.apache.spark" not in sent
    assert b"org.apache.spark" not in bytes(tap.payloads[BLOCK_PORT])
    own_node.api.delete(path)


@pytest.fixture
def tenant(node: Node, source: Server, store: str) -> Iterator[Object]:
    """The driver's pod of a run whose image is a tenant's own."""
    make_namespace(node, "tenant", enforced="privileged")
    path = _sync(node, source, store, "tenant", image=f"localhost/cdcsync-tenant:{node.images}")

    def running() -> Object | None:
        return next((p for p in node.pods("tenant", DRIVER) if p["status"]["phase"] == "Running"), None)

    yield wait_until(
        running,
        180,
        "the tenant's code runs",
        lambda: node.kubectl("-n", "tenant", "get", "pods,cdcsyncs", "-o", "yaml"),
    )
    node.api.delete(path)


def test_an_image_of_a_tenants_own_creates_executors_of_its_run_and_nothing_else(node: Node, tenant: Object) -> None:
    run = tenant["metadata"]["labels"]["cdcsync.io/run"]
    core = "/api/v1/namespaces/tenant"
    node.api.create(f"{core}/serviceaccounts", _object("ServiceAccount", "admin"))
    template = node.api.get(f"{core}/configmaps/{run}-config-0")["data"]["executor.yaml"]
    asked: list[tuple[str, Object, int, str]] = [
        (path, _object(kind, "x"), 403, "cannot create resource") for path, kind in _creatable(node, tenant)
    ]
    for change, expected in forbidden_on(minor_version(node.api)).values():
        pod = _owned_by(tenant, json.loads(template), "forbidden")
        pod["spec"]["containers"][0]["image"] = f"localhost/cdcsync-tenant:{node.images}"
        change(pod)
        asked.append((f"{core}/pods", pod, 422, expected))
    other_driver = _owned_by(tenant, json.loads(template), "forbidden")
    other_driver["metadata"]["ownerReferences"][0]["uid"] = "00000000-0000-0000-0000-000000000000"
    asked.append((f"{core}/pods", other_driver, 422, "owned by their run's driver"))
    asked.append((f"{core}/pods", _owned_by(tenant, json.loads(template), f"{run}-exec-9"), 201, ""))
    ends = _in_pod(node, tenant, [{"path": path, "body": body} for path, body, _, _ in asked])
    assert len(asked) > 80
    for (path, _, status, expected), (found, words) in zip(asked, ends, strict=True):
        assert (found, expected in words) == (status, True), f"{path}: {found} {words}"
    others = {p["metadata"]["name"] for p in node.api.items(f"{core}/pods")}
    assert others == {tenant["metadata"]["name"], f"{run}-exec-9"}


def _owned_by(driver: Object, pod: Object, name: str) -> Object:
    """As Spark makes an executor's pod of its template."""
    about = driver["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"], "controller": True}
    pod["metadata"] |= {"name": name, "ownerReferences": [owner]}
    return pod


def _in_pod(node: Node, pod: Object, asked: list[Object]) -> list[tuple[int, str]]:
    command = ("-n", "tenant", "exec", "-i", pod["metadata"]["name"], "-c", "driver", "--", "python", "-")
    text = inspect.getsource(attempts).replace("sys.argv[1]", repr(json.dumps(asked)))
    return [(status, words) for status, words in json.loads(node.kubectl(*command, stdin=text))]


def _object(kind: str, name: str) -> Object:
    return {"kind": kind, "metadata": {"name": name}}


def _creatable(node: Node, pod: Object) -> Iterator[tuple[str, str]]:
    """Path and kind of everything that this API server can create: in the tenant's namespace and in
    another one, where it has one. Its pods are left out here, and questions about oneself, by which
    nothing is made."""
    groups = [g["preferredVersion"]["groupVersion"] for g in node.api.get("/apis")["groups"]]
    for base in ("/api/v1", *(f"/apis/{g}" for g in groups)):
        for found in node.api.get(base)["resources"]:
            resource, _, part = found["name"].partition("/")
            if "create" not in found["verbs"] or resource.startswith("selfsubject"):
                continue
            for namespace in ("tenant", "default") if found["namespaced"] else ("",):
                if (base, found["name"], namespace) == ("/api/v1", "pods", "tenant"):
                    continue
                where = f"{base}/namespaces/{namespace}/{resource}" if namespace else f"{base}/{resource}"
                yield (f"{where}/{pod['metadata']['name']}/{part}" if part else where), found["kind"]
