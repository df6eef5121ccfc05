"""What the token of a run may create in a cluster: executors of that run, whatever code has it.

The chart's ValidatingAdmissionPolicy and the operator's own Role, on a real API server, as the
run's account.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cdcsync_core.resource.manifest import parse_resource
from cdcsync_core.runs.run import RunKind
from cdcsync_kube.client import Api, ApiError
from cdcsync_operator.cluster.objects import run_objects
from cdcsync_operator.cluster.objects.driver_pod import Image, executor_pod, mounted_secrets
from cdcsync_operator.decision.observed import StartRun
from support.apiserver import as_token, minor_version
from support.chart import rendered
from support.forbidden_pods import FORBIDDEN_WITHOUT_COMMANDS, STANDARD, forbidden_on

Object = dict[str, Any]
IMAGE = Image("registry.example/cdcsync-spark:1")
RUN = "shop-ab12-1"


@pytest.fixture(scope="module")
def policy(api: Api) -> Iterator[None]:
    """The chart's, in force."""
    values = {
        "clusterWide": True,
        "driverImage": {"repository": "registry.example/cdcsync-spark", "tag": "1"},
        "policy": {
            "allowedServiceAccounts": ["cloud"],
            "allowedImages": ["registry.example/team/*"],
            "allowedPullSecrets": ["pull", "default-dockercfg-*"],
        },
    }
    yield from _in_force(api, values)


def _in_force(api: Api, values: Object, release: str = "cdcsync") -> Iterator[None]:
    base = "/apis/admissionregistration.k8s.io/v1"
    documents = [
        d
        for d in rendered(values, release)
        if d["kind"].startswith("ValidatingAdmission") and d["metadata"]["name"].endswith("-runs")
    ]
    assert len(documents) == 2
    paths = [f"{base}/{d['kind'].lower()}s".replace("policys", "policies") for d in documents]
    for path, document in zip(paths, documents, strict=True):
        api.create(f"{path}?fieldValidation=Strict", document)
    yield
    for path, document in zip(paths, documents, strict=True):
        api.delete(f"{path}/{document['metadata']['name']}")


