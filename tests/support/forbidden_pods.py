"""What a run's token must not create: changes of an executor's pod, and what their refusal says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Object = dict[str, Any]


def _spec(**fields: Any) -> Callable[[Object], None]:
    return lambda pod: pod["spec"].update(fields)


def _container(**fields: Any) -> Callable[[Object], None]:
    return lambda pod: pod["spec"]["containers"][0].update(fields)


def _context(**fields: Any) -> Callable[[Object], None]:
    return lambda pod: pod["spec"]["containers"][0]["securityContext"].update(fields)


def _volume(**source: Any) -> Callable[[Object], None]:
    return lambda pod: pod["spec"]["volumes"].append({"name": "mine", **source})


def _labels(**labels: str) -> Callable[[Object], None]:
    return lambda pod: pod["metadata"]["labels"].update({f"cdcsync.io/{k}": v for k, v in labels.items()})


def _pod_context(**fields: Any) -> Callable[[Object], None]:
    return lambda pod: pod["spec"]["securityContext"].update(fields)


def _metadata(**fields: Any) -> Callable[[Object], None]:
    return lambda pod: pod["metadata"].update(fields)


def _owner(**fields: str) -> Callable[[Object], None]:
    return lambda pod: pod["metadata"]["ownerReferences"][0].update(fields)


def _mount(path: str) -> Callable[[Object], None]:
    """One of the executor's own volumes, at `path` too."""

    def mount(pod: Object) -> None:
        mounts = pod["spec"]["containers"][0]["volumeMounts"]
        mounts.append(mounts[0] | {"mountPath": path})

    return mount


#: fields of an ephemeral volume's claim that give it data which is there already
CLAIM_SOURCES: Object = {
    "dataSource": {"kind": "PersistentVolumeClaim", "name": "others"},
    "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "others"},
    "volumeName": "pv-1",
    "selector": {"matchLabels": {"disk": "others"}},
}


def _claim(**fields: Any) -> Callable[[Object], None]:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return _volume(ephemeral={"volumeClaimTemplate": {"spec": claim | fields}})


_NAMES = "resolve names as the cluster does"
_PLACE = "no system priority, scheduler, runtime class or tolerations"
FORBIDDEN: dict[str, tuple[Callable[[Object], None], str]] = {
    "a pod without labels": (lambda pod: pod["metadata"].pop("labels"), "executors of that run only"),
    "another run's executor": (_labels(run="other-ab12-1"), "executors of that run only"),
    "a driver": (_labels(part="driver"), "executors of that run only"),
    "another account": (_spec(serviceAccountName="admin"), "no token, no account"),
    "a token": (_spec(automountServiceAccountToken=True), "no token, no account"),
    "a node of its choice": (_spec(nodeName="control-plane"), "no node of their choice"),
    "a name that leads elsewhere": (_spec(hostAliases=[{"ip": "10.0.0.7", "hostnames": ["mysql"]}]), _NAMES),
    "a name server of its choice": (_spec(dnsPolicy="None", dnsConfig={"nameservers": ["10.0.0.7"]}), _NAMES),
    "an image of its own": (_container(image="evil.example/x:1"), "images of policy.allowedImages"),
    "another container's image": (
        lambda pod: pod["spec"]["containers"].append(pod["spec"]["containers"][0] | {"name": "x", "image": "evil/x"}),
        "images of policy.allowedImages",
    ),
    "an init container's image": (
        _spec(initContainers=[{"name": "i", "image": "evil.example/x:1"}]),
        "images of policy.allowedImages",
    ),
    "a folder of the node": (_volume(hostPath={"path": "/"}), "no volumes of a node"),
    "a claim": (_volume(persistentVolumeClaim={"claimName": "x"}), "no volumes of a node"),
    **{
        f"{field} of an ephemeral claim": (_claim(**{field: value}), "the data of another claim")
        for field, value in CLAIM_SOURCES.items()
    },
    "a folder of another server": (_volume(nfs={"server": "x", "path": "/"}), "no volumes of a node"),
    "a folder of another image": (_volume(image={"reference": "evil.example/x:1"}), "no volumes of a node"),
    "another Secret": (_volume(secret={"secretName": "others"}), "Secrets of their resource"),
    "another Secret, projected": (
        _volume(projected={"sources": [{"secret": {"name": "others"}}]}),
        "no projected tokens and Secrets",
    ),
    "a projected token": (
        _volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}),
        "no projected tokens and Secrets",
    ),
    "another Secret as a variable": (
        _container(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "others", "key": "k"}}}]),
        "no Secrets as variables",
    ),
    "another Secret's variables": (
        _container(envFrom=[{"secretRef": {"name": "others"}}]),
        "no Secrets as variables",
    ),
    "the priority of the system": (_spec(priorityClassName="system-node-critical"), _PLACE),
    "another scheduler": (_spec(schedulerName="other"), _PLACE),
    "a toleration of everything": (_spec(tolerations=[{"operator": "Exists"}]), _PLACE),
    "a finalizer": (_metadata(finalizers=["example.com/stay"]), "no finalizers"),
    "a Secret of others to pull images by": (
        _spec(imagePullSecrets=[{"name": "others"}]),
        "pull images by the Secrets",
    ),
    "no owner": (lambda pod: pod["metadata"].pop("ownerReferences"), "owned by their run's driver"),
    "another driver's": (_owner(name="other-ab12-1-driver"), "owned by their run's driver"),
    "an owner of another kind": (_owner(kind="ConfigMap"), "owned by their run's driver"),
}


