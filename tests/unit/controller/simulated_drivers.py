"""Simulated drivers: they do to simulated targets what the real ones do, step by step, and
say what those would say.

Where each says and does what: `stream` and `applier` for a stream and a catch-up, `snapshot`,
`snapshot.table` and `snapshot.progress` for a snapshot, `run.pod_report` and
`cluster.runs.run_ports` for how it reaches the operator. Offsets in the binlog are numbers of its
transactions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

from cdcsync_core.errors import Reason
from cdcsync_core.runs.run import LOG_END, ExitCode, Flow, Report, RunKind, TablePhase
from cdcsync_operator.decision.observed import Exit, ObservedRun, RunState, StartRun
from unit.controller.harness import WHOLE, place

STREAM, CATCH_UP = RunKind.STREAM, RunKind.CATCH_UP
#: splits of a table
SPLITS = 2
CONFLICT, LOST, GONE = Reason.SINK_CONFLICT.value, Reason.POSITION_LOST.value, Reason.NO_SUCH_TABLE.value
CHANGED = Reason.SCHEMA_CHANGE_REFUSED.value


# ---- targets


@dataclass
class Target:
    """What the newest commit of a table, or of the place beside it, carries; offsets are numbers of
    the binlog's transactions."""

    generation: int
    epoch: int
    nonce: int = 0
    definition: int = 0
    splits: int = 0
    low: int | None = None
    high: int | None = None
    position: int | None = None
    number: int = 0

    @property
    def complete(self) -> bool:
        return self.splits == SPLITS

    def entry(self) -> dict[str, Any]:
        return {
            "finished": WHOLE if self.complete else [],
            "low": None if self.low is None else place(self.low),
            "high": None if self.high is None else {"file": place(0)["file"], "offset": self.high},
            "nonce": self.nonce,
            "generation": self.generation,
            "position": None if self.position is None else place(self.position),
        }


