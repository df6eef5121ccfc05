"""A driver's pod: whole, restricted, with the settings that Spark needs in client mode."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cdcsync_core.runs.run import RunKind
from cdcsync_operator.cluster.objects import run_objects
from cdcsync_operator.cluster.objects.driver_pod import Image, as_driven, driver_pod, executor_template, spark_settings
from cdcsync_operator.decision.observed import StartRun
from cdcsync_spark.app import pod as spark_pod
from cdcsync_spark.run import pod_report
from unit.controller.harness import resource

IMAGE = Image("registry/cdcsync:1", "Always", ("pull",))


def action(kind: RunKind = RunKind.SNAPSHOT) -> StartRun:
    executors = 4 if kind is RunKind.SNAPSHOT else 0
    return StartRun(kind, "shop-ab12-1", 1, (("shop.a", 0),), "f00", executors=executors)


def alone() -> StartRun:
    """A snapshot whose driver reads by itself."""
    return replace(action(), executors=0)


def driver(kind: RunKind = RunKind.SNAPSHOT, start: StartRun | None = None, **spec: Any) -> dict[str, Any]:
    return driver_pod(resource(**spec), start or action(kind), IMAGE, "shop-ab12-1", ["shop-ab12-1-config-0"])


def executor(**spec: Any) -> dict[str, Any]:
    return json.loads(executor_template(resource(**spec), action(), IMAGE))


@pytest.mark.parametrize("made", [driver(), driver(RunKind.STREAM), executor()], ids=["snapshot", "stream", "executor"])
def test_pods_are_of_the_restricted_standard(made: dict[str, Any]) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    spec = made["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["readOnlyRootFilesystem"] is True
    assert all(v.keys() & {"secret", "projected", "emptyDir", "downwardAPI"} for v in spec["volumes"])


def test_credentials_come_by_mounted_secrets_only() -> None:
    made = driver(sink={"delta": {"path": "s3://lake/cdc", "credentialsSecretRef": {"name": "lake"}}})
    (container,) = made["spec"]["containers"]
    mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
    assert mounts["/etc/cdcsync/secrets/login"]["readOnly"]
    assert mounts["/etc/cdcsync/secrets/lake"]["readOnly"]
    assert all("fieldRef" in e.get("valueFrom", {"fieldRef": ""}) for e in container["env"])
    plain = [e["name"] for e in container["env"] if "value" in e]
    assert plain == ["CDCSYNC_METRICS", "CDCSYNC_REFUSED_NETWORKS", "CDCSYNC_REFUSED_NETWORKS_FILE"]


def test_memory_is_the_heap_and_what_python_needs_beside_it() -> None:
    """spec.driver.memory is the JVM's, as locally; the limit leaves room for the rest."""
    assert resources(driver(driver={"memory": "4Gi"})) == ("1", "6144Mi")
    settings = spark_settings(resource(executors={"cores": 2, "memory": "3Gi"}), action(), IMAGE)
    assert (settings["spark.executor.memory"], settings["spark.executor.memoryOverhead"]) == ("3072m", "1152m")


def resources(pod: dict[str, Any]) -> tuple[str, str]:
    """CPU and memory requested; memory is the limit as well."""
    (container,) = pod["spec"]["containers"]
    found = container["resources"]
    assert found["limits"] == {"memory": found["requests"]["memory"]}
    assert found["requests"]["ephemeral-storage"] == "1Gi"
    return found["requests"]["cpu"], found["requests"]["memory"]


