"""Whether a whole pod satisfies the restricted Pod Security Standard. Pure.

The tables follow https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
(version 1.35), which has the fields of the standard *baseline*, too. A namespace that enforces the
standard would refuse the pod when it is created; here it is refused before anything of a run is,
with the field. The chart's admission policies are made of the same tables (`Field.cel`,
`tools/reference.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

#: rule -> whether a value satisfies it, and the same in CEL
_RULES: dict[str, tuple[Callable[[Any, tuple[Any, ...]], bool], str]] = {
    "one of": (lambda value, of: value in of, "{value} in {of}"),
    "none of": (lambda value, of: value not in of, "!({value} in {of})"),
    "with all of": (
        lambda value, of: isinstance(value, list) and all(v in value for v in of),
        "{of}.all(v, v in {value})",
    ),
}


@dataclass(frozen=True)
class Field:
    """A field of the standard: its path in a pod's spec or in a container (`[]`: of each entry),
    the value that counts where it is left out, and the values that its rule names. `inherited`:
    where a container leaves it out, its pod's counts."""

    path: str
    default: Any
    values: tuple[Any, ...]
    rule: str = "one of"
    inherited: bool = False

    def violations(self, of: Object, pod: Object) -> Iterator[str]:
        """A phrase for each value of a pod's spec or container that breaks the rule."""
        parent, entries, _ = self.path.partition("[]")
        if entries and not isinstance(_at(of, parent) or [], list):
            yield f"{parent} is not a list"
            return
        for value in self._found(of, pod):
            if not _RULES[self.rule][0](value, self.values):
                yield f"{self.path} is {json.dumps(value)[:100]}; needed: {self.rule} {json.dumps(self.values)}"

    def cel(self, variable: str, pod: str = "") -> str:
        """An expression that holds where `variable`, a pod's spec or a container of `pod`,
        satisfies the rule."""
        parent, entries, name = self.path.partition("[]")
        if entries:
            value = f"{_optional('e', name)}.orValue({_literal(self.default)})" if name else "e"
            return f"{_optional(variable, parent)}.orValue([]).all(e, {self._rule(value)})"
        default = _literal(self.default)
        if self.inherited and pod:
            default = f"{_optional(pod, parent)}.orValue({default})"
        return self._rule(f"{_optional(variable, parent)}.orValue({default})")

    def cel_of_template(self, variable: str) -> str:
        """The same of a template, which is merged with a pod that satisfies the rule: what is left
        out is as there."""
        if self.is_optional:
            return self.cel(variable)
        return f"(!{_optional(variable, self.path)}.hasValue() || {self.cel(variable)})"

    @property
    def is_optional(self) -> bool:
        """Whether a pod that leaves it out satisfies the rule."""
        return "[]" in self.path or _RULES[self.rule][0](self.default, self.values)

    def _found(self, of: Object, pod: Object) -> list[Any]:
        parent, entries, name = self.path.partition("[]")
        places = (_at(of, parent) or []) if entries else [of]
        values = [_at(place, name if entries else parent) for place in places]
        default = _at(pod, parent) if self.inherited else None
        return [next((v for v in (value, default) if v is not None), self.default) for value in values]

    def _rule(self, value: str) -> str:
        return _RULES[self.rule][1].format(value=value, of=_literal(list(self.values)))


_PROFILES = ("RuntimeDefault", "Localhost")
_SYSCTLS = (
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
)  # fmt: skip
_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_HANDLERS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop")
#: of a pod and of each of its containers
_SHARED = (
    Field("securityContext.windowsOptions.hostProcess", False, (False,)),
    Field("securityContext.appArmorProfile.type", "RuntimeDefault", _PROFILES),
    Field("securityContext.seLinuxOptions.type", "", _SELINUX_TYPES),
    Field("securityContext.seLinuxOptions.user", "", ("",)),
    Field("securityContext.seLinuxOptions.role", "", ("",)),
    Field("securityContext.runAsUser", 1, (0,), "none of"),
)
POD = (
    *_SHARED,
    *(Field(name, False, (False,)) for name in ("hostNetwork", "hostPID", "hostIPC")),
    Field("securityContext.seccompProfile.type", "RuntimeDefault", _PROFILES),
    Field("securityContext.runAsNonRoot", True, (True,)),
    Field("securityContext.sysctls[].name", "", _SYSCTLS),
)
CONTAINER = (
    *_SHARED,
    Field("securityContext.privileged", False, (False,)),
    Field("securityContext.seccompProfile.type", "", _PROFILES, inherited=True),
    Field("securityContext.runAsNonRoot", False, (True,), inherited=True),
    Field("securityContext.allowPrivilegeEscalation", True, (False,)),
    Field("securityContext.capabilities.drop", [], ("ALL",), "with all of"),
    Field("securityContext.capabilities.add[]", "", ("NET_BIND_SERVICE",)),
    Field("securityContext.procMount", "Default", ("Default",)),
    Field("ports[].hostPort", 0, (0,)),
    *(Field(f"{handler}.{by}.host", "", ("",)) for handler in _HANDLERS for by in ("httpGet", "tcpSocket")),
)
VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
#: the same as `_is_confined`, of the `metadata` of a pod
ANNOTATIONS = (
    f"metadata.?annotations.orValue({{}}).all(k, !k.startsWith('{_APPARMOR}')"
    " || metadata.annotations[k] == 'runtime/default' || metadata.annotations[k].startsWith('localhost/'))"
)


def violations(pod: Object, ours: tuple[str, ...] = ()) -> Iterator[str]:
    """A phrase for each; the containers named in `ours` also keep a root file system that is read
    only."""
    spec = pod["spec"]
    for name, value in _mapping(_mapping(pod.get("metadata")).get("annotations")).items():
        if str(name).startswith(_APPARMOR) and not _is_confined(str(value)):
            yield f"the annotation {name} is not allowed"
    for volume in spec.get("volumes") or []:
        for kind in sorted(volume.keys() - {"name"} - VOLUMES):
            yield f"volume {volume.get('name')}: {kind} is not allowed"
    yield from (f"the pod: {phrase}" for field in POD for phrase in field.violations(spec, {}))
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or []:
            yield from _of_container(container, spec, container.get("name") in ours)


def _of_container(container: Object, pod: Object, ours: bool) -> Iterator[str]:
    where = f"container {container.get('name')}"
    yield from (f"{where}: {phrase}" for field in CONTAINER for phrase in field.violations(container, pod))
    if ours and _at(container, "securityContext.readOnlyRootFilesystem") is not True:
        yield f"{where}: readOnlyRootFilesystem is not true"


def _is_confined(profile: str) -> bool:
    return profile == "runtime/default" or profile.startswith("localhost/")


def _at(value: Any, path: str) -> Any:
    """What is at a path of names, None where nothing is."""
    for name in filter(None, path.split(".")):
        value = _mapping(value).get(name)
    return value


def _optional(variable: str, path: str) -> str:
    return "".join((variable, *(f".?{name}" for name in path.split(".") if name)))


def _literal(value: Any) -> str:
    """A value in CEL, in quotes that need no escapes in YAML."""
    return json.dumps(value).replace('"', "'")


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else {}
