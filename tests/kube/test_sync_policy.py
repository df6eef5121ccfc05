"""What the operator's policy refuses is refused when it is applied: the chart's policy of
resources, on a real API server, beside the operator's own check."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_core.resource.manifest import parse_resource
from cdcsync_core.resource.secret_hosts import misdirected
from cdcsync_core.resource.spec import API_VERSIONS
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy, violations
from cdcsync_operator.cluster.policy.source_networks import DEFAULT_REFUSED
from support.chart import ROOT, rendered
from support.forbidden_templates import CODE_VARIABLES, CONTAINERS, CONTEXTS, INJECTORS, PODS

STRICT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
IMAGE = "registry.example/cdcsync-spark:1"
EXAMPLES = ROOT / "examples"


def _of_the_chart(policy: Object, release: str = "cdcsync", **more: Any) -> list[Object]:
    values = {
        "clusterWide": True,
        "driverImage": {"repository": "registry.example/cdcsync-spark", "tag": "1"},
        "policy": {"allowedImages": ["registry.example/team/*"]} | policy,
    }
    documents = [d for d in rendered(values | more, release) if d["kind"].startswith("ValidatingAdmission")]
    return [d for d in documents if d["metadata"]["name"].endswith("-syncs")]


@pytest.fixture(scope="module")
def in_force(api: Api) -> Iterator[None]:
    with judging(api, _of_the_chart({})):
        yield


@contextmanager
def judging(api: Api, documents: list[Object], labels: Object | None = None) -> Iterator[None]:
    """The policy and its binding, in force within, and in force no more after. The API server
    follows both by a watch of its own, so each takes a while."""
    base = "/apis/admissionregistration.k8s.io/v1"
    paths = [f"{base}/{d['kind'].lower()}s".replace("policys", "policies") for d in documents]
    policy = f"'{documents[0]['metadata']['name']}'"
    refused = labelled(labels or {}, driver={"serviceAccountName": "nobody-may-name-this-one"})
    try:
        for path, document in zip(paths, documents, strict=True):
            api.create(f"{path}?fieldValidation=Strict", document)
        _wait_until(lambda: policy in applied(api, "default", refused))
        yield
    finally:
        for path, document in zip(paths, documents, strict=True):
            api.delete(f"{path}/{document['metadata']['name']}")
        _wait_until(lambda: policy not in applied(api, "default", refused))


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, "the API server did not follow the policy in 120 s"
        time.sleep(0.1)


def sync(**spec: Any) -> Object:
    base: Object = {
        "source": {"host": "mysql.shop.svc", "credentialsSecretRef": {"name": "shop-mysql"}},
        "tables": {"include": [r"shop\..*"]},
        "sink": {"delta": {"path": "s3://lake/cdc"}},
    }
    about = {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": {"name": "shop"}}
    return about | {"spec": base | spec}


def labelled(labels: Object, **spec: Any) -> Object:
    resource = sync(**spec)
    return resource | {"metadata": resource["metadata"] | {"labels": labels}}


def applied(api: Api, namespace: str, resource: Object) -> str:
    """The refusal's message as `kubectl apply` shows it; "" where it would be stored."""
    path = f"/apis/{resource['apiVersion']}/namespaces/{namespace}/cdcsyncs?fieldValidation=Strict&dryRun=All"
    try:
        api.create(path, copy.deepcopy(resource))
    except ApiError as error:
        return error.message
    return ""


def with_pod(pod: Object, part: str = "driver") -> Object:
    return sync(**{part: {"podTemplate": {"spec": pod}}})


def with_container(**fields: Any) -> Object:
    return with_pod({"containers": [{"name": "driver"} | fields]})


def _says_nothing(value: Any) -> bool:
    """A null, which the API server drops."""
    return value is None or (isinstance(value, dict) and any(_says_nothing(v) for v in value.values()))


