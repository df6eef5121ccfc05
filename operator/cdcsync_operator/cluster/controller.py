"""One sync on a cluster: the shared reconciler on the cluster's ports, and what becomes of it when
something goes wrong.

Why it is right: whatever fails, the reconciler is discarded and the next one starts from the
stored status, so nothing that was decided and not written is ever acted upon. What is stored does
not claim meanwhile that data flows: `Ready` is False with what fails, if the API server takes it. A
spec that cannot be read, or that this cluster refuses, stops no run: the status reports it, and the
spec is reconciled when it has been corrected. The operator's own end drains no driver; the deletion
of the resource does, also while a finalizer holds it.
"""

from __future__ import annotations

import functools
import math
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.gates import gate
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase, Status, with_condition
from cdcsync_core.timestamps import unix_time
from cdcsync_kube.client import Api, ApiError
from cdcsync_operator.cluster.events import EventPoster
from cdcsync_operator.cluster.quota.report_bounds import TOO_MANY_REPORTS
from cdcsync_operator.cluster.quota.room import Rooms
from cdcsync_operator.cluster.runs.drivers import KubeDrivers
from cdcsync_operator.cluster.settings import OperatorSettings
from cdcsync_operator.cluster.store import KubeStore, NotSelected, ResourceReplaced, StatusTakenOver
from cdcsync_operator.cluster.syncs.report_rate import ReportRate
from cdcsync_operator.decision.observed import Decision, RunPreflight
from cdcsync_operator.reconcile.preflight import DefinitionRecord, PreflightRunner, SourceCalls
from cdcsync_operator.reconcile.reconciler import Reconciler
from cdcsync_operator.reconcile.secret_files import SecretFiles

_log = structlog.get_logger()

#: seconds to the next reconciliation: of a sync at rest, of one that streams, of one whose driver
#: reports often, of one on its way there
_AT_REST, _FLOWING, _CHANGING, _ON_ITS_WAY = 300.0, 10.0, 7.0, 2.0
_RETRY_FIRST, _RETRY_MOST = 1.0, 60.0
#: errors of the API server in a row, in about a minute, from which on `Ready` is False
_MANY_ERRORS = 7
_SOON = 0.1


