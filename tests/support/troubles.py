"""Syncs that cannot run, each for its own reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdcsync_kube.client import Object
from support.node import Node
from support.node_sync import PASSWORD, make_namespace, make_secret, make_sync, source_part
from support.servers import Server
from support.sync_process import GRANTS


@dataclass(frozen=True)
class Trouble:
    """`beside`: objects of the namespace; `spec`: parts of the sync's; `reason`: what its status must say."""

    reason: str
    spec: Object = field(default_factory=dict)
    beside: tuple[Object, ...] = ()


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

#: by the name of the namespace
TROUBLES = {
    "no-quota": Trouble("QuotaExceeded", beside=(_NO_PODS,)),
    "no-image": Trouble("ImagePullFailed", {"image": "localhost/no-such-image:1"}),
    "no-memory": Trouble("OutOfMemory", {"driver": {"podTemplate": {"spec": {"containers": [_TINY]}}}}),
}


def begin_troubles(node: Node, source: Server) -> None:
    """Makes them all; each is called `troubled`."""
    database = source.create_database()
    source.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", db=database)
    source.create_user("cdc", PASSWORD, GRANTS[source.flavor])
    base: Object = {
        "source": source_part(source),
        "tables": {"include": [rf"{database}\..*"]},
        "sink": {"delta": {"path": "/scratch/lake"}},
        **_ONCE,
    }
    for name, trouble in TROUBLES.items():
        make_namespace(node, name)
        make_secret(node, name, "source", {"username": "cdc", "password": PASSWORD})
        for thing in trouble.beside:
            node.api.create(f"/api/v1/namespaces/{name}/{thing['kind'].lower()}s", thing)
        make_sync(node, name, "troubled", base | trouble.spec)
