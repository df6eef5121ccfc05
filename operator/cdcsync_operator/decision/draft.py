"""A decision in the making: what one call of `decide` passes from step to step.

It lives for one call and never leaves it, so `decide` is a pure function although its steps write
into one object.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cdcsync_core.run import RunKind
from cdcsync_core.spec import CdcSync, Spec
from cdcsync_core.status import Status
from cdcsync_operator.decision.observed import Action, Observed, ObservedRun


@dataclass
class Draft:
    """`failure` is the reason and message of what stops the whole sync, found in this very look;
    `trouble` of what is retried.

    `unready`: what stops it was found by a preflight, and is checked again until it is cured.
    `drained` are the kinds whose run ended in this look because it was asked to, or had never been
    made.
    """

    resource: CdcSync
    seen: Observed
    now: float
    status: Status
    actions: list[Action] = field(default_factory=list)
    failure: tuple[str, str] | None = None
    unready: bool = False
    trouble: tuple[str, str] | None = None
    drained: set[RunKind] = field(default_factory=set)

    @property
    def spec(self) -> Spec:
        return self.resource.spec

    @property
    def changed(self) -> bool:
        """The resource is not the one that was decided about last."""
        return self.status.observed_generation != self.resource.metadata.generation

    def live(self) -> list[ObservedRun]:
        return [r for k in RunKind if (r := self.named(k)) and r.live]

    def named(self, kind: RunKind) -> ObservedRun | None:
        ref = self.status.runs.get(kind)
        return next((r for r in self.seen.runs if ref and r.id == ref.id), None)
