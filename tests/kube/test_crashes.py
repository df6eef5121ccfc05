"""The operator dies at each of its own crash points: the next one goes on with one driver, and
leaves nothing behind (R8)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdcsync_core.runs.run import RunKind
from support.deaths import Died, dying_at
from support.in_process_sync import InProcessSync

PROGRAM = Path(__file__).parents[2]
#: the gate that is passed when a driver is stopped
STOP_POINT = "stop-marked"
POINTS = ("run-recorded", "report-made", "rights-made", "pod-made", "observed")


def test_every_crash_point_of_the_operator_is_here() -> None:
    files = (PROGRAM / "operator/cdcsync_operator/cluster").rglob("*.py")
    named = {n for f in files for n in re.findall(r'\bgate\("([a-z-]+)"\)', f.read_text())}
    assert named | {"run-recorded"} == set(POINTS) | {STOP_POINT}


@pytest.mark.parametrize("kind", [RunKind.SNAPSHOT, RunKind.STREAM])
@pytest.mark.parametrize("point", POINTS)
def test_the_next_operator_goes_on(
    sync: InProcessSync, monkeypatch: pytest.MonkeyPatch, point: str, kind: RunKind
) -> None:
    first = sync.create().operator()
    if kind is RunKind.STREAM:
        sync.until(first, lambda s: s.runs.snapshot and sync.pods())
        sync.read(sync.driver(RunKind.SNAPSHOT), *sync.tables)
        sync.end(RunKind.SNAPSHOT)

    with dying_at(point), pytest.raises(Died):
        sync.until(first, lambda _: False)

    second = sync.operator()
    sync.until(second, lambda s: (ref := s.runs.get(kind)) and ref.pod in sync.pods())
    if kind is RunKind.SNAPSHOT:
        sync.read(sync.driver(RunKind.SNAPSHOT), *sync.tables)
        sync.end(RunKind.SNAPSHOT)
        sync.until(second, lambda s: s.runs.stream and s.runs.stream.pod in sync.pods())
    sync.flow(sync.driver(RunKind.STREAM))
    status = sync.until(second, lambda s: s.condition("Ready").status == "True")
    second.reconcile()

    assert status.runs.stream
    assert list(sync.pods()) == [status.runs.stream.pod], "one driver"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sync.namespace}"
    for path in (f"{sync.base}/configmaps", f"{sync.base}/serviceaccounts", f"{rbac}/roles", f"{rbac}/rolebindings"):
        found = {
            o["metadata"]["labels"]["cdcsync.io/run"] for o in sync.api.items(path, labelSelector="cdcsync.io/run")
        }
        assert found == {status.runs.stream.id}, f"left behind in {path}"


@pytest.mark.parametrize("spec", [{"state": "paused"}, {"restartNonce": 1}])
def test_the_next_operator_finishes_a_stop(
    sync: InProcessSync, monkeypatch: pytest.MonkeyPatch, spec: dict[str, object]
) -> None:
    """The mark alone ends no driver, and it is all that the next one finds."""
    first = sync.create().operator()
    sync.to_streaming(first)
    old = sync.stored.runs.stream
    assert old
    sync.change(**spec)
    with dying_at(STOP_POINT), pytest.raises(Died):
        sync.until(first, lambda _: False)
    assert "deletionTimestamp" not in sync.pods()[old.pod]["metadata"]

    second = sync.operator()
    status = sync.until(second, lambda s: old.pod not in sync.pods() and (s.phase == "Paused" or sync.pods()))
    assert status.restarts.consecutive == 0
    if spec == {"restartNonce": 1}:
        status = sync.until(second, lambda s: s.runs.stream and s.runs.stream.pod in sync.pods())
        assert status.runs.stream
        assert status.runs.stream.id != old.id
