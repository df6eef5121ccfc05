"""What this cluster allows a resource to ask of its pods: images, a podTemplate, accounts, Spark's
settings. Pure.

Why it exists: a right to create CdcSyncs must not be a right to do more with its pods than a sync
needs. Without another policy, pods run the operator's own images, with the operator's own commands,
and see the Secrets that the resource names.

Why it is right: two judgements, and both must pass. An allow list decides what a template may say
at all, so a field that is not known is refused. Then the *merged* pod is held against the
restricted Pod Security Standard and against the operator's own pod: what a template removes by a
null, or leaves out in a container of its own, is missing there
(https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted). What a run's
account may create in the cluster is bound by the chart's ValidatingAdmissionPolicy, whatever runs
in the pod.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from cdcsync_core.quoting import quoted
from cdcsync_core.resource.spec import CdcSync, Spec
from cdcsync_core.runs.run import RunKind
from cdcsync_operator.cluster.objects.driver_pod import Image, driver_pod, executor_pod
from cdcsync_operator.cluster.policy import restricted_pod
from cdcsync_operator.cluster.policy.source_networks import refused_hosts
from cdcsync_operator.decision.observed import StartRun

Object = dict[str, Any]

_STORES = ("s3://", "s3a://")
_OURS = ("driver", "executor")
POD_FIELDS = frozenset({
    "affinity", "containers", "enableServiceLinks", "imagePullSecrets", "initContainers", "nodeSelector", "securityContext",
    "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes",
})  # fmt: skip
CONTAINER_FIELDS = frozenset({
    "env", "envFrom", "image", "imagePullPolicy", "name", "ports", "resources", "restartPolicy", "securityContext", "volumeMounts",
})  # fmt: skip
#: of a template as JSON
_TEMPLATE_BYTES = 64 * 1024
_LISTS = ("containers", "imagePullSecrets", "initContainers", "tolerations", "volumes")
#: field -> the entry of `policy.allowedInPodTemplate` that allows it. Who chooses where names lead
#: has a Secret sent past the hosts that its annotation names
ALLOWED_BY = {
    "automountServiceAccountToken": "tokens",
    "dnsConfig": "dns",
    "dnsPolicy": "dns",
    "hostAliases": "dns",
    "nodeName": "nodeName",
    "priorityClassName": "priorityClassName",
    "runtimeClassName": "runtimeClassName",
    "schedulerName": "schedulerName",
}
COMMANDS = frozenset({"args", "command", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "workingDir"})
VOLUMES = frozenset({"configMap", "downwardAPI", "emptyDir", "ephemeral"})
#: fields of an ephemeral volume's claim that give it the data of another claim, or a volume that is
#: there already
CLAIM_SOURCES = frozenset({"dataSource", "dataSourceRef", "selector", "volumeName"})
#: sources of a projected volume -> the entry that allows it, "" where none is needed
PROJECTED = {"configMap": "", "downwardAPI": "", "secret": "secrets", "serviceAccountToken": "tokens"}
#: variables that a template may set: where stores are and how they are reached, and sizes. An
#: interpreter, the JVM, a linker and the SDKs of clouds run code by others (BASH_ENV, LD_PRELOAD,
#: JAVA_TOOL_OPTIONS, OPENSSL_CONF, AWS_CONFIG_FILE, ...), and no list of those is ever complete
ENVIRONMENT = re.compile(
    r"AWS_((DEFAULT_)?REGION|ENDPOINT_URL(_S3)?|ROLE_ARN|ROLE_SESSION_NAME|STS_REGIONAL_ENDPOINTS|ALLOW_HTTP|CA_BUNDLE"
    r"|VIRTUAL_HOSTED_STYLE_REQUEST|USE_(DUALSTACK|FIPS)_ENDPOINT|MAX_ATTEMPTS|RETRY_MODE|EC2_METADATA_DISABLED)"
    r"|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy|SSL_CERT_(FILE|DIR)|TZ"
    r"|ARROW_(DEFAULT_MEMORY_POOL|IO_THREADS)|OMP_NUM_THREADS|TOKIO_WORKER_THREADS|MALLOC_ARENA_MAX"
)
#: annotations that a template may have. Injectors add containers by others, some of them with the
#: image that an annotation names (sidecar.istio.io/proxyImage, vault.hashicorp.com/agent-image).
#: Those of AppArmor are judged by the restricted standard
ANNOTATIONS = re.compile(
    r"prometheus\.io/.+|(sidecar\.istio|linkerd)\.io/inject|kubectl\.kubernetes\.io/default-(logs-)?container"
    r"|cluster-autoscaler\.kubernetes\.io/safe-to-evict|karpenter\.sh/do-not-disrupt"
    r"|container\.apparmor\.security\.beta\.kubernetes\.io/.+"
)
#: variables that Spark and the operator set in an executor, which the admission policy of runs
#: allows
SPARK_VARIABLES = re.compile(
    r"SPARK_(DRIVER_URL|EXECUTOR_[A-Z_]+|APPLICATION_ID|CONF_DIR|RESOURCE_PROFILE_ID|JAVA_OPT_[0-9]+|USER|LOCAL_DIRS)"
    r"|CDCSYNC_REFUSED_NETWORKS(_FILE)?"
)
#: folders below which a template may mount volumes, and where no image has programs
_DATA_FOLDERS = ("/data", "/media", "/mnt", "/srv")
#: the top folders of an image, and those of the operator's own mounts
SYSTEM_FOLDERS = frozenset((
    "bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "opt", "proc", "root", "run", "sbin", "scratch", "sys",
    "tmp", "usr", "var",
))  # fmt: skip
#: where the operator and Spark mount volumes in an executor
EXECUTOR_MOUNTS = re.compile(
    r"/(scratch|tmp|opt/spark/conf|etc/cdcsync/(auth|networks|secrets/[^/]+)|var/data/spark-[0-9a-f-]+)"
)
#: keys of `tolerations` that set how long a pod stays on a node that is lost
_LOST_NODE = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
#: what may be tuned: sizes, counts and timeouts, never a class, a path or a command
SPARK_CONF = re.compile(
    r"spark\.(task|speculation|locality|memory|scheduler)(\..+)?|spark\.(sql\.(shuffle|files|adaptive|autoBroadcastJoinThreshold).*)"
    r"|spark\.(network\.timeout|rpc\.(askTimeout|lookupTimeout|numRetries)|executor\.heartbeatInterval|log\.level)"
    r"|spark\.(shuffle\.(compress|file\.buffer|io\.(maxRetries|retryWait))|broadcast\.(blockSize|compress)|default\.parallelism)"
)
CODE_KEYS = re.compile(r"(?i).*(class|extensions|listener|factory|resource\.|script|file$|command).*")


@dataclass(frozen=True)
class PodPolicy:
    """What this cluster allows beyond the default.

    `allowed_service_accounts`: those that a resource may choose, `*` for all. `allowed_images`:
    besides the operator's own; an entry that ends with `*` stands for all that begin so.
    `allowed_in_pod_template`: entries, see `ALLOWED_BY`, and `commands`, `secrets`, `tokens`,
    `tolerations`, `securityContext`, `volumes/<type>`. `allowed_spark_conf`: further keys, in the
    same form as images. `refused_source_networks`: those in which no source may be, nor a store's
    endpoint. `least_restart_seconds`: no pause between two attempts is shorter.
    `allowed_environment`: further variables of a template, in the same form as images, and
    `allowed_annotations` its further annotations.
    `secrets_name_hosts`: a Secret without the annotation `cdcsync.io/hosts` is for no host.
    `allowed_pull_secrets`: the Secrets by which pods may pull images, the operator's own included,
    in the same form as images.
    """

    allow_pod_template: bool = True
    allowed_service_accounts: frozenset[str] = field(default_factory=frozenset)
    allowed_images: tuple[str, ...] = ()
    allowed_in_pod_template: frozenset[str] = field(default_factory=frozenset)
    allowed_spark_conf: tuple[str, ...] = ()
    refused_source_networks: tuple[str, ...] = ()
    least_restart_seconds: float = 0.0
    secrets_name_hosts: bool = False
    allowed_environment: tuple[str, ...] = ()
    allowed_annotations: tuple[str, ...] = ()
    allowed_pull_secrets: tuple[str, ...] = ()

    def allows_image(self, image: str) -> bool:
        return _matches(image, self.allowed_images)

    def allows_pull_secret(self, name: str) -> bool:
        return _matches(name, self.allowed_pull_secrets)

    def allows(self, entry: str) -> bool:
        return entry in self.allowed_in_pod_template

    def allows_variable(self, name: str) -> bool:
        return ENVIRONMENT.fullmatch(name) is not None or _matches(name, self.allowed_environment)

    def allows_annotation(self, name: str) -> bool:
        return ANNOTATIONS.fullmatch(name) is not None or _matches(name, self.allowed_annotations)

    def allows_conf(self, key: str) -> bool:
        is_listed = SPARK_CONF.fullmatch(key) is not None and CODE_KEYS.fullmatch(key) is None
        return is_listed or _matches(key, self.allowed_spark_conf)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name == p or (p.endswith("*") and name.startswith(p[:-1])) for p in patterns)


def violations(resource: CdcSync, policy: PodPolicy, image: Image) -> list[str]:
    """A phrase for each thing that this cluster does not allow; `image` is what the operator's own
    pods run."""
    spec = resource.spec
    lakes = tuple(store.path for store in spec.sink.kind.stores())
    templates = {"driver": spec.driver.pod_template, "executors": spec.executors.pod_template}
    violated = [
        f"spec.{part}.podTemplate: {violation}"
        for part, template in templates.items()
        for violation in _template_violations(template, policy, lakes)
    ]
    if not violated:  # only a template of the right form can be merged
        violated = [
            f"spec.{part}.podTemplate: {violation}" for part, violation in _pod_violations(resource, policy, image)
        ]
    violated += _account_violations(spec, policy)
    violated += [
        f"spec.sparkConf: {key} is not one of the keys that the operator's policy allows (policy.allowedSparkConf)"
        for key in spec.spark_conf
        if not policy.allows_conf(key)
    ]
    return [*violated, *refused_hosts(spec, policy.refused_source_networks), *_path_violations(spec)]


def _account_violations(spec: Spec, policy: PodPolicy) -> Iterator[str]:
    account = spec.driver.service_account_name
    if account and not policy.allowed_service_accounts & {account, "*"}:
        allowed = ", ".join(sorted(policy.allowed_service_accounts)) or "none"
        yield f"spec.driver.serviceAccountName: {account} is not one of the operator's allowed ones ({allowed})"


def _path_violations(spec: Spec) -> Iterator[str]:
    """A folder is each pod's own: the stream would not find what the snapshot wrote, and the
    snapshot would begin again forever."""
    needed = f"needed: {' or '.join(_STORES)} and a bucket"
    for store in spec.sink.kind.stores():
        path = store.path
        if path.startswith(_STORES):
            continue
        if not store.is_folder:
            yield f"{store.field}.{store.path_field}: {path} is in a store that is not supported; {needed}"
        elif not (_mounts(spec.driver.pod_template, path) and _mounts(spec.executors.pod_template, path)):
            yield (
                f"{store.field}.{store.path_field}: {path} is a folder of each pod alone; {needed}, or a shared volume "
                "that the podTemplates of driver and executors mount there"
            )


def _mounts(template: Object, path: str) -> bool:
    if ".." in path.split("/"):
        return False
    pod = template.get("spec")
    containers = _dicts(pod.get("containers")) if isinstance(pod, dict) else []
    mounts = [m for c in containers for m in _dicts(c.get("volumeMounts"))]
    return any(PurePosixPath(path).is_relative_to(m["mountPath"]) for m in mounts if m.get("mountPath"))


# ---- what a template may say


def _template_violations(template: Object, policy: PodPolicy, lakes: tuple[str, ...]) -> Iterator[str]:
    if not template:
        return
    if not policy.allow_pod_template:
        yield "the operator's policy allows none"
        return
    size = len(json.dumps(template, ensure_ascii=False).encode())
    if size > _TEMPLATE_BYTES:
        yield f"{size} bytes as JSON; needed: at most {_TEMPLATE_BYTES}"
        return
    unknown = sorted(template.keys() - {"metadata", "spec"})
    if unknown:
        yield f"{', '.join(unknown)} is not part of a pod template; needed: metadata, spec"
    about, pod = template.get("metadata") or {}, template.get("spec") or {}
    if not isinstance(pod, dict) or not isinstance(about, dict):
        yield "metadata or spec is not a mapping"
        return
    yield from (f"metadata.{name} is refused" for name in sorted(about.keys() - {"labels", "annotations"}))
    yield from _annotation_violations(about.get("annotations"), policy)
    broken = [name for name in _LISTS if name in pod and not _is_list_of_mappings(pod[name])]
    yield from (f"spec.{name} is not a list of mappings" for name in broken)
    if not broken:
        yield from _pod_spec_violations(pod, policy, lakes)


def _annotation_violations(annotations: Any, policy: PodPolicy) -> Iterator[str]:
    for name in annotations if isinstance(annotations, dict) else ():
        if not policy.allows_annotation(str(name)):
            yield f"the annotation {quoted(str(name))} is refused without its name in policy.allowedPodAnnotations"


def _pod_spec_violations(pod: Object, policy: PodPolicy, lakes: tuple[str, ...]) -> Iterator[str]:
    for name in sorted(pod.keys() - POD_FIELDS):
        yield from _refused(f"spec.{name}", ALLOWED_BY.get(name, ""), policy)
    for volume in _dicts(pod.get("volumes")):
        yield from _volume_violations(volume, policy)
    for toleration in _dicts(pod.get("tolerations")):
        if toleration.get("key") not in _LOST_NODE:
            yield from _refused(f"a toleration of {toleration.get('key') or 'everything'}", "tolerations", policy)
    for secret in _dicts(pod.get("imagePullSecrets")):
        if not policy.allows_pull_secret(str(secret.get("name") or "")):
            what = f"the pull secret {quoted(str(secret.get('name')))}"
            yield from _refused(what, "secrets", policy, "policy.allowedPullSecrets")
    for kind in ("containers", "initContainers"):
        for container in _dicts(pod.get(kind)):
            where = f"container {container.get('name')}"
            yield from (f"{where}: {violation}" for violation in _container_violations(container, policy, lakes))


def _refused(what: str, entry: str, policy: PodPolicy, other: str = "") -> Iterator[str]:
    """A refusal unless the policy has the entry that allows it; `other` is a list of the policy
    that could allow it, too."""
    if not entry:
        yield f"{what} is refused"
    elif not policy.allows(entry):
        instead = f", or its name in {other}" if other else ""
        yield f"{what} is refused without {entry!r} in the operator's policy.allowedInPodTemplate{instead}"


def _volume_violations(volume: Object, policy: PodPolicy) -> Iterator[str]:
    name = str(volume.get("name"))
    if name in ("config", "auth", "refused-networks") or name.startswith("secret-"):
        yield from _refused(f"a volume of the name {name}, which is the operator's,", "commands", policy)
    claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
    for source in sorted((claim.get("spec") or {}).keys() & CLAIM_SOURCES):
        what = f"volume {name}: {source} of an ephemeral claim"
        yield from _refused(what, "volumes/persistentVolumeClaim", policy)
    if not volume.keys() - {"name"}:
        yield f"volume {name} has no source, or one of a type that the API server does not know here"
    for kind in sorted(volume.keys() - {"name"} - VOLUMES):
        what = f"volume {volume.get('name')}: {kind}"
        if kind == "hostPath":
            yield f"{what} is refused"
        elif kind == "secret":
            yield from _refused(what, "secrets", policy)
        elif kind == "projected":
            yield from _projected_violations(what, volume[kind], policy)
        else:
            yield from _refused(what, f"volumes/{kind}", policy)


def _projected_violations(what: str, projected: Any, policy: PodPolicy) -> Iterator[str]:
    for source in _dicts((projected or {}).get("sources")):
        for kind in source:
            if entry := PROJECTED.get(kind, f"volumes/{kind}"):
                yield from _refused(f"{what} of {kind}", entry, policy)


def _container_violations(container: Object, policy: PodPolicy, lakes: tuple[str, ...]) -> Iterator[str]:
    for name in sorted(container.keys() - CONTAINER_FIELDS):
        yield from _refused(name, "commands" if name in COMMANDS else "", policy)
    for variable in _dicts(container.get("env")):
        if "secretKeyRef" in (variable.get("valueFrom") or {}):
            yield from _refused(f"env {variable.get('name')} of a Secret", "secrets", policy)
    for source in _dicts(container.get("envFrom")):
        if "secretRef" in source:
            yield from _refused("envFrom of a Secret", "secrets", policy)
    yield from _code_violations(container, policy, lakes)


def _code_violations(container: Object, policy: PodPolicy, lakes: tuple[str, ...]) -> Iterator[str]:
    """What would make a container run other code than its image's. A container beside ours is no
    exception: it may have our image, or one with a shell."""
    for variable in _dicts(container.get("env")):
        if not policy.allows_variable(str(variable.get("name"))):
            yield from _refused(
                f"env {quoted(str(variable.get('name')))}", "commands", policy, "policy.allowedEnvironment"
            )
    if container.get("envFrom"):
        yield from _refused("envFrom, whose names are not known,", "commands", policy)
    for mount in _dicts(container.get("volumeMounts")):
        path = str(mount.get("mountPath"))
        if not _holds_data(path, lakes):
            yield from _refused(f"a volume at {quoted(path)}", "commands", policy)


def _holds_data(path: str, lakes: tuple[str, ...]) -> bool:
    """Whether a folder of a container is for data: below one of `_DATA_FOLDERS`, or where a lake
    is."""
    if not path.startswith("/") or ".." in path.split("/"):
        return False
    folder = PurePosixPath("/" + posixpath.normpath(path).lstrip("/"))
    if any(folder.is_relative_to(data) for data in _DATA_FOLDERS):
        return True
    if len(folder.parts) < 2 or folder.parts[1] in SYSTEM_FOLDERS:
        return False
    return any(PurePosixPath(lake).is_relative_to(folder) for lake in lakes)


# ---- what the pod then is


def _pod_violations(resource: CdcSync, policy: PodPolicy, image: Image) -> Iterator[tuple[str, str]]:
    action = StartRun(RunKind.SNAPSHOT, f"{resource.metadata.name}-0000-1", 1, (), "", executors=1)
    pods = {
        "driver": driver_pod(resource, action, image, action.id, []),
        "executors": executor_pod(resource, action, image),
    }
    for part, pod in pods.items():
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            name = str(container.get("image") or "")
            if name != image.name and not policy.allows_image(name):
                yield (
                    part,
                    (
                        f"the image {name or 'of container ' + str(container.get('name'))} is not one of the operator's allowed ones "
                        f"(policy.allowedImages; {image.name} is)"
                    ),
                )
        if not policy.allows("securityContext"):
            yield from ((part, violation) for violation in restricted_pod.violations(pod, _OURS))


def _is_list_of_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, dict) for element in value)


def _dicts(value: Any) -> list[Object]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
