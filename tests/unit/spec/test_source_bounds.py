"""The owner of a source bounds its snapshots by annotations of its Secret: the stricter bound
counts, from a file and on a cluster."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from cdcsync_core.errors import PermanentError
from cdcsync_core.resource.manifest import Secrets, load_manifest
from cdcsync_core.resource.snapshot_spec import SnapshotSpec
from cdcsync_core.runs.run import RunKind
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy
from cdcsync_operator.cluster.store import KubeStore
from cdcsync_operator.decision.runs.fingerprint import fingerprint
from unit.cluster.fake_api import FakeApi

ROWS, THREADS = "cdcsync.io/max-rows-per-second", "cdcsync.io/max-threads-running"
BYTES, LAG = "cdcsync.io/max-bytes-per-second", "cdcsync.io/max-replica-lag"
HISTORY = "cdcsync.io/max-history-list-length"


def _sync(snapshot: dict[str, Any] | None = None) -> dict[str, Any]:
    source = {"host": "db", "credentialsSecretRef": {"name": "login"}}
    spec = {"source": source, "tables": {"include": [r"shop\..*"]}, "sink": {"delta": {"path": "s3://lake/cdc"}}}
    return {
        "apiVersion": "cdcsync.io/v1beta1",
        "kind": "CdcSync",
        "metadata": {"name": "shop"},
        "spec": spec | ({"snapshot": snapshot} if snapshot else {}),
    }


def _secret(annotations: dict[str, str]) -> dict[str, Any]:
    about = {"name": "login", "labels": {"cdcsync.io/source": "true"}, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": about,
        "stringData": {"username": "cdc", "password": "pw"},
    }


def _bounds(spec: SnapshotSpec) -> tuple[int | None, int | None, int | None]:
    return spec.max_rows_per_second, spec.max_load.threads_running, spec.max_load.history_list_length


@pytest.mark.parametrize(
    ("annotations", "snapshot", "bounds"),
    [
        ({}, {}, (None, None, None)),
        ({ROWS: "500"}, {}, (500, None, None)),
        ({ROWS: "500"}, {"maxRowsPerSecond": 1000}, (500, None, None)),
        ({ROWS: "5000"}, {"maxRowsPerSecond": 1000}, (1000, None, None)),
        ({THREADS: "30", HISTORY: "9"}, {"maxLoad": {"threadsRunning": 40}}, (None, 30, 9)),
        ({}, {"maxLoad": {"threadsRunning": 40}}, (None, 40, None)),
    ],
)
def test_the_lower_bound_counts(
    annotations: dict[str, str], snapshot: dict[str, Any], bounds: tuple[int | None, ...]
) -> None:
    manifest = load_manifest([yaml.safe_dump_all([_secret(annotations), _sync(snapshot)])])
    assert _bounds(manifest.resource.spec.snapshot) == bounds


@pytest.mark.parametrize(
    ("text", "own", "bound"), [("20Mi", None, 20 << 20), ("65536", "1Mi", 1 << 16), ("1Gi", "1Mi", 1 << 20)]
)
def test_a_bound_on_bytes_is_a_size(text: str, own: str | None, bound: int) -> None:
    snapshot = {} if own is None else {"maxBytesPerSecond": own}
    manifest = load_manifest([yaml.safe_dump_all([_secret({BYTES: text}), _sync(snapshot)])])
    assert manifest.resource.spec.snapshot.max_bytes_per_second == bound


@pytest.mark.parametrize(
    ("name", "text"),
    [(ROWS, "99"), (ROWS, "many"), (ROWS, "1 000"), (ROWS, ""), (ROWS, "9" * 10), (THREADS, "0"), (THREADS, "-1")],
)
def test_a_bound_that_is_not_understood_is_refused(name: str, text: str) -> None:
    with pytest.raises(PermanentError, match=f"Secret login: its annotation {name} is .*needed: a whole number"):
        load_manifest([yaml.safe_dump_all([_secret({name: text}), _sync()])])


@pytest.mark.parametrize(("text", "own", "bound"), [("30s", None, 30), ("90", "2m", 90), ("1h", "2m", 120)])
def test_a_bound_on_lag_is_a_duration(text: str, own: str | None, bound: float) -> None:
    snapshot = {} if own is None else {"maxLoad": {"replicaLag": own}}
    manifest = load_manifest([yaml.safe_dump_all([_secret({LAG: text}), _sync(snapshot)])])
    assert manifest.resource.spec.snapshot.max_load.replica_lag == bound


@pytest.mark.parametrize("text", ["0", "25h", "half a minute", "30 s", ""])
def test_a_duration_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(PermanentError, match="needed: seconds, or a duration like 30s, between 1s and 24h"):
        load_manifest([yaml.safe_dump_all([_secret({LAG: text}), _sync()])])


@pytest.mark.parametrize("text", ["1Ki", "2Ti", "20 Mi", "20MB", "-1", ""])
def test_a_size_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(PermanentError, match="needed: bytes, or a size like 20Mi, between 64Ki and 1Ti"):
        load_manifest([yaml.safe_dump_all([_secret({BYTES: text}), _sync()])])


@pytest.mark.parametrize(
    ("snapshot", "rows", "splits"),
    [
        ({}, 50_000, 16),
        ({"maxRowsPerSecond": 20_000}, 20_000, 1),
        ({"maxRowsPerSecond": 200_000}, 50_000, 4),
        ({"maxRowsPerSecond": 2_000_000}, 50_000, 8),
        ({"maxLoad": {"threadsRunning": 40}}, 50_000, 8),
    ],
)
def test_a_wave_has_the_rows_of_a_second_at_most(snapshot: dict[str, Any], rows: int, splits: int) -> None:
    spec = SnapshotSpec.model_validate(snapshot)
    assert (spec.rows_a_split, spec.splits_a_wave) == (rows, splits)


class AnnotatedCluster:
    def __init__(self, annotations: dict[str, str]) -> None:
        self.api, self.now = FakeApi(), 0.0
        body = _sync({"maxRowsPerSecond": 1000})
        body["metadata"] |= {"namespace": "lake", "generation": 1, "uid": "u"}
        self.api.add("/apis/cdcsync.io/v1alpha1/namespaces/lake/cdcsyncs", body)
        secret = _secret(annotations) | {"data": {"username": "eA==", "password": "eA=="}}
        self.api.add("/api/v1/namespaces/lake/secrets", secret)
        self.secret = "/api/v1/namespaces/lake/secrets/login"

    def store(self) -> KubeStore:
        """That of an operator that has just started."""
        return KubeStore(self.api, "lake", "shop", PodPolicy(), Image("x"), _ignored, lambda: self.now)


def _ignored(_: Secrets) -> None:
    pass


def test_a_cluster_reads_the_bounds_before_it_decides() -> None:
    """Else an operator that starts would replace the snapshot that runs within them."""
    cluster = AnnotatedCluster({ROWS: "500"})
    spec = cluster.store().load()[0].spec
    assert spec.snapshot.max_rows_per_second == 500
    assert fingerprint(spec, RunKind.SNAPSHOT) == fingerprint(cluster.store().load()[0].spec, RunKind.SNAPSHOT)


def test_a_bound_that_changes_restarts_a_snapshot_and_no_stream() -> None:
    cluster = AnnotatedCluster({ROWS: "500"})
    store = cluster.store()
    before = store.load()[0].spec
    cluster.api.objects[cluster.secret]["metadata"]["annotations"] = {ROWS: "400"}
    cluster.now = 60.0
    store.missing_secrets()
    after = store.load()[0].spec
    assert after.snapshot.max_rows_per_second == 400
    assert fingerprint(after, RunKind.SNAPSHOT) != fingerprint(before, RunKind.SNAPSHOT)
    assert fingerprint(after, RunKind.STREAM) == fingerprint(before, RunKind.STREAM)


def test_a_secret_that_is_away_leaves_the_bounds_as_they_were() -> None:
    cluster = AnnotatedCluster({ROWS: "500"})
    store = cluster.store()
    store.load()
    secret = cluster.api.objects.pop(cluster.secret)
    cluster.now = 60.0
    assert store.missing_secrets()
    assert store.load()[0].spec.snapshot.max_rows_per_second == 500
    cluster.api.objects[cluster.secret] = secret


def test_a_cluster_names_a_bound_that_is_not_understood() -> None:
    cluster = AnnotatedCluster({ROWS: "fast"})
    store = cluster.store()
    store.load()
    (phrase,) = store.missing_secrets()
    assert phrase.startswith(f"Secret login: its annotation {ROWS} is ")
