"""Ten honest syncs that stream beside a tenant who writes random and hostile objects as fast as the
API server takes them: how late the operator shows what their drivers report, and its memory.

    make bench ARGS='-k hostile_tenant'                 CDCSYNC_BENCH_SECONDS=300

A real API server and the operator as it is deployed; its source is simulated. A driver reports
once a second; a status is late by the time since the newest position that it shows.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from bench.operator_process import Drivers, operator, streaming
from cdcsync_core.timestamps import unix_time
from cdcsync_kube.client import Api
from support.apiserver import api_server
from support.hostile_objects import HostileTenant

pytestmark = pytest.mark.timeout(1800)

SECONDS = float(os.environ.get("CDCSYNC_BENCH_SECONDS", "30"))
SYNCS = 10
#: a stream is reconciled every ten seconds
_RECONCILED_EVERY = 10.0
#: the memory of the operator's pod, by the chart
_LIMIT_MIB = 1024


def _lateness(api: Api) -> list[float]:
    """In seconds, of each honest sync."""
    statuses = [o["status"] for o in api.items("/apis/cdcsync.io/v1alpha1/namespaces/space0/cdcsyncs")]
    shown = (unix_time(str((status.get("position") or {}).get("timestamp"))) for status in statuses)
    return [time.time() - at for at in shown if at is not None]


def test_hostile_tenant(tmp_path: Path) -> None:
    with api_server(tmp_path) as api:
        drivers = Drivers(api, streaming(api, SYNCS), seconds=1.0)
        drivers.start()
        api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hostile"}})
        late, memory = [0.0], [0.0]
        try:
            with operator(api, tmp_path) as process:
                process.settled("Streaming", SYNCS, quiet=False)
                tenant = HostileTenant(api.with_timeout(30), "hostile", seed=1)
                with tenant.writing():
                    ends = time.monotonic() + SECONDS
                    while time.monotonic() < ends:
                        time.sleep(1)
                        found = _lateness(api)
                        assert len(found) == SYNCS
                        late.append(max(found))
                        memory.append(process.sample("Streaming").memory)
        finally:
            drivers.stop()
        print(
            f"\n{SYNCS} streams beside {tenant.written:,} hostile writes in {SECONDS:.0f} s: shown at most {max(late):.1f} s late"
            f" ({_RECONCILED_EVERY:.0f} between reconciliations), operator at most {max(memory):.0f} MiB; load {os.getloadavg()[0]:.1f}"
        )
        assert max(memory) < _LIMIT_MIB
