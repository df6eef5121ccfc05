"""The lag and the backlog of a stream: what is claimed follows from what was observed, and grows
with the clock otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdcsync_core.runs.run import Flow
from cdcsync_spark.binlog.dump.reader_health import Received, ReceivedFile
from cdcsync_spark.stream.data_flow import Backlog, flow, idle_since, lag_seconds

HEARTBEAT = 30.0


@pytest.mark.parametrize(
    ("position_age", "idle", "lag"),
    [
        (2.0, None, 2.0),
        (890.0, None, 890.0),
        (None, None, None),
        # a heartbeat that is not overdue
        (0.0, 0.0, 0.0),
        (60.0, 60.0, 0.0),
        (61.0, 61.0, 61.0),
        # a source whose clock is ahead
        (-3.0, None, 0.0),
    ],
)
def test_a_lag_is_the_age_of_what_is_applied(position_age: float | None, idle: float | None, lag: float | None) -> None:
    assert lag_seconds(position_age, idle, HEARTBEAT) == lag


@pytest.mark.parametrize(
    ("received", "applied", "idle"),
    [
        (None, 0, None),
        (Received(0.0), 0, None),
        (Received(0.0, last=90.0), 0, None),
        (Received(0.0, last=90.0, end=90.0), 0, 10.0),
        # a heartbeat does not make up for what waits
        (Received(0.0, last=90.0, end=90.0, changes=7), 6, None),
        (Received(0.0, last=90.0, end=90.0, changes=7), 7, 10.0),
    ],
)
def test_only_a_heartbeat_from_the_end_shows_that_all_is_applied(
    received: Received | None, applied: int, idle: float | None
) -> None:
    assert idle_since(received, 100.0, applied) == idle


def test_how_data_flows() -> None:
    assert flow(None, 100.0, 0.0, None) == Flow()
    assert flow(Received(40.0), 100.0, 0.0, None) == Flow(connected=False, seconds_since_event=60.0)
    assert flow(Received(40.0, last=99.0), 100.0, 5.0, 90.0) == Flow(True, 1.0, 5.0, 10.0)
    assert flow(Received(40.0, last=50.0, blocked=True), 100.0, 50.0, 50.0) == Flow(True, 0.0, 50.0, 50.0), (
        "a reader that does not listen calls no source silent"
    )


def test_the_oldest_change_that_waits_counts() -> None:
    backlog = Backlog()
    backlog.note(0.0, 5, 5)
    assert backlog.waiting(10.0) == 0
    backlog.note(10.0, 6, 5)
    backlog.note(20.0, 9, 5)
    assert backlog.waiting(30.0) == 20
    backlog.note(30.0, 9, 6)
    assert backlog.waiting(30.0) == 10, "the first one is committed"
    backlog.note(31.0, 9, 9)
    assert backlog.waiting(40.0) == 0


def test_a_stream_that_keeps_up_under_load_has_nothing_old() -> None:
    backlog = Backlog()
    for second in range(1000):
        backlog.note(float(second), received=10 * second, applied=10 * second - 15)
    assert backlog.waiting(1000.0) < 4


def test_what_was_received_is_seen_by_another_process(tmp_path: Path) -> None:
    reader, driver = (ReceivedFile(tmp_path / "received") for _ in range(2))
    assert driver.read() is None
    for noted in (Received(1.5), Received(1.5, 2.5, 2.5, 2**40), Received(1.5, 3.5, None, 7, blocked=True)):
        reader.write(noted)
        assert driver.read() == noted


def test_a_record_that_is_being_written_is_none() -> None:
    before, after = Received(1.0, 2.0), Received(1.0, 300.0, 300.0, 9)
    old, new = before.to_bytes(), after.to_bytes()
    torn = [new[:n] + old[n:] for n in range(1, len(new))]
    assert {Received.from_bytes(t) for t in torn} <= {None, before, after}
