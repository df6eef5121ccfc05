"""Namespaces that come and go: the operator as the chart's own account, with the chart's rights and
policy, on a real API server."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_core.resource.manifest import parse_resource
from cdcsync_core.runs.run import RunKind
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.objects import run_objects
from cdcsync_operator.cluster.policy.cluster_networks import ClusterNetworks
from cdcsync_operator.cluster.rbac import BY_SELECTOR, OF_NODES, missing
from cdcsync_operator.cluster.syncs.namespaces import NamespaceRule, Namespaces, binding
from cdcsync_operator.decision.observed import StartRun
from support.apiserver import as_token, kubeconfig
from support.chart import rendered
from support.in_process_sync import InProcessSync
from support.waiting import eventually

LABEL = "example.com/cdc"
VALUES: dict[str, Any] = {"namespaceSelector": f"{LABEL}=yes"}
ROLE = "cdc-cdcsync"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_NODES, _SERVICES = "/api/v1/nodes", "/apis/networking.k8s.io/v1/servicecidrs"
_OF_THE_OPERATOR = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}
_numbers = itertools.count(1)


@dataclass
class Release:
    """The chart's objects without its Deployment, whose process is started here."""

    api: Api
    account: Api
    folder: Path
    environment: dict[str, str]

    def namespace(self, **labels: str) -> InProcessSync:
        """Creates a namespace that has a paused sync."""
        about = {"name": f"tenant-{next(_numbers)}", "labels": {f"example.com/{k}": v for k, v in labels.items()}}
        self.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": about})
        sync = InProcessSync(self.api, about["name"])
        sync.create(state="paused")
        return sync

    def label(self, sync: InProcessSync, value: str | None) -> None:
        self.api.merge(f"/api/v1/namespaces/{sync.namespace}", {"metadata": {"labels": {LABEL: value}}})

    def delete(self, sync: InProcessSync) -> None:
        """As the controller of namespaces does it, which this server has not."""
        path = f"/api/v1/namespaces/{sync.namespace}"
        self.api.delete(path)
        self.api.replace(f"{path}/finalize", self.api.get(path) | {"spec": {"finalizers": []}})

    def bound(self, *syncs: InProcessSync) -> set[str]:
        """Which of their namespaces have the binding; earlier tests leave others."""
        found = self.api.metadata(f"{_RBAC}/rolebindings", fieldSelector=f"metadata.name={ROLE}")
        return {about["namespace"] for about in found} & {sync.namespace for sync in syncs}


