"""A driver's pod, the template of its executors' pods, and the Spark settings that join them. Pure.

Why it is right: the pod is whole, so nothing is submitted and no JVM runs in the operator. Spark
runs in client mode inside it: the driver is where the pod is (`spark.driver.host` is its address),
executors name it as their owner and go when it goes. Settings that begin with spark.kubernetes were
tried on Spark 4.1 against a real API server; the service account's token is named explicitly,
because client mode does not search for it. Both kinds of pods satisfy the restricted Pod Security
Standard (https://kubernetes.io/docs/concepts/security/pod-security-standards/).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from cdcsync_core.resource.networks import FILE_VARIABLE, VARIABLE
from cdcsync_core.resource.pod_size import SPLITS_IN_DRIVER, DriverSize
from cdcsync_core.resource.quantity import show_cpu
from cdcsync_core.resource.spec import CdcSync, Spec, required_secrets
from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.run_size import READERS, size_of
from cdcsync_operator.cluster.objects.pod_template import Object, merged
from cdcsync_operator.cluster.objects.run_objects import AUTH_KEY, KIND_LABEL, NETWORKS, auth_name, labels, metadata
from cdcsync_operator.decision.observed import StartRun
from cdcsync_operator.decision.runs.kinds import RUNS

CONFIG_DIR = "/etc/cdcsync/run"
SECRETS_DIR = "/etc/cdcsync/secrets"
AUTH_DIR = "/etc/cdcsync/auth"
#: where a pod sees the annotation that has the cluster's networks
NETWORKS_DIR = "/etc/cdcsync/networks"
SCRATCH_DIR = "/scratch"
EXECUTOR_TEMPLATE = "executor.yaml"
DRIVER_PORT, BLOCK_PORT, METRICS_PORT = 7078, 7079, 8090
_NETWORKS_FILE = "refused"
_TOKEN_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
#: of a pod's security context; an id that is left out is the cluster's to give
POD_IDS = (("runAsUser", 65532), ("runAsGroup", 65532), ("fsGroup", 65532))
_MI = 2**20
#: requested of the node's disk; there is no limit: large transactions and key indexes need more
_DISK = {"ephemeral-storage": "1Gi"}
#: characters of the annotation; all annotations of a pod have 256 KiB, and a template 64
_MOST_NETWORKS = 180_000
#: on top of the JVM's heap: the Python worker of each task with its buffers
_EXECUTOR_OVERHEAD = 384 * _MI
_TASK_OVERHEAD = 384 * _MI


@dataclass(frozen=True)
class Image:
    """What pods run: the default image, when it is pulled, and by which Secrets; the networks that
    no process of it connects with, those of the cluster's nodes, pods and Services apart, which
    change while it runs; and the ids that it runs with."""

    name: str
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    refused_networks: tuple[str, ...] = ()
    ids: tuple[tuple[str, int], ...] = POD_IDS
    cluster_networks: tuple[str, ...] = ()


def driver_pod(resource: CdcSync, action: StartRun, image: Image, service_account: str, configs: list[str]) -> Object:
    """`configs` are the names of the ConfigMaps that hold the RunConfig."""
    config = {"projected": {"sources": [{"configMap": {"name": name}} for name in configs]}}
    volumes: dict[str, tuple[str, Object]] = {
        "config": (CONFIG_DIR, config),
        "scratch": (SCRATCH_DIR, {"emptyDir": {}}),
    }
    if action.executors:
        volumes |= _auth(action)
    size = size_of(resource.spec, action.kind, executors=action.executors > 0)
    pod = _pod(resource, _driver_container(resource.spec, image, size), image, volumes)
    pod["spec"] |= {
        "serviceAccountName": service_account,
        "terminationGracePeriodSeconds": grace_seconds(resource, action.kind),
    }
    about = metadata(resource, f"{action.id}-driver", action.id, "driver")
    about["labels"][KIND_LABEL] = action.kind.value
    about["annotations"] = {
        "argocd.argoproj.io/ignore-restart-policy": "true",
        NETWORKS: networks_text(image.cluster_networks),
    }
    return _with_template(pod | {"metadata": about}, resource.spec.driver.pod_template)


def as_driven(resource: CdcSync, action: StartRun) -> CdcSync:
    """The resource as the run's driver gets it: one that reads splits itself has memory for a few
    at once."""
    snapshot = resource.spec.snapshot
    if action.executors or action.kind not in READERS:
        return resource
    fewer = snapshot.model_copy(update={"parallelism": min(snapshot.parallelism, SPLITS_IN_DRIVER)})
    return resource.model_copy(update={"spec": resource.spec.model_copy(update={"snapshot": fewer})})


def _driver_container(spec: Spec, image: Image, size: DriverSize) -> Object:
    return {
        "name": "driver",
        "image": spec.image or image.name,
        "imagePullPolicy": image.pull_policy,
        "args": ["driver", CONFIG_DIR],
        "env": [
            _from_pod("POD_NAME", "metadata.name"),
            _from_pod("POD_NAMESPACE", "metadata.namespace"),
            _from_pod("POD_IP", "status.podIP"),
            {"name": "CDCSYNC_METRICS", "value": f":{METRICS_PORT}"},
            *_refused_networks(image),
        ],
        "ports": [
            {"name": "driver", "containerPort": DRIVER_PORT},
            {"name": "blocks", "containerPort": BLOCK_PORT},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "resources": {
            "requests": {"cpu": show_cpu(size.cpu), "memory": _mebibytes(size.pod)} | _DISK,
            "limits": {"memory": _mebibytes(size.pod)},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def grace_seconds(resource: CdcSync, kind: RunKind) -> int:
    """How long a driver may drain: the wave or batch at hand, and half a minute."""
    return 30 + (resource.spec.snapshot.max_split_seconds if RUNS[kind].by_splits else 0)


def executor_template(resource: CdcSync, action: StartRun, image: Image) -> str:
    """What Spark begins an executor's pod from. It adds name, image, resources, scratch space and
    the driver as owner itself."""
    return json.dumps(executor_pod(resource, action, image))


def executor_pod(resource: CdcSync, action: StartRun, image: Image) -> Object:
    container = {
        "name": "executor",
        "image": resource.spec.image or image.name,
        "env": _refused_networks(image),
        "resources": {"requests": dict(_DISK)},
    }
    pod = _pod(resource, container, image, _auth(action)) | {
        "metadata": {
            "labels": labels(resource, action.id, "executor"),
            "annotations": {NETWORKS: networks_text(image.cluster_networks)},
        },
    }
    pod["spec"]["automountServiceAccountToken"] = False
    return _with_template(pod, resource.spec.executors.pod_template)


def _auth(action: StartRun) -> dict[str, tuple[str, Object]]:
    return {"auth": (AUTH_DIR, {"secret": {"secretName": auth_name(action.id), "defaultMode": 0o440}})}


def mounted_secrets(pod: Object) -> set[str]:
    """The names of all Secrets that a pod's volumes and variables name."""
    spec, secrets = pod["spec"], set()
    for volume in spec.get("volumes", ()):
        secrets.add((volume.get("secret") or {}).get("secretName"))
        sources = (volume.get("projected") or {}).get("sources") or ()
        secrets |= {(source.get("secret") or {}).get("name") for source in sources}
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        variables = [(v.get("valueFrom") or {}).get("secretKeyRef") or {} for v in container.get("env") or ()]
        secrets |= {v.get("name") for v in variables}
        secrets |= {(source.get("secretRef") or {}).get("name") for source in container.get("envFrom") or ()}
    return {name for name in secrets if name}


