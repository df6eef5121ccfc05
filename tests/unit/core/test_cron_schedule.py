"""The times of a schedule, also where the clock of its zone is changed."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_core.resource.cron_schedule import check_cron, check_zone, longest_gap, next_after

#: cron, zone, the local time of the search, and the next times in the zone
TIMES = [
    ("0 2 * * *", "UTC", "2026-03-28T02:00:00", ["2026-03-29T02:00:00+00:00"]),
    ("0 2 * * *", "UTC", "2026-03-28T01:59:59", ["2026-03-28T02:00:00+00:00"]),
    ("*/15 9-17 * * MON-FRI", "UTC", "2026-03-27T17:40:00", ["2026-03-27T17:45:00+00:00", "2026-03-30T09:00:00+00:00"]),
    ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00", ["2028-02-29T00:00:00+00:00"]),
    # the clock goes from 02:00 to 03:00: what is skipped is taken at once, and once
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
    ("0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"]),
    # and in autumn from 03:00 to 02:00: what comes twice is taken the first time
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
    # `*` counts the time that has elapsed
    ("*/30 * * * *", "Europe/Berlin", "2026-03-29T01:30:00", ["2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"]),
    ("0 * * * *", "Europe/Berlin", "2026-10-25T01:00:00", ["2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00"]),
    # a change of half an hour
    ("15 * * * *", "Australia/Lord_Howe", "2026-04-05T00:15:00", ["2026-04-05T01:15:00+11:00", "2026-04-05T02:15:00+10:30"]),
]  # fmt: skip


def local(text: str, zone: str, fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


@pytest.mark.parametrize(("cron", "zone", "after", "expected"), TIMES)
def test_next_times(cron: str, zone: str, after: str, expected: list[str]) -> None:
    at, found = local(after, zone), []
    for _ in expected:
        at = next_after(cron, zone, at)
        found.append(datetime.fromtimestamp(at, ZoneInfo(zone)).isoformat())
    assert found == expected


def test_a_search_in_the_hour_that_comes_twice_goes_on_from_there() -> None:
    """02:30 was taken when it came first."""
    after = local("2026-10-25T02:10:00", "Europe/Berlin", fold=1)
    found = next_after("30 2 * * *", "Europe/Berlin", after)
    assert datetime.fromtimestamp(found, ZoneInfo("Europe/Berlin")).isoformat() == "2026-10-26T02:30:00+01:00"


CRONS = ("0 2 * * *", "30 2 * * *", "*/10 * * * *", "0 */6 * * *", "5 1-3 * * SUN", "0 0 1 * *", "59 23 L * *")
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Africa/Casablanca", "Asia/Kathmandu")


@given(
    st.sampled_from(CRONS),
    st.sampled_from(ZONES),
    st.integers(1_600_000_000, 2_200_000_000),
    st.integers(0, 40 * 86400),
)
def test_the_next_time_is_the_same_from_wherever_before_it_is_looked_for(
    cron: str, zone: str, after: int, later: int
) -> None:
    """A time that lies ahead may be computed anew at any moment."""
    found = next_after(cron, zone, after)
    assert found > after
    assert found % 60 == 0
    between = min(after + later, int(found) - 1)
    assert next_after(cron, zone, between) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("* * * *", "wrong number of fields"),
        ("* * * * * *", "wrong number of fields"),
        ("60 * * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 0 * *", "bad day-of-month"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 * 13 *", "bad month"),
        ("0 0 * * 8", "bad day-of-week"),
        ("@daily", "wrong number of fields"),
    ],
)
def test_what_is_no_cron_expression(text: str, found: str) -> None:
    with pytest.raises(ValueError, match=f"five fields like '0 2 \\* \\* \\*' \\({found}\\)"):
        check_cron(text)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", "", "Europe"])
def test_what_is_no_time_zone(name: str) -> None:
    with pytest.raises(ValueError, match="time zone database"):
        check_zone(name)


def test_the_longest_time_between_two_times() -> None:
    monday = datetime.fromisoformat("2026-06-01T00:00:00+00:00").timestamp()
    assert longest_gap("0 2 * * *", "UTC", int(monday // 86400)) == timedelta(days=1).total_seconds()
    assert longest_gap("0 0 1 1 *", "UTC", int(monday // 86400)) == timedelta(days=365).total_seconds()
    weekend = longest_gap("* 9-17 * * MON-FRI", "UTC", int(monday // 86400))
    assert 62 * 3600 <= weekend <= 63 * 3600, "of times within an hour"
    assert longest_gap("0 9-17 * * MON-FRI", "UTC", int(monday // 86400)) == timedelta(days=2, hours=16).total_seconds()