def forbidden_on(minor: int) -> dict[str, tuple[Callable[[Object], None], str]]:
    """What a Kubernetes of this minor version is to refuse; an API server drops fields that it does
    not know."""
    no_image_volumes = {"a folder of another image"} if minor < 35 else set()
    return {name: case for name, case in FORBIDDEN.items() if name not in no_image_volumes}


def _handler(path: str) -> Callable[[Object], None]:
    """A probe or hook that asks another host, by `path`."""
    kind, _, by = path.rpartition(".")
    asked: Object = {by: {"host": "10.0.0.7", "port": 80}}
    for name in reversed(kind.split(".")):
        asked = {name: asked}
    return _container(**asked)


def _with(change: Callable[[Object], None], **fields: Any) -> Callable[[Object], None]:
    """A change together with fields of the pod's spec, without which the API server finds the pod
    invalid, or another field breaks the standard first."""

    def both(pod: Object) -> None:
        _spec(**fields)(pod)
        change(pod)

    return both


_PROFILE = {"type": "Unconfined"}
_HOST = {"hostProcess": True}
_HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
#: field of the restricted Pod Security Standard, as the policy's message names it -> what breaks it
STANDARD: dict[str, list[Callable[[Object], None]]] = {
    "spec.securityContext.windowsOptions.hostProcess": [_with(_pod_context(windowsOptions=_HOST), hostNetwork=True)],
    "spec.securityContext.appArmorProfile.type": [_pod_context(appArmorProfile=_PROFILE)],
    "spec.securityContext.seLinuxOptions.type": [_pod_context(seLinuxOptions={"type": "spc_t"})],
    "spec.securityContext.seLinuxOptions.user": [_pod_context(seLinuxOptions={"user": "system_u"})],
    "spec.securityContext.seLinuxOptions.role": [_pod_context(seLinuxOptions={"role": "system_r"})],
    "spec.securityContext.runAsUser": [_pod_context(runAsUser=0)],
    "spec.hostNetwork": [_spec(hostNetwork=True)],
    "spec.hostPID": [_spec(hostPID=True)],
    "spec.hostIPC": [_spec(hostIPC=True)],
    "spec.securityContext.seccompProfile.type": [
        _with(
            _context(seccompProfile={"type": "RuntimeDefault"}),
            securityContext={"seccompProfile": _PROFILE, "runAsNonRoot": True},
        )
    ],
    "spec.securityContext.runAsNonRoot": [
        _with(
            _context(runAsNonRoot=True),
            securityContext={"seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": False},
        )
    ],
    "spec.securityContext.sysctls[].name": [_pod_context(sysctls=[{"name": "kernel.msgmax", "value": "1"}])],
    "securityContext.windowsOptions.hostProcess of a container": [
        _with(_context(windowsOptions=_HOST), hostNetwork=True)
    ],
    "securityContext.appArmorProfile.type of a container": [
        _context(appArmorProfile=_PROFILE),
        _metadata(annotations={"container.apparmor.security.beta.kubernetes.io/executor": "unconfined"}),
    ],
    "securityContext.seLinuxOptions.type of a container": [_context(seLinuxOptions={"type": "spc_t"})],
    "securityContext.seLinuxOptions.user of a container": [_context(seLinuxOptions={"user": "system_u"})],
    "securityContext.seLinuxOptions.role of a container": [_context(seLinuxOptions={"role": "system_r"})],
    "securityContext.runAsUser of a container": [_context(runAsUser=0)],
    "securityContext.privileged of a container": [_context(privileged=True, allowPrivilegeEscalation=None)],
    "securityContext.seccompProfile.type of a container": [
        _context(seccompProfile=_PROFILE),
        _pod_context(seccompProfile=None),
    ],
    "securityContext.runAsNonRoot of a container": [_context(runAsNonRoot=False), _pod_context(runAsNonRoot=None)],
    "securityContext.allowPrivilegeEscalation of a container": [
        _context(allowPrivilegeEscalation=True),
        _context(allowPrivilegeEscalation=None),
        _container(securityContext=None),
    ],
    "securityContext.capabilities.drop of a container": [
        _context(capabilities={"drop": ["NET_RAW"]}),
        _context(capabilities=None),
    ],
    "securityContext.capabilities.add[] of a container": [
        _context(capabilities={"add": ["SYS_ADMIN"], "drop": ["ALL"]}),
    ],
    "securityContext.procMount of a container": [_with(_context(procMount="Unmasked"), hostUsers=False)],
    "ports[].hostPort of a container": [_container(ports=[{"containerPort": 7079, "hostPort": 7079}])],
    **{
        f"{handler}.{by}.host of a container": [_handler(f"{handler}.{by}")]
        for handler in _HANDLERS
        for by in ("httpGet", "tcpSocket")
    },
}

#: refused, too, where the policy does not allow commands
FORBIDDEN_WITHOUT_COMMANDS: dict[str, tuple[Callable[[Object], None], str]] = {
    "a command": (_container(command=["sh"]), "image's entry point"),
    "other arguments": (_container(args=["python", "-c", "1"]), "image's entry point"),
    "a hook": (_container(lifecycle={"postStart": {"exec": {"command": ["sh"]}}}), "image's entry point"),
    "a variable by which code is run": (_container(env=[{"name": "LD_PRELOAD", "value": "/x"}]), "allow list"),
    **{
        f"a volume at {path}": (_mount(path), "mount volumes where Spark and the operator do")
        for path in (
            "/opt/cdcsync",
            "//usr/lib",
            "/./etc",
            "/mnt/../opt",
            "/",
            "/opt/spark/conf/..",
            "/home/x",
            "/scratch/x",
        )
    },
    "variables of a ConfigMap": (_container(envFrom=[{"configMapRef": {"name": "x"}}]), "allow list"),
}
