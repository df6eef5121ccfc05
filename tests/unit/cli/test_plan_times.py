"""The next times of a schedule, as `cdcsync plan` shows them."""

from __future__ import annotations

from datetime import UTC, datetime

from cdcsync_operator.cli.plan import next_times
from unit.controller.harness import resource


def test_the_next_times_of_a_schedule_are_in_utc() -> None:
    """02:30 in Berlin, over the end of summer time."""
    nightly = resource(stream={"schedule": {"cron": "30 2 * * *", "timeZone": "Europe/Berlin"}})
    assert next_times(nightly, datetime(2026, 10, 24, 0, 30, tzinfo=UTC).timestamp()) == [
        "2026-10-25T00:30:00Z",
        "2026-10-26T01:30:00Z",
        "2026-10-27T01:30:00Z",
    ]


def test_a_stream_that_runs_all_the_time_has_none() -> None:
    assert next_times(resource(), 0.0) == []
