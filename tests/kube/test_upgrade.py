"""An operator goes on with what one of an earlier release left on the API server: a sync that
streams, its driver's pod and configuration, and a report that no operator has read yet."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Status
from cdcsync_kube.client import Api
from support import earlier_release
from support.in_process_sync import InProcessSync

#: of one API server and no other
OWN = ("uid", "resourceVersion", "creationTimestamp", "generation")


@pytest.fixture
def left(api: Api, sync: InProcessSync) -> InProcessSync:
    """The sync as it was left, in this test's namespace."""
    objects = earlier_release.cluster()
    about = objects["cdcsync"]["metadata"]
    text = json.dumps(objects).replace(f'"namespace": "{about["namespace"]}"', f'"namespace": "{sync.namespace}"')
    resource = _new(json.loads(text)["cdcsync"])
    created = api.create(sync.syncs, resource | {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync"})
    api.merge(f"{sync.syncs}/shop/status", {"status": resource["status"]})
    objects = json.loads(text.replace(about["uid"], created["metadata"]["uid"]))
    for entry in objects["configMaps"]:
        api.create(f"{sync.base}/configmaps", _new(entry))
    for pod in objects["pods"]:
        account = {"metadata": {"name": pod["spec"]["serviceAccountName"]}}
        api.create(f"{sync.base}/serviceaccounts", account)
        api.create(f"{sync.base}/pods", _new(pod))
        api.merge(f"{sync.base}/pods/{pod['metadata']['name']}/status", {"status": {"phase": "Running"}})
    return sync


def _new(entry: dict[str, Any]) -> dict[str, Any]:
    return entry | {"metadata": {k: v for k, v in entry["metadata"].items() if k not in OWN}}


def test_a_driver_of_an_earlier_release_goes_on(left: InProcessSync) -> None:
    """No pod is replaced, no table is read again, and the driver's next report is read, too."""
    before, pods = left.stored, _pods(left)
    assert _offset(before) == 300
    controller = left.operator()
    left.until(controller, lambda s: _offset(s) == 400)
    for _ in range(3):  # two reports are of before, and a driver counts on
        left.flow(left.driver(RunKind.STREAM), 500)
    after = left.until(controller, lambda s: _offset(s) == 500 and s.condition("Ready").status == "True")
    runs = [[(run.id, run.pod, run.epoch) for run in status.runs.named] for status in (before, after)]
    assert runs[0] == runs[1]
    assert _pods(left) == pods
    assert (after.restarts, after.snapshot) == (before.restarts, before.snapshot)


def _offset(status: Status) -> int:
    return status.position.offset if status.position else 0


def _pods(sync: InProcessSync) -> dict[str, str]:
    """Their UIDs."""
    return {name: pod["metadata"]["uid"] for name, pod in sync.pods().items()}