def test_a_resource_that_was_stored_before_can_be_labelled_and_deleted(api: Api, namespace: str) -> None:
    """The policy judges a spec when it changes."""
    path = f"/apis/cdcsync.io/v1alpha1/namespaces/{namespace}/cdcsyncs"
    api.create(path, with_pod({"nodeName": "one"}))
    with judging(api, _of_the_chart({})):
        api.merge(f"{path}/shop", {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(ApiError, match=r"podTemplate.spec.nodeName is refused"):
            api.merge(f"{path}/shop", {"spec": {"state": "paused"}})
    api.delete(f"{path}/shop")


def test_each_of_two_releases_judges_the_syncs_that_it_selects(api: Api, namespace: str) -> None:
    """Their rules contradict each other. A sync that comes to a release by its label is judged
    then."""
    path = f"/apis/cdcsync.io/v1alpha1/namespaces/{namespace}/cdcsyncs"
    one, two = {"shard": "one"}, {"shard": "two"}
    strict = _of_the_chart({"allowPodTemplate": False}, "one", selector="shard in (one, uno)")
    lenient = _of_the_chart({"allowedPullSecrets": ["pu*"]}, "two", selector="shard=two", imagePullSecrets=["own"])
    pulls = {"podTemplate": {"spec": {"imagePullSecrets": [{"name": "pull"}, {"name": "own"}]}}}
    others = {"podTemplate": {"spec": {"imagePullSecrets": [{"name": "others"}]}}}
    with judging(api, strict, one), judging(api, lenient, two):
        assert "policy.allowPodTemplate" in applied(api, namespace, labelled(one, driver=pulls))
        assert applied(api, namespace, labelled(two, driver=pulls)) == ""
        assert "policy.allowedPullSecrets" in applied(api, namespace, labelled(two, driver=others))
        assert applied(api, namespace, sync(driver=pulls)) == "", "no release selects it, so none serves it"
        api.create(path, labelled(two, driver=pulls))
        api.merge(f"{path}/shop", {"metadata": {"labels": {"team": "a"}}})
        with pytest.raises(ApiError, match=r"policy.allowPodTemplate"):
            api.merge(f"{path}/shop", {"metadata": {"labels": one}})
        api.delete(f"{path}/shop")


def test_what_a_sync_needs_is_taken(api: Api, namespace: str, in_force: None) -> None:
    sidecar = {"name": "proxy", "image": "registry.example/team/proxy:2", "securityContext": STRICT}
    pod = {
        "containers": [
            {
                "name": "driver",
                "env": [{"name": "AWS_REGION", "value": "x"}],
                "resources": {"limits": {"memory": "4Gi"}},
            },
            sidecar | {"volumeMounts": [{"name": "more", "mountPath": "/mnt/x"}]},
        ],
        "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}, {"name": "more", "emptyDir": {}}],
        "tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 30}],
        "affinity": {},
        "securityContext": {"fsGroup": 7, "sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1 2 3"}]},
    }
    for resource in (
        sync(),
        with_pod(pod),
        with_pod(pod, "executors"),
        sync(sparkConf={"spark.sql.shuffle.partitions": "9"}),
    ):
        assert applied(api, namespace, resource) == ""
    for sink, *folders in (
        ({"delta": {"path": "/lake/tables"}}, "/lake"),
        ({"delta": {"path": "/lake"}}, "/lake"),
        (_iceberg(uri="jdbc:sqlite:/lake/catalog.db", type="jdbc", warehouse="/lake/tables"), "/lake"),
        (_iceberg(uri="thrift://metastore:9083", type="hive", warehouse="/lake/tables"), "/lake"),
        (_iceberg(uri="https://glue.example", type="glue", warehouse="/lake/tables", **_SIGNED), "/lake"),
        (_iceberg(warehouse="gs://bucket/any", uri="https://catalog.example:8181/v1"),),
        (_kafka("kafka.shop.svc:9092,[2001:db8::1]:9092", **_registry("https://10.0.0.7/x")),),
    ):
        resource = on_a_volume(sink, *folders)
        assert (applied(api, namespace, resource), refused_by_the_operator(resource)) == ("", []), sink


_SIGNED = {"authentication": "sigv4", "sigv4": {"region": "eu"}, "credentialsSecretRef": {"name": "aws"}}


def _iceberg(**catalog: Any) -> Object:
    return {"iceberg": {"catalog": catalog}}


def _kafka(servers: str, **more: Any) -> Object:
    return {"kafka": {"bootstrapServers": servers, "staging": {"path": "s3://lake/staging"}} | more}


def _registry(url: str) -> Object:
    return {"format": "debezium-avro", "schemaRegistry": {"url": url}}


