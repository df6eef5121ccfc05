"""The operator as it is deployed, Kopf included, as a process beside a real API server, with a
simulated source; and syncs that stream there, whose drivers are simulated."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from cdcsync_core.runs.run import RunKind
from cdcsync_core.timestamps import utc
from cdcsync_demo.server_process import free_port
from cdcsync_kube.client import Api, Object
from cdcsync_operator.cluster.store import owner_of
from support.apiserver import kubeconfig
from support.in_process_sync import InProcessSync

REPORT_SECONDS = 10.0
#: the operator with a source that is always ready and has the two tables of `InProcessSync`
_PROGRAM = """
import time
from cdcsync_operator.cluster import handlers
from cdcsync_operator.reconcile.preflight import SourceCalls
from cdcsync_operator.reconcile.preflight import PreflightOutcome
from cdcsync_operator.decision.observed import PreflightResult, ObservedTable
from support.in_process_sync import table
NAMES = ("shop.a", "shop.b")
def run_preflight(resource, secrets, unread):
    tables = tuple(ObservedTable(n) for n in NAMES)
    seen = PreflightResult(resource.metadata.generation, time.time(), (), tables, (), {"flavor": "mysql"})
    return PreflightOutcome(seen, {n: table(n) for n in NAMES})
class Source:
    calls = SourceCalls(run_preflight, None, None)
handlers.ClusterSource = lambda _: Source
handlers.main()
"""


@dataclass(frozen=True)
class Sample:
    """Since the process began; `memory` in MiB."""

    at: float
    calls: float
    reconciliations: float
    cpu: float
    memory: float
    ready: int
    syncs: int


def _value(page: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)", page, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


class Operator:
    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        """`port` is that of its metrics."""
        self._process, self._page = psutil.Process(process.pid), f"http://127.0.0.1:{port}/metrics"

    def sample(self, phase: str) -> Sample:
        with urllib.request.urlopen(self._page, timeout=30) as answer:
            page = answer.read().decode()
        calls, reconciliations = (_value(page, name) for name in _TOTALS)
        times, memory = self._process.cpu_times(), self._process.memory_info().rss / 2**20
        ready = len(re.findall(rf'^cdcsync_phase{{.*phase="{phase}"}} 1', page, re.MULTILINE))
        cpu, syncs = times.user + times.system, int(_value(page, "cdcsync_syncs"))
        return Sample(time.monotonic(), calls, reconciliations, cpu, memory, ready, syncs)

    def assert_lives(self) -> None:
        assert self._process.status() != psutil.STATUS_ZOMBIE, "the operator has ended; see operator.log"

    def waits(self) -> dict[str, float]:
        """Seconds for which each thread could have run and had no CPU."""
        tasks = Path(f"/proc/{self._process.pid}/task")
        found = {}
        for task in tasks.iterdir():
            with suppress(OSError):
                found[task.name] = int((task / "schedstat").read_text().split()[1]) / 1e9
        return found

    def settled(self, phase: str, count: int, quiet: bool) -> Sample:
        """Once every sync has been reconciled, and, where `quiet`, the events of the
        reconciliations' writes have been seen, too."""
        deadline, reconciled = time.monotonic() + 600, 0.0
        while time.monotonic() < deadline:
            time.sleep(5)
            self.assert_lives()
            try:
                found = self.sample(phase)
            except OSError:
                continue
            if (
                found.ready == count
                and found.reconciliations >= count
                and (found.reconciliations == reconciled or not quiet)
            ):
                return found
            reconciled = found.reconciliations
        raise AssertionError(f"not all {count} are {phase}")

    def reconciled(self, count: int) -> Sample:
        """Once so many syncs have been reconciled at least once: a new one counts among the
        operator's as its first reconciliation begins. It is asked seldom: a page costs CPU time."""
        deadline = time.monotonic() + 1200
        while time.monotonic() < deadline:
            time.sleep(3)
            self.assert_lives()
            try:
                found = self.sample("Paused")
            except OSError:
                continue
            if found.syncs == count and found.reconciliations >= count:
                return found
        raise AssertionError(f"not all {count} were reconciled")


_TOTALS = ("cdcsync_api_calls_total", "cdcsync_reconcile_total")


