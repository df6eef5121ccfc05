"""What a resource may ask of its pods: an allow list for templates, the restricted standard for
what they make, images, settings."""

from __future__ import annotations

from typing import Any

import pytest

from cdcsync_core.quoting import quoted
from cdcsync_core.runs.run import RunKind
from cdcsync_operator.cluster.objects.driver_pod import Image, executor_pod
from cdcsync_operator.cluster.policy import restricted_pod
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy, violations
from cdcsync_operator.decision.observed import StartRun
from support.forbidden_pods import STANDARD
from support.forbidden_templates import CODE_VARIABLES, CONTAINERS, CONTEXTS, INJECTORS, PODS
from unit.controller.harness import resource

OURS = Image("registry.example/cdcsync-spark:1")
PARTS = {"driver": "driver", "executors": "executor"}


def refused(policy: PodPolicy | None = None, **spec: Any) -> list[str]:
    return violations(resource(**spec), policy or PodPolicy(), OURS)


def template(part: str, pod: dict[str, Any]) -> dict[str, Any]:
    return {part: {"podTemplate": {"spec": pod}}}


def container(part: str, **fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": PARTS[part]} | fields]}


def allowing(*words: str) -> PodPolicy:
    return PodPolicy(allowed_in_pod_template=frozenset(words))


@pytest.mark.parametrize(("pod", "expected", "word"), PODS, ids=[expected for _, expected, _ in PODS])
@pytest.mark.parametrize("part", PARTS)
def test_a_template_may_have_only_what_is_on_the_list(part: str, pod: dict[str, Any], expected: str, word: str) -> None:
    (found,) = refused(**template(part, pod))
    assert found.startswith(f"spec.{part}.podTemplate: ")
    assert expected in found
    if word:
        assert repr(word) in found
        assert refused(allowing(word), **template(part, pod)) == []


@pytest.mark.parametrize(("fields", "expected", "word"), CONTAINERS, ids=[expected for _, expected, _ in CONTAINERS])
@pytest.mark.parametrize("part", PARTS)
def test_a_container_of_ours_runs_its_own_code_without_more_rights(
    part: str, fields: dict[str, Any], expected: str, word: str
) -> None:
    """Nulls included: what a template removes from the operator's pod is missing in the merged
    one."""
    found = refused(**template(part, container(part, **fields)))
    assert any(expected in phrase for phrase in found)
    if word:
        assert refused(allowing(word), **template(part, container(part, **fields))) == []


@pytest.mark.parametrize(("context", "expected"), CONTEXTS, ids=[expected for _, expected in CONTEXTS])
def test_the_merged_pod_is_never_weaker_than_the_restricted_standard(context: dict[str, Any], expected: str) -> None:
    pod = {"securityContext": context}
    assert any(expected in phrase for phrase in refused(**template("driver", pod)))
    assert refused(allowing("securityContext"), **template("driver", pod)) == []


@pytest.mark.parametrize("field", STANDARD)
def test_each_field_of_the_standard_is_checked(field: str) -> None:
    """The same pods are refused by the chart's policy and by a namespace that enforces the standard
    (tests/kube/test_admission.py)."""
    where, _, path = (f"the pod: {field}" if field.startswith("spec.") else f"container executor: {field}").partition(
        ": "
    )
    path = path.removeprefix("spec.").removesuffix(" of a container")
    for change in STANDARD[field]:
        pod = executor_pod(resource(), StartRun(RunKind.SNAPSHOT, "run", 1, (), "f", executors=1), OURS)
        assert list(restricted_pod.violations(pod, ("executor",))) == []
        change(pod)
        found = list(restricted_pod.violations(pod, ("executor",)))
        expected = (f"{where}: {path} is ", "the annotation container.apparmor")
        assert any(phrase.startswith(expected) for phrase in found), found


def test_the_cases_of_the_standard_are_all_of_its_fields() -> None:
    fields = {f"spec.{field.path}" for field in restricted_pod.POD}
    fields |= {f"{field.path} of a container" for field in restricted_pod.CONTAINER}
    assert set(STANDARD) == fields


def test_what_a_sync_needs_is_allowed() -> None:
    pod = {
        "containers": [
            {
                "name": "driver",
                "resources": {"limits": {"memory": "4Gi"}},
                "env": [
                    {"name": "AWS_REGION", "value": "x"},
                    {"name": "TZ", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
                ],
                "volumeMounts": [{"name": "more", "mountPath": "/data"}],
            }
        ],
        "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}, {"name": "more", "emptyDir": {}}],
        "nodeSelector": {"disk": "fast"},
        "affinity": {},
        "tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 30}],
        "topologySpreadConstraints": [],
    }
    about = {
        "labels": {"team": "lake"},
        "annotations": {"prometheus.io/scrape": "true", "sidecar.istio.io/inject": "false"},
    }
    assert refused(driver={"podTemplate": {"metadata": about, "spec": pod}}) == []


@pytest.mark.parametrize("name", INJECTORS)
@pytest.mark.parametrize("part", ["driver", "executors"])
def test_no_annotation_by_which_injectors_add_containers_is_allowed(part: str, name: str) -> None:
    spec = {part: {"podTemplate": {"metadata": {"annotations": {name: "evil.example/x:1"}}}}}
    (phrase,) = refused(**spec)
    assert "is refused without its name in policy.allowedPodAnnotations" in phrase
    if name:
        assert refused(PodPolicy(allowed_annotations=(f"{name[:-1]}*",)), **spec) == []


def test_a_volume_without_a_source_is_refused() -> None:
    """The API server drops the source of a type that it does not know here, and Kubernetes would
    make an emptyDir of what is left."""
    (phrase,) = refused(**template("driver", {"volumes": [{"name": "lake"}]}))
    assert "volume lake has no source" in phrase


def test_a_sidecar_is_held_to_the_same_standard() -> None:
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    for context, allowed in (({}, False), (strict, True)):
        sidecar = {"name": "proxy", "image": OURS.name, "securityContext": context}
        assert (refused(**template("driver", {"containers": [sidecar]})) == []) is allowed


def test_metadata_is_labels_and_annotations() -> None:
    found = refused(driver={"podTemplate": {"metadata": {"finalizers": ["x/y"]}, "template": {}}})
    assert any("metadata.finalizers is refused" in phrase for phrase in found)
    assert any("template is not part of a pod template" in phrase for phrase in found)


def test_a_template_has_at_most_64_kib() -> None:
    def annotated(length: int) -> list[str]:
        return refused(driver={"podTemplate": {"metadata": {"annotations": {"prometheus.io/path": "x" * length}}}})

    assert annotated(65_000) == []
    assert annotated(66_000) == ["spec.driver.podTemplate: 66057 bytes as JSON; needed: at most 65536"]


def test_templates_can_be_forbidden_as_a_whole() -> None:
    spec = {"driver": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}}
    assert refused(**spec) == []
    assert refused(PodPolicy(allow_pod_template=False), **spec) == [
        "spec.driver.podTemplate: the operator's policy allows none"
    ]


IMAGES = {
    "the resource's": ({"image": "evil.example/x:1"}, "evil.example/x:1"),
    "the driver's": (template("driver", container("driver", image="evil.example/x:1")), "evil.example/x:1"),
    "an init container's": (
        template("driver", {"initContainers": [{"name": "i", "image": "evil.example/x:1", "securityContext": {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}]}),
        "evil.example/x:1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_every_container_runs_an_image_of_the_policy(name: str) -> None:
    spec, image = IMAGES[name]
    found = refused(**spec)
    assert found
    assert all(f"the image {image} is not one of the operator's allowed ones" in phrase for phrase in found)
    for allowed in ("evil.example/x:1", "evil.example/*"):
        assert refused(PodPolicy(allowed_images=(allowed,)), **spec) == []
    assert refused(PodPolicy(allowed_images=("evil.example/x",)), **spec)
    assert refused(image=OURS.name) == []


@pytest.mark.parametrize(
    ("name", "is_allowed"),
    [("pull", True), ("pull-2", False), ("default-dockercfg-x7k2p", True), ("default", False), ("", False)],
)
def test_images_are_pulled_by_the_secrets_of_the_policy(name: str, is_allowed: bool) -> None:
    policy = PodPolicy(allowed_pull_secrets=("pull", "default-dockercfg-*"))
    found = refused(policy, **template("driver", {"imagePullSecrets": [{"name": name}]}))
    assert [quoted(name) in phrase for phrase in found] == ([] if is_allowed else [True])


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("spark.sql.shuffle.partitions", True),
        ("spark.task.maxFailures", True),
        ("spark.network.timeout", True),
        ("spark.speculation", True),
        ("spark.memory.fraction", True),
        ("spark.executor.heartbeatInterval", True),
        ("spark.driver.defaultJavaOptions", False),
        ("spark.executorEnv.LD_PRELOAD", False),
        ("spark.executor.extraLibraryPath", False),
        ("spark.files", False),
        ("spark.archives", False),
        ("spark.submit.pyFiles", False),
        ("spark.python.daemon.module", False),
        ("spark.extraListeners", False),
        ("spark.sql.extensions", False),
        ("spark.serializer", False),
        ("spark.hadoop.fs.x.impl", False),
        ("spark.metrics.conf.x.class", False),
        ("spark.scheduler.allocation.file", False),
        ("spark.task.resource.gpu.discoveryScript", False),
        ("spark.sql.files.x.class", False),
        ("spark.eventLog.dir", False),
        ("spark.ui.enabled", False),
    ],
)
def test_spark_is_tuned_and_not_told_to_run_code(key: str, allowed: bool) -> None:
    assert (refused(sparkConf={key: "1"}) == []) is allowed
    assert refused(PodPolicy(allowed_spark_conf=(key,)), sparkConf={key: "1"}) == []
    assert refused(PodPolicy(allowed_spark_conf=("spark.*",)), sparkConf={key: "1"}) == []


def _mounting(part: str, path: str) -> dict[str, Any]:
    pod = container(part, volumeMounts=[{"name": "v", "mountPath": path}]) | {
        "volumes": [{"name": "v", "emptyDir": {}}]
    }
    return {"podTemplate": {"spec": pod}}


@pytest.mark.parametrize(
    ("path", "mounted", "expected"),
    [
        ("s3://lake/tables", {}, ""),
        ("s3a://lake/tables", {}, ""),
        ("gs://lake/tables", {}, "gs://lake/tables is in a store that is not supported; needed: s3://"),
        ("/lake/tables", {}, "/lake/tables is a folder of each pod alone; needed: s3://"),
        ("./lake", {"driver": "/lake", "executors": "/lake"}, "./lake is a folder of each pod alone"),
        ("/lake/tables", {"driver": "/lake"}, "a folder of each pod alone"),
        ("/lake/tables", {"executors": "/lake"}, "a folder of each pod alone"),
        ("/lakes", {"driver": "/lake", "executors": "/lake"}, "a folder of each pod alone"),
        ("/lake/../scratch", {"driver": "/lake", "executors": "/lake"}, "a folder of each pod alone"),
        ("/lake/tables", {"driver": "/lake", "executors": "/lake"}, ""),
    ],
)
def test_tables_must_be_where_every_pod_finds_them(path: str, mounted: dict[str, str], expected: str) -> None:
    parts = {part: _mounting(part, where) for part, where in mounted.items()}
    found = [f for f in refused(sink={"delta": {"path": path}}, **parts) if "a volume at" not in f]
    assert [expected in f for f in found] == ([True] if expected else [])


def test_a_service_account_must_be_an_allowed_one() -> None:
    spec = {"driver": {"serviceAccountName": "cloud"}}
    assert "cloud is not one of the operator's allowed ones (none)" in refused(**spec)[0]
    assert refused(PodPolicy(allowed_service_accounts=frozenset({"cloud"})), **spec) == []
    assert refused(PodPolicy(allowed_service_accounts=frozenset({"*"})), **spec) == []


@pytest.mark.parametrize("name", CODE_VARIABLES)
@pytest.mark.parametrize("container_name", ["driver", "sidecar"])
def test_no_variable_by_which_code_is_run_is_allowed(name: str, container_name: str) -> None:
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    about = {"name": container_name, "image": OURS.name, "env": [{"name": name, "value": "/mnt/x"}]}
    if container_name == "sidecar":
        about["securityContext"] = strict
    spec = template("driver", {"containers": [about]})
    (phrase,) = refused(**spec)
    assert "is refused without 'commands'" in phrase
    assert "policy.allowedEnvironment" in phrase
    assert refused(allowing("commands"), **spec) == []
    if name:
        assert refused(PodPolicy(allowed_environment=(name,)), **spec) == []


@pytest.mark.parametrize(
    "path",
    ["//opt/cdcsync/bin", "///usr/lib", "/./etc", "/mnt/../opt", "/mnt/..", "/", "//", "opt", "/tmp", "/scratch/x", "/var/run/secrets",
     "/home", "/lake"],
)  # fmt: skip
@pytest.mark.parametrize("container_name", ["driver", "sidecar"])
def test_no_mount_is_where_programs_are(path: str, container_name: str) -> None:
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    about = {"name": container_name, "image": OURS.name, "volumeMounts": [{"name": "v", "mountPath": path}]}
    if container_name == "sidecar":
        about["securityContext"] = strict
    spec = template("driver", {"containers": [about], "volumes": [{"name": "v", "emptyDir": {}}]})
    assert any("a volume at" in phrase for phrase in refused(**spec))


@pytest.mark.parametrize("path", ["/data", "/mnt/lake", "//mnt//lake", "/srv/x/"])
def test_folders_of_data_may_be_mounted(path: str) -> None:
    spec = template("driver", container("driver", volumeMounts=[{"name": "v", "mountPath": path}]))
    assert refused(**spec) == []


@pytest.mark.parametrize(
    ("pod", "path"),
    [
        ({"securityContext": {"sysctls": 5}}, "securityContext.sysctls"),
        (container("driver", ports="8080"), "ports"),
        (container("driver", securityContext={"capabilities": {"add": {"NET_RAW": True}}}), "capabilities.add"),
    ],
)
def test_what_is_no_list_is_refused(pod: dict[str, Any], path: str) -> None:
    assert any(f"{path} is not a list" in phrase for phrase in refused(**template("driver", pod)))
