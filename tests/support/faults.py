"""Syncs that cannot run, each for its own reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cdcsync_kube.client import Object
from cdcsync_operator.cluster.objects.pod_template import merged
from support.node import Node, wait_until
from support.node_sync import PASSWORD, make_namespace, make_secret, make_sync, small, source_part
from support.servers import Server
from support.sync_process import GRANTS


@dataclass(frozen=True)
class SyncFault:
    """`objects`: others in its namespace; `spec`: parts of the sync's; `reason` and `words`: what
    its status must contain within `seconds`."""

    reason: str
    words: str
    spec: Object = field(default_factory=dict)
    objects: tuple[Object, ...] = ()
    seconds: float = 180


_NO_PODS: Object = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "none"},
    "spec": {"hard": {"pods": "0"}},
}
_TINY: Object = {
    "name": "driver",
    "resources": {"requests": {"cpu": "50m", "memory": "220Mi"}, "limits": {"memory": "220Mi"}},
}
#: a second attempt would only take the processor from the other tests
_ONCE: Object = {"autoRestart": {"backoff": {"initial": "300s", "max": "300s"}}}

_NOWHERE: Object = {"nodeSelector": {"no-such": "node"}}
#: what is written to a volume in memory counts as the container's
_HUNGRY: Object = {
    "containers": [
        {
            "name": "executor",
            "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "head -c 4G /dev/zero > /hog/all"]}}},
            "volumeMounts": [{"name": "hog", "mountPath": "/hog"}],
        }
    ],
    "volumes": [{"name": "hog", "emptyDir": {"medium": "Memory"}}],
}


def _with_volume(container: str, path: str, volume: Object, **more: Object) -> Object:
    """A podTemplate whose container has a volume at `path`."""
    name = path.strip("/")
    mounted = {"name": container, "volumeMounts": [{"name": name, "mountPath": path}], **more}
    return {"podTemplate": {"spec": {"containers": [mounted], "volumes": [{"name": name, **volume}]}}}


def _filled(bounds: Object, command: str) -> Object:
    """A driver with a volume at /full, an emptyDir of these bounds, into which `command` writes as
    soon as the container is there."""
    begun: Object = {"postStart": {"exec": {"command": ["sh", "-c", command]}}}
    return {"driver": _with_volume("driver", "/full", {"emptyDir": bounds}, lifecycle=begun)}


#: the driver's tables have no room
_LAKE = _filled({"medium": "Memory", "sizeLimit": "1Mi"}, "cat /dev/zero > /full/all || true") | {
    "sink": {"delta": {"path": "/full/tables"}},
    "executors": _with_volume("executor", "/full", {"emptyDir": {}}),
}
#: beyond the bound of a volume on disk the kubelet evicts the pod
_SCRATCH = _filled({"sizeLimit": "1Mi"}, "head -c 64M /dev/zero > /full/all")


def _executors(template: Object) -> Object:
    """A snapshot with one executor of that template, with a driver that takes little."""
    merged = {"containers": small("executor")["spec"]["containers"]} | template
    executors = {"instances": 1, "memory": "512Mi", "podTemplate": {"spec": merged}}
    return {"driver": {"memory": "768Mi", "podTemplate": small("driver")}, "executors": executors}


#: by the name of the namespace
FAULTS = {
    "no-quota": SyncFault("QuotaExceeded", "exceeded quota", objects=(_NO_PODS,)),
    "no-image": SyncFault("ImagePullFailed", "no-such-image", {"image": "localhost/no-such-image:1"}),
    "no-memory": SyncFault(
        "OutOfMemory",
        "raise spec.driver.memory",
        {"driver": {"podTemplate": {"spec": {"containers": [_TINY]}}}},
        seconds=500,  # the kernel's report may come after the end of the container: then the second attempt shows it
    ),
}
#: those that take long, or processors
LONG_FAULTS = {
    "no-room": SyncFault(
        "DriverUnschedulable", "no node takes the driver's pod: 0/", {"driver": {"podTemplate": {"spec": _NOWHERE}}},
        seconds=600,
    ),
    "no-room-to-read": SyncFault("ExecutorsLost", "no executor has been there for", _executors(_NOWHERE), seconds=900),
    "full-disk": SyncFault("SinkUnreachable", "o space left", _LAKE, seconds=600),
    "full-scratch": SyncFault("DriverLost", "Usage of EmptyDir volume", _SCRATCH, seconds=600),
    "hungry": SyncFault("OutOfMemory", "raise spec.executors.memory", _executors(_HUNGRY), seconds=600),
}  # fmt: skip


def begin_faults(node: Node, source: Server, chosen: Iterable[str]) -> None:
    """A sync called `faulty` in a namespace of each name."""
    database = source.create_database()
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", db=database)
    source.create_user("cdc", PASSWORD, GRANTS[source.flavor])
    base: Object = {
        "source": source_part(node, source),
        "tables": {"include": [rf"{database}\..*"]},
        "sink": {"delta": {"path": "/lake/tables"}},
        # none of them gets as far as needing one that is shared
        "driver": _with_volume("driver", "/lake", {"emptyDir": {}}),
        "executors": _with_volume("executor", "/lake", {"emptyDir": {}}),
        **_ONCE,
    }
    for name in chosen:
        fault = (FAULTS | LONG_FAULTS)[name]
        make_namespace(node, name)
        make_secret(node, name, "source", {"username": "cdc", "password": PASSWORD})
        for thing in fault.objects:
            _make_object(node, name, thing)
        make_sync(node, name, "faulty", merged(base, fault.spec))


def _make_object(node: Node, namespace: str, thing: Object) -> None:
    """A quota counts from when the controller has seen it; until then a pod is refused in other
    words."""
    path = f"/api/v1/namespaces/{namespace}/{thing['kind'].lower()}s"
    node.api.create(path, thing)
    name = thing["metadata"]["name"]
    wait_until(lambda: "hard" in node.api.get(f"{path}/{name}").get("status", {}), 60, "the quota counts")