def spark_settings(resource: CdcSync, action: StartRun, image: Image) -> dict[str, str]:
    """The settings of a snapshot with executors; the driver adds its own address and name."""
    settings = _of_the_network() | _of_the_executors(resource, action) | _of_kubernetes(resource, action, image)
    if account := resource.spec.driver.service_account_name:  # a cloud's identity; without the API server's token
        settings["spark.kubernetes.authenticate.executor.serviceAccountName"] = account
    if image.pull_secrets:
        settings["spark.kubernetes.container.image.pullSecrets"] = ",".join(image.pull_secrets)
    return settings


def _of_the_network() -> dict[str, str]:
    return {
        "spark.master": "k8s://https://kubernetes.default.svc:443",
        "spark.submit.deployMode": "client",
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 (a pod's own)
        "spark.driver.port": str(DRIVER_PORT),
        "spark.blockManager.port": str(BLOCK_PORT),
        # A client of these ports must know a secret of this run, which is mounted.
        "spark.authenticate": "true",
        "spark.authenticate.secret.file": f"{AUTH_DIR}/{AUTH_KEY}",
        # What they send each other is encrypted and authenticated, by keys of that secret.
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.authEngineVersion": "2",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    }


def _of_the_executors(resource: CdcSync, action: StartRun) -> dict[str, str]:
    executors = resource.spec.executors
    return {
        "spark.executor.instances": str(action.executors),
        "spark.executor.cores": str(executors.cores),
        "spark.executor.memory": f"{executors.memory // _MI}m",
        "spark.executor.memoryOverhead": f"{(_EXECUTOR_OVERHEAD + _TASK_OVERHEAD * executors.cores) // _MI}m",
    }


def _of_kubernetes(resource: CdcSync, action: StartRun, image: Image) -> dict[str, str]:
    return {
        "spark.kubernetes.namespace": resource.metadata.namespace,
        "spark.kubernetes.container.image": resource.spec.image or image.name,
        "spark.kubernetes.container.image.pullPolicy": image.pull_policy,
        "spark.kubernetes.executor.podNamePrefix": action.id,
        "spark.kubernetes.executor.podTemplateFile": f"{CONFIG_DIR}/{EXECUTOR_TEMPLATE}",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
        "spark.kubernetes.executor.request.cores": _requested_cores(resource),
        "spark.kubernetes.executor.disableConfigMap": "true",
        # The driver reads there why executors ended, and their logs stay as long as its own.
        "spark.kubernetes.executor.deleteOnTermination": "false",
        # There are none, and the driver has no right to list them.
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.kubernetes.authenticate.oauthTokenFile": f"{_TOKEN_DIR}/token",
        "spark.kubernetes.authenticate.caCertFile": f"{_TOKEN_DIR}/ca.crt",
    }


def _requested_cores(resource: CdcSync) -> str:
    """A template's own request wins; Spark would overwrite it by the number of tasks at once."""
    executors = resource.spec.executors
    containers = (executors.pod_template.get("spec") or {}).get("containers") or []
    container: Object = next((c for c in containers if c.get("name") == "executor"), {})
    return str(((container.get("resources") or {}).get("requests") or {}).get("cpu") or executors.cores)


def _pod(resource: CdcSync, container: Object, image: Image, volumes: dict[str, tuple[str, Object]]) -> Object:
    """A pod of the restricted standard with the resource's Secrets, `/tmp`, and further volumes by
    name."""
    secrets = {
        f"secret-{n}": (f"{SECRETS_DIR}/{name}", {"secret": {"secretName": name, "defaultMode": 0o440}})
        for n, name in enumerate(sorted(required_secrets(resource.spec)))
    }
    annotation = [{"path": _NETWORKS_FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{NETWORKS}']"}}]
    networks = {"refused-networks": (NETWORKS_DIR, {"downwardAPI": {"items": annotation}})}
    mounted = volumes | {"tmp": ("/tmp", {"emptyDir": {}})} | networks | secrets  # noqa: S108 (the pod's own)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {
            "restartPolicy": "Never",
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                **dict(image.ids),
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container | _restricted({name: path for name, (path, _) in mounted.items()})],
            "volumes": [{"name": name, **volume} for name, (_, volume) in mounted.items()],
            **({"imagePullSecrets": [{"name": n} for n in image.pull_secrets]} if image.pull_secrets else {}),
        },
    }


def _restricted(mounts: dict[str, str]) -> Object:
    """What a container of the restricted standard has; `mounts` are paths by volume."""
    writable = {"tmp", "scratch"}
    return {
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": name, "mountPath": path, **({} if name in writable else {"readOnly": True})}
            for name, path in mounts.items()
        ],
    }


def _with_template(pod: Object, template: Object) -> Object:
    """What selects and owns the pod stays ours."""
    result: Object = merged(pod, {k: template[k] for k in ("metadata", "spec") if template.get(k)})
    ours = pod["metadata"]
    about = result["metadata"] | {k: v for k, v in ours.items() if k not in ("labels", "annotations")}
    result["metadata"] = about | {k: (about.get(k) or {}) | ours[k] for k in ("labels", "annotations")}
    return result


def _from_pod(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _refused_networks(image: Image) -> list[Object]:
    return [
        {"name": VARIABLE, "value": " ".join(image.refused_networks)},
        {"name": FILE_VARIABLE, "value": f"{NETWORKS_DIR}/{_NETWORKS_FILE}"},
    ]


def networks_text(networks: tuple[str, ...]) -> str:
    """As many of them, which begin with the largest, as an annotation may have."""
    text = " ".join(networks)
    return text if len(text) <= _MOST_NETWORKS else text[:_MOST_NETWORKS].rpartition(" ")[0]


def _mebibytes(size: int) -> str:
    return f"{size // _MI}Mi"