@dataclass
class KubeController:
    """`wake` asks for another reconcile; `rooms` are shared by all controllers, and so is `folder`,
    in which the Secrets' files are; `untouched` is that of `KubeDrivers`; `networks` are those of
    the cluster, as they are now. `close` it when the resource is gone."""

    api: Api
    settings: OperatorSettings
    namespace: str
    name: str
    calls: SourceCalls
    clock: Callable[[], float]
    wake: Callable[[], None]
    rooms: Rooms = field(default_factory=Rooms)
    folder: Path | None = None
    untouched: Callable[[], bool] = lambda: False
    networks: Callable[[], tuple[str, ...]] = tuple
    status: Status = field(default_factory=Status)
    failures: int = 0
    #: of the answer that the last attempt could not read
    _unreadable: str = ""
    _rate: ReportRate = field(default_factory=ReportRate)
    _reconciler: Reconciler | None = None

    def __post_init__(self) -> None:
        self._files = SecretFiles(self.folder)
        settings = self.settings
        self.store = KubeStore(
            self.api,
            self.namespace,
            self.name,
            settings.policy,
            settings.image,
            self._files.write,
            room=self.rooms.secrets,
            selector=settings.selector,
            networks=self.networks,
        )
        self._events = EventPoster(self.api, self.settings.identity)
        refuse = functools.partial(self.rooms.records.refuse, self.namespace, self._files.folder)
        record, where = DefinitionRecord(refuse=refuse), self._files.folder
        self._source = PreflightRunner(
            lambda r, unread: self.calls.preflight(r, where, unread),
            lambda r: self.calls.current(r, where),
            record,
            self.clock,
            self.wake,
            lambda r, file: self.calls.kept_until(r, where, file),
            self.calls.start,
        )
        self._drivers = self._make_drivers(record)

    def _make_drivers(self, record: DefinitionRecord) -> KubeDrivers:
        where = self._files.folder
        return KubeDrivers(
            self.api,
            self.namespace,
            self.name,
            lambda: self.store.uid,
            self.settings.image,
            self.clock,
            self.wake,
            record.get,
            lambda r: self.calls.planning(r, where),
            self.settings.network_policies,
            self.rooms,
            untouched=self.untouched,
            release=self.settings.release,
            refused_egress=self.settings.refused_egress,
            networks=self.networks,
        )

    def close(self) -> None:
        """Ends what is asked of the source, too: else a source that never answers would keep what
        the sync held."""
        self._drivers.close()
        self.store.close()
        self.rooms.records.free(self.namespace, self._files.folder)
        self._files.close()
        self.calls.give_up(self._files.folder)

    def reset(self) -> None:
        """The next reconciliation starts from the stored status."""
        self._reconciler = None

    def reconcile(self) -> float | None:
        """Reconciles once; returns the seconds to the next time, None if the resource is gone.
        Raises what should not happen."""
        try:
            again = self._reconcile()
        except StatusTakenOver:
            self._reconciler = None
            return 0.0
        except NotSelected:
            return None
        except ResourceReplaced:
            self.wake()  # what this controller knows is about the old one
            return None
        except ApiError as error:
            self._reconciler = None
            return None if error.gone and not self._exists() else self._retry(error)
        except CdcError as error:
            self._reconciler = None
            self._refuse(error)
            again = _AT_REST
        except Exception as error:
            self._reconciler = None
            self._show_fault(f"the operator failed with {type(error).__name__}; its log has more")
            raise
        self.failures, self._unreadable = 0, ""
        return again

    def _reconcile(self) -> float:
        resource, stored = self.store.load()
        before = self.status if self._reconciler else stored
        decision = self._current(resource, stored).reconcile()
        gate("observed")
        self.status = decision.status
        self._events.post_changes(resource, before, decision)
        if (stream := decision.status.runs.get(RunKind.STREAM)) is not None:
            self._rate.note(stream.id, stream.report, self.clock())
        flowing = _CHANGING if stream is not None and self._rate.often else _FLOWING
        pause = _pause(decision, self.clock(), flowing, refused=bool(self.store.refusal()))
        return min(pause, self._unwritten_for())

    def _current(self, resource: CdcSync, stored: Status) -> Reconciler:
        if self._reconciler is None:
            if _was_refused(stored):  # by the operator's policy, which has changed, or by a spec of another generation
                stored = stored.with_(observed_generation=-1)
            self._loaded = _CachedStore(self.store, resource, stored)
            self._reconciler = Reconciler(
                self._loaded, self._drivers, self._source, self.clock, lambda: secrets.token_hex(2)
            )
        self._loaded.resource = resource
        return self._reconciler

    def _unwritten_for(self) -> float:
        """Seconds for which the progress that was just seen may stay out of the status."""
        seconds = self._reconciler.unwritten_for() if self._reconciler else None
        return math.inf if seconds is None else max(_SOON, seconds)

    def _refuse(self, error: CdcError) -> None:
        """Reports what is wrong with the spec; runs go on."""
        stored, now = self.store.status(), self.clock()
        status = stored.with_(observed_generation=self.store.generation)
        for kind, value in (("Ready", False), ("Reconciling", False), ("Stalled", True)):
            status = with_condition(status, kind, value, error.reason.value, error.message, now)
        if status != stored:
            self.store.save(status)
            self._events.refused(self.store, error)
        self.status = status

    def _show_fault(self, message: str) -> None:
        """Reports that the sync cannot be reconciled, which is tried again; runs go on."""
        if not self.store.version:
            return
        fault = fail(Reason.INTERNAL_ERROR, message)
        with suppress(ApiError, CdcError):
            stored, now = self.store.status(), self.clock()
            status = with_condition(stored, "Ready", False, fault.reason.value, fault.message, now)
            status = with_condition(status, "Reconciling", True, fault.reason.value, fault.message, now)
            if status != stored:
                self.store.save(status)
                self._events.refused(self.store, fault)
            self.status = status

    def _retry(self, error: ApiError) -> float:
        self.failures += 1
        if not error.conflict:
            _log.warning("a reconciliation failed", sync=f"{self.namespace}/{self.name}", error=str(error))
            self._drivers.api_failed()
        if self.failures >= _MANY_ERRORS and not error.conflict and error.reason != TOO_MANY_REPORTS:
            self._show_fault(f"the API server refuses what the operator asks for: {error.message}")
        if error.unreadable and error.message != self._unreadable:
            self._unreadable = error.message
            self._events.unreadable(self.store, error)
        if error.conflict:
            return 0.1
        return float(min(_RETRY_MOST, _RETRY_FIRST * 2 ** min(self.failures - 1, 10)))

    def _exists(self) -> bool:
        try:
            self.store.refresh()
        except ApiError as error:
            return not error.gone
        except (StatusTakenOver, ResourceReplaced, NotSelected):
            pass
        return True


@dataclass
class _CachedStore:
    """The port `ResourceStore` for one reconciliation: what was loaded for it, and the status to
    start from."""

    store: KubeStore
    resource: CdcSync
    status: Status

    def load(self) -> tuple[CdcSync, Status]:
        return self.resource, self.status

    def save(self, status: Status) -> None:
        self.store.save(status)

    def refusal(self) -> str:
        return self.store.refusal()

    def missing_secrets(self) -> tuple[str, ...]:
        return self.store.missing_secrets()


def _was_refused(status: Status) -> bool:
    stalled = status.condition("Stalled")
    refused = stalled.status == "True" and stalled.reason == Reason.SPEC_INVALID.value
    return (
        refused
        and status.phase is not Phase.FAILED
        and not any(t.phase is TablePhase.FAILED for t in status.table_status)
    )


def _pause(decision: Decision, now: float, flowing: float, *, refused: bool) -> float:
    status = decision.status
    if any(status.runs.get(kind) for kind in RunKind):
        steady = status.condition("Reconciling").status == "False"
        return min(decision.requeue_after, flowing if steady else _ON_ITS_WAY)
    checks = any(isinstance(a, RunPreflight) for a in decision.actions)
    if status.phase is Phase.WAITING and status.schedule is not None:
        until = (unix_time(status.schedule.next_time) or now) - now
        return max(_SOON, min(decision.requeue_after if checks else _AT_REST, until))
    if not checks and (refused or status.phase in (Phase.PAUSED, Phase.COMPLETED)):
        return _AT_REST
    return decision.requeue_after
