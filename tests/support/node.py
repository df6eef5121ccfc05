"""The one-node cluster as tests use it: its API, its containers, servers beside it that pods can reach, and Helm.

Tests run inside its network namespace (`make test-cluster` sees to that), so the node's address is theirs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from cdcsync_kube.access import by_kubeconfig
from cdcsync_kube.client import Api, ApiError, Object

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "node"
HELM = CACHE / "helm"
CHART = ROOT / "helm" / "cdcsync"
NODE_IP = "10.251.0.1"
#: where the chart is installed, and the label of its pods
SYSTEM = "cdcsync-system"
OPERATOR = "app.kubernetes.io/name=cdcsync-operator"
ACCESS_KEY, SECRET_KEY, REGION = "LAKEKEYID", "lake-secret-value", "us-east-1"
MOTO = str(Path(sys.executable).parent / "moto_server")


@dataclass
class Node:
    """`images` is the tag of the images that were imported."""

    state: Path
    images: str

    def __post_init__(self) -> None:
        self.api: Api = by_kubeconfig(self.state / "admin.kubeconfig")

    def helm(self, *arguments: str) -> str:
        environment = os.environ | {"KUBECONFIG": str(self.state / "admin.kubeconfig")}
        result = subprocess.run([HELM, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"helm {arguments}: {result.stdout}{result.stderr}"
        return result.stdout

    def install(self) -> None:
        """The chart with the images that were imported, until the operator is ready."""
        values = {
            "image.repository": "localhost/cdcsync-operator",
            "image.tag": self.images,
            "driverImage.repository": "localhost/cdcsync-spark",
            "driverImage.tag": self.images,
            "imagePullPolicy": "Never",
            "resources.requests.cpu": "10m",
        }
        given = [part for k, v in values.items() for part in ("--set", f"{k}={v}")]
        self.helm("upgrade", "--install", "cdcsync", str(CHART), "-n", SYSTEM, "--create-namespace", *given)
        wait_until(
            lambda: [p for p in self.pods(SYSTEM, OPERATOR) if ready(p)],
            120,
            "the operator is ready",
            lambda: (
                self.kubectl("-n", SYSTEM, "describe", "pods") + self.kubectl("-n", SYSTEM, "logs", "deploy/cdcsync")
            ),
        )

    def kubectl(self, *arguments: str) -> str:
        command = [str(CACHE / "node"), "kubectl", "--kubeconfig", str(self.state / "admin.kubeconfig"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def kill(self, namespace: str, pod: str) -> None:
        """SIGKILL to everything in a pod's containers."""
        found = self.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        for container in found["status"].get("containerStatuses", []):
            name = container.get("containerID", "").removeprefix("containerd://")
            if name:
                socket = self.state / "run" / "containerd.sock"
                command = ["ctr", "--address", socket, "-n", "k8s.io", "tasks", "kill", "-a", "-s", "SIGKILL", name]
                subprocess.run(command, capture_output=True, check=False)

    def kill_operator(self) -> None:
        for pod in self.pods(SYSTEM, OPERATOR):
            self.kill(SYSTEM, pod["metadata"]["name"])

    def page(self, pod: Object, port: int) -> str:
        """What Prometheus would read there."""
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:{port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def evict(self, namespace: str, pod: str) -> None:
        """As a drained node does: the pod is asked to end."""
        about = {"name": pod, "namespace": namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
        self.api.create(f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)

    def restart_api_server(self) -> None:
        """Killed, and started again a moment later."""
        os.kill(int((self.state / "run" / "kube-apiserver.pid").read_text()), signal.SIGKILL)
        subprocess.run([ROOT / "tests" / "cluster" / "up.sh"], check=True, capture_output=True)

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Its kubelet is stopped, so that the control plane takes the node for lost; what runs there goes on."""
        kubelet = int((self.state / "run" / "kubelet.pid").read_text())
        os.kill(kubelet, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(kubelet, signal.SIGCONT)

    def pods(self, namespace: str, selector: str) -> list[Object]:
        return list(self.api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector))


def ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def wait_until(what: Callable[[], Any], seconds: float, said: str, describe: Callable[[], str] = lambda: "") -> Any:
    """The first true value of `what()`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if found := what():
                return found
        except ApiError as error:
            if not (error.transient or error.gone):
                raise
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds:.0f} s: {said}\n{describe()}")


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """An S3 server on the node; its address."""
    port = 9100
    with (folder / "moto.log").open("wb") as log:
        process = subprocess.Popen([MOTO, "-H", NODE_IP, "-p", str(port)], stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: _bucket(port), 60, "the S3 server started", (folder / "moto.log").read_text)
            yield f"http://{NODE_IP}:{port}"
        finally:
            process.terminate()
            process.wait()


def _bucket(port: int) -> bool:
    try:
        pafs.S3FileSystem(
            access_key=ACCESS_KEY, secret_key=SECRET_KEY, region=REGION, endpoint_override=f"{NODE_IP}:{port}",
            scheme="http", allow_bucket_creation=True,
        ).create_dir("lake")  # fmt: skip
    except OSError:
        return False
    return True


def storage_options(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY, "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
