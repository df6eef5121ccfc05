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


_STANDARD = "restricted Pod Security Standard"
_NAMES = "resolve names as the cluster does"
_PLACE = "no system priority, scheduler, runtime class or tolerations"
FORBIDDEN: dict[str, tuple[Callable[[Object], None], str]] = {
    "a pod without labels": (lambda pod: pod["metadata"].pop("labels"), "executors of that run only"),
    "another run's executor": (_labels(run="other-ab12-1"), "executors of that run only"),
    "a driver": (_labels(part="driver"), "executors of that run only"),
    "another account": (_spec(serviceAccountName="admin"), "no token, no account"),
    "a token": (_spec(automountServiceAccountToken=True), "no token, no account"),
    "the node's network": (_spec(hostNetwork=True), "nothing of their node"),
    "the node's processes": (_spec(hostPID=True), "nothing of their node"),
    "a node of its choice": (_spec(nodeName="control-plane"), "nothing of their node"),
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
    "privileges": (_context(capabilities={"add": ["SYS_ADMIN"], "drop": ["ALL"]}), "restricted Pod Security Standard"),
    "escalation": (_context(allowPrivilegeEscalation=True), "restricted Pod Security Standard"),
    "escalation by leaving it out": (_container(securityContext=None), "restricted Pod Security Standard"),
    "root": (_context(runAsUser=0, runAsNonRoot=False), "restricted Pod Security Standard"),
    "a pod that may be root": (_spec(securityContext={}), "restricted Pod Security Standard"),
    "a folder of the node": (_volume(hostPath={"path": "/"}), "no volumes of a node"),
    "a claim": (_volume(persistentVolumeClaim={"claimName": "x"}), "no volumes of a node"),
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
    "a container without seccomp": (_context(seccompProfile={"type": "Unconfined"}), _STANDARD),
    "a pod without seccomp": (_pod_context(seccompProfile={"type": "Unconfined"}), _STANDARD),
    "a container without AppArmor": (_context(appArmorProfile={"type": "Unconfined"}), _STANDARD),
    "a pod without AppArmor": (_pod_context(appArmorProfile={"type": "Unconfined"}), _STANDARD),
    "AppArmor by an annotation": (
        _metadata(annotations={"container.apparmor.security.beta.kubernetes.io/executor": "unconfined"}),
        _STANDARD,
    ),
    "a type of SELinux without bounds": (_context(seLinuxOptions={"type": "spc_t"}), _STANDARD),
    "a user of SELinux": (_pod_context(seLinuxOptions={"user": "system_u"}), _STANDARD),
    "an unsafe sysctl": (_pod_context(sysctls=[{"name": "kernel.msgmax", "value": "1"}]), _STANDARD),
    "a port of the node": (_container(ports=[{"containerPort": 7079, "hostPort": 7079}]), _STANDARD),
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

#: refused, too, where the policy does not allow commands
FORBIDDEN_WITHOUT_COMMANDS: dict[str, tuple[Callable[[Object], None], str]] = {
    "a command": (_container(command=["sh"]), "image's entry point"),
    "other arguments": (_container(args=["python", "-c", "1"]), "image's entry point"),
    "a hook": (_container(lifecycle={"postStart": {"exec": {"command": ["sh"]}}}), "image's entry point"),
    "a variable by which code is run": (_container(env=[{"name": "LD_PRELOAD", "value": "/x"}]), "allow list"),
    "variables of a ConfigMap": (_container(envFrom=[{"configMapRef": {"name": "x"}}]), "allow list"),
}