@pytest.fixture
def resource(namespace: str) -> Any:
    about = {"name": "shop", "namespace": namespace, "uid": "u", "generation": 1}
    spec = {
        "source": {"host": "db.example", "credentialsSecretRef": {"name": "login"}},
        "tables": {"include": [r"shop\..*"]},
        "sink": {"delta": {"path": "s3://lake/x", "credentialsSecretRef": {"name": "lake"}}},
    }
    body = {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": about, "spec": spec}
    return parse_resource(body)


@pytest.fixture
def action() -> StartRun:
    return StartRun(RunKind.SNAPSHOT, RUN, 1, (("shop.a", 0),), "f", executors=1)


@pytest.fixture
def run(api: Api, namespace: str, policy: None, resource: Any, action: StartRun) -> Iterator[Api]:
    """The API server as the run's account, once the policy is in force."""
    core = f"/api/v1/namespaces/{namespace}"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    secrets = sorted(mounted_secrets(executor_pod(resource, action, IMAGE)))
    assert secrets == ["lake", "login", f"{RUN}-auth"]
    api.create(f"{core}/serviceaccounts", run_objects.account(resource, RUN))
    api.create(f"{rbac}/roles", run_objects.role(resource, action, secrets))
    account = run_objects.account_name(RUN)
    api.create(f"{rbac}/rolebindings", run_objects.binding(resource, RUN, account))
    made = _as_account(api, namespace, account)
    other = executor(resource, action) | {"metadata": {"name": "probe"}}
    _wait_until(lambda: "not allowed" not in _outcome(made, core, other) and _outcome(made, core, other) != "")
    yield made
    made.close()


def _as_account(api: Api, namespace: str, account: str) -> Api:
    body: Object = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": None}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    token = api.create(path, body)["status"]["token"]
    return as_token(api, token)


def _wait_until(holds: Callable[[], bool]) -> None:
    """Roles and policies are watched by the API server itself, so they count a moment after they
    were made."""
    deadline = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def executor(resource: Any, action: StartRun) -> Object:
    """As Spark makes it of the operator's template."""
    pod = copy.deepcopy(executor_pod(resource, action, IMAGE))
    driver = {"apiVersion": "v1", "kind": "Pod", "name": f"{RUN}-driver", "uid": "driver-uid", "controller": True}
    pod["metadata"] |= {"name": f"{RUN}-exec-1", "ownerReferences": [driver]}
    pod["spec"]["containers"][0] |= {
        "args": ["executor"],
        "env": [{"name": "SPARK_DRIVER_URL", "value": "x"}, {"name": "SPARK_JAVA_OPT_0", "value": "-Dx=y"}],
    }
    pod["spec"]["serviceAccountName"] = "default"  # as the API server's own admission fills it in
    return pod


def _outcome(api: Api, core: str, pod: Object) -> str:
    """The refusal's message; "" where the pod would be created."""
    try:
        api.create(f"{core}/pods?dryRun=All", pod)
    except ApiError as error:
        return error.message
    return ""


def test_a_runs_account_creates_and_deletes_its_executors(
    run: Api, namespace: str, resource: Any, action: StartRun
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    assert _outcome(run, core, executor(resource, action)) == ""
    pulling = executor(resource, action)
    pulling["spec"]["imagePullSecrets"] = [{"name": "pull"}, {"name": "default-dockercfg-x7k2p"}]
    assert _outcome(run, core, pulling) == ""
    run.create(f"{core}/pods", executor(resource, action))
    run.merge(f"{core}/pods/{RUN}-exec-1", {"metadata": {"annotations": {"a": "b"}}})
    run.delete(f"{core}/pods/{RUN}-exec-1")


def test_with_a_runs_token_nothing_else_is_created(run: Api, namespace: str, resource: Any, action: StartRun) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    for name, (change, expected) in (forbidden_on(minor_version(run)) | FORBIDDEN_WITHOUT_COMMANDS).items():
        pod = executor(resource, action)
        change(pod)
        assert expected in _outcome(run, core, pod), name


def test_an_executor_satisfies_each_field_of_the_restricted_standard(
    api: Api, run: Api, namespace: str, resource: Any, action: StartRun
) -> None:
    """The policy refuses what breaks one with its name, and whatever the policy lets through, a
    namespace that enforces the standard would take: the API server's own check refuses the same."""
    core, strict = f"/api/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}-strict"
    about = {"name": f"{namespace}-strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": about})
    cases = [("", lambda pod: None)] + [(field, change) for field, changes in STANDARD.items() for change in changes]
    for field, change in cases:
        pod = executor(resource, action)
        change(pod)
        by_policy, by_namespace = _outcome(run, core, pod), _outcome(api, strict, pod)
        # of the standard since Kubernetes 1.34
        is_newer = field.endswith(".host of a container") and minor_version(api) < 34
        assert ("violates PodSecurity" in by_namespace) is bool(field and not is_newer), (field, by_namespace)
        assert (f"restricted Pod Security Standard ({field})" in by_policy) is bool(field), (field, by_policy)
        assert field or (by_policy, by_namespace) == ("", "")


def test_a_runs_token_takes_no_pod_away_but_its_own(
    api: Api, run: Api, namespace: str, resource: Any, action: StartRun
) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    other = executor(resource, action)
    other["metadata"] = {"name": "innocent", "labels": {"app": "shop"}}
    api.create(f"{core}/pods", other)
    for call in (
        lambda: run.delete(f"{core}/pods/innocent"),
        lambda: run.delete(f"{core}/pods", labelSelector="app=shop"),
        lambda: run.merge(f"{core}/pods/innocent", {"metadata": {"labels": {"cdcsync.io/run": RUN}}}),
    ):
        with pytest.raises(ApiError, match="executors of that run only"):
            call()
    assert api.get(f"{core}/pods/innocent")["metadata"]["labels"] == {"app": "shop"}


@pytest.mark.parametrize("kind", ["secrets", "serviceaccounts", "configmaps"])
def test_a_runs_token_creates_no_other_kinds(run: Api, namespace: str, kind: str) -> None:
    name = {"secrets": "Secret", "serviceaccounts": "ServiceAccount", "configmaps": "ConfigMap"}[kind]
    body = {"apiVersion": "v1", "kind": name, "metadata": {"name": "x"}}
    with pytest.raises(ApiError) as caught:
        run.create(f"/api/v1/namespaces/{namespace}/{kind}", body)
    assert caught.value.status == 403


def test_a_run_of_a_chosen_account_is_bound_to_its_driver(
    api: Api, policy: None, namespace: str, resource: Any, action: StartRun
) -> None:
    """The account says nothing about the run; a token that is not a driver's creates nothing."""
    core = f"/api/v1/namespaces/{namespace}"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    about = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "cloud"}}
    api.create(f"{core}/serviceaccounts", about)
    secrets = sorted(mounted_secrets(executor_pod(resource, action, IMAGE)))
    api.create(f"{rbac}/roles", run_objects.role(resource, action, secrets))
    api.create(f"{rbac}/rolebindings", run_objects.binding(resource, RUN, "cloud"))
    made = _as_account(api, namespace, "cloud")
    _wait_until(lambda: "executors of that run only" in _outcome(made, core, executor(resource, action)))
    made.close()


