"""When a status that has changed is written."""

from __future__ import annotations

import pytest

from cdcsync_core.runs.run import TablePhase
from cdcsync_core.runs.status import Phase, RunRef, Runs, Status, only_tables
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_operator.reconcile.status_writes import seconds_to_write

RUNNING = Status(
    observed_generation=3,
    runs=Runs(stream=RunRef(id="t-2", epoch=2)),
    table_status=(TableStatus(name="shop.a"),),
)
FAILED = only_tables(RUNNING, [TableStatus(name="shop.a", phase=TablePhase.FAILED)])


@pytest.mark.parametrize("changed", [RUNNING.with_(phase=Phase.STREAMING), RUNNING.with_(runs=Runs()), FAILED])
def test_what_is_waited_for_is_written_at_once(changed: Status) -> None:
    assert seconds_to_write(RUNNING, changed, 100.0, 100.0) == 0.0


@pytest.mark.parametrize(("now", "seconds"), [(100.0, 5.0), (103.0, 2.0), (105.0, 0.0), (200.0, 0.0), (99.0, 0.0)])
def test_mere_progress_waits_for_five_seconds_after_the_last_write(now: float, seconds: float) -> None:
    """The last case is a clock that was set back."""
    assert seconds_to_write(RUNNING, RUNNING.with_(lag_seconds=0.7), 100.0, now) == seconds


def test_what_was_written_is_due_never() -> None:
    assert seconds_to_write(RUNNING, RUNNING, 0.0, 1e9) is None