def on_a_volume(sink: Object, *folders: str, parts: tuple[str, ...] = ("driver", "executors")) -> Object:
    mounts = [{"name": f"v{n}", "mountPath": folder} for n, folder in enumerate(folders)]
    volumes = [{"name": mount["name"], "emptyDir": {}} for mount in mounts]
    pods = {
        part: {"podTemplate": {"spec": {"volumes": volumes, "containers": [{"name": name, "volumeMounts": mounts}]}}}
        for part, name in (("driver", "driver"), ("executors", "executor"))
        if part in parts
    }
    resource = sync(**pods)
    resource["spec"]["sink"] = sink
    return resource


def refused_by_the_operator(resource: Object) -> list[str]:
    about = resource["metadata"] | {"namespace": "default", "uid": "u", "generation": 1}
    policy = PodPolicy(refused_source_networks=DEFAULT_REFUSED)
    return violations(parse_resource(resource | {"metadata": about}), policy, Image(IMAGE))


@pytest.mark.parametrize(
    ("sink", "field"),
    [
        (_kafka("kafka.shop.svc:9092,169.254.169.254:80"), "bootstrapServers"),
        (_kafka("[fd00:ec2::254]:9092"), "bootstrapServers"),
        (_kafka("2852039166:80"), "bootstrapServers"),
        (_kafka("LOCALHOST.:9092"), "bootstrapServers"),
        (_kafka("k:9092", **_registry("https://127.0.0.1:8081")), "schemaRegistry.url"),
        (_kafka("k:9092", staging={"path": "s3://a/b", "options": {"endpoint": "http://0xa9fea9fe"}}), "endpoint"),
        ({"delta": {"path": "s3://a/b", "options": {"endpoint": "http://[::1]:9000"}}}, "endpoint"),
        ({"delta": {"path": "s3://a/b", "options": {"endpoint": "http://[::ffff:127.0.0.1]:9000"}}}, "endpoint"),
        (_iceberg(uri="http://169.254.169.254/v1"), "catalog.uri"),
        (_iceberg(uri="thrift://169.254.169.254:9083", type="hive", warehouse="s3://a/b"), "catalog.uri"),
        (_iceberg(uri="https://c.example", oauth2={"serverUri": "https://100.100.100.200/t"}), "oauth2.serverUri"),
        ({"iceberg": {"catalog": {"uri": "https://c.example"}, "options": {"endpoint": "http://168.63.129.16"}}},
         "options.endpoint"),
        ({"mysql": {"host": "::ffff:169.254.169.254", "credentialsSecretRef": {"name": "a"}}}, "mysql.host"),
        ({"postgresql": {"host": "127.0.0.1", "database": "d", "credentialsSecretRef": {"name": "a"}}}, "postgresql.host"),
    ],
)  # fmt: skip
def test_a_sinks_host_that_the_operator_refuses_is_refused(
    api: Api, namespace: str, in_force: None, sink: Object, field: str
) -> None:
    resource = sync()
    resource["spec"]["sink"] = sink
    (refused,) = refused_by_the_operator(resource)
    assert field in refused.partition(": ")[0]
    for version in API_VERSIONS:
        assert "policy.refusedSourceNetworks" in applied(api, namespace, resource | {"apiVersion": version})


def test_a_folder_that_the_operator_refuses_is_refused(api: Api, namespace: str, in_force: None) -> None:
    local = _iceberg(uri="jdbc:sqlite:/db/catalog.db", type="jdbc", warehouse="/lake/tables")
    for resource in (
        on_a_volume({"delta": {"path": "/lake/tables"}}),
        on_a_volume({"delta": {"path": "/lake/tables"}}, "/lake", parts=("driver",)),
        on_a_volume({"delta": {"path": "/lake/tables"}}, "/lak"),
        on_a_volume({"delta": {"path": "/opt/cdcsync/lake"}}, "/opt/cdcsync"),
        on_a_volume({"delta": {"path": "/mnt/../scratch"}}, "/mnt"),
        on_a_volume({"delta": {"path": "gs://bucket/lake"}}),
        on_a_volume({"kafka": {"bootstrapServers": "k:9092", "staging": {"path": "/lake"}}}),
        on_a_volume(local),
        on_a_volume(local, "/lake"),
        on_a_volume(local, "/db"),
        on_a_volume(_iceberg(uri="https://catalog.example", warehouse="file:///lake")),
    ):
        assert refused_by_the_operator(resource), resource["spec"]["sink"]
        assert applied(api, namespace, resource), resource["spec"]["sink"]


