"""The namespaces whose syncs the operator runs: those of a list, all, or those that have labels.

Why it exists: no right of RBAC depends on labels, and a Role cannot be installed in a namespace
that does not exist yet. So with a selector the operator binds a ClusterRole of the chart to its own
account in each namespace that has the labels, and removes the binding where they are gone; the
chart's ValidatingAdmissionPolicy allows it no other binding. Why it is right: each refresh starts
from all namespaces and all bindings that there are, so a change that came while no operator was
there costs nothing; a namespace whose binding fails is left out, and tried again, alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog

from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.objects.owned import is_owned_by, uid_only

_log = structlog.get_logger()
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True)
class NamespaceRule:
    """`names`: a list, empty for all. With `selector`, a label selector of namespaces, `role` is
    the name of the ClusterRole and of its bindings, `account` the operator's (`namespace/name`)."""

    names: tuple[str, ...] = ()
    selector: str = ""
    role: str = ""
    account: str = ""


@dataclass
class Namespaces:
    """Thread safe, `refresh` for one thread. `served` is None where all namespaces are."""

    api: Api
    rule: NamespaceRule
    served: frozenset[str] | None = None
    _on_served: Callable[[frozenset[str]], None] = lambda _: None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.rule.selector:
            self.served = frozenset()
        elif self.rule.names:
            self.served = frozenset(self.rule.names)

    def serves(self, namespace: str) -> bool:
        return self.served is None or namespace in self.served

    def listed(self) -> tuple[str, ...]:
        """What to list: "" stands for all namespaces."""
        return ("",) if self.served is None else tuple(sorted(self.served))

    def follow(self, on_served: Callable[[frozenset[str]], None]) -> None:
        """Calls with the served namespaces now, and after each refresh."""
        with self._lock:
            self._on_served = on_served
            on_served(self.served or frozenset())

    def refresh(self) -> frozenset[str]:
        """Finds and binds the namespaces that have the labels; returns those that are no longer
        served. An API server that cannot be asked changes nothing."""
        if not self.rule.selector:
            return frozenset()
        try:
            selected = self._selected()
            uid = str(self.api.metadata_of(f"{_RBAC}/clusterroles/{self.rule.role}")["uid"])
            bindings = self._bindings(uid)
        except ApiError as error:
            _log.warning("the namespaces could not be listed", error=str(error))
            return frozenset()
        bound = {name for name, about in selected.items() if name in bindings or self._bind(about, uid)}
        lost = (self.served or frozenset()) - bound
        with self._lock:
            self.served = frozenset(bound)
            self._on_served(self.served)
        self._unbind(about for name, about in bindings.items() if name not in selected)
        return lost

    def _selected(self) -> dict[str, Object]:
        """The metadata of the namespaces that have the labels, by their names."""
        selected = self.api.metadata("/api/v1/namespaces", labelSelector=self.rule.selector)
        return {str(about["name"]): about for about in selected}

    def _bindings(self, uid: str) -> dict[str, Object]:
        """The bindings of this release, by their namespace."""
        bindings = self.api.metadata(f"{_RBAC}/rolebindings", fieldSelector=f"metadata.name={self.rule.role}")
        return {str(about["namespace"]): about for about in bindings if is_owned_by(uid, about)}

    def _bind(self, about: Object, uid: str) -> bool:
        """The ClusterRole owns the binding, which therefore goes with the release. Nothing can be
        created in a namespace that is being deleted, which may take for ever."""
        namespace = str(about["name"])
        if "deletionTimestamp" in about:
            return False
        try:
            self.api.create(f"{_RBAC}/namespaces/{namespace}/rolebindings", binding(self.rule, uid))
        except ApiError as error:
            _log.warning("a namespace cannot be served", namespace=namespace, error=str(error))
            return False
        return True

    def _unbind(self, bindings: Iterable[Object]) -> None:
        for about in bindings:
            path = f"{_RBAC}/namespaces/{about['namespace']}/rolebindings/{about['name']}"
            try:
                self.api.delete(path, uid_only(about))
            except ApiError as error:
                _log.warning("a binding stays", namespace=about["namespace"], error=str(error))


def binding(rule: NamespaceRule, uid: str) -> Object:
    """`uid` is the ClusterRole's."""
    namespace, _, name = rule.account.partition("/")
    group = "rbac.authorization.k8s.io"
    owner = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "name": rule.role, "uid": uid}
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": rule.role,
            "labels": {"app.kubernetes.io/name": "cdcsync-operator", "app.kubernetes.io/managed-by": "cdcsync"},
            "ownerReferences": [owner],
        },
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": rule.role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
