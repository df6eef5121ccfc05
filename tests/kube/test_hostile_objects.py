"""Whatever a tenant writes, the operator goes on, and the syncs of others with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import yaml

from cdcsync_kube.client import Api
from cdcsync_operator.cluster.quota.report_bounds import ReportBounds
from cdcsync_operator.cluster.quota.room import Room, RoomBounds, Rooms
from cdcsync_operator.cluster.syncs.traces import Traces
from support.apiserver import kubeconfig
from support.hostile_objects import HostileTenant
from support.in_process_sync import InProcessSync

_MIB = 2**20
#: the memory of the operator's pod, by the chart
_LIMIT = 2**30
_WRITES = 80
_SECONDS = 600.0


def test_random_and_hostile_objects_end_no_operator(api: Api, sync: InProcessSync, tmp_path: Path) -> None:
    """The honest sync is paused and resumed while the tenant writes."""
    hostile = f"{sync.namespace}-hostile"
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": hostile}})
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(api)))
    settings = {
        "KUBECONFIG": str(tmp_path / "kubeconfig"), "HOSTNAME": "one", "CDCSYNC_DRIVER_IMAGE": "x", "CDCSYNC_METRICS_PORT": "0",
        "CDCSYNC_NAMESPACES": f"{sync.namespace} {hostile}", "CDCSYNC_LEASE": f"{sync.namespace}/cdcsync",
    }  # fmt: skip
    sync.create(state="paused")
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "cdcsync_operator.cluster.handlers"]
        process = subprocess.Popen(command, env=os.environ | settings, stderr=log, stdout=log)
    memory, changes = [0], 0
    try:
        with HostileTenant(api.with_timeout(30), hostile, seed=7).writing() as tenant:
            deadline = time.monotonic() + _SECONDS
            while tenant.written < _WRITES or changes < 3:
                assert time.monotonic() < deadline, (tenant.written, changes)
                assert process.poll() is None, (tmp_path / "log").read_text()[-5000:]
                memory.append(psutil.Process(process.pid).memory_info().rss)
                found = api.get(f"{sync.syncs}/shop")
                if (found.get("status") or {}).get("observedGeneration") == found["metadata"]["generation"]:
                    changes += 1
                    sync.change(restartNonce=changes)
                time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, (tmp_path / "log").read_text()[-5000:]
    finally:
        process.kill()
        process.wait()
    assert max(memory) < _LIMIT


def test_labels_like_the_products_hide_none_that_is_read(sync: InProcessSync) -> None:
    """The API server selects by all labels, in their order by name those of the tenant first."""
    wanted = {"cdcsync.io/part": "report", "cdcsync.io/run": "shop-x", "cdcsync.io/sync": "shop"}
    alike = {f"{prefix}/a{n}": "x" for prefix in ("app.kubernetes.io", "cdcsync.io") for n in range(40)}
    about = {"name": "a", "labels": alike | wanted, "annotations": {f"cdcsync.io/a{n}": "x" for n in range(40)}}
    sync.api.create(f"{sync.base}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about})
    traces = Traces(sync.api, lambda: (sync.namespace,))
    assert traces.is_untouched((sync.namespace, "other"))
    assert not traces.is_untouched((sync.namespace, "shop"))
    (read,) = sync.api.metadata(f"{sync.base}/configmaps", labelSelector="cdcsync.io/sync=shop")
    assert (read["labels"], read["annotations"]) == (wanted, {})


def test_reports_beyond_a_namespaces_room_are_its_own_fault_and_end_no_run(sync: InProcessSync) -> None:
    """They are read once they have become smaller."""
    rooms = Rooms(reports=Room(RoomBounds(total=2 * _MIB, own=_MIB // 4, namespaces=5)))
    controller = sync.create().operator(rooms=rooms)
    sync.to_streaming(controller)
    pods = sync.pods().keys()
    run = sync.stored.runs.stream
    assert run is not None
    report = f"{sync.base}/configmaps/{run.id}-report-0"
    sync.api.merge(report, {"data": {"more": "x" * (_MIB * 3 // 4)}})
    other = ReportBounds(rooms, sync.namespace)
    other.start("another-run", [{"data": {"more": "x" * (_MIB // 2)}}])
    controller.reset()
    stalled = sync.until(controller, lambda s: s.condition("Stalled").status == "True").condition("Stalled")
    assert stalled.reason == "QuotaExceeded"
    assert f"reports of the run {run.id}" in stalled.message
    assert "at most 1.0 MiB for a namespace" in stalled.message
    assert "spec.tables" in stalled.message
    assert sync.pods().keys() == pods
    ReportBounds(rooms, "elsewhere").start("run", [{"data": {"more": "x" * (_MIB // 5)}}])
    other.removed("another-run")
    sync.until(controller, lambda s: s.condition("Ready").status == "True")
    assert sync.pods().keys() == pods
