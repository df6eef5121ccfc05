"""A user's podTemplate: what of it is refused, and how it is laid over the operator's own pod.

Merged as users know it from `kubectl patch`: maps by key, lists of named things by their key, other lists replaced
(https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/); a volume is replaced whole, since it has
one source. What would give a pod the node is refused, because whoever may create a CdcSync may not be trusted with nodes; so is a
folder as sink that only one pod would see. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from cdcsync_core.spec import Spec

Object = dict[str, Any]

#: the key of a list's elements, by the name of the list, as the API's own patch strategies have it
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}
#: lists whose elements are replaced whole
_WHOLE = frozenset({"volumes"})
_STORES = ("s3://", "s3a://")
_REFUSED_OF_POD = ("hostNetwork", "hostPID", "hostIPC", "serviceAccountName", "serviceAccount", "restartPolicy")


@dataclass(frozen=True)
class Policy:
    """What this cluster allows. `allowed_service_accounts` names those that a resource may choose, `*` for all."""

    allow_pod_template: bool = True
    allowed_service_accounts: frozenset[str] = field(default_factory=frozenset)


def merged(base: Any, patch: Any, name: str = "") -> Any:
    """`patch` laid over `base`; `name` is the field that holds them. None in a patch removes a key."""
    if isinstance(base, dict) and isinstance(patch, dict):
        result = {k: v for k, v in base.items() if k not in patch or patch[k] is not None}
        return result | {k: merged(base.get(k), v, k) for k, v in patch.items() if v is not None}
    key = _KEYS.get(name)
    if key and isinstance(base, list) and isinstance(patch, list):
        return _merged_lists(base, patch, key, whole=name in _WHOLE)
    return patch


def _merged_lists(base: list[Any], patch: list[Any], key: str, *, whole: bool) -> list[Any]:
    changes = {e[key]: e for e in patch if isinstance(e, dict) and key in e}
    kept = [merged(None if whole else e, changes.pop(e.get(key))) if e.get(key) in changes else e for e in base]
    return [*kept, *changes.values()]


def refusals(spec: Spec, policy: Policy) -> list[str]:
    """A phrase per thing that this cluster does not allow."""
    found = [
        f"spec.{name}.podTemplate: {fault}"
        for name, template in (("driver", spec.driver.pod_template), ("executors", spec.executors.pod_template))
        for fault in _faults(template, policy)
    ]
    wanted = spec.driver.service_account_name
    if wanted and not policy.allowed_service_accounts & {wanted, "*"}:
        allowed = ", ".join(sorted(policy.allowed_service_accounts)) or "none"
        found.append(f"spec.driver.serviceAccountName: {wanted} is not one of the operator's allowed ones ({allowed})")
    return [*found, *_place_faults(spec)]


def _place_faults(spec: Spec) -> Iterator[str]:
    """A folder is each pod's own: the stream would not find what the snapshot wrote, and read everything again for ever."""
    path = spec.sink.delta.path
    if path.startswith(_STORES):
        return
    needed = f"needed: {' or '.join(_STORES)} and a bucket"
    if "://" in path:
        yield f"spec.sink.delta.path: {path} is in a store that is not supported; {needed}"
    elif not (_mounts(spec.driver.pod_template, path) and _mounts(spec.executors.pod_template, path)):
        yield (
            f"spec.sink.delta.path: {path} is a folder of each pod alone; {needed}, or a shared volume "
            "that the podTemplates of driver and executors mount there"
        )


def _mounts(template: Object, path: str) -> bool:
    pod = template.get("spec")
    containers = _dicts(pod.get("containers")) if isinstance(pod, dict) else []
    mounts = [m for c in containers for m in _dicts(c.get("volumeMounts"))]
    return any(PurePosixPath(path).is_relative_to(m["mountPath"]) for m in mounts if m.get("mountPath"))


def _faults(template: Object, policy: Policy) -> Iterator[str]:
    if not template:
        return
    if not policy.allow_pod_template:
        yield "the operator's policy allows none"
        return
    unknown = sorted(template.keys() - {"metadata", "spec"})
    if unknown:
        yield f"{', '.join(unknown)} is not part of a pod template; needed: metadata, spec"
    pod = template.get("spec") or {}
    if not isinstance(pod, dict):
        yield "spec is not a mapping"
        return
    yield from (f"spec.{name} is refused" for name in _REFUSED_OF_POD if pod.get(name))
    for volume in _dicts(pod.get("volumes")):
        if "hostPath" in volume:
            yield f"volume {volume.get('name')} is a hostPath, which is refused"
    yield from _container_faults(pod)


def _container_faults(pod: Object) -> Iterator[str]:
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in _dicts(pod.get(kind)):
            context = container.get("securityContext") or {}
            for name in ("privileged", "allowPrivilegeEscalation"):
                if context.get(name):
                    yield f"container {container.get('name')}: {name} is refused"
            if (context.get("capabilities") or {}).get("add"):
                yield f"container {container.get('name')}: capabilities.add is refused"
            if any(port.get("hostPort") for port in _dicts(container.get("ports"))):
                yield f"container {container.get('name')}: hostPort is refused"


def _dicts(value: Any) -> list[Object]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
