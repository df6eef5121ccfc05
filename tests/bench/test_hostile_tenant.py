"""Ten honest syncs that stream beside a tenant who writes random and hostile objects as fast as the
API server takes them: how late the operator shows what their drivers report, and its memory. Before
them the same syncs alone. The tenant begins with thousands of forged reports, and with hundreds of
ConfigMaps of a megabyte, which have the names of those with a status's tables.

    make bench ARGS='-k hostile_tenant'                 CDCSYNC_BENCH_SECONDS=300

A real API server and the operator as it is deployed; its source is simulated. A driver reports
once a second; a status is late by the time for which there has been a report that it does not show.
It may be ten seconds late, without the time for which the operator had no CPU.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench.operator_process import Drivers, Operator, operator, streaming
from cdcsync_kube.client import Api
from support.apiserver import api_server
from support.hostile_objects import HostileTenant

pytestmark = pytest.mark.timeout(1800)

SECONDS = float(os.environ.get("CDCSYNC_BENCH_SECONDS", "30"))
SYNCS = 10
#: a stream whose driver reports often is reconciled every so many seconds
_RECONCILED_EVERY = 7.0
#: the memory of the operator's pod, by the chart
_LIMIT_MIB = 1024
#: what the tenant begins with
_REPORTS, _SHARDS = 4_000, 1_000
_LATEST = 10.0


@dataclass
class Lateness:
    """The lateness of the honest syncs' statuses, in seconds, and what no operator can help: the
    time for which its threads could have run and had no CPU, and that of the API server's answer
    here."""

    api: Api
    process: Operator
    drivers: Drivers
    worst: float = 0.0
    beyond: float = 0.0
    _waits: list[tuple[float, dict[str, float]]] = field(default_factory=list)

    def sample(self) -> None:
        asked = time.monotonic()
        found = self.api.items("/apis/cdcsync.io/v1alpha1/namespaces/space0/cdcsyncs")
        shown = {int(o["metadata"]["name"][1:]): int(o["status"]["position"]["offset"]) for o in found}
        assert len(shown) == SYNCS
        now, answered = time.time(), time.monotonic() - asked
        late = [now - (self.drivers.unseen_since(sync, offset) or now) for sync, offset in shown.items()]
        self._waits.append((now, self.process.waits()))
        self.worst = max(self.worst, *late)
        self.beyond = max(self.beyond, max(late) - answered - self._waited(now - max(late)))

    def _waited(self, since: float) -> float:
        """The wait of the thread that waited longest."""
        before = next((waits for at, waits in reversed(self._waits) if at <= since), self._waits[0][1])
        return max(waited - before.get(thread, 0.0) for thread, waited in self._waits[-1][1].items())


def test_hostile_tenant(tmp_path: Path) -> None:
    with api_server(tmp_path) as api:
        drivers = Drivers(api, streaming(api, SYNCS), seconds=1.0)
        drivers.start()
        api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hostile"}})
        try:
            with operator(api, tmp_path) as process:
                process.settled("Streaming", SYNCS, quiet=False)
                time.sleep(3 * _RECONCILED_EVERY)  # the operator learns how often the drivers report
                alone = _watched(Lateness(api, process, drivers), process, SECONDS / 5)
                before = process.sample("Streaming")
                tenant = HostileTenant(api.with_timeout(30), "hostile", 1, _REPORTS, _SHARDS)
                with tenant.writing():
                    beside = _watched(Lateness(api, process, drivers), process, SECONDS, tenant)
                after = process.sample("Streaming")
        finally:
            drivers.stop()
        (late, memory), cpu = beside, (after.cpu - before.cpu) / (after.at - before.at)
        print(
            f"\n{SYNCS} streams beside {tenant.written:,} hostile writes ({tenant.refused:,} refused) in {SECONDS:.0f} s:"
            f" shown at most {late.worst:.1f} s late, {alone[0].worst:.1f} s before ({_RECONCILED_EVERY:.0f} between"
            f" reconciliations), without waits for CPU {late.beyond:.1f} and {alone[0].beyond:.1f} s;"
            f" operator at most {memory:.0f} MiB, {cpu:.2f} CPU; load {os.getloadavg()[0]:.1f}"
        )
        later, further = late.worst - alone[0].worst, late.beyond - alone[0].beyond
        print(f"later than alone: by {later:.1f} s, without waits for CPU by {further:.1f} s")
        print(f"written: {dict(sorted(tenant.kinds.items()))}")
        assert memory < _LIMIT_MIB
        assert late.beyond < _LATEST


def _watched(
    late: Lateness, process: Operator, seconds: float, tenant: HostileTenant | None = None
) -> tuple[Lateness, float]:
    """The lateness, sampled each second, and the most memory, in MiB, for so many seconds after the
    tenant's first objects are written."""
    memory, ends = 0.0, time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(1)
        late.sample()
        memory = max(memory, process.sample("Streaming").memory)
        if tenant is not None and tenant.flooding:
            ends = time.monotonic() + seconds
    return late, memory
