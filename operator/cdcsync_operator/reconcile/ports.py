"""What the controller needs from the place where it runs: a laptop (files and processes) or a
cluster (an API server and pods).

The reconciler, the decisions and the status are the same on both; only these protocols are
implemented twice. None of the calls waits for a server: a preflight runs in the background, and
drivers are asked to stop, not waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.status import Status
from cdcsync_operator.decision.observed import ForgetRun, ObservedRun, PreflightResult, RunPreflight, StartRun, StopRun


@dataclass(frozen=True)
class Observation:
    """`runs` are all of a sync that there are, named by the status or not; `status` has their
    reports in it, of an ended run all of them."""

    runs: tuple[ObservedRun, ...]
    status: Status


class ResourceStore(Protocol):
    """Where the resource and its status are kept."""

    def load(self) -> tuple[CdcSync, Status]:
        """The resource as it is asked for now, with its generation, and its status as it was
        written last."""

    def save(self, status: Status) -> None:
        """Writes the whole status atomically."""

    def refusal(self) -> str:
        """Why what the resource asks for is not allowed here; empty where it is."""

    def missing_secrets(self) -> tuple[str, ...]:
        """A phrase per Secret or key that the resource names and that is not there."""


class Drivers(Protocol):
    """The runs, as processes or pods."""

    def observe(self, status: Status) -> Observation:
        """The runs as they are, and the status with the reports that came since. Changes no run. A
        report is given out once, so what is returned is to be kept."""

    def start(self, resource: CdcSync, action: StartRun, status: Status) -> None:
        """Makes a driver and begins its plan. Must be harmless when it is done already."""

    def stop(self, action: StopRun) -> None:
        """Asks a driver to drain; ends one that is overdue."""

    def forget(self, action: ForgetRun) -> None:
        """Removes what an ended driver left."""


class SourceView(Protocol):
    """The source, checked in the background."""

    def outcome(self) -> PreflightResult | None:
        """The newest preflight that has ended."""

    def running(self) -> bool:
        """Whether a preflight is under way."""

    def request(self, resource: CdcSync, action: RunPreflight) -> None:
        """Starts a preflight for the resource's generation."""
