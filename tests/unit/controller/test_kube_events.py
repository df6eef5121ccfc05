"""Events tell turns, not states: nothing is told twice, and nothing that a person would want to know is left out."""

from __future__ import annotations

from cdcsync_core.run import RunKind
from cdcsync_core.status import Phase, Restarts, RunRef, Status, with_condition
from cdcsync_operator.kube_events import news

BEFORE = Status(phase=Phase.STREAMING)


def test_nothing_new_is_nothing_told() -> None:
    assert list(news(BEFORE, BEFORE.with_(lag_seconds=3.0))) == []


def test_a_run_a_phase_a_failure_and_a_stop_are_told() -> None:
    started = BEFORE.with_(runs=BEFORE.runs.put(RunKind.STREAM, RunRef(id="r", epoch=1, pod="r-driver")))
    assert list(news(BEFORE, started)) == [("Normal", "RunStarted", "stream driver r-driver")]
    assert list(news(BEFORE, BEFORE.with_(phase=Phase.PAUSED))) == [("Normal", "Paused", "was Streaming")]
    failed = BEFORE.with_(restarts=Restarts(consecutive=1, reason="OutOfMemory", next_attempt_at="later"))
    assert list(news(BEFORE, failed)) == [("Warning", "OutOfMemory", "; next attempt at later")]
    stalled = with_condition(BEFORE, "Stalled", True, "PositionLost", "purged", 0.0)
    assert list(news(BEFORE, stalled)) == [("Warning", "PositionLost", "purged")]
    assert list(news(stalled, stalled)) == []
