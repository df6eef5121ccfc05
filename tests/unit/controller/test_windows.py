"""Snapshots in the windows of `spec.snapshot.windows`, and the status outside of them."""

from __future__ import annotations

from datetime import datetime
from math import inf
from typing import Any

import pytest

from cdcsync_core.resource.snapshot_spec import SnapshotSpec
from cdcsync_core.runs.run import RunKind
from cdcsync_core.runs.status import Phase
from unit.controller.harness import ControllerHarness, resource

SNAPSHOT, STREAM = RunKind.SNAPSHOT, RunKind.STREAM
#: two hours, from ten in the evening on
NIGHTLY = {"windows": [{"cron": "0 22 * * *", "duration": "2h"}]}
NOON = datetime.fromisoformat("2026-06-01T12:00:00+00:00").timestamp()
HOUR = 3600.0
CLOSED = "outside of spec.snapshot.windows, the next one begins at 2026-06-01T22:00:00Z"


def at_noon(**spec: Any) -> ControllerHarness:
    return ControllerHarness(resource=resource(**({"snapshot": NIGHTLY} | spec)), now=NOON)


def until(harness: ControllerHarness, at: float) -> None:
    harness.step(at - harness.now)


@pytest.mark.parametrize(
    ("hours", "closed"),
    [(0, 10.0), (10, None), (11.9, None), (12, 34.0), (33.9, 34.0), (34, None)],
)
def test_a_window_has_its_beginning_and_not_its_end(hours: float, closed: float | None) -> None:
    spec = SnapshotSpec.model_validate(NIGHTLY)
    assert spec.closed_until(NOON + hours * HOUR) == (None if closed is None else NOON + closed * HOUR)


@pytest.mark.parametrize(
    ("hours", "elapsed"), [(0.5, 10.5), (2, 12.0), (2.5, 34.5), (4, 36.0), (2 * 1000, 10 + 999 * 24 + 2), (2001, inf)]
)
def test_the_times_between_windows_count_as_the_snapshots(hours: float, elapsed: float) -> None:
    assert SnapshotSpec.model_validate(NIGHTLY).elapsed(hours * HOUR, NOON) == elapsed * HOUR


def test_windows_that_meet_are_one() -> None:
    spec = SnapshotSpec.model_validate({"windows": [{"cron": "0 * * * *", "duration": "1h"}]})
    assert spec.closed_until(NOON + 123) is None
    assert spec.elapsed(30 * HOUR, NOON + 123) == 30 * HOUR
    assert SnapshotSpec().elapsed(7.0, NOON) == 7.0


def test_no_snapshot_begins_outside_of_the_windows() -> None:
    harness = at_noon()
    harness.steps()
    assert harness.kinds() == set()
    assert harness.status.phase is Phase.PLANNING
    assert harness.status.snapshot.throttled == CLOSED
    assert CLOSED in harness.status.condition("Ready").message
    until(harness, NOON + 10 * HOUR)
    harness.steps()
    assert harness.kinds() == {"snapshot"}
    assert harness.status.snapshot.throttled == ""


def test_one_that_reads_is_drained_at_the_end_and_goes_on_in_the_next_window() -> None:
    harness = at_noon()
    until(harness, NOON + 10 * HOUR)
    harness.steps()
    harness.say(SNAPSHOT, tables=[{"name": n, "phase": "Snapshotting"} for n in harness.tables])
    until(harness, NOON + 12 * HOUR)
    assert harness.live(SNAPSHOT).stop_asked
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.kinds() == set()
    assert harness.status.phase is Phase.SNAPSHOTTING
    assert harness.status.restarts.consecutive == 0
    assert harness.status.snapshot.throttled.endswith("2026-06-02T22:00:00Z")
    until(harness, NOON + 34 * HOUR)
    harness.steps()
    assert harness.kinds() == {"snapshot"}


def test_one_that_has_read_all_is_not_drained() -> None:
    harness = at_noon()
    until(harness, NOON + 10 * HOUR)
    harness.steps()
    harness.read(*harness.tables)
    until(harness, NOON + 12 * HOUR)
    assert not harness.live(SNAPSHOT).stop_asked


def test_the_stream_goes_on_while_a_resnapshot_waits() -> None:
    harness = at_noon()
    until(harness, NOON + 10 * HOUR)
    harness.to_streaming()
    until(harness, NOON + 13 * HOUR)
    harness.change(snapshot=NIGHTLY, resnapshot=[{"table": "shop.a", "nonce": 1}])
    harness.steps()
    harness.flow(*harness.tables)
    harness.steps()
    assert harness.kinds() == {"stream"}
    assert harness.condition("Ready")[0] == "True"
    assert harness.status.snapshot.throttled.endswith("2026-06-02T22:00:00Z")


def test_a_table_that_begins_without_its_rows_waits_for_no_window() -> None:
    harness = at_noon(start={"from": "latest"})
    harness.steps()
    assert harness.kinds() == {"snapshot"}
    assert harness.status.snapshot.throttled == ""


def test_a_paused_sync_waits_for_nothing() -> None:
    harness = at_noon()
    harness.steps()
    harness.change(snapshot=NIGHTLY, state="paused")
    harness.steps()
    assert harness.status.snapshot.throttled == ""


def streaming_without_its_tables() -> ControllerHarness:
    """Outside of the windows, with a status that has lost its tables, as where the operator died
    between its writes of their ConfigMaps and of the status."""
    harness = at_noon()
    until(harness, NOON + 10 * HOUR)
    harness.to_streaming()
    until(harness, NOON + 13 * HOUR)
    harness.flow(*harness.tables)
    harness.status = harness.status.with_(table_status=())
    harness.steps()
    assert harness.live(STREAM).stop_asked
    harness.end(STREAM)
    harness.steps()
    return harness


def test_tables_that_the_status_has_lost_wait_for_no_window() -> None:
    """R4: the snapshot run asks the targets, and says at once that they are complete."""
    harness = streaming_without_its_tables()
    assert harness.kinds() == {"snapshot"}
    assert harness.status.snapshot.throttled == ""
    assert not harness.live(SNAPSHOT).stop_asked
    harness.read(*harness.tables)
    harness.end(SNAPSHOT)
    harness.steps()
    assert harness.kinds() == {"stream"}


def test_of_lost_tables_those_that_were_not_read_wait_for_the_window() -> None:
    harness = streaming_without_its_tables()
    harness.read("shop.a")
    harness.say(SNAPSHOT, tables=[{"name": "shop.b", "phase": "Snapshotting"}])
    harness.steps()
    assert harness.live(SNAPSHOT).stop_asked
    harness.end(SNAPSHOT)
    harness.steps()
    assert SNAPSHOT.value not in harness.kinds()
    assert harness.status.snapshot.throttled.endswith("2026-06-02T22:00:00Z")
