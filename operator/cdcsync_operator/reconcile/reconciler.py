"""Reconciles one sync: observe, decide, write, act.

Why it is right: the order. The status is written before anything is done, so a run exists only
after its id is on record (a crash in between leaves an id without a run, and the next reconcile
starts another one); reports are merged before a decision, so none of them is ignored by it.
What `decide` returns is done as it stands; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cdcsync_core.gates import gate
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.status import Status
from cdcsync_operator.decision.decide import decide
from cdcsync_operator.decision.observed import (
    Action,
    Decision,
    ForgetRun,
    Observed,
    ObservedRun,
    RunPreflight,
    StartRun,
    StopRun,
)
from cdcsync_operator.reconcile.ports import Drivers, ResourceStore, SourceView
from cdcsync_operator.reconcile.status_writes import seconds_to_write


@dataclass
class Reconciler:
    """One sync's controller. `clock` gives unix seconds, `token` four random hex digits; `runs`
    are those that it has observed last."""

    store: ResourceStore
    drivers: Drivers
    source: SourceView
    clock: Callable[[], float]
    token: Callable[[], str]
    runs: tuple[ObservedRun, ...] = ()
    _current: Status | None = None
    _written: Status | None = None
    _written_at: float = 0.0

    def reconcile(self, *, closing: bool = False) -> Decision:
        """Decides once and does what follows. May be called as often as wanted, by one caller at
        a time."""
        resource, stored = self.store.load()
        if self._current is None:
            self._current = self._written = stored
        observed = self._observe(resource, self._current, closing=closing)
        decision = decide(resource, observed, self.clock())
        decided = bool(_resnapshots(decision.status) - _resnapshots(self._current))
        self._current = decision.status
        self._write(urgent=decided or any(isinstance(a, StartRun) for a in decision.actions))
        if decided:
            gate("resnapshot-decided")
        self._act_on_all(resource, decision)
        return decision

    def unwritten_for(self) -> float | None:
        """Seconds until what is decided but not written is due to be; None where all is written."""
        if self._current is None or self._written is None:
            return None
        return seconds_to_write(self._written, self._current, self._written_at, self.clock())

    def flush(self) -> None:
        """Writes what is known now; the last thing that a controller does."""
        if self._current is not None and self._current != self._written:
            self._write(urgent=True)

    def _observe(self, resource: CdcSync, status: Status, *, closing: bool) -> Observed:
        """A paused sync needs no Secrets; what runs of it drains with those that it has."""
        paused = resource.spec.state == "paused"
        observed = self.drivers.observe(status)
        self.runs = observed.runs
        return Observed(
            status=observed.status,
            runs=observed.runs,
            preflight=self.source.outcome(),
            preflight_running=self.source.running(),
            missing_secrets=() if paused else self.store.missing_secrets(),
            refusal=self.store.refusal(),
            closing=closing,
            token=self.token(),
        )

    def _write(self, *, urgent: bool) -> None:
        assert self._current
        assert self._written
        now = self.clock()
        if urgent or seconds_to_write(self._written, self._current, self._written_at, now) == 0:
            self.store.save(self._current)
            self._written, self._written_at = self._current, now

    def _act_on_all(self, resource: CdcSync, decision: Decision) -> None:
        """One that fails keeps no other from being done; the first error is raised afterwards."""
        errors: list[Exception] = []
        for action in decision.actions:
            try:
                self._act(resource, action)
            except Exception as error:  # noqa: BLE001 (it is raised below)
                errors.append(error)
        if errors:
            raise errors[0]

    def _act(self, resource: CdcSync, action: Action) -> None:
        assert self._current
        resource = resource.following(self._current.followed)
        if isinstance(action, RunPreflight):
            self.source.request(resource, action)
        elif isinstance(action, StartRun):
            gate("run-recorded")
            self.drivers.start(resource, action, self._current)
        elif isinstance(action, StopRun):
            self.drivers.stop(action)
        elif isinstance(action, ForgetRun):
            self.drivers.forget(action)


def _resnapshots(status: Status) -> frozenset[tuple[str, int]]:
    """The resnapshots that were decided without the user, by table and generation."""
    return frozenset((t.name, t.resnapshot.generation) for t in status.table_status if t.resnapshot)
