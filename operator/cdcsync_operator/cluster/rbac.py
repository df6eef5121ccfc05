"""`python -m cdcsync_operator.cluster.rbac NAMESPACE...`: asks the API server whether this account
may do what the operator does. `--by-selector` and `--nodes` ask, too, for what it does beyond its
namespaces, and for what it reads of the cluster.

It is what `helm test` runs, in the operator's own image. "" stands for all namespaces. Exit 0 where
every right is there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from cdcsync_kube.access import connect_api
from cdcsync_kube.client import Api

#: (group, resource, verb), a row each
NEEDED = (
    *(("cdcsync.io", "cdcsyncs", verb) for verb in ("get", "list", "watch")),
    ("cdcsync.io", "cdcsyncs/status", "update"),
    # the last one is given on to a snapshot's driver, whose Spark deletes executors so
    *(("", "pods", verb) for verb in ("get", "list", "watch", "create", "patch", "delete", "deletecollection")),
    *(("", "configmaps", verb) for verb in ("get", "list", "create", "update", "patch", "delete")),
    *(("", "secrets", verb) for verb in ("list", "create")),
    ("cdcsync.io", "secrets", "mount"),
    ("cdcsync.io", "releases", "run"),
    ("", "events", "create"),
    *(("", "serviceaccounts", verb) for verb in ("get", "create", "delete")),
    *(("rbac.authorization.k8s.io", k, v) for k in ("roles", "rolebindings") for v in ("get", "create", "delete")),
)
#: where the namespaces are selected by their labels, in all of them; the operator gives itself the
#: others
BY_SELECTOR = (
    ("", "namespaces", "list"),
    *(("rbac.authorization.k8s.io", "rolebindings", verb) for verb in ("list", "create")),
)
#: for the addresses of nodes, and the ranges of pods and Services
OF_NODES = (("", "nodes", "list"), ("networking.k8s.io", "servicecidrs", "list"))


def missing(api: Api, namespace: str, needed: Iterable[tuple[str, str, str]] = NEEDED) -> list[str]:
    """A phrase per right that is not there."""
    return [
        f"{verb} {resource}{'.' + group if group else ''} in {namespace or 'all namespaces'}"
        for group, resource, verb in needed
        if not _allowed(api, namespace, group, resource, verb)
    ]


def _allowed(api: Api, namespace: str, group: str, resource: str, verb: str) -> bool:
    name, _, subresource = resource.partition("/")
    attributes = {"namespace": namespace, "group": group, "resource": name, "subresource": subresource, "verb": verb}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}
    review = body | {"spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}}}
    answer = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"].get("allowed"))


def main(namespaces: list[str]) -> int:
    api = connect_api()
    options = {"--by-selector": BY_SELECTOR, "--nodes": OF_NODES}
    faults = [fault for option in options if option in namespaces for fault in missing(api, "", options[option])]
    if "--by-selector" not in namespaces:
        named = [namespace for namespace in namespaces if namespace not in options]
        faults += [fault for namespace in named or [""] for fault in missing(api, namespace)]
    for fault in faults:
        sys.stdout.write(f"not allowed: {fault}\n")
    sys.stdout.write("all rights are there\n" if not faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
