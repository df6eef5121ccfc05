"""Waits between the waves of a snapshot, by a clock of the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cdcsync_core.resource.snapshot_spec import SnapshotSpec
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.run.context import Draining
from cdcsync_spark.snapshot.throttle import Throttle


class Waits:
    """A clock that waiting moves; `loads` has what the source is asked for, second by second."""

    def __init__(self, loads: list[str], spec: dict[str, Any]) -> None:
        self.now, self.reports, self.loads = 100.0, list[str](), loads
        self.throttle = Throttle(
            SnapshotSpec.model_validate(spec), self._excess, self.reports.append, self.wait, lambda: self.now
        )

    def _excess(self, _: Sequence[Capture]) -> str:
        return self.loads.pop(0) if self.loads else ""

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_the_next_wave_begins_when_the_time_of_the_rows_is_over() -> None:
    waits = Waits([], {"maxRowsPerSecond": 1000})
    waits.throttle.before_wave([])
    assert waits.now == 100.0
    waits.wait(0.5)
    waits.throttle.after_wave(3000, [10**9])
    waits.throttle.before_wave([])
    assert waits.now == 103.0
    waits.wait(5.0)
    waits.throttle.after_wave(1000, [10**9])
    waits.throttle.before_wave([])
    assert waits.now == 108.0, "a wave that took longer than its rows may is followed at once"


def test_the_next_wave_begins_when_the_time_of_the_bytes_is_over() -> None:
    """The one of two bounds counts that takes longer."""
    waits = Waits([], {"maxBytesPerSecond": "1Mi", "maxRowsPerSecond": 1000})
    waits.throttle.before_wave([])
    waits.throttle.after_wave(1000, [2 << 20, 1 << 20])
    waits.throttle.before_wave([])
    assert waits.now == 103.0
    waits.throttle.after_wave(4000, [1 << 20])
    waits.throttle.before_wave([])
    assert waits.now == 107.0


def test_a_wave_has_as_many_splits_as_have_the_bytes_of_a_second() -> None:
    throttle = Waits([], {"maxBytesPerSecond": "8Mi", "parallelism": 4}).throttle
    splits = [throttle.splits_a_wave]
    for sizes in ([1 << 20], [2 << 20, 100], [100], [20 << 20]):
        throttle.after_wave(10, sizes)
        splits.append(throttle.splits_a_wave)
    assert splits == [1, 8, 4, 4, 1], "the largest split so far counts"


def test_without_bounds_nothing_waits_and_nothing_is_asked() -> None:
    waits = Waits(["busy"], {})
    waits.throttle.before_wave([])
    waits.throttle.after_wave(10**9, [10**9])
    waits.throttle.before_wave([])
    assert (waits.now, waits.loads, waits.reports) == (100.0, ["busy"], [])


def test_a_load_that_lasts_is_reported_until_it_is_over() -> None:
    waits = Waits([f"busy {second}" for second in range(9)], {"maxLoad": {"threadsRunning": 5}})
    waits.throttle.before_wave([])
    assert (waits.now, waits.reports) == (109.0, ["busy 5", ""])


def test_a_short_load_is_not_reported() -> None:
    waits = Waits(["busy"] * 3, {"maxLoad": {"threadsRunning": 5}})
    waits.throttle.before_wave([])
    assert (waits.now, waits.reports) == (103.0, [])


def test_a_run_that_ends_while_it_waits_leaves_no_report() -> None:
    waits = Waits(["busy"] * 100, {"maxLoad": {"threadsRunning": 5}})

    def drained(seconds: float) -> None:
        waits.now += seconds
        if waits.now > 110:
            raise Draining

    waits.throttle.wait = drained
    with pytest.raises(Draining):
        waits.throttle.before_wave([])
    assert waits.reports == ["busy", ""]
