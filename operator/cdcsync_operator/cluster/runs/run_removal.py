"""What is left of a run is cleared away, object by object (see `owned`).

Why it is right: the first of a run's reports goes last, so a run of which anything is left is
found again by the next pass, whatever died in between. Names follow from the run's id; maps and
executors are listed, because their number is not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdcsync_kube.client import Api, Object
from cdcsync_operator.cluster.objects.owned import Owned
from cdcsync_operator.cluster.objects.run_objects import PART_LABEL, RUN_LABEL, SYNC_LABEL, account_name

#: the last failed driver's pod is kept under this part's name, for its log
KEPT = "kept-driver"
_UNFINISHED = "status.phase!=Failed,status.phase!=Succeeded"


@dataclass(frozen=True)
class RunRemoval:
    """For the runs of a sync whose resource has this uid; `policies`: runs have a
    NetworkPolicy."""

    api: Api
    namespace: str
    sync: str
    uid: str
    policies: bool

    def executors(self, run: str, driver: Object | None) -> None:
        """Removes the pods that have not ended: one that waits for a node would do so as long as
        the driver's pod is kept. Without that pod the cluster removes what it owned."""
        if driver is None:
            return
        of_driver = Owned(self.api, driver["metadata"]["uid"])
        selector = f"{RUN_LABEL}={run},{PART_LABEL}=executor"
        named = re.compile(rf"{re.escape(run)}-exec-[0-9]+")
        of_driver.delete_all(f"{self._base}/pods", named, labelSelector=selector, fieldSelector=_UNFINISHED)

    def driver(self, run: str) -> None:
        """A driver's pod that was not found when runs were read. One that is kept stays."""
        self._owned.delete(f"{self._base}/pods/{run}-driver", part="driver")

    def kept_pods(self) -> None:
        named = re.compile(rf"{re.escape(self.sync)}-.+-driver")
        selector = f"{SYNC_LABEL}={self.sync},{PART_LABEL}={KEPT}"
        self._owned.delete_all(f"{self._base}/pods", named, labelSelector=selector)

    def rights(self, run: str) -> None:
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
        self._owned.delete(f"{rbac}/rolebindings/{run}")
        self._owned.delete(f"{rbac}/roles/{run}")
        self._owned.delete(f"{self._base}/serviceaccounts/{account_name(run)}")
        if self.policies:
            self._owned.delete(f"/apis/networking.k8s.io/v1/namespaces/{self.namespace}/networkpolicies/{run}")

    def maps(self, run: str) -> None:
        """Its reports last, the first of them at the very end."""
        named = re.compile(rf"{re.escape(run)}-(config|plan|report)-[0-9]+")
        selector = f"{SYNC_LABEL}={self.sync},{RUN_LABEL}={run}"
        self._owned.delete_all(f"{self._base}/configmaps", named, _reports_last, labelSelector=selector)

    @property
    def _base(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    @property
    def _owned(self) -> Owned:
        return Owned(self.api, self.uid)


def _reports_last(name: str) -> tuple[bool, int]:
    part, number = name.rsplit("-", 2)[1:]
    return part == "report", -int(number)
