"""A cluster as tests use it: its API, its containers, servers beside it that pods can reach, and
Helm.

It is a node of the tests' own, inside whose network namespace they run, or one that was given:
`make test-cluster` sees to both.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
from kubernetes.client.rest import RESTClientObject
from urllib3.exceptions import HTTPError

from cdcsync_kube.access import by_kubeconfig
from cdcsync_kube.client import Api, ApiError, Object
from support.apiserver import NODE
from support.s3server import S3_SERVER

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "node"
HELM = CACHE / "helm"
CHART = ROOT / "helm" / "cdcsync"
#: where the chart is installed, and the label of its pods
SYSTEM = "cdcsync-system"
OPERATOR = "app.kubernetes.io/name=cdcsync-operator"
CRD = "crd/cdcsyncs.cdcsync.io"
ACCESS_KEY, SECRET_KEY, REGION = "LAKEKEYID", "lake-secret-value", "us-east-1"


@dataclass
class Node:
    """`images`: the tag of the images that were loaded; `address`: this machine's, as pods reach
    it; `state`: the folder of a node of the tests' own, None for a cluster that was given."""

    kubeconfig: Path
    images: str
    address: str
    state: Path | None
    namespaces: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api: Api = by_kubeconfig(self.kubeconfig)

    @classmethod
    def of_environment(cls) -> Node:
        """As `tests/cluster/run.sh` describes it."""
        try:
            kubeconfig, images, address = (os.environ[f"CDCSYNC_TEST_{n}"] for n in ("KUBECONFIG", "IMAGES", "ADDRESS"))
        except KeyError as missing:
            raise AssertionError(f"needed: a cluster ({missing}); remedy: make test-cluster") from None
        state = os.environ.get("CDCSYNC_NODE_STATE")
        return cls(Path(kubeconfig), images, address, Path(state) if state else None)

    def helm(self, *arguments: str) -> str:
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        result = subprocess.run([HELM, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"helm {arguments}: {result.stdout}{result.stderr}"
        return result.stdout

    @contextmanager
    def ours(self) -> Iterator[Node]:
        """For the time of the tests. A cluster that was given must not have the product yet, and is
        left without it."""
        if self.state is None:
            assert not self.kubectl("get", CRD, "--ignore-not-found"), (
                f"found: CdcSync on the cluster of {self.kubeconfig}; needed: a cluster without it, since the tests remove it; "
                f"remedy: another cluster, or `helm uninstall cdcsync -n {SYSTEM}` and `kubectl delete {CRD}`"
            )
        try:
            self.install()
            yield self
        finally:
            if self.state is None:
                self._leave()
            self.api.close()

    def _leave(self) -> None:
        self.helm("uninstall", "cdcsync", "-n", SYSTEM, "--ignore-not-found")
        self.kubectl("delete", "namespace", SYSTEM, *self.namespaces)
        self.kubectl("delete", CRD)

    def install(self, chart: str = str(CHART), images: Path | None = None, *options: str) -> None:
        """The chart with the images that were imported, or with those that a file of values names,
        until the operator is ready."""
        values = {
            "imagePullPolicy": "Never",
            "resources.requests.cpu": "10m",
            "clusterWide": "true",
            "policy.allowedImages": "{localhost/*}",
            "policy.allowedInPodTemplate": "{commands}",  # by which the tests fill disks and memory
            "policy.minRestartBackoff": "1s",
            "policy.refuseNodeAddresses": "false",  # the sources are on this machine
        }
        if images is None:
            for part, name in (("image", "operator"), ("driverImage", "spark")):
                values |= {f"{part}.repository": f"localhost/cdcsync-{name}", f"{part}.tag": self.images}
        given = [part for k, v in values.items() for part in ("--set", f"{k}={v}")]
        given += [] if images is None else ["-f", str(images)]
        self.helm("upgrade", "--install", "cdcsync", chart, "-n", SYSTEM, "--create-namespace", *given, *options)
        wait_until(
            lambda: [p for p in self.pods(SYSTEM, OPERATOR) if ready(p)],
            120,
            "the operator is ready",
            lambda: self.kubectl("-n", SYSTEM, "describe", "pods") + self.operator_log(),
        )

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        command = [str(NODE), "kubectl", "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False).stdout

    def kill(self, namespace: str, pod: str) -> None:
        """SIGKILL to everything in its containers but their first process, which ends as its child
        did."""
        found = self.api.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
        for container in found["spec"]["containers"]:
            self.kubectl("-n", namespace, "exec", pod, "-c", container["name"], "--", "sh", "-c", "kill -9 -1")

    def kill_operator(self) -> None:
        for pod in self.pods(SYSTEM, OPERATOR):
            self.kill(SYSTEM, pod["metadata"]["name"])

    def operator_log(self) -> str:
        """The end of it, and that of the container before."""
        logs = ("-n", SYSTEM, "logs", "-l", OPERATOR, "--tail=100")
        return self.kubectl(*logs, "--previous") + self.kubectl(*logs)

    def page(self, pod: Object, port: int) -> str:
        """What Prometheus would read there, by way of the API server. Raises OSError while no
        program answers."""
        about, access = pod["metadata"], self.api.login.access()
        path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}:{port}/proxy/metrics"
        headers = {"Authorization": access.authorization} if access.authorization else {}
        pool = RESTClientObject(access.configuration).pool_manager
        try:
            answer = pool.request("GET", self.api.server + path, headers=headers, timeout=10, retries=False)
        except HTTPError as error:
            raise OSError(str(error)) from None
        finally:
            pool.clear()
        if answer.status != http.client.OK:
            raise OSError(f"{answer.status}: {answer.data.decode()}")
        return answer.data.decode()

    def evict(self, namespace: str, pod: str) -> None:
        """As a drained node does: the pod is asked to end."""
        about = {"name": pod, "namespace": namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
        self.api.create(f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)

    def restart_api_server(self) -> None:
        """Killed, and started again a moment later."""
        os.kill(self._process("kube-apiserver"), signal.SIGKILL)
        up = subprocess.run([ROOT / "tests" / "cluster" / "up.sh"], check=False, capture_output=True, text=True)
        assert up.returncode == 0, up.stdout + up.stderr

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Its kubelet is stopped, so that the control plane takes the node for lost; what runs
        there goes on."""
        kubelet = self._process("kubelet")
        os.kill(kubelet, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(kubelet, signal.SIGCONT)

    def _process(self, name: str) -> int:
        assert self.state, "not of a cluster that was given"
        return int((self.state / "run" / f"{name}.pid").read_text())

    def pods(self, namespace: str, selector: str) -> list[Object]:
        return list(self.api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector))


def ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def wait_until(holds: Callable[[], Any], seconds: float, what: str, describe: Callable[[], str] = lambda: "") -> Any:
    """The first true value of `holds()`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if found := holds():
                return found
        except ApiError as error:
            if not (error.transient or error.gone):
                raise
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds:.0f} s: {what}\n{describe()}")


@contextmanager
def s3_server(folder: Path, host: str) -> Iterator[str]:
    """An S3 server of this machine; its address."""
    with socket.create_server((host, 0)) as free:
        address = f"{host}:{free.getsockname()[1]}"
    with (folder / "moto.log").open("wb") as log:
        given = ["-H", host, "-p", address.rpartition(":")[2]]
        process = subprocess.Popen([*S3_SERVER, *given], stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: _bucket(address), 60, "the S3 server started", (folder / "moto.log").read_text)
            yield f"http://{address}"
        finally:
            process.terminate()
            process.wait()


def _bucket(address: str) -> bool:
    try:
        pafs.S3FileSystem(
            access_key=ACCESS_KEY, secret_key=SECRET_KEY, region=REGION, endpoint_override=address,
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
