"""The operator's process, with Kopf in it, on a real API server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from cdcsync_operator.cluster.syncs.sync_list import list_syncs
from support.apiserver import kubeconfig
from support.in_process_sync import InProcessSync
from support.waiting import eventually

_PLUGIN = "from cdcsync_operator.cli.kubectl.plugin import main; main()"


@pytest.fixture
def operators(sync: InProcessSync, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts an operator's process; its log is in `tmp_path`."""
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(sync.api)))
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str = "one", **more: str) -> subprocess.Popen[bytes]:
        settings = more | {
            "KUBECONFIG": str(tmp_path / "kubeconfig"),
            "HOSTNAME": name,
            "CDCSYNC_DRIVER_IMAGE": "cdcsync/spark:test",
            "CDCSYNC_NAMESPACES": sync.namespace,
            "CDCSYNC_LEASE": f"{sync.namespace}/{name if more else 'cdcsync'}",
            "CDCSYNC_REFUSED_SOURCE_NETWORKS": "",  # the sources are on this machine
            "CDCSYNC_METRICS_PORT": "0",
        }
        with (tmp_path / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "cdcsync_operator.cluster.handlers"]
            started.append(subprocess.Popen(command, env=os.environ | settings, stderr=log, stdout=log))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def page(process: subprocess.Popen[bytes]) -> str:
    """The operator's metrics; nothing before it listens."""
    connections = psutil.Process(process.pid).net_connections(kind="inet")
    port = next((c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN), None)
    if port is None:
        return ""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=180) as answer:
        return str(answer.read().decode())


def leading(sync: InProcessSync) -> str:
    found = sync.api.items(f"/apis/coordination.k8s.io/v1/namespaces/{sync.namespace}/leases")
    return next((str(lease["spec"].get("holderIdentity")) for lease in found), "")


def deployment(sync: InProcessSync) -> str:
    """The uid of one of the operator's name, without pods."""
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": pod}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cdcsync"}, "spec": spec}
    return str(sync.api.create(f"/apis/apps/v1/namespaces/{sync.namespace}/deployments", body)["metadata"]["uid"])


