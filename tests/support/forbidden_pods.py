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


FORBIDDEN: dict[str, tuple[Callable[[Object], None], str]] = {
    "a pod without labels": (lambda pod: pod["metadata"].pop("labels"), "executors of that run only"),
    "another run's executor": (_labels(run="other-ab12-1"), "executors of that run only"),
    "a driver": (_labels(part="driver"), "executors of that run only"),
    "another account": (_spec(serviceAccountName="admin"), "no token, no account"),
    "a token": (_spec(automountServiceAccountToken=True), "no token, no account"),
    "the node's network": (_spec(hostNetwork=True), "nothing of their node"),
    "the node's processes": (_spec(hostPID=True), "nothing of their node"),
    "a node of its choice": (_spec(nodeName="control-plane"), "nothing of their node"),
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
}
