"""Whether a whole pod satisfies the restricted Pod Security Standard. Pure.

The rows follow https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
(version 1.35). A namespace that enforces the standard would refuse the pod when it is created; here
it is refused before anything of a run is, with the field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]

_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
SYSCTLS = frozenset({
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_rmem", "net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
})  # fmt: skip
SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


def violations(pod: Object, ours: tuple[str, ...] = ()) -> Iterator[str]:
    """A phrase for each; the containers named in `ours` also keep a root file system that is read
    only."""
    spec = pod["spec"]
    context = _mapping(spec.get("securityContext"))
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield f"{name} is not allowed"
    for name, value in _mapping(_mapping(pod.get("metadata")).get("annotations")).items():
        if str(name).startswith(_APPARMOR) and not str(value).startswith(("runtime/default", "localhost/")):
            yield f"the annotation {name} is not allowed"
    for volume in spec.get("volumes") or []:
        for kind in sorted(volume.keys() - {"name"} - _VOLUMES):
            yield f"volume {volume.get('name')}: {kind} is not allowed"
    for sysctl in context.get("sysctls") or []:
        if sysctl.get("name") not in SYSCTLS:
            yield f"the sysctl {sysctl.get('name')} is not allowed"
    yield from _shared(context, "the pod")
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(kind) or []:
            yield from _container(container, context, container.get("name") in ours)


def _shared(context: Object, where: str) -> Iterator[str]:
    """What both a pod's and a container's security context may say."""
    if context.get("runAsUser") == 0:
        yield f"{where}: runAsUser is 0"
    if _mapping(context.get("seccompProfile")).get("type", "RuntimeDefault") not in ("RuntimeDefault", "Localhost"):
        yield f"{where}: seccompProfile is neither RuntimeDefault nor Localhost"
    if _mapping(context.get("appArmorProfile")).get("type", "RuntimeDefault") not in ("RuntimeDefault", "Localhost"):
        yield f"{where}: appArmorProfile is neither RuntimeDefault nor Localhost"
    selinux = _mapping(context.get("seLinuxOptions"))
    if selinux.get("type", "") not in SELINUX_TYPES or selinux.get("user") or selinux.get("role"):
        yield f"{where}: seLinuxOptions are not allowed"
    if _mapping(context.get("windowsOptions")).get("hostProcess"):
        yield f"{where}: hostProcess is not allowed"


def _container(container: Object, pod: Object, ours: bool) -> Iterator[str]:
    context, where = _mapping(container.get("securityContext")), f"container {container.get('name')}"
    yield from _shared(context, where)
    if context.get("privileged"):
        yield f"{where}: privileged is not allowed"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{where}: allowPrivilegeEscalation is not false"
    capabilities = _mapping(context.get("capabilities"))
    if "ALL" not in (capabilities.get("drop") or []):
        yield f"{where}: capabilities.drop does not have ALL"
    if set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}:
        yield f"{where}: capabilities.add is not allowed"
    if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"{where}: runAsNonRoot is not true"
    if "type" not in _mapping(context.get("seccompProfile") or pod.get("seccompProfile")):
        yield f"{where}: there is no seccompProfile"
    if context.get("procMount", "Default") != "Default":
        yield f"{where}: procMount is not Default"
    if any(_mapping(port).get("hostPort") for port in container.get("ports") or []):
        yield f"{where}: hostPort is not allowed"
    if ours and context.get("readOnlyRootFilesystem") is not True:
        yield f"{where}: readOnlyRootFilesystem is not true"


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else {}