@pytest.fixture(scope="module")
def release(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """One for all tests: the API server goes on for a while to judge by a policy or by rights that
    are deleted, also where others of that name are there since."""
    folder = tmp_path_factory.mktemp("release")
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cdc"}})
    documents = [
        d for d in rendered(VALUES) if d["kind"] in _OF_THE_OPERATOR or d["metadata"]["name"] == f"{ROLE}-namespaces"
    ]
    for document in documents:
        api.create(f"{_folder(document)}?fieldValidation=Strict", document)
    body: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": None}}
    token = api.create("/api/v1/namespaces/cdc/serviceaccounts/cdcsync/token", body)["status"]["token"]
    config = kubeconfig(api) | {"users": [{"name": "admin", "user": {"token": token}}]}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    (deployment,) = [d for d in rendered(VALUES) if d["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    account = as_token(api, token)
    yield Release(api, account, folder, {e["name"]: e["value"] for e in container["env"] if "value" in e})
    account.close()
    for document in documents:
        api.delete(f"{_folder(document)}/{document['metadata']['name']}")


def _folder(document: Object) -> str:
    group, _, version = document["apiVersion"].rpartition("/")
    namespace = document["metadata"].get("namespace")
    scope = f"/namespaces/{namespace}" if namespace else ""
    kind = f"{document['kind'].lower()}s".replace("policys", "policies")
    return f"{f'/apis/{group}' if group else '/api'}/{version}{scope}/{kind}"


@pytest.fixture
def operator(release: Release) -> Iterator[subprocess.Popen[bytes]]:
    here = {
        "KUBECONFIG": str(release.folder / "kubeconfig"),
        "CDCSYNC_REFUSED_SOURCE_NETWORKS": "",
        "CDCSYNC_METRICS_PORT": "0",  # any
    }
    with (release.folder / "log").open("wb") as log:
        command = [sys.executable, "-m", "cdcsync_operator.cluster.handlers"]
        process = subprocess.Popen(command, env=os.environ | release.environment | here, stderr=log, stdout=log)
    yield process
    process.kill()
    process.wait()


def test_a_namespace_is_served_while_it_has_the_labels(release: Release, operator: subprocess.Popen[bytes]) -> None:
    """Needs no restart, whatever becomes of the others."""
    log = release.folder / "log"

    def is_observed(sync: InProcessSync, generation: int) -> Callable[[], bool]:
        return lambda: sync.stored.observed_generation == generation

    one, two = release.namespace(cdc="yes"), release.namespace(cdc="no")
    eventually(is_observed(one, 1), log)
    assert two.stored.observed_generation == -1
    release.label(two, "yes")
    eventually(is_observed(two, 1), log)
    assert release.bound(one, two) == {one.namespace, two.namespace}
    release.label(one, None)
    eventually(lambda: release.bound(one, two) == {two.namespace}, log)
    one.change(restartNonce=1)
    two.change(restartNonce=1)
    eventually(is_observed(two, 2), log)
    assert one.stored.observed_generation == 1
    release.delete(two)
    three = release.namespace(cdc="yes")
    eventually(is_observed(three, 1), log)
    release.label(one, "yes")
    eventually(is_observed(one, 2), log)
    assert operator.poll() is None, log.read_text()


def test_a_namespace_that_is_being_deleted_is_not_bound(release: Release) -> None:
    """Nothing may be created there, for as long as its deletion takes."""
    one, two = release.namespace(cdc="yes"), release.namespace(cdc="yes")
    release.api.delete(f"/api/v1/namespaces/{one.namespace}")
    api = Creations(release.account)
    namespaces = Namespaces(api, NamespaceRule(selector=f"{LABEL}=yes", role=ROLE, account="cdc/cdcsync"))
    eventually(lambda: namespaces.refresh() is not None and namespaces.serves(two.namespace))
    assert not namespaces.serves(one.namespace)
    assert [path for path in api.paths if f"/{one.namespace}/" in path] == []
    release.delete(one)


def _own_name() -> tuple[str, str]:
    """This machine's name and its address, which stands for both where no resolver knows it."""
    try:
        return (name := socket.gethostname()), socket.gethostbyname(name)
    except OSError:
        return "127.0.0.1", "127.0.0.1"


def test_a_node_that_joins_later_is_refused_at_the_next_resolution(
    release: Release, operator: subprocess.Popen[bytes]
) -> None:
    """As the chart's account, which may list nodes."""
    log, (host, address) = release.folder / "log", _own_name()
    sync = release.namespace(cdc="yes")
    release.api.merge(f"{sync.base}/secrets/login", {"metadata": {"annotations": {"cdcsync.io/hosts": host}}})
    sync.change(state="running", source={"host": host, "port": 1})
    eventually(lambda: sync.stored.restarts.reason == "SourceUnreachable", log)
    body: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-of-{sync.namespace}"}}
    release.api.create(_NODES, body)
    path = f"{_NODES}/{body['metadata']['name']}"
    try:
        status = {"addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": "nine"}]}
        release.api.merge(f"{path}/status", {"status": status})
        words = f"{host} is at {address}, in the network {address}/32"
        eventually(lambda: any(words in condition.message for condition in sync.stored.conditions), log)
    finally:
        release.api.delete(path)
    eventually(lambda: sync.stored.restarts.reason == "SourceUnreachable", log)
    assert operator.poll() is None, log.read_text()


def test_the_cluster_is_listed_as_it_is(release: Release) -> None:
    eventually(lambda: not missing(release.account, "", OF_NODES))
    addresses, every = ClusterNetworks(release.account, addresses=True), ClusterNetworks(release.account, True, True)
    names = [f"page-{n}" for n in range(3)]
    addresses.refresh()
    others = set(addresses.current)
    services = {c for item in release.api.items(_SERVICES) for c in item["spec"]["cidrs"]}
    assert services
    try:
        for n, name in enumerate(names):
            ranges = {"podCIDRs": [f"10.8.{n}.0/24", f"fd00:8:{n + 1}::/64"]}
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": ranges}
            release.api.create(_NODES, body)
            addresses_of_node = [
                {"type": "InternalIP", "address": f"10.7.0.{n}"},
                {"type": "ExternalIP", "address": "no address"},
            ]
            release.api.merge(f"{_NODES}/{name}/status", {"status": {"addresses": addresses_of_node}})
        addresses = ClusterNetworks(release.account, addresses=True)
        addresses.refresh()
        every.refresh()
        assert set(addresses.current) - others == {"10.7.0.0/31", "10.7.0.2/32"}, "neighbours are one network"
        ranges_of_pods = {"10.8.0.0/23", "10.8.2.0/24", *(f"fd00:8:{n + 1}::/64" for n in range(3))}
        assert set(every.current) == {*addresses.current, *ranges_of_pods, *services}
        release.api.delete(f"{_NODES}/{names[2]}")
        every.refresh()
        assert "10.7.0.2/32" in every.current, "it is not listed again at once"
    finally:
        for name in names:
            release.api.delete(f"{_NODES}/{name}")


def test_nothing_is_reconciled_before_the_nodes_are_listed(release: Release) -> None:
    """A list that an account has no right to, or that fails later, leaves the last one."""
    now, account = [0.0], release.account
    networks = ClusterNetworks(as_token(account, "of-no-account"), addresses=True, clock=lambda: now[0])
    networks.refresh()
    assert not networks.listed
    networks.api = account
    networks.refresh()
    assert not networks.listed, "it is not asked all the time"
    now[0] += 60
    networks.refresh()
    assert networks.listed


class Creations(Api):
    """Has the paths below which something was created."""

    def __init__(self, api: Api) -> None:
        super().__init__(api.login)
        self.paths: list[str] = []

    def create(self, path: str, body: Object) -> Object:
        self.paths.append(path)
        return super().create(path, body)


def test_the_operator_gives_itself_rights_in_selected_namespaces_only(release: Release) -> None:
    """Its own rights let it give a run its own."""
    eventually(lambda: not missing(release.account, "", BY_SELECTOR))
    other, selected = release.namespace(cdc="no"), release.namespace(cdc="yes")
    uid = release.api.get(f"{_RBAC}/clusterroles/{ROLE}")["metadata"]["uid"]
    own = binding(NamespaceRule(role=ROLE, account="cdc/cdcsync"), uid)
    path = f"{_RBAC}/namespaces/{{}}/rolebindings"
    with pytest.raises(ApiError):
        release.account.get(f"/api/v1/namespaces/{selected.namespace}/secrets")
    eventually(lambda: "namespaceSelector only" in _refusal(release, path.format(other.namespace), own))
    for_another = own | {"subjects": [own["subjects"][0] | {"namespace": other.namespace}]}
    assert "to its own account only" in _refusal(release, path.format(selected.namespace), for_another)
    admin = own | {"roleRef": own["roleRef"] | {"name": "admin"}}
    assert _refusal(release, path.format(selected.namespace), admin)
    assert _refusal(release, path.format(selected.namespace), own) == ""
    release.account.create(path.format(selected.namespace), own)
    start = StartRun(RunKind.SNAPSHOT, "shop-ab12-1", 1, (("shop.a", 0),), "f", executors=1)
    found = selected.api.get(f"{selected.syncs}/shop")
    about = {k: found["metadata"][k] for k in ("name", "namespace", "uid", "generation")}
    resource = parse_resource({k: found[k] for k in ("apiVersion", "kind", "spec")} | {"metadata": about})
    role = run_objects.role(resource, start, ["login"], "cdc.cdcsync")
    roles = f"{_RBAC}/namespaces/{selected.namespace}/roles"
    eventually(lambda: not _refusal(release, roles, role))  # the API server watches bindings, too


def _refusal(release: Release, path: str, body: Object) -> str:
    try:
        release.account.create(f"{path}?dryRun=All", body)
    except ApiError as error:
        return error.message
    return ""
