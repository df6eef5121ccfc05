"""The operator: many syncs, a queue, a few workers, one lock.

Why it is right: a change on the cluster only queues a sync (see `handlers`); a reconciliation
starts from the whole state, so a missed or repeated event costs nothing: every known sync is
reconciled again after a while, and those without an event are found by a list. Nothing is done
without the lease: a candidate watches and waits, and a holder that cannot renew it ends the
process, as does a thread that fails: an operator is whole or it is started again.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from cdcsync_core.runs.status import Status
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.controller import KubeController
from cdcsync_operator.cluster.lease import TIMEOUT, Lease
from cdcsync_operator.cluster.metrics import Metrics
from cdcsync_operator.cluster.policy.cluster_networks import ClusterNetworks
from cdcsync_operator.cluster.quota.room import Rooms
from cdcsync_operator.cluster.settings import OperatorSettings
from cdcsync_operator.cluster.syncs.namespaces import Namespaces
from cdcsync_operator.cluster.syncs.sync_list import SyncMetadata, list_syncs
from cdcsync_operator.cluster.syncs.traces import Traces
from cdcsync_operator.cluster.syncs.work_queue import Key, WorkQueue
from cdcsync_operator.reconcile.preflight import SourceCalls
from cdcsync_operator.reconcile.secret_files import LockedFolder

_log = structlog.get_logger()
#: a worker that is in one reconciliation for so many seconds is stuck: each of its calls ends
#: sooner
_STUCK = 300.0
_AFTER_ERROR = 30.0
_LIST_EVERY = 60.0
#: seconds between two looks for namespaces that have gained or lost their labels, and for nodes
_REFRESH_EVERY = 5.0


@dataclass
class KubeOperator:
    """`start` it, report changes by `changed`, `stop` it. `lost` is called when the lease or a
    thread is lost: the process must end. `list_every` and `after_error` are seconds to the next
    list of all syncs, and to the next reconciliation after a fault; `stop` waits `join_seconds` for
    each worker."""

    api: Api
    settings: OperatorSettings
    calls: SourceCalls
    networks: ClusterNetworks
    lost: Callable[[], None]
    metrics: Metrics = field(default_factory=Metrics)
    rooms: Rooms = field(default_factory=Rooms)
    list_every: float = _LIST_EVERY
    after_error: float = _AFTER_ERROR
    join_seconds: float = 20.0
    leading: bool = False
    _controllers: dict[Key, KubeController] = field(default_factory=dict)
    _generations: dict[Key, int] = field(default_factory=dict)
    _working: dict[str, float] = field(default_factory=dict)
    _workers: list[threading.Thread] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queue = WorkQueue(time.monotonic, self.settings.workers)
        self.metrics.most = self.settings.sample_limit
        self.metrics.tables_of_sync = self.settings.tables_of_sync
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._files = LockedFolder()
        self.namespaces = Namespaces(self.api, self.settings.namespaces)
        self._traces = Traces(self.api, self.namespaces.listed)
        self._leading = threading.Lock()
        self._lease_api = self.api.with_timeout(TIMEOUT)

    def changed(self, sync: SyncMetadata) -> None:
        """Something about this sync may be different: its spec, where that has another generation
        than the one that was met before; nothing, where the version is what its controller wrote
        itself. A candidate notes none: once it leads it begins with a list of all."""
        if not self.leading:
            return
        controller = self._controllers.get(sync.key)
        if controller is not None and sync.version and controller.store.version == sync.version:
            return
        is_new = self._generations.get(sync.key) != sync.generation
        self._generations[sync.key] = sync.generation
        self.queue.add(sync.key, changed_at=sync.changed_at if is_new else None)

    def driver_changed(self, key: Key) -> None:
        """A pod of this sync, which may be another release's."""
        if key in self._controllers:
            self.queue.add(key)

    def start(self) -> None:
        self._threads.append(self._start_thread("lease", self._keep_lease))

    def stop(self) -> None:
        """Reconciliations under way are finished, under the lease, which runs out by itself where
        one does not end in time; drivers are left alone."""
        self.queue.close()
        with self._leading:
            workers = list(self._workers)
        for worker in workers:
            worker.join(self.join_seconds)
        self._stopping.set()
        for thread in self._threads:
            thread.join(20)
        for key in list(self._controllers):
            self._drop(key)
        self._files.close()

    def healthy(self) -> bool:
        now = time.monotonic()
        return all(now - since < _STUCK for since in list(self._working.values()))

    def ready(self) -> bool:
        """Whether it can begin to reconcile where it leads."""
        return self.networks.listed or not self.leading

    def statuses(self) -> dict[Key, Status]:
        with self._lock:
            return {key: c.status for key, c in self._controllers.items()}

    @property
    def api_calls(self) -> int:
        """The number of calls, those of the lease, too."""
        return self.api.calls + self._lease_api.calls

    # -- threads

    def _start_thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except Exception:  # noqa: BLE001 (whatever it was, its work is not done any more)
                _log.exception("a thread failed", thread=name)
                self._shut_down()

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _shut_down(self) -> None:
        """Nothing is begun any more."""
        self.queue.close()
        self.lost()

    def _keep_lease(self) -> None:
        lease = self._lease()
        while not self._stopping.is_set():
            held = lease is None or lease.attempt()
            if held and not self.leading:
                self.leading = True
                _log.info("leading", identity=self.settings.identity)
                self._threads.append(self._start_thread("list", self._list))
                with self._leading:
                    self._workers += [
                        self._start_thread(f"worker {n}", self._work) for n in range(self.settings.workers)
                    ]
            elif self.leading and not held:
                _log.error("the lease is lost", lease=self.settings.lease)
                self._shut_down()
                return
            self._stopping.wait(lease.pause if lease else None)
        if lease is not None and self.leading and not any(worker.is_alive() for worker in self._workers):
            lease.release()

    def _lease(self) -> Lease | None:
        namespace, _, name = self.settings.lease.partition("/")
        if not name:
            return None
        return Lease(self._lease_api, namespace, name, self.settings.identity, time.monotonic, self._deployment)

    def _deployment(self) -> Object | None:
        """The reference to this operator's Deployment, which has its lease's name; None where there
        is none."""
        namespace, _, name = self.settings.lease.partition("/")
        try:
            about = self._lease_api.metadata_of(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
        except ApiError:
            return None
        return {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": about["uid"]}

    def _list(self) -> None:
        """Finds the syncs of which no event came: at the start all, with the newest changes, long
        before Kopf's pages have brought them. More often it asks for the namespaces."""
        list_at = float("-inf")
        while not self._stopping.is_set():
            self.networks.refresh()
            self._refresh_namespaces()
            if time.monotonic() >= list_at:
                for namespace in self.namespaces.listed():
                    self._list_namespace(namespace)
                list_at = time.monotonic() + self.list_every
            self._stopping.wait(min(self.list_every, _REFRESH_EVERY))

    def _refresh_namespaces(self) -> None:
        """Events bring the syncs of a namespace that has come. Those of one that is lost are
        dropped in their turn, by a worker: one of them may be reconciled now."""
        lost = self.namespaces.refresh()
        for key in self.statuses():
            if key[0] in lost:
                self.queue.add(key)

    def _list_namespace(self, namespace: str) -> None:
        """All namespaces where it is empty. One that is gone, with its rights, keeps no other from
        its list."""
        try:
            for sync in list_syncs(self.api, (namespace,) if namespace else (), self.settings.selector):
                if sync.key not in self._controllers:
                    self.changed(sync)
        except ApiError as error:
            _log.warning("the syncs could not be listed", namespace=namespace, error=str(error))

    def _work(self) -> None:
        me = threading.current_thread().name
        while (key := self.queue.take()) is not None:
            self._working[me] = began = time.monotonic()
            again = self._reconcile(key, began)
            del self._working[me]
            self.queue.done(key, again)

    def _reconcile(self, key: Key, began: float) -> float | None:
        if not self.namespaces.serves(key[0]):
            self._drop(key)
            return None
        if not self.networks.listed:
            return _REFRESH_EVERY
        try:
            controller = self._controller(key)
            again, failed = controller.reconcile(), controller.failures > 0
            if again is None:
                self._drop(key)
        except Exception:  # noqa: BLE001 (a fault of one sync must not end the others)
            self._reset(key)
            _log.exception("a reconciliation failed", sync="/".join(key))
            again, failed = self.after_error, True
        self.metrics.reconciled(time.monotonic() - began, failed=failed)
        return again

    def _controller(self, key: Key) -> KubeController:
        with self._lock:
            if key not in self._controllers:
                self._controllers[key] = self._make_controller(key)
            return self._controllers[key]

    def _make_controller(self, key: Key) -> KubeController:
        return KubeController(
            self.api,
            self.settings,
            *key,
            self.calls,
            time.time,
            wake=functools.partial(self.queue.add, key),
            rooms=self.rooms,
            folder=self._files.path,
            untouched=functools.partial(self._traces.is_untouched, key),
            networks=lambda: self.networks.current,
        )

    def _reset(self, key: Key) -> None:
        if key in self._controllers:
            self._controllers[key].reset()

    def _drop(self, key: Key) -> None:
        with self._lock:
            controller = self._controllers.pop(key, None)
            self._generations.pop(key, None)
        if controller is not None:
            controller.close()
