"""Whatever happens to a sync with a schedule, in whatever order: once it is quiet, each of its
times is caught up by one run, nothing runs between them, and the status shows it.

The histories are those of `cluster_histories`; the stream's schedule comes and goes in them, too.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.runs.run import RunKind, TablePhase
from cdcsync_core.runs.status import Phase
from cdcsync_core.timestamps import unix_time
from cdcsync_operator.decision.observed import Action, StartRun
from cdcsync_operator.decision.runs.fingerprint import fingerprint
from unit.controller.cluster_histories import BACKOFF, happen, histories, initial_spec
from unit.controller.simulated_cluster import NAMES, SimulatedCluster

STREAM = RunKind.STREAM
SCHEDULED = {"interval": "1s", "schedule": {"cron": "*/20 * * * *"}}


class ScheduledCluster(SimulatedCluster):
    """`ends` are the binlog's ends when runs of the stream were begun, by the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ends: dict[float, int] = {}

    @property
    def next_time(self) -> float:
        assert self.status.schedule is not None
        return unix_time(self.status.schedule.next_time) or 0.0

    # -- what must hold at every reconciliation

    def _check(self, actions: tuple[Action, ...]) -> None:
        super()._check(actions)
        starts = [a for a in actions if isinstance(a, StartRun) and a.kind is STREAM]
        self.ends |= dict.fromkeys((float(int(self.now)) for _ in starts), self.lake.end)
        if self.status.phase is Phase.WAITING:
            assert self.stream() is None, "waiting beside a stream"
            assert self.next_time > self.now, "waiting for a time that has come"

    def _check_ready(self) -> None:
        schedule = self.resource.spec.stream.schedule
        if schedule is None or self.status.condition("Ready").status != "True":
            super()._check_ready()
            return
        assert self.status.schedule is not None, "ready before it has caught up once"
        assert schedule.next_after(self.next_time) > self.now, "ready although a time was missed"
        for driver in (d for d in self.live() if self.status.runs.kind_of(d.action.id)):
            wanted = fingerprint(self.resource.spec, driver.action.kind)
            assert driver.action.fingerprint == wanted, "ready while a run of an older spec lives"

    # -- quiet

    def settle(self) -> None:
        """Rows and time until it waits; then two of its times."""
        for driver in self.live():
            driver.held_back.clear()
        for turn in range(120):
            if turn < 50 and turn % 5 == 0:
                self.write()
            self.calm(10.0)
            if turn > 15 and self.settled() == "":
                break
        wrong = self.settled()
        assert not wrong, wrong
        if self.status.phase is not Phase.FAILED:
            self.pass_a_time()
            self.pass_a_time()

    def write(self) -> None:
        self.lake.log += [(name, "row") for name in NAMES if name not in self.lake.absent]

    def pass_a_time(self) -> None:
        self.write()
        begun, at = len(self.started), self.next_time
        while self.now + 60 < at:
            self.calm(60.0)
            assert not self.live(), "something runs between two times"
        assert len(self.started) == begun, "a run is begun between two times"
        for _ in range(30):
            self.calm(5.0)
        wrong = self.settled()
        assert not wrong, wrong
        assert len(self.started) == begun + 1, "a time has one run"
        assert self.next_time > at

    def settled(self) -> str:
        if self.status.phase not in (Phase.WAITING, Phase.FAILED):
            return f"{self.status.phase}, not waiting: {self.status.condition('Ready').message}"
        return super().settled()

    def _left_to_desire(self, name: str, failed: bool) -> str:
        target, entry = self.lake.mains.get(name), self.status.table(name)
        if failed:
            return self._left_of_failed(name)
        assert entry is not None
        assert self.status.schedule is not None
        if target is None or target.position is None:
            return "no content"
        if target.nonce < self.resource.spec.nonce(name):
            return "not as new as asked for"
        began = self.ends[unix_time(self.status.schedule.last_start) or 0.0]
        last = max((n + 1 for n, (table, _) in enumerate(self.lake.log[:began]) if table == name), default=0)
        if target.position < last:
            return f"at {target.position}, and {last} was there when the last run began"
        return "" if entry.phase is TablePhase.STREAMING else f"called {entry.phase}"


@settings(max_examples=150)
@given(histories(), st.booleans())
def test_whatever_happens_each_time_is_caught_up_when_it_is_quiet(
    history: list[tuple[str, Any]], resnapshots: bool
) -> None:
    spec = initial_spec(resnapshots=resnapshots) | {"stream": SCHEDULED}
    cluster = ScheduledCluster(spec=spec)
    for event, what in history:
        happen(cluster, event, what)
    cluster.errors = ()
    cluster.change(restartNonce=99, state="running", autoRestart={"backoff": BACKOFF}, stream=SCHEDULED)
    cluster.settle()
