"""How a user's podTemplate is merged into the operator's own pod. Pure.

Merged as users know it from `kubectl patch`: maps by key, lists of named things by their key, other
lists replaced
(https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/); a
volume is replaced whole, since it has one source. What a template may say, and what the merged pod
may be, is judged by `pod_policy`.
"""

from __future__ import annotations

from typing import Any

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


def merged(base: Any, patch: Any, name: str = "") -> Any:
    """`patch` laid over `base`; `name` is the field that holds them. None in a patch removes a
    key."""
    if isinstance(base, dict) and isinstance(patch, dict):
        result = {k: v for k, v in base.items() if k not in patch or patch[k] is not None}
        return result | {k: merged(base.get(k), v, k) for k, v in patch.items() if v is not None}
    key = _KEYS.get(name)
    if key and isinstance(base, list) and isinstance(patch, list):
        return _merged_lists(base, patch, key, whole=name in _WHOLE)
    return patch


def _merged_lists(base: list[Any], patch: list[Any], key: str, *, whole: bool) -> list[Any]:
    changes = {e[key]: e for e in patch if isinstance(e, dict) and key in e}
    of_base = [merged(None if whole else e, changes.pop(e.get(key))) if e.get(key) in changes else e for e in base]
    return [*of_base, *changes.values()]