@pytest.mark.parametrize(
    ("start", "spec", "expected"),
    [
        (action(), {}, ("1", "3072Mi")),
        (alone(), {}, ("1", "2048Mi")),
        (action(RunKind.STREAM), {}, ("250m", "1024Mi")),
        (action(RunKind.CATCH_UP), {}, ("250m", "1024Mi")),
        (action(RunKind.VERIFY), {}, ("1", "2048Mi")),
        (action(RunKind.STREAM), {"stream": {"driver": {"cpu": "1.5", "memory": "4Gi"}}}, ("1500m", "6144Mi")),
        # a stored resource has what were the defaults, and a manifest may set them: they count
        (action(RunKind.STREAM), {"driver": {"cpu": 1, "memory": "2Gi"}}, ("1", "3072Mi")),
        (alone(), {"driver": {"cpu": 2, "memory": "2Gi"}}, ("2", "3072Mi")),
        (action(RunKind.STREAM), {"driver": {"memory": "2Gi"}, "stream": {"driver": {"cpu": 1}}}, ("1", "3072Mi")),
        (action(), {"driver": {"cpu": "300m"}}, ("300m", "3072Mi")),
    ],
)
def test_a_pod_asks_for_what_its_run_needs(start: StartRun, spec: dict[str, Any], expected: tuple[str, str]) -> None:
    assert resources(driver(start=start, **spec)) == expected


def test_a_driver_that_reads_by_itself_has_no_rights_to_pods_and_reads_few_splits_at_once() -> None:
    rules = run_objects.role(resource(), alone())["rules"]
    assert [r["resources"] for r in rules] == [["configmaps"], ["configmaps"]]
    assert "auth" not in {v["name"] for v in driver(start=alone())["spec"]["volumes"]}
    assert as_driven(resource(), alone()).spec.snapshot.parallelism == 2
    assert as_driven(resource(snapshot={"parallelism": 1}), alone()).spec.snapshot.parallelism == 1
    assert as_driven(resource(), action()) == resource()


def test_an_executor_asks_for_disk() -> None:
    (container,) = executor()["spec"]["containers"]
    assert container["resources"] == {"requests": {"ephemeral-storage": "1Gi"}}


@pytest.mark.parametrize(
    ("rows", "spec", "count"),
    [
        (0, {}, 0),
        (999_999, {}, 0),
        (1_000_000, {}, 1),
        (3_500_000, {}, 3),
        (10**9, {}, 4),
        (10**9, {"executors": {"max": 6}}, 6),
        (10**9, {"executors": {"max": 6, "cores": 2}, "snapshot": {"parallelism": 3}}, 2),
        (0, {"executors": {"instances": 3}}, 3),
        (0, {"snapshot": {"parallelism": 3}, "executors": {"instances": 8, "cores": 2}}, 2),
    ],
)
def test_executors_are_as_many_as_the_rows_need(rows: int, spec: dict[str, Any], count: int) -> None:
    """Never more than splits are read at once."""
    assert resource(**spec).spec.snapshot_executors(rows) == count


@pytest.mark.parametrize(
    ("parallelism", "executors", "tasks"),
    [
        (8, {}, 4),
        (3, {"instances": 8, "cores": 2}, 3),
        (16, {"instances": 16, "cores": 1}, 16),
        (1, {"instances": 4, "cores": 4}, 1),
    ],
)
def test_what_is_read_at_once_is_what_executors_can(parallelism: int, executors: dict[str, int], tasks: int) -> None:
    spec = {"snapshot": {"parallelism": parallelism}, "executors": executors}
    assert resource(**spec).spec.splits_at_once() == tasks


def test_executors_have_the_identity_of_the_driver_and_not_its_token() -> None:
    key = "spark.kubernetes.authenticate.executor.serviceAccountName"
    assert spark_settings(resource(driver={"serviceAccountName": "cloud"}), action(), IMAGE)[key] == "cloud"
    assert key not in spark_settings(resource(), action(), IMAGE)


def test_a_template_chooses_what_an_executor_requests() -> None:
    container = {"name": "executor", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"executors": {"podTemplate": {"spec": {"containers": [container]}}}}
    assert spark_settings(resource(**spec), action(), IMAGE)["spark.kubernetes.executor.request.cores"] == "100m"
    assert spark_settings(resource(), action(), IMAGE)["spark.kubernetes.executor.request.cores"] == "1"