class Ended(Exception):
    """A driver's error: that of the run as a whole, or of a table where it is caught."""

    def __init__(self, code: ExitCode, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


@dataclass
class SimulatedLake:
    """The binlog and the targets, those beside a table under its name and generation. The binlog
    begins with its header's four bytes.

    `absent` are the tables that the source does not have; `recorded` the definitions that the last
    preflight has found, as numbers.
    """

    log: list[tuple[str, str]] = field(default_factory=lambda: [("", "header")] * 4)
    purged: int = 0
    mains: dict[str, Target] = field(default_factory=dict)
    sides: dict[tuple[str, int], Target] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    recorded: dict[str, int] = field(default_factory=dict)

    def definition(self, name: str) -> int:
        return self.log.count((name, "ddl"))

    @property
    def end(self) -> int:
        return len(self.log)

    def found(self, where: dict[Any, Target], key: Any, epoch: int) -> Target:
        """What is there when something is to be committed."""
        target = where.get(key)
        if target is None or target.epoch > epoch:
            raise Ended(ExitCode.USER_MUST_ACT, CONFLICT)
        return target

    def ddl_after(self, name: str, position: int) -> bool:
        return (name, "ddl") in self.log[position:]


# ---- drivers


@dataclass
class Held:
    """A table in a run: what the run knows of its target, and how it stands. `reported` is what was
    reported of it last."""

    known: Target
    published: bool = True
    stop: str = ""
    released: bool = False
    reported: tuple[Any, ...] = ()

    @property
    def flowing(self) -> bool:
        return not self.stop and not self.released


@dataclass
class SimulatedDriver(ABC):
    """A run. `exit` is its exit report, `ended` whether it is gone; `received` is how many of its
    reports have arrived, and when."""

    lake: SimulatedLake
    action: StartRun
    started_at: float
    stop_asked: bool = False
    evicted: bool = False
    held_back: set[str] = field(default_factory=set)
    kicked: bool = False
    opened: bool = False
    exit: Exit | None = None
    ended: bool = False
    held: dict[str, Held] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    reports: list[dict[str, Any]] = field(default_factory=list)
    received: int = 0
    received_at: float | None = None
    epoch: int = 0

    @property
    def stopping(self) -> bool:
        return self.stop_asked or self.evicted

    def say(self, **parts: Any) -> None:
        self.reports.append(parts)

    def step(self) -> None:
        """Does what comes next; an error ends it."""
        if self.exit is not None:
            return
        try:
            self.work()
        except Ended as error:
            self.end(error.code, error.reason)

    @abstractmethod
    def work(self) -> None:
        """Does one thing; raises Ended."""

    def done(self) -> None:
        if self.failed and len(self.failed) == len(self.action.tables):
            self.end(ExitCode.USER_MUST_ACT, next(iter(self.failed.values())))
        else:
            self.end(ExitCode.DONE)

    def refuse(self, name: str, known: Target | None, reason: str) -> None:
        self.failed[name] = reason
        self.say(tables=[entry_of(name, TablePhase.FAILED, known, reason)])

    def end(self, code: ExitCode, reason: str = "") -> None:
        self.exit = Exit(code, reason, f"{reason} of the driver" if reason else "")

    def seen(self) -> ObservedRun:
        a = self.action
        ended = self._unasked() if self.ended else None
        state = RunState.ENDED if self.ended else RunState.DRAINING if self.stopping else RunState.RUNNING
        flows = [parts["flow"] for parts in self.reports[: self.received] if "flow" in parts]
        flow = Flow.from_dict(flows[-1]) if flows else None
        return ObservedRun(
            a.kind,
            a.id,
            a.tables,
            a.fingerprint,
            state,
            self.started_at,
            self.stop_asked,
            self.received_at,
            ended,
            flow=flow,
            appeared=max((parts.get("appeared", 0) for parts in self.reports[: self.received]), default=0),
            stop_at=a.stop_at,
        )

    def _unasked(self) -> Exit | None:
        """As `cluster.runs.run_ports` sees a driver that drained without being asked to."""
        drained = self.evicted and not self.stop_asked and self.exit is not None and self.exit.code == ExitCode.DONE
        if drained and self.action.stop_at:
            return Exit(ExitCode.RETRY, Reason.DRIVER_LOST.value, "drained")
        return self.exit

    def report_since(self, since: int) -> Report | None:
        """What has arrived after report number `since`, as `run.pod_report` keeps it: of each table
        the newest entry."""
        if self.received <= since:
            return None
        head: dict[str, Any] = {}
        entries: dict[str, dict[str, Any]] = {}
        numbers: dict[str, int] = {}
        for number, parts in enumerate(self.reports[: self.received], 1):
            head |= {k: v for k, v in parts.items() if k != "tables"}
            for entry in parts.get("tables", []):
                entries[entry["name"]] = entries.get(entry["name"], {}) | entry
                numbers[entry["name"]] = number
        return Report(self.action.id, tables=[e for n, e in entries.items() if numbers[n] > since], **head)


def entry_of(name: str, phase: TablePhase, known: Target | None, reason: str = "") -> dict[str, Any]:
    words = {"name": name, "phase": phase.value, "reason": reason, "message": f"{name}: {reason}" if reason else ""}
    return words | (known.entry() if known else {})


@dataclass
class SimulatedReader(SimulatedDriver):
    """A stream or a catch-up, as `stream` and `applier` have it."""

    reader: int = 0
    goal: int = 0
    appeared: int = 0
    met: set[str] = field(default_factory=set)

    def work(self) -> None:
        if not self.opened:
            self._open()
        elif self.stopping or not self._applied():
            self._close()

    def _open(self) -> None:
        self.opened = True
        stop_at = self.action.stop_at
        self.goal = self.lake.end if stop_at == LOG_END else int(stop_at.rpartition(":")[2] or 0)
        for name, _ in self.action.tables:
            known = self.lake.mains.get(name)
            if known is None or known.position is None:
                self.say(tables=[entry_of(name, TablePhase.SNAPSHOTTING, known)])
            elif known.position < self.lake.purged:
                self.refuse(name, None, LOST)
            else:
                self.held[name] = Held(replace(known))
        if not self.held:
            self.done()
            return
        self.epoch = max([self.action.epoch, *(h.known.epoch + 1 for h in self.held.values())])
        self.reader = min(self._position(h) for h in self.held.values())
        self._report(everything=True, connected=False)

    @staticmethod
    def _position(held: Held) -> int:
        assert held.known.position is not None
        return held.known.position

    def _applied(self) -> bool:
        """Whether there is more to do after a batch up to the end of the binlog."""
        if self.kicked:
            raise Ended(ExitCode.RETRY, Reason.SOURCE_UNREACHABLE.value)
        goal = self.lake.end
        for name, held in self.held.items():
            if held.flowing:
                self._apply(name, held, goal)
        self._meet(goal)
        self.reader = goal
        self._report(everything=False)
        flowing = [h for h in self.held.values() if h.flowing]
        if not flowing:
            return False
        return not self.action.stop_at or not all(
            self._consistent(h) and max(self._position(h), self.reader) >= self.goal for h in flowing
        )

    def _meet(self, goal: int) -> None:
        """Tables that are not this run's: their rows for the first time, and each time that one is
        made."""
        for name, event in self.lake.log[self.reader : goal]:
            if name.startswith("shop.") and name not in self.held and (event == "made" or name not in self.met):
                self.met.add(name)
                self.appeared += 1

    def _apply(self, name: str, held: Held, goal: int) -> None:
        at = self._position(held)
        for offset in range(max(at, self.reader), goal):
            table, event = self.lake.log[offset]
            if table == name and event == "ddl":
                if at < offset:
                    self._commit(name, held, offset)
                if held.flowing:
                    held.stop = CHANGED
                return
            at = offset + 1 if table == name else at
        if at > self._position(held):
            self._commit(name, held, at)

    def _commit(self, name: str, held: Held, position: int) -> None:
        try:
            found = self.lake.found(self.lake.mains, name, self.epoch)
            if found.generation != held.known.generation:
                held.released = True
            elif found.position is None or found.position < self._position(held):
                raise Ended(ExitCode.RETRY, Reason.INTERNAL_ERROR.value)
            elif found.position < position:
                found.position, found.epoch, found.number = position, self.epoch, found.number + 1
            held.known = replace(found)
        except Ended as error:
            if error.code == ExitCode.RETRY:
                raise
            main = self.lake.mains.get(name)
            if main is not None and main.generation > held.known.generation:
                held.released = True
            else:
                held.stop = error.reason

    def _close(self) -> None:
        for name, held in self.held.items():
            if held.flowing:
                self._commit(name, held, self.reader)
        self._report(everything=True)
        self.failed |= {n: h.stop for n, h in self.held.items() if h.stop}
        self.done()

    def _consistent(self, held: Held) -> bool:
        assert held.known.high is not None
        return self._position(held) >= held.known.high or (held.flowing and self.reader >= held.known.high)

    def _phase(self, held: Held) -> TablePhase:
        if held.stop:
            return TablePhase.FAILED
        if self.action.kind is CATCH_UP or not self._consistent(held):
            return TablePhase.CATCHING_UP
        return TablePhase.STREAMING

    def _report(self, *, everything: bool, connected: bool = True) -> None:
        entries = []
        for name, held in self.held.items():
            if held.released:
                continue
            phase = self._phase(held)
            if everything or held.reported != (phase, held.known.number):
                held.reported = (phase, held.known.number)
                entries.append(entry_of(name, phase, held.known, held.stop))
        flow = Flow(connected=connected, seconds_since_event=0.0 if connected else None).to_dict()
        position = place(self.reader) | {"timestamp": ""}
        self.say(
            epoch=self.epoch, tables=entries, position=position, lag_seconds=0.5, flow=flow, appeared=self.appeared
        )


@dataclass
class Snapshot(SimulatedDriver):
    """As `snapshot`, `snapshot.table` and `snapshot.progress` have it; a wave is one split of each
    of two tables."""

    nonces: dict[str, int] = field(default_factory=dict)
    low: int | None = None
    wave: list[str] = field(default_factory=list)
    publishing: bool = False

    def work(self) -> None:
        if not self.opened:
            self._open()
        elif self.low is not None:
            self._commit_wave(self.low)
        elif self.stopping and not self.publishing:
            self.done()
        elif self._unread():
            self._begin_wave()
        else:
            self._publish()

    def _open(self) -> None:
        self.opened = True
        for name, generation in self.action.tables:
            main, nonce = self.lake.mains.get(name), self.nonces.get(name, 0)
            again = main is not None and (main.nonce < nonce or main.generation < generation)
            nonce = max(nonce, main.nonce) if main else nonce
            wanted = self._free(name, generation, nonce, main) if again and main else generation
            where, key = self._place(name, wanted, again=again)
            fresh = Target(wanted, self.action.epoch, nonce, self.lake.recorded.get(name, 0))
            self.held[name] = Held(replace(where.setdefault(key, fresh)), published=not again)
        self.epoch = max([self.action.epoch, *(h.known.epoch + 1 for h in self.held.values())])
        self.say(epoch=self.epoch, tables=self._entries())

    def _free(self, name: str, generation: int, nonce: int, main: Target) -> int:
        """Not one that was begun before the user asked again."""
        wanted = max(generation, main.generation + 1)
        while (begun := self.lake.sides.get((name, wanted))) is not None and begun.nonce < nonce:
            wanted += 1
        return wanted

    def _place(self, name: str, generation: int, *, again: bool) -> tuple[dict[Any, Target], Any]:
        return (self.lake.sides, (name, generation)) if again else (self.lake.mains, name)

    def _unread(self) -> list[str]:
        return [n for n, h in self.held.items() if not h.known.complete and n not in self.failed]

    def _begin_wave(self) -> None:
        for name in self._unread()[:2]:
            known = self.held[name].known
            if known.low is not None and known.low < self.lake.purged:
                self.refuse(name, known, LOST)
            elif name in self.lake.absent:
                self.refuse(name, known, GONE)
            elif known.definition != self.lake.definition(name):
                self.refuse(name, known, CHANGED)
        self.low, self.wave = self.lake.end, self._unread()[:2]
        self.say(tables=[e for e in self._entries() if e["name"] in self.wave])

    def _commit_wave(self, low: int) -> None:
        for name in self.wave:
            held = self.held[name]
            where, key = self._place(name, held.known.generation, again=not held.published)
            found = self.lake.found(where, key, self.epoch)
            if found.splits == held.known.splits + 1:
                held.known = replace(found)
                continue
            if found.splits != held.known.splits:
                raise Ended(ExitCode.RETRY, Reason.INTERNAL_ERROR.value)
            found.splits, found.number, found.epoch = found.splits + 1, found.number + 1, self.epoch
            found.low, found.high = min(low, low if found.low is None else found.low), self.lake.end
            found.position = found.low if found.complete else None
            held.known = replace(found)
        self.low = None
        self.say(tables=self._entries())

    def _publish(self) -> None:
        """One table a step: it may die between two."""
        self.publishing = True
        for name, held in self.held.items():
            if not held.published and name not in self.failed:
                self._publish_table(name, held)
                return
        self.say(tables=self._entries())
        self.done()

    def _publish_table(self, name: str, held: Held) -> None:
        main, fresh = self.lake.mains.get(name), held.known
        if main is None:
            self.refuse(name, fresh, CONFLICT)
            return
        if fresh.low is not None and fresh.low < self.lake.purged:
            self.refuse(name, fresh, LOST)
            return
        if main.generation < fresh.generation:
            epoch = max(self.epoch, main.epoch + 1)
            self.lake.mains[name] = main = replace(fresh, epoch=epoch, number=main.number + 1)
        self.lake.sides.pop((name, fresh.generation), None)
        held.known, held.published = replace(main), True

    def _entries(self) -> list[dict[str, Any]]:
        phases = {
            n: TablePhase.CATCHING_UP if h.known.complete and h.published else TablePhase.SNAPSHOTTING
            for n, h in self.held.items()
            if n not in self.failed
        }
        return [entry_of(n, phase, self.held[n].known) for n, phase in phases.items()]
