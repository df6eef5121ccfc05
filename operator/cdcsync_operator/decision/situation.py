"""What is known in the course of one decision: a value that each step of `decide` replaces.

Why it is right: a step is a function from one situation to the next, so what a later step depends
on is what the earlier ones returned, and nothing else. What the tables need is derived from the
situation and computed once for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from cdcsync_core.errors import Reason
from cdcsync_core.resource.spec import CdcSync, Spec
from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Phase, Status, with_tables
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.decision import restart
from cdcsync_operator.decision.needs import Needs, assigned, has_streamed, needs
from cdcsync_operator.decision.observed import Observed, ObservedRun, PreflightResult


@dataclass(frozen=True)
class Situation:
    """`permanent_failure` is the reason and message of what stops the whole sync, found in this
    reconcile; `transient_failure` of what is retried.

    `unready`: what stops it was found by a preflight, and is checked again until it is fixed.
    `drained` are the kinds whose run ended because it was asked to, or had never been started.
    """

    resource: CdcSync
    observed: Observed
    now: float
    status: Status
    permanent_failure: tuple[str, str] | None = None
    transient_failure: tuple[str, str] | None = None
    unready: bool = False
    drained: frozenset[RunKind] = frozenset()

    def with_(self, **changes: Any) -> Situation:
        """What is known of the tables stays known where neither they nor the stream change."""
        after = replace(self, **changes)
        if after.status.table_status is self.status.table_status:
            still_true = _OF_THE_TABLES if after.stream is self.stream else ("assigned",)
            vars(after).update({name: vars(self)[name] for name in still_true if name in vars(self)})
        return after

    def with_status(self, **changes: Any) -> Situation:
        return self.with_(status=self.status.with_(**changes))

    def with_tables(self, tables: list[TableStatus]) -> Situation:
        """Puts these entries in the place of those of the same names."""
        return self.with_(status=with_tables(self.status, tables)) if tables else self

    # -- the resource

    @property
    def spec(self) -> Spec:
        return self.resource.spec

    @property
    def generation(self) -> int:
        return self.resource.metadata.generation

    @property
    def changed(self) -> bool:
        """The resource is not the one that was decided about last."""
        return self.status.observed_generation != self.generation

    # -- runs

    def named(self, kind: RunKind) -> ObservedRun | None:
        """The run of this kind that the status names, where there is a trace of it."""
        ref = self.status.runs.get(kind)
        return next((r for r in self.observed.runs if ref and r.id == ref.id), None)

    @cached_property
    def live(self) -> tuple[ObservedRun, ...]:
        """The runs that the status names and that have not ended."""
        return tuple(r for k in RunKind if (r := self.named(k)) and r.live)

    @property
    def copying(self) -> tuple[ObservedRun, ...]:
        """The live runs on which the tables depend."""
        return tuple(r for r in self.live if r.kind.copies)

    @property
    def stream(self) -> ObservedRun | None:
        """The live stream."""
        return next((r for r in self.live if r.kind is RunKind.STREAM), None)

    # -- tables

    @cached_property
    def assigned(self) -> tuple[TableStatus, ...]:
        """The tables that this sync has taken on."""
        return assigned(self.status)

    @cached_property
    def needs(self) -> Needs:
        return needs(self.spec, self.status, self.stream.generations if self.stream else None)

    @cached_property
    def has_streamed(self) -> bool:
        """Whether a table that can be streamed was streamed before."""
        return self.streamed_without(frozenset())

    def streamed_without(self, names: frozenset[str]) -> bool:
        """The same, apart from these tables."""
        streamable = {name for name, _ in self.needs.streamable} - names
        return has_streamed(t for t in self.status.table_status if t.name in streamable)

    # -- the sync

    @property
    def may_stream(self) -> bool:
        """The stream waits for the first snapshot only."""
        return bool(self.needs.streamable) and (not self.needs.unread or self.has_streamed)

    @property
    def has_failed(self) -> bool:
        """And nothing but a change of the resource, or of what was found unready, helps."""
        return self.permanent_failure is not None or (self.status.phase is Phase.FAILED and not self.changed)

    @property
    def is_waiting(self) -> bool:
        """For the next attempt after a failure."""
        return restart.wait_left(self.status.restarts, self.now) > 0

    @property
    def is_exhausted(self) -> bool:
        """The resource limits how often it is tried; only the user asks for more."""
        return restart.exhausted(self.spec.auto_restart, self.status.restarts)

    # -- the preflight

    @property
    def preflight(self) -> PreflightResult | None:
        """The last one, where it was for this generation of the resource."""
        preflight = self.observed.preflight
        return preflight if preflight is not None and preflight.generation == self.generation else None

    @property
    def preflight_passed(self) -> bool:
        return self.preflight is not None and not self.preflight.failures

    @property
    def was_unready(self) -> bool:
        """Source or sink, by the last status."""
        return any(self.status.condition(kind).status == "False" for kind in ("SourceReady", "SinkReady"))

    # -- failures

    def failing_transiently(self, reason: str, message: str, lasted: float) -> Situation:
        """Counts one more failure that is retried after a pause, unless the resource stops
        here."""
        policy = self.spec.auto_restart
        restarts = restart.after_failure(policy, self.status.restarts, (reason, message), lasted, self.now)
        after = self.with_status(restarts=restarts).with_(transient_failure=(reason, message))
        if not restart.exhausted(policy, restarts):
            return after
        count = f"failure {restarts.consecutive} in a row, spec.autoRestart allows no more"
        return after.with_(permanent_failure=(reason, f"{message} ({count})"))

    def may_regain(self, reason: str) -> bool:
        """Whether a right that is missing may be there soon: a password that was changed reaches a
        driver late, a grant was revoked for a moment. What is still missing a few attempts later
        stays missing."""
        return is_revocable(reason) and self.status.restarts.consecutive < _LOGIN_RETRIES


#: what is derived from the tables and the stream alone
_OF_THE_TABLES = ("assigned", "needs", "has_streamed")
#: failures in a row up to which rights that worked before are tried again
_LOGIN_RETRIES = 3


def is_revocable(reason: str) -> bool:
    """A right that is there now and may be gone later, and the other way round."""
    return reason in set(Reason) and Reason(reason).revocable
