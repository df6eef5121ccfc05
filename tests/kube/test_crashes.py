"""The operator dies at each of its own crash points: the next one goes on with one driver, and leaves nothing behind (R8)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdcsync_core.run import RunKind
from cdcsync_operator import kube_controller, kube_drivers, reconcile
from support.played_sync import PlayedSync

PROGRAM = Path(__file__).parents[2]
#: gate -> the modules that pass it
POINTS = {
    "run-recorded": reconcile,
    "report-made": kube_drivers,
    "rights-made": kube_drivers,
    "pod-made": kube_drivers,
    "looked": kube_controller,
}


class Died(BaseException):
    """The process is gone: nothing may handle it."""


def test_every_crash_point_of_the_operator_is_here() -> None:
    files = (PROGRAM / "operator").rglob("kube_*.py")
    named = {n for f in files for n in re.findall(r'\bgate\("([a-z-]+)"\)', f.read_text())}
    assert named | {"run-recorded"} == set(POINTS)


@pytest.mark.parametrize("kind", [RunKind.SNAPSHOT, RunKind.STREAM])
@pytest.mark.parametrize("point", POINTS)
def test_the_next_operator_goes_on(
    sync: PlayedSync, monkeypatch: pytest.MonkeyPatch, point: str, kind: RunKind
) -> None:
    first = sync.create().operator()
    if kind is RunKind.STREAM:
        sync.until(first, lambda s: s.runs.snapshot and sync.pods())
        sync.read(sync.driver(RunKind.SNAPSHOT), *sync.tables)
        sync.end(RunKind.SNAPSHOT)

    def gate(name: str) -> None:
        if name == point:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(POINTS[point], "gate", gate)
        with pytest.raises(Died):
            sync.until(first, lambda _: False)

    second = sync.operator()
    sync.until(second, lambda s: (ref := s.runs.get(kind)) and ref.pod in sync.pods())
    if kind is RunKind.SNAPSHOT:
        sync.read(sync.driver(RunKind.SNAPSHOT), *sync.tables)
        sync.end(RunKind.SNAPSHOT)
        sync.until(second, lambda s: s.runs.stream and s.runs.stream.pod in sync.pods())
    sync.flow(sync.driver(RunKind.STREAM))
    status = sync.until(second, lambda s: s.condition("Ready").status == "True")
    second.look()

    assert status.runs.stream
    assert list(sync.pods()) == [status.runs.stream.pod], "one driver"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sync.namespace}"
    for path in (f"{sync.base}/configmaps", f"{sync.base}/serviceaccounts", f"{rbac}/roles", f"{rbac}/rolebindings"):
        found = {
            o["metadata"]["labels"]["cdcsync.io/run"] for o in sync.api.items(path, labelSelector="cdcsync.io/run")
        }
        assert found == {status.runs.stream.id}, f"left behind in {path}"
