"""What many syncs at rest cost the operator's process: requests to the API server,
reconciliations, CPU seconds a minute, and memory.

    make bench ARGS='-k at_rest'                 CDCSYNC_BENCH_SECONDS=90 CDCSYNC_BENCH_SYNCS=500

A real API server and the operator as it is deployed, Kopf included; its source is simulated.
Nothing changes in the specs. `paused`: nothing runs; each is reconciled every five minutes, so they
are measured for as long. `streaming`: each has a driver's pod that is Running and a driver that
reports its position every ten seconds (real ones do so every two; the operator reconciles every
ten). `start`: how long until a new operator has observed all specs, and one that was changed last.
`foreign`: the memory beside pods of no sync, of which CDCSYNC_BENCH_PODS says how many, in
an operator of all namespaces. Needs the node binary (`make test-kube`).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bench.operator_process import Drivers, Operator, Sample, operator, streaming
from cdcsync_kube.client import Api
from support.apiserver import api_server

pytestmark = pytest.mark.timeout(1800)

SYNCS = int(os.environ.get("CDCSYNC_BENCH_SYNCS", "500"))
SECONDS = float(os.environ.get("CDCSYNC_BENCH_SECONDS", "30"))
PODS = int(os.environ.get("CDCSYNC_BENCH_PODS", "3000"))
#: of a paused sync
_CYCLE_SECONDS = 300.0


def show(what: str, before: Sample, after: Sample) -> None:
    minutes = (after.at - before.at) / 60
    print(
        f"\n{SYNCS} {what}: a minute {(after.calls - before.calls) / minutes:,.0f} API calls,"
        f" {(after.reconciliations - before.reconciliations) / minutes:,.0f} reconciliations,"
        f" {(after.cpu - before.cpu) / minutes:.1f} CPU s; {after.memory:.0f} MiB; {_load()}"
    )


def _load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


_SYNCS = "/apis/cdcsync.io/v1alpha1/namespaces/default/cdcsyncs"


def paused(api: Api, count: int) -> None:
    spec = {
        "source": {"host": "h", "credentialsSecretRef": {"name": "x"}}, "tables": {"include": ["a.*"]},
        "sink": {"delta": {"path": "s3://a/b"}}, "state": "paused",
    }  # fmt: skip
    for n in range(count):
        body = {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": {"name": f"s{n:05d}"}, "spec": spec}
        api.create(_SYNCS, body)


def test_paused_at_rest(tmp_path: Path) -> None:
    with api_server(tmp_path) as api:
        paused(api, SYNCS)
        with operator(api, tmp_path) as found:
            before = found.settled("Paused", SYNCS, quiet=True)
            time.sleep(max(SECONDS, _CYCLE_SECONDS))
            show("paused", before, found.sample("Paused"))


def test_start_at_rest(tmp_path: Path) -> None:
    """Starts with new specs, and again with ones that were observed before but for the one that
    changed."""
    with api_server(tmp_path) as api:
        paused(api, SYNCS)
        for which in ("new", "known"):
            changed = f"s{SYNCS // 2:05d}"
            api.merge(f"{_SYNCS}/{changed}", {"spec": {"restartNonce": 1 + (which == "known")}})
            begun = time.monotonic()
            with operator(api, tmp_path, samples=500) as found:
                first = _observed(api, found, changed) - begun
                after = found.reconciled(SYNCS)
            times = f"{first:.1f} s until the last change is observed, {after.at - begun:.0f} s until all"
            print(f"\n{SYNCS} {which}: {times}; {after.cpu:.0f} CPU s, {after.memory:.0f} MiB; {_load()}")
        observed = [o["status"].get("observedGeneration") for o in api.items(_SYNCS)]
        assert all(generation > 0 for generation in observed)


def _observed(api: Api, process: Operator, name: str) -> float:
    while True:
        process.assert_lives()
        found = api.get(f"{_SYNCS}/{name}")
        if (found.get("status") or {}).get("observedGeneration") == found["metadata"]["generation"]:
            return time.monotonic()
        time.sleep(0.1)


def test_foreign_at_rest(tmp_path: Path) -> None:
    with api_server(tmp_path) as api:
        container = {"name": "c", "image": "x", "env": [{"name": f"V{n}", "value": "v" * 50} for n in range(40)]}
        for n in range(PODS):
            body = {"metadata": {"name": f"p{n}", "labels": {"app": "other"}}, "spec": {"containers": [container]}}
            api.create("/api/v1/namespaces/default/pods", body)
        with operator(api, tmp_path) as found:
            paused(api, 1)
            after = found.reconciled(1)
            print(f"\nbeside {PODS} foreign pods: {after.memory:.0f} MiB, {after.cpu:.1f} CPU s; {_load()}")


def test_streaming_at_rest(tmp_path: Path) -> None:
    with api_server(tmp_path) as api:
        drivers = Drivers(api, streaming(api, SYNCS))
        drivers.start()
        try:
            with operator(api, tmp_path) as found:
                found.settled("Streaming", SYNCS, quiet=False)
                time.sleep(15)  # the first preflight of each
                before = found.sample("Streaming")
                time.sleep(SECONDS)
                after = found.sample("Streaming")
        finally:
            drivers.stop()
        statuses = [o["status"] for o in api.items("/apis/cdcsync.io/v1alpha1/cdcsyncs")]
        assert all(s["runs"]["stream"]["id"].endswith("-abcd-2") for s in statuses), "none was started again"
        show("streaming", before, after)