def shown(sync: InProcessSync, folder: Path) -> str:
    """What `cdcsync status` shows of it."""
    command = [sys.executable, "-m", "cdcsync_operator", "status", "shop", "-n", sync.namespace]
    environment = os.environ | {"KUBECONFIG": str(folder / "kubeconfig")}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_it_sees_what_is_there_and_what_comes_and_ends_in_order(
    sync: InProcessSync, operators: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    uid = deployment(sync)
    process, log = operators(), tmp_path / "one.log"
    eventually(lambda: leading(sync) == "one", log)
    (lease,) = sync.api.items(f"/apis/coordination.k8s.io/v1/namespaces/{sync.namespace}/leases")
    assert [owner["uid"] for owner in lease["metadata"]["ownerReferences"]] == [uid], "it goes with the release"
    sync.create(state="paused")
    eventually(lambda: sync.stored.phase == "Paused", log)
    eventually(lambda: f'name="shop",namespace="{sync.namespace}",phase="Paused"}} 1' in page(process), log)
    sync.change(source={"host": "127.0.0.1", "port": 1}, state="running")
    eventually(lambda: sync.stored.restarts.reason == "SourceUnreachable", log)
    assert "SourceUnreachable" in shown(sync, tmp_path)
    found = sync.api.get(f"{sync.syncs}/shop")["metadata"]
    assert "finalizers" not in found
    assert "annotations" not in found
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0, log.read_text()
    assert leading(sync) == "", "the next one begins at once"


def test_the_syncs_that_there_are_can_be_listed(sync: InProcessSync) -> None:
    """Lists also when their specs were changed, which a write of their status does not move."""
    assert list(list_syncs(sync.api, (sync.namespace,))) == []
    began = int(time.time())
    sync.create(state="paused")
    (found,) = list_syncs(sync.api, (sync.namespace,))
    assert (found.key, found.generation) == ((sync.namespace, "shop"), 1)
    assert found.changed_at is not None
    assert began <= found.changed_at <= time.time()
    assert found in list(list_syncs(sync.api, ()))


def test_a_second_operator_waits_and_takes_over(
    sync: InProcessSync, operators: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    first = operators("one")
    eventually(lambda: leading(sync) == "one", tmp_path / "one.log")
    operators("two")
    first.send_signal(signal.SIGTERM)
    first.wait(120)
    eventually(lambda: leading(sync) == "two", tmp_path / "two.log")
    sync.create(state="paused")
    eventually(lambda: sync.stored.phase == "Paused", tmp_path / "two.log")


@pytest.fixture
def many_levels() -> Iterator[int]:
    """Lets this process read and write objects of nearly as many levels as the API server takes."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(60_000)
    yield 9_900
    sys.setrecursionlimit(before)


def nested_fields(levels: int) -> dict[str, Any]:
    """An entry of `managedFields`."""
    fields: dict[str, Any] = {}
    for _ in range(levels):
        fields = {"f:a": fields}
    entry = {"manager": "m", "operation": "Update", "apiVersion": "cdcsync.io/v1alpha1", "fieldsType": "FieldsV1"}
    return entry | {"fieldsV1": fields, "time": "2026-01-01T00:00:00Z"}


def test_an_object_of_as_many_levels_as_the_api_server_takes_ends_no_operator(
    sync: InProcessSync, operators: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, many_levels: int
) -> None:
    """`managedFields` have no schema, so whoever creates a resource may nest them. One operator
    meets the object in an event, the next one in its first list, and a user in his own."""
    first = operators("one")
    eventually(lambda: leading(sync) == "one", tmp_path / "one.log")
    about = {"name": "deep", "managedFields": [nested_fields(many_levels)]}
    body = {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": about}
    stored = sync.api.create(sync.syncs, body | {"spec": sync.spec | {"state": "paused"}})
    assert json.dumps(stored).count("f:a") >= many_levels
    path = f"{sync.syncs}/deep"
    eventually(lambda: sync.api.get(path)["status"].get("phase") == "Paused", tmp_path / "one.log")
    assert first.poll() is None, (tmp_path / "one.log").read_text()
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) == 0
    second = operators("two")
    eventually(lambda: leading(sync) == "two", tmp_path / "two.log")
    sync.create(state="paused")
    eventually(lambda: sync.stored.phase == "Paused", tmp_path / "two.log")
    assert second.poll() is None, (tmp_path / "two.log").read_text()
    command = [sys.executable, "-c", _PLUGIN, "status", "-n", sync.namespace]
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert listed.returncode == 0, listed.stderr
    assert f"{sync.namespace}/deep" in listed.stdout
    assert f"{sync.namespace}/shop" in listed.stdout


def test_releases_share_the_syncs_by_a_label_selector(
    sync: InProcessSync, operators: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """Each has its own lease, and a sync goes to the other one with its label."""
    path = f"{sync.syncs}/shop"
    first = operators("one", CDCSYNC_SELECTOR="shard=one")
    sync.create(state="paused")
    sync.api.merge(path, {"metadata": {"labels": {"shard": "one"}}})
    eventually(lambda: sync.stored.observed_generation == 1, tmp_path / "one.log")
    eventually(lambda: "cdcsync_syncs 1.0" in page(first), tmp_path / "one.log")
    sync.api.merge(path, {"metadata": {"labels": {"shard": "two"}}, "spec": {"restartNonce": 1}})
    eventually(lambda: "cdcsync_syncs 0.0" in page(first), tmp_path / "one.log")
    assert sync.stored.observed_generation == 1, "the other release has not begun"
    operators("two", CDCSYNC_SELECTOR="shard notin (one)")
    eventually(lambda: sync.stored.observed_generation == 2, tmp_path / "two.log")
    held = sync.api.items(f"/apis/coordination.k8s.io/v1/namespaces/{sync.namespace}/leases")
    assert {lease["metadata"]["name"]: lease["spec"]["holderIdentity"] for lease in held} == {
        "one": "one",
        "two": "two",
    }