@pytest.mark.parametrize("part", ["driver", "executors"])
def test_what_the_operator_refuses_of_a_pod_is_refused(api: Api, namespace: str, in_force: None, part: str) -> None:
    for pod, expected, _ in PODS:
        assert _says_nothing(pod) or applied(api, namespace, with_pod(pod, part)), expected
    for context, expected in CONTEXTS:
        assert _says_nothing(context) or applied(api, namespace, with_pod({"securityContext": context}, part)), expected


def test_what_the_operator_refuses_of_a_container_is_refused(api: Api, namespace: str, in_force: None) -> None:
    for fields, expected, _ in CONTAINERS:
        assert _says_nothing(fields) or applied(api, namespace, with_container(**fields)), expected
    for name in CODE_VARIABLES:
        assert "policy.allowedEnvironment" in applied(
            api, namespace, with_container(env=[{"name": name, "value": "x"}])
        )
    for missing in ("allowPrivilegeEscalation", "capabilities"):
        context = {k: v for k, v in STRICT.items() if k != missing}
        sidecar = {"name": "proxy", "image": IMAGE, "securityContext": context}
        assert "restricted" in applied(api, namespace, with_pod({"containers": [sidecar]}))
    for name in INJECTORS:
        injected = sync(driver={"podTemplate": {"metadata": {"annotations": {name: "evil.example/x:1"}}}})
        assert "policy.allowedPodAnnotations" in applied(api, namespace, injected)
    annotation = {"container.apparmor.security.beta.kubernetes.io/driver": "unconfined"}
    unconfined = sync(driver={"podTemplate": {"metadata": {"annotations": annotation}}})
    assert any("annotation container.apparmor" in phrase for phrase in refused_by_the_operator(unconfined))
    assert "annotations of AppArmor" in applied(api, namespace, unconfined)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"image": "evil.example/x:1"}, "policy.allowedImages"),
        ({"driver": {"podTemplate": {"spec": {"initContainers": [{"name": "i", "image": "evil/x", "securityContext": STRICT}]}}}},
         "policy.allowedImages"),
        ({"sparkConf": {"spark.extraListeners": "x"}}, "policy.allowedSparkConf"),
        ({"sparkConf": {"spark.sql.files.x.class": "x"}}, "policy.allowedSparkConf"),
        ({"source": {"host": "169.254.169.254", "credentialsSecretRef": {"name": "x"}}}, "policy.refusedSourceNetworks"),
        ({"source": {"host": "db", "snapshotHost": "::1", "credentialsSecretRef": {"name": "x"}}}, "policy.refusedSourceNetworks"),
        ({"source": {"hosts": ["db", "LOCALHOST."], "credentialsSecretRef": {"name": "x"}}}, "policy.refusedSourceNetworks"),
        ({"source": {"host": "::1", "credentialsSecretRef": {"name": "x"}}}, "policy.refusedSourceNetworks"),
    ],
)  # fmt: skip
def test_other_settings_that_the_policy_refuses(
    api: Api, namespace: str, in_force: None, spec: Object, expected: str
) -> None:
    assert expected in applied(api, namespace, sync(**spec))


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: str(path.stem))
def test_an_example_can_be_applied_as_it_is(api: Api, namespace: str, in_force: None, example: Path) -> None:
    """All of its objects, by the CRD, the chart's policy and the operator's own, and where Secrets
    must name their hosts. The one for a laptop has a source on its machine and a folder, which a
    cluster refuses for these reasons."""
    documents = list(yaml.safe_load_all(example.read_text()))
    secrets = {d["metadata"]["name"]: d["metadata"].get("annotations", {}) for d in documents if d["kind"] == "Secret"}
    for document in documents:
        if document["kind"] == "Secret":
            path = f"/api/v1/namespaces/{namespace}/secrets?fieldValidation=Strict&dryRun=All"
            api.create(path, copy.deepcopy(document))
            continue
        refusal = applied(api, namespace, document)
        found = refused_by_the_operator(document)
        if example.stem == "shop":
            assert "policy.refusedSourceNetworks" in refusal
            assert [text.partition(":")[0] for text in found] == ["spec.source.host", "spec.sink.delta.path"]
        else:
            assert (refusal, found) == ("", [])
            about = document["metadata"] | {"namespace": namespace, "uid": "u", "generation": 1}
            resource = parse_resource(document | {"metadata": about})
            assert misdirected(resource, secrets, must_name_hosts=True) == {}