def test_a_template_does_not_take_a_pod_from_its_run() -> None:
    template = {
        "metadata": {"name": "mine", "labels": {"cdcsync.io/run": "other", "team": "lake"}, "annotations": {"a": "b"}},
        "spec": {"priorityClassName": "high"},
    }
    made = driver(driver={"podTemplate": template})
    assert made["metadata"]["name"] == "shop-ab12-1-driver"
    assert made["metadata"]["labels"]["cdcsync.io/run"] == "shop-ab12-1"
    assert made["metadata"]["labels"]["team"] == "lake"
    assert made["metadata"]["annotations"]["a"] == "b"
    assert made["spec"]["priorityClassName"] == "high"


def test_an_executor_has_no_token_and_the_stream_no_executors() -> None:
    assert executor()["spec"]["automountServiceAccountToken"] is False
    stream = run_objects.role(resource(), action(RunKind.STREAM))
    assert [r["resources"] for r in stream["rules"]] == [["configmaps"]]


def test_a_verification_reads_its_own_sync_alone_and_few_splits_at_once() -> None:
    start = action(RunKind.VERIFY)
    reports, sync, tables = run_objects.role(resource(), start, tables=100)["rules"]
    assert reports["verbs"] == ["get", "patch"]
    expected = {"apiGroups": ["cdcsync.io"], "resources": ["cdcsyncs"], "resourceNames": ["shop"], "verbs": ["get"]}
    assert sync == expected
    assert (tables["resources"], tables["verbs"]) == (["configmaps"], ["get"])
    assert tables["resourceNames"] == ["shop-tables-0", "shop-tables-1", "shop-tables-2"]
    assert as_driven(resource(), start).spec.snapshot.parallelism == 2


def test_a_parents_labels_are_not_copied() -> None:
    """A tracking label of Argo CD on a child makes it prune the child."""
    labelled = resource().model_copy(
        update={"metadata": resource().metadata.model_copy(update={"labels": {"app.kubernetes.io/instance": "argo"}})}
    )
    made = driver_pod(labelled, action(), IMAGE, "x", [])
    assert "app.kubernetes.io/instance" not in made["metadata"]["labels"]
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("CdcSync", "shop", True)


def test_names_fit_and_reports_are_sharded_as_drivers_think() -> None:
    assert spark_pod.REPORT_TABLES == run_objects.REPORT_TABLES
    assert pod_report.LEAST_TABLES == run_objects.LEAST_REPORT_TABLES
    assert pod_report.LIST_BYTES == run_objects.LIST_BYTES
    assert run_objects.report_names("r", 0) == ["r-report-0"]
    assert len(run_objects.report_names("r", 1001)) == 17
    longest = "s" * 40 + "-ab12-1000000-driver"
    assert len(longest) <= 63


def test_a_pod_sees_the_networks_of_the_cluster_as_its_annotation_has_them() -> None:
    """A template has no say in them, and they leave room for its own annotations."""
    networks = ("10.8.0.0/16", *(f"10.7.{n >> 8}.{n & 255}/32" for n in range(20_000)))
    template = {"podTemplate": {"metadata": {"annotations": {"cdcsync.io/refused-networks": ""}}}}
    image = replace(IMAGE, cluster_networks=networks)
    spec = resource(driver=template, executors=template)
    pods = [
        driver_pod(spec, action(), image, "account", ["config"]),
        json.loads(executor_template(spec, action(), image)),
    ]
    for pod in pods:
        listed = pod["metadata"]["annotations"]["cdcsync.io/refused-networks"]
        assert 150_000 < len(listed) <= 180_000
        assert listed.split() == list(networks[: len(listed.split())])
        (container,) = pod["spec"]["containers"]
        path = next(e["value"] for e in container["env"] if e["name"] == "CDCSYNC_REFUSED_NETWORKS_FILE")
        mount = next(m for m in container["volumeMounts"] if path.startswith(f"{m['mountPath']}/"))
        assert "subPath" not in mount, "the kubelet would not write it again"
        volume = next(v for v in pod["spec"]["volumes"] if v["name"] == mount["name"])
        (item,) = volume["downwardAPI"]["items"]
        assert f"{mount['mountPath']}/{item['path']}" == path
        assert item["fieldRef"]["fieldPath"] == "metadata.annotations['cdcsync.io/refused-networks']"
