"""A simulated cluster: `decide` driven over drivers that report and do what the real ones do,
targets with the state that commits carry, and a binlog."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

from cdcsync_core.runs.report_merge import merge_report
from cdcsync_core.runs.run import ExitCode, RunKind, TablePhase
from cdcsync_core.runs.status import Phase, Status
from cdcsync_core.runs.table_status import CONSISTENT
from cdcsync_operator.decision.decide import decide
from cdcsync_operator.decision.needs import assigned
from cdcsync_operator.decision.observed import (
    Action,
    ForgetRun,
    Observed,
    ObservedTable,
    PreflightResult,
    RunPreflight,
    StartRun,
    StopRun,
)
from cdcsync_operator.decision.runs.fingerprint import fingerprint
from cdcsync_operator.decision.tables.assignment import owned_tables
from cdcsync_operator.decision.tables.resnapshots import MAX_DECISIONS, resnapshot_fixes
from cdcsync_operator.reconcile.status_writes import seconds_to_write
from unit.controller.harness import resource
from unit.controller.simulated_drivers import SimulatedDriver, SimulatedLake, SimulatedReader, Snapshot

NAMES = ("shop.a", "shop.b", "shop.c", "shop.d")
#: what the source does not have at first
LATER = "shop.d"
SNAPSHOT, STREAM, CATCH_UP = RunKind.SNAPSHOT, RunKind.STREAM, RunKind.CATCH_UP
#: the sync as a whole, among names of tables
SYNC = ""
#: the first pause after a failure, seconds
PAUSE = 5.0


@dataclass
class SimulatedCluster:
    """The resource, the source, what is stored, and what happened that a person must know of.

    `blamed` are the tables that may be called failed because a run of them ended for good, with ""
    for the sync.
    """

    lake: SimulatedLake = field(default_factory=SimulatedLake)
    spec: dict[str, Any] = field(default_factory=dict)
    generation: int = 1
    status: Status = field(default_factory=Status)
    written: Status = field(default_factory=Status)
    written_at: float = 0.0
    now: float = 1_000_000.0
    drivers: dict[str, SimulatedDriver] = field(default_factory=dict)
    preflight: PreflightResult | None = None
    checking: RunPreflight | None = None
    errors: tuple[Any, ...] = ()
    foreign: set[str] = field(default_factory=set)
    told_failed: set[str] = field(default_factory=set)
    blamed: set[str] = field(default_factory=set)
    booked: set[str] = field(default_factory=set)
    failed_at: dict[RunKind, float] = field(default_factory=dict)
    uncaptured: dict[str, int] = field(default_factory=dict)
    started: list[StartRun] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    tokens: Any = field(default_factory=lambda: count(0xA000))

    def __post_init__(self) -> None:
        self.resource = resource(self.generation, **self.spec)
        self.lake.absent.add(LATER)

    # -- what people do

    def make(self, table: str) -> None:
        if table in self.lake.absent:
            self.lake.absent.discard(table)
            self.lake.log.append((table, "made"))

    def drop(self, table: str) -> None:
        if table not in self.lake.absent:
            self.lake.absent.add(table)
            self.lake.log.append((table, "ddl"))

    def change(self, **parts: Any) -> None:
        self.spec = self.spec | parts
        self.generation += 1
        self.resource = resource(self.generation, **self.spec)

    def forget_operator(self) -> None:
        """Another operator begins from what is stored; chunk plans that were being made are
        unowned."""
        self.status, self.preflight, self.checking = self.written, None, None
        for driver in self.drivers.values():
            if isinstance(driver, Snapshot) and not driver.held and not driver.ended:
                driver.stop_asked = True

    def forget_status(self) -> None:
        self.status = self.written = Status()
        self.foreign = set(self.drivers)
        self.failed_at.clear()

    # -- what drivers do

    def live(self) -> list[SimulatedDriver]:
        return [d for d in self.drivers.values() if not d.ended]

    def step(self, driver: SimulatedDriver) -> None:
        opened = driver.opened
        driver.step()
        for parts in driver.reports:
            self.told_failed |= {e["name"] for e in parts.get("tables", []) if e["phase"] == "Failed"}
        if driver.opened and not opened and driver.action.kind is STREAM:
            for other in self.live():
                other.kicked |= other is not driver and other.action.kind is STREAM

    def receive(self, driver: SimulatedDriver) -> None:
        if driver.reports and driver.received < len(driver.reports):
            driver.received, driver.received_at = len(driver.reports), self.now

    def finish(self, driver: SimulatedDriver) -> None:
        """It is gone; its reports are known by then."""
        if driver.exit is not None:
            self.receive(driver)
            driver.ended = True

    # -- the operator

    def reconcile(self, seconds: float = 5.0, crash_after: int | None = None, *, slow: bool = False) -> None:
        self.now += seconds
        if not slow:
            self._preflight()
        merged = self._merged()
        blamed = self._blame(merged)
        self.blamed |= blamed
        running, token = self.checking is not None, f"{next(self.tokens):04x}"
        runs = tuple(d.seen() for d in self.drivers.values())
        seen = Observed(merged, runs, self.preflight, running, token=token)
        decision = decide(self.resource, seen, self.now)
        taken = merged.observed_generation != decision.status.observed_generation
        self.status = decision.status
        urgent = any(isinstance(a, StartRun) for a in decision.actions)
        if urgent or seconds_to_write(self.written, self.status, self.written_at, self.now) == 0:
            self.written, self.written_at = self.status, self.now
        if taken and self.resource.spec.state == "running":
            self.blamed = blamed
            self.failed_at.clear()
        elif not taken:
            self._check_stays_failed(merged)
        self._check(decision.actions)
        for action in decision.actions[:crash_after]:
            self._do(action)
        if crash_after is not None:
            self.forget_operator()
        if not slow:
            self._preflight()

    def _preflight(self) -> None:
        if self.checking is not None:
            found = () if self.errors else tuple(ObservedTable(t) for t in self._wanted())
            self.preflight = PreflightResult(
                self.checking.generation,
                self.now,
                self.errors,
                found,
                prompt=self.checking.prompt,
                busy=self.checking.busy,
            )
            if not self.errors:
                self.lake.recorded |= {t: self.lake.definition(t) for t in self._wanted()}
            self.checking = None

    def _wanted(self) -> list[str]:
        return [t for t in NAMES if self._captured_by_spec(t) and t not in self.lake.absent]

    def _captured_by_spec(self, name: str) -> bool:
        return self.resource.spec.tables.selection.captures(name)

    def _merged(self) -> Status:
        status = self.status
        named = [d for d in self.drivers.values() if status.runs.kind_of(d.action.id)]
        owned = owned_tables(d.seen() for d in named)
        for driver in named:
            run, kind = driver.seen(), driver.action.kind
            ref = status.runs.get(kind)
            assert ref is not None
            report = driver.report_since(ref.report)
            if report is None:
                continue
            status = merge_report(status, report, run.names, run.names - owned[run.id])
            ref = status.runs.get(kind)
            assert ref is not None
            status = status.with_(runs=status.runs.put(kind, ref.model_copy(update={"report": driver.received})))
        return status

    def _do(self, action: Action) -> None:
        if isinstance(action, RunPreflight):
            self.checking = action
        elif isinstance(action, StartRun):
            self.drivers[action.id] = self._driver(action)
        elif isinstance(action, StopRun):
            self.drivers[action.id].stop_asked = True
        elif isinstance(action, ForgetRun):
            self.drivers.pop(action.id)

    def _driver(self, action: StartRun) -> SimulatedDriver:
        if action.kind is not SNAPSHOT:
            return SimulatedReader(self.lake, action, self.now)
        nonces = {name: self.resource.spec.nonce(name) for name, _ in action.tables}
        return Snapshot(self.lake, action, self.now, nonces=nonces)

    # -- what must hold at every reconciliation

    def _blame(self, merged: Status) -> set[str]:
        """The names that a run which has just been found ended may make fail."""
        blamed: set[str] = set()
        for driver in self.drivers.values():
            new = driver.ended and driver.action.id not in self.booked
            if not new or driver.stop_asked or merged.runs.kind_of(driver.action.id) is None:
                continue
            self.booked.add(driver.action.id)
            exit_ = driver.seen().exit
            assert exit_ is not None
            if exit_.code == ExitCode.USER_MUST_ACT:
                blamed |= {SYNC} | driver.seen().names
            if exit_.code == ExitCode.RETRY and driver.action.kind is not SNAPSHOT:
                self.failed_at[driver.action.kind] = self.now
        return blamed

    def _check(self, actions: tuple[Action, ...]) -> None:
        self._check_runs(actions)
        self._check_ready()
        for entry in assigned(self.status):
            self._check_captured(entry.name)
            if entry.failed:
                assert entry.name in self.told_failed | self.blamed, f"{entry.name} failed of nothing"
        limited = not self.resource.spec.auto_restart.enabled
        if self.status.phase is Phase.FAILED and not limited and not self._unfit():
            assert SYNC in self.blamed or all(t.failed for t in assigned(self.status)), "the sync failed of nothing"

    def _check_ready(self) -> None:
        """Only while a stream lives that has reported that it receives."""
        if self.status.condition("Ready").status != "True" or self.status.phase is Phase.COMPLETED:
            return
        for driver in (d for d in self.live() if self.status.runs.kind_of(d.action.id)):
            wanted = fingerprint(self.resource.spec, driver.action.kind)
            assert driver.action.fingerprint == wanted, "ready while a run of an older spec lives"
        stream = self.stream()
        flow = stream.seen().flow if stream else None
        assert flow is not None, "ready without a stream that has reported"
        assert flow.connected, "ready before anything was received"

    def _check_stays_failed(self, before: Status) -> None:
        fixed = before.condition("SourceReady").status == "False" or before.observed_generation != self.generation
        if before.phase is Phase.FAILED and not fixed:
            assert self.status.phase is Phase.FAILED, "a failed sync goes on by itself"

    def _unfit(self) -> bool:
        return any(not e.reason.retried for e in self.errors) or self.status.condition("SourceReady").status == "False"

    def _check_runs(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if not isinstance(action, StartRun):
                continue
            self.started.append(action)
            ref = self.status.runs.get(action.kind)
            assert ref is not None
            assert ref.id == action.id, "a run is named before it is made"
            assert action.id not in self.drivers
            beside = [d for d in self.live() if d.action.kind is action.kind and d.action.id not in self.foreign]
            assert not beside, "two runs of a kind"
            assert self.now - self.failed_at.get(action.kind, 0.0) >= PAUSE, "begun again without a pause"

    def _check_captured(self, name: str) -> None:
        """A few reconciliations after all has been reported."""
        entry, stream = self.status.table(name), self.stream()
        green = entry is not None and entry.phase in CONSISTENT and self.status.condition("Consistent").status == "True"
        up_to_date = all(d.received == len(d.reports) for d in self.drivers.values())
        at_work = stream is not None and stream.opened and stream.exit is None
        if green and up_to_date and at_work and not self.captured(name):
            self.uncaptured[name] = self.uncaptured.get(name, 0) + 1
        else:
            self.uncaptured[name] = 0
        assert self.uncaptured[name] <= 3, f"{name} is called consistent and no run captures it"

    def stream(self) -> SimulatedDriver | None:
        ref = self.status.runs.stream
        driver = self.drivers.get(ref.id) if ref else None
        return driver if driver and not driver.ended else None

    def captured(self, name: str) -> bool:
        """What a person has removed, the stream finds when there is something to commit."""
        stream, target = self.stream(), self.lake.mains.get(name)
        held = stream.held.get(name) if stream else None
        return held is not None and held.flowing and (target is None or target.generation == held.known.generation)

    # -- quiet

    def calm(self, seconds: float = 5.0) -> None:
        """Every driver that is not held back does a step of its work and reports it."""
        self.now += seconds
        self.lake.log += [(name, "row") for name in sorted(self.busy - self.lake.absent)]
        for driver in self.live():
            if "step" not in driver.held_back:
                self.step(driver)
        for driver in self.live():
            if "reports" not in driver.held_back:
                self.receive(driver)
            if "end" not in driver.held_back:
                self.finish(driver)
        self.reconcile(0.0)

    def settle(self) -> None:
        """Some rows for each table, then time."""
        begun = len(self.started)
        for driver in self.live():
            driver.held_back.clear()
        for turn in range(60):
            if turn < 50 and turn % 5 == 0:
                self.lake.log += [(name, "row") for name in NAMES if name not in self.lake.absent]
            self.calm(10.0)
            if turn > 15 and self.settled() == "":
                break
        wrong = self.settled()
        assert not wrong, wrong
        assert len(self.started) - begun <= 12, "runs are begun again and again"
        rested = len(self.started)
        for _ in range(5):
            self.calm(60.0)
        wrong = self.settled()
        assert not wrong, wrong
        assert len(self.started) == rested, "runs are begun where nothing is to be done"

    def settled(self) -> str:
        """What is left to be desired; empty where nothing is."""
        condition = {k: self.status.condition(k).status for k in ("Ready", "Consistent", "Reconciling", "Stalled")}
        if self.status.observed_generation != self.generation:
            return "the resource was not taken"
        if self.status.phase is Phase.FAILED and (SYNC in self.blamed or self._is_limited()):
            return "" if condition["Stalled"] == "True" and not self.live() else "a failed sync that runs"
        wanted = set(self._wanted())
        failed = {t.name for t in assigned(self.status) if t.failed}
        if {t.name for t in assigned(self.status)} != wanted:
            return "other tables than those that are asked for"
        if condition["Reconciling"] == "True":
            return f"still reconciling: {self.status.phase} {self.status.condition('Ready').message}"
        for name in sorted(wanted):
            wrong = self._left_to_desire(name, name in failed)
            if wrong:
                return f"{name}: {wrong}"
        if failed:
            return "" if condition["Stalled"] == "True" and condition["Ready"] == "False" else f"{condition}"
        good = {"Ready": "True", "Consistent": "True", "Reconciling": "False", "Stalled": "False"}
        return "" if condition == good else f"{condition}"

    def _is_limited(self) -> bool:
        return not self.resource.spec.auto_restart.enabled

    def _left_to_desire(self, name: str, failed: bool) -> str:
        stream, target = self.stream(), self.lake.mains.get(name)
        held = stream.held.get(name) if stream else None
        stopped = held is None or bool(held.stop)
        old = target is not None and target.nonce < self.resource.spec.nonce(name)
        if failed:
            return self._left_of_failed(name) or ("" if stopped or old or name in self.blamed else "failed, and flows")
        if stopped or target is None:
            return "no run has it"
        if not self.captured(name):
            return "released"
        if target.complete and target.definition != self.lake.definition(name):
            return "of another definition"
        entry = self.status.table(name)
        assert entry is not None
        if old:
            return "not as new as asked for"
        return "" if entry.phase is TablePhase.STREAMING else f"called {entry.phase}"

    def _left_of_failed(self, name: str) -> str:
        """A stop that a resnapshot fixes stands only where the user is to be asked."""
        entry, spec = self.status.table(name), self.resource.spec
        assert entry is not None
        if name in self.blamed or not resnapshot_fixes(spec, name, entry.reason) or not entry.run:
            return ""
        return "" if entry.resnapshot and len(entry.resnapshot.at) >= MAX_DECISIONS else f"stopped: {entry.reason}"