@contextmanager
def operator(api: Api, folder: Path, samples: int = 1_000_000) -> Iterator[Operator]:
    """Whose page of metrics has at most so many samples."""
    port = free_port()
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(api)))
    settings = {
        "KUBECONFIG": str(folder / "kubeconfig"), "CDCSYNC_DRIVER_IMAGE": "x", "CDCSYNC_METRICS_PORT": str(port),
        "HOSTNAME": "bench", "CDCSYNC_LEASE": "default/cdcsync", "CDCSYNC_SAMPLE_LIMIT": str(samples),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }  # fmt: skip
    with (folder / "operator.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM], env=os.environ | settings, stderr=log, stdout=log)
        try:
            yield Operator(process, port)
        finally:
            process.terminate()
            process.wait(60)
            logged = (folder / "operator.log").read_text()
            assert "the lease is lost" not in logged, logged


def streaming(api: Api, count: int) -> list[str]:
    """Syncs as one that was brought to flow left them, a namespace each ten; paths of their
    drivers' reports."""
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "model"}})
    model = InProcessSync(api, "model").create()
    controller = model.operator()
    model.to_streaming(controller)
    controller.close()
    ref = model.stored.runs.get(RunKind.STREAM)
    assert ref
    found = api.get(f"{model.syncs}/shop")
    pod, report = api.get(f"{model.base}/pods/{ref.pod}"), api.get(f"{model.base}/configmaps/{ref.id}-report-0")
    pod["status"] = {"phase": "Running"}
    api.delete(f"{model.syncs}/shop")
    api.delete(f"{model.base}/pods/{ref.pod}")
    return [_copy(api, n, (found, pod, report), ref.id) for n in range(count)]


def _copy(api: Api, number: int, things: tuple[Object, Object, Object], run: str) -> str:
    space = f"space{number // 10}"
    if number % 10 == 0:
        api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
        login = {
            "metadata": {"name": "login", "labels": {"cdcsync.io/source": "true"}},
            "stringData": {"username": "u", "password": "p"},
        }
        api.create(f"/api/v1/namespaces/{space}/secrets", {"apiVersion": "v1", "kind": "Secret", **login})
    resource, pod, report = (_renamed(thing, run, f"s{number}") for thing in things)
    path = f"/apis/cdcsync.io/v1alpha1/namespaces/{space}/cdcsyncs"
    made = api.create(path, {k: resource[k] for k in ("apiVersion", "kind", "metadata", "spec")})
    api.replace(f"{path}/s{number}/status", made | {"status": resource["status"]})
    for owned in (report, pod):  # what the sync does not own is not its run
        owned["metadata"]["ownerReferences"] = [owner_of(made)]
    api.create(f"/api/v1/namespaces/{space}/configmaps", report)
    made = api.create(f"/api/v1/namespaces/{space}/pods", pod)
    api.replace(f"/api/v1/namespaces/{space}/pods/{made['metadata']['name']}/status", made | {"status": pod["status"]})
    return f"/api/v1/namespaces/{space}/configmaps/{report['metadata']['name']}"


def _renamed(thing: Object, run: str, name: str) -> Object:
    text = (
        json.dumps(thing)
        .replace(run, f"{name}-abcd-2")
        .replace('"cdcsync.io/sync": "shop"', f'"cdcsync.io/sync": "{name}"')
    )
    made: Object = json.loads(text)
    about = made["metadata"]
    about["name"] = name if made["kind"] == "CdcSync" else about["name"]
    kept = {k: about[k] for k in ("name", "labels", "annotations") if k in about}
    return made | {"metadata": kept}


class Drivers(threading.Thread):
    """All of them: each reports every so many seconds that it goes on."""

    def __init__(self, api: Api, reports: list[str], seconds: float = REPORT_SECONDS) -> None:
        super().__init__(daemon=True)
        self._api, self._reports, self._seconds = api, reports, seconds
        #: of each sync the numbers of its reports, which are its offsets, and when they were there
        self.written: list[list[tuple[int, float]]] = [[] for _ in reports]
        self._ending = threading.Event()

    def run(self) -> None:
        number = 100
        while not self._ending.is_set():
            begun, number = time.monotonic(), number + 1
            for n, path in enumerate(self._reports):
                head: dict[str, object] = {"number": number, "at": time.time(), "epoch": 2, "lag_seconds": 0.5}
                head["position"] = {
                    "file": "binlog.000001",
                    "offset": number,
                    "gtidSet": "",
                    "timestamp": utc(time.time()),
                }
                self._api.merge(path, {"data": {"head": json.dumps(head)}})
                self.written[n].append((number, time.time()))
                self._ending.wait(begun + self._seconds * (n + 1) / len(self._reports) - time.monotonic())

    def unseen_since(self, sync: int, shown: int) -> float | None:
        """When the first report after the one that is shown was there; None where there is none."""
        return next((at for number, at in list(self.written[sync]) if number > shown), None)

    def stop(self) -> None:
        self._ending.set()
        self.join()
