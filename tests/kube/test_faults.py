"""An API server that refuses, loses answers and is slow: the operator gets there, with one driver
and nothing left over."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Status
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.objects.run_objects import RUN_LABEL
from support.in_process_sync import InProcessSync

#: what an API server under pressure answers; a status of 0 is none in time
REFUSALS = [
    (409, "Conflict"),
    (410, "Expired"),
    (429, "TooManyRequests"),
    (500, "InternalError"),
    (503, "ServiceUnavailable"),
    (0, ""),
]


class FaultyApi(Api):
    """One request in twelve is refused, and of one in twelve the answer is lost, while what it
    asked for was done."""

    def __init__(self, api: Api, seed: int) -> None:
        super().__init__(api.login)
        self._random = random.Random(seed)
        self.refused: set[int] = set()
        self.lost = 0

    def _call(self, *arguments: Any, **more: Any) -> Object:
        chance = self._random.random()
        if chance < 1 / 12:
            status, reason = self._random.choice(REFUSALS)
            self.refused.add(status)
            raise ApiError(status, reason, "a fault of the test")
        answer = super()._call(*arguments, **more)
        if chance < 2 / 12:
            self.lost += 1
            raise ApiError(0, "", "the API server does not answer: TimeoutError: timed out")
        return answer


def left(sync: InProcessSync) -> set[str]:
    """The runs that have anything at all."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sync.namespace}"
    kinds = [f"{sync.base}/{kind}" for kind in ("pods", "configmaps", "serviceaccounts")]
    found = [o for path in (*kinds, f"{rbac}/roles", f"{rbac}/rolebindings") for o in sync.api.items(path)]
    return {o["metadata"]["labels"][RUN_LABEL] for o in found if RUN_LABEL in o["metadata"].get("labels", {})}


@pytest.fixture
def faulty(api: Api, request: pytest.FixtureRequest) -> Iterator[FaultyApi]:
    made = FaultyApi(api, request.param)
    yield made
    made.close()


@pytest.mark.parametrize("faulty", [1, 2], indirect=True)
def test_refusals_and_lost_answers_cost_time_and_nothing_else(sync: InProcessSync, faulty: FaultyApi) -> None:
    controller = sync.create().operator(faulty)
    first = sync.until(controller, lambda s: _flows(sync, s), 60).runs.stream
    assert first
    sync.change(restartNonce=1)
    ref = sync.until(controller, lambda s: _flows(sync, s, but=first.id), 60).runs.stream
    assert ref
    sync.until(controller, lambda _: left(sync) == {ref.id}, 60)
    assert set(sync.pods()) == {ref.pod}
    assert len(faulty.refused) >= 4
    assert faulty.lost >= 4


def _flows(sync: InProcessSync, status: Status, but: str = "") -> bool:
    """Drivers do their work as soon as they are there; True once a stream flows, another one than
    `but`."""
    pods = sync.pods()
    for kind in RunKind:
        ref = status.runs.get(kind)
        if ref is None or ref.pod not in pods or pods[ref.pod]["status"]["phase"] != "Pending":
            continue
        if kind is RunKind.SNAPSHOT:
            sync.read(sync.driver(kind), *sync.tables)
            sync.end(kind)
        else:
            sync.flow(sync.driver(kind))
    stream = status.runs.stream
    return stream is not None and stream.id != but and status.condition("Ready").status == "True"