def test_a_release_judges_no_runs_of_another_one(
    api: Api, policy: None, namespace: str, resource: Any, action: StartRun
) -> None:
    """Two shards with rules that contradict each other: each run is judged by the rules of the
    release that its Role names, and one whose Role names none by both."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    newer = {"clusterWide": True, "driverImage": {"repository": "registry.example/cdcsync-spark", "tag": "2"}}
    second = _in_force(api, newer, "two")
    next(second)
    secrets = sorted(mounted_secrets(executor_pod(resource, action, IMAGE)))
    refusals, refused = {}, "images of policy.allowedImages"
    for release in ("", "cdc.cdcsync", "cdc.two-cdcsync"):
        run = f"shop-{len(refusals)}-1"
        of_run = replace(action, id=run)
        account = run_objects.account_name(run)
        api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", run_objects.account(resource, run))
        api.create(f"{rbac}/roles", run_objects.role(resource, of_run, [*secrets, f"{run}-auth"], release))
        api.create(f"{rbac}/rolebindings", run_objects.binding(resource, run, account))
        made = _as_account(api, namespace, account)
        judged = partial(_judged, made, namespace, resource, of_run)
        if not release:  # both policies are in force once they refuse each other's image
            _wait_until(lambda judged=judged: all(refused in judged(tag) for tag in "12"))
        refusals[release] = [judged(tag) for tag in "12"]
        made.close()
    next(second, None)
    assert refusals["cdc.cdcsync"][0] == refusals["cdc.two-cdcsync"][1] == ""
    assert refused in refusals["cdc.cdcsync"][1]
    assert refused in refusals["cdc.two-cdcsync"][0]


def _judged(made: Api, namespace: str, resource: Any, action: StartRun, tag: str) -> str:
    """The answer for an executor with an image of that tag, once Role and policies count."""
    pod = copy.deepcopy(executor(resource, action))
    pod["metadata"]["ownerReferences"][0]["name"] = f"{action.id}-driver"
    core, bad = f"/api/v1/namespaces/{namespace}", pod | {"metadata": {"name": "probe"}}
    _wait_until(lambda: "executors of that run only" in _outcome(made, core, bad))
    pod["spec"]["containers"][0]["image"] = f"registry.example/cdcsync-spark:{tag}"
    return _outcome(made, core, pod)


def test_everybody_else_creates_what_they_may(api: Api, policy: None, namespace: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mine"},
        "spec": {"containers": [{"name": "c", "image": "any"}], "hostNetwork": True},
    }
    assert _outcome(api, f"/api/v1/namespaces/{namespace}", pod) == ""
