"""A simulated cluster for `decide`: it does what is decided and reports what drivers would, in
steps and without time of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from cdcsync_core.resource.manifest import parse_resource
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.report_merge import merge_report
from cdcsync_core.runs.run import Report, RunKind
from cdcsync_core.runs.status import Status
from cdcsync_core.timestamps import utc
from cdcsync_operator.decision.decide import decide
from cdcsync_operator.decision.observed import (
    Action,
    Decision,
    Exit,
    ForgetRun,
    Observed,
    ObservedRun,
    ObservedTable,
    PreflightResult,
    RunPreflight,
    RunState,
    StartRun,
    StopRun,
)
from cdcsync_operator.decision.tables.assignment import owned_tables

WHOLE = [{"start": None, "end": None}]


def resource(generation: int = 1, **spec: Any) -> CdcSync:
    base: dict[str, Any] = {
        "source": {"host": "127.0.0.1", "credentialsSecretRef": {"name": "login"}},
        "tables": {"include": [r"shop\..*"]},
        "sink": {"delta": {"path": "s3://lake/tables"}},
    }
    return parse_resource(
        {
            "apiVersion": "cdcsync.io/v1alpha1",
            "kind": "CdcSync",
            "metadata": {"name": "shop", "generation": generation},
            "spec": base | spec,
        }
    )


def place(offset: int) -> dict[str, Any]:
    """A low watermark, which names no binlog."""
    return {"file": "binlog.000001", "offset": offset, "gtidSet": ""}


def reported(offset: int) -> dict[str, Any]:
    """As a driver reports where a table's content is, and where its reader is."""
    return place(offset) | {"binlog": "mysql:uuid"}


@dataclass
class ControllerHarness:
    """`tables` exist on the source; `kept_until` is how long that keeps the file of the stream's
    position, as `PreflightResult.retained` has it."""

    tables: tuple[str, ...] = ("shop.a", "shop.b")
    resource: CdcSync = field(default_factory=resource)
    status: Status = field(default_factory=Status)
    now: float = 1_000_000.0
    runs: dict[str, ObservedRun] = field(default_factory=dict)
    preflight: PreflightResult | None = None
    errors: tuple[Any, ...] = ()
    sink_errors: tuple[Any, ...] = ()
    sink_unchecked: str = ""
    table_errors: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    kept_until: float | None = None
    closing: bool = False
    log: list[Action] = field(default_factory=list)

    def step(self, seconds: float = 1.0, **observed: Any) -> Decision:
        """Decides once and does what was decided; `observed` are further fields of `Observed`."""
        self.now += seconds
        parts: dict[str, Any] = {"closing": self.closing, "token": "ab12"}
        seen = Observed(self.status, tuple(self.runs.values()), self.preflight, **parts | observed)
        decision = decide(self.resource, seen, self.now)
        self.status = decision.status
        for action in decision.actions:
            self._do(action)
        self.log.extend(decision.actions)
        return decision

    def steps(self, count: int = 4) -> Decision:
        return [self.step() for _ in range(count)][-1]

    def _do(self, action: Action) -> None:
        if isinstance(action, RunPreflight):
            found = tuple(ObservedTable(t, self.table_errors.get(t), rows=self.rows.get(t, 0)) for t in self.tables)
            self.preflight = PreflightResult(
                action.generation,
                self.now,
                self.errors,
                () if self.errors else found,
                sink_errors=self.sink_errors,
                sink_unchecked=self.sink_unchecked,
                prompt=action.prompt,
                busy=action.busy,
                retained=(action.file, self.kept_until),
            )
        elif isinstance(action, StartRun):
            ref = self.status.runs.get(action.kind)
            assert ref is not None, "the id must be in the status before the run is made"
            assert ref.id == action.id
            self.runs[action.id] = ObservedRun(
                action.kind,
                action.id,
                action.tables,
                action.fingerprint,
                RunState.RUNNING,
                self.now,
                stop_at=action.stop_at,
            )
        elif isinstance(action, StopRun):
            self.runs[action.id] = replace(self.runs[action.id], state=RunState.DRAINING, stop_asked=True)
        elif isinstance(action, ForgetRun):
            del self.runs[action.id]

    # -- what drivers do

    def live(self, kind: RunKind) -> ObservedRun:
        found = [r for r in self.runs.values() if r.kind is kind and r.live]
        assert len(found) == 1, f"expected one live {kind} run, found {found}"
        return found[0]

    def kinds(self) -> set[str]:
        return {r.kind.value for r in self.runs.values() if r.live}

    def say(self, kind: RunKind, **parts: Any) -> None:
        run = self.live(kind)
        self.runs[run.id] = replace(run, reported_at=self.now)
        foreign = run.names - owned_tables(self.runs.values())[run.id]
        self.status = merge_report(self.status, Report(run.id, **parts), run.names, foreign)

    def end(self, kind: RunKind, code: int = 0, reason: str = "", message: str = "") -> None:
        run = self.live(kind)
        self.runs[run.id] = replace(run, state=RunState.ENDED, exit=Exit(code, reason, message))

    # -- whole chapters

    def read(self, *names: str, nonce: int = 0) -> None:
        """The snapshot run has read these tables to the end."""
        entry = {
            "phase": "CatchingUp",
            "finished": WHOLE,
            "low": place(100),
            "high": {"file": "binlog.000001", "offset": 200},
        }
        more = {"position": reported(100), "nonce": nonce, "generation": nonce}
        self.say(RunKind.SNAPSHOT, tables=[{"name": n, **entry, **more} for n in names])

    def flow(self, *names: str, offset: int = 300) -> None:
        position = reported(offset) | {"timestamp": utc(self.now)}
        entries = [{"name": n, "phase": "Streaming", "position": reported(offset)} for n in names]
        self.say(RunKind.STREAM, tables=entries, position=position, lag_seconds=0.5)

    def to_streaming(self) -> None:
        """All the way to a quiet stream."""
        self.steps()
        self.read(*self.tables)
        self.end(RunKind.SNAPSHOT)
        self.steps()
        self.flow(*self.tables)
        self.steps()

    def condition(self, kind: str) -> tuple[str, str]:
        found = self.status.condition(kind)
        return found.status, found.reason

    def change(self, **spec: Any) -> None:
        self.resource = resource(self.resource.metadata.generation + 1, **spec)

    def started(self) -> list[StartRun]:
        return [a for a in self.log if isinstance(a, StartRun)]
