"""The times of a cron expression in a time zone, as unix seconds.

Five fields as in crontab(5): minute, hour, day of the month, month, day of the week; Debian's cron
says what they mean. A time that the clock skips (summer time begins) is taken at the next minute
that exists, one that comes twice is taken the first time; with `*` in minute or hour the elapsed
time counts instead. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

_FIELDS = 5
#: a search ends after fifty years, so any moment serves to see whether there is a time at all
_ANY_MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def check_cron(text: str) -> str:
    """Raises ValueError for what is no expression, or has no time."""
    try:
        if len(text.split()) != _FIELDS:  # it would take six, the first of them seconds
            raise CronSimError("Wrong number of fields")
        moment = next(CronSim(text, _ANY_MOMENT), None)
    except CronSimError as error:
        raise ValueError(f"a cron expression, five fields like '0 2 * * *' ({_lowered(error)})") from None
    if moment is None:
        raise ValueError("a cron expression with a time in fifty years")
    return text


def check_zone(name: str) -> str:
    """Raises ValueError for a name that the time zone database does not have."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("a name of the time zone database like Europe/Berlin") from None
    return name


def next_after(cron: str, zone: str, after: float) -> float:
    """The first time after `after`."""
    return next(_times(cron, zone, after))


@lru_cache(maxsize=256)
def longest_gap(cron: str, zone: str, day: int) -> float:
    """Seconds between two times, the most of those that begin in five weeks from day `day` since
    1970. Less by up to an hour where times are closer than that: not each of them is examined."""
    at, longest = next_after(cron, zone, day * 86400.0), 0.0
    while at < (day + 35) * 86400.0 or not longest:
        following = next_after(cron, zone, at)
        longest = max(longest, following - at)
        at = max(following, at + 3600.0)
    return longest


def _times(cron: str, zone: str, after: float) -> Iterator[float]:
    """In order. A search that begins in an hour which comes twice may find a time of the first of
    the two; and two times that the clock skips are one."""
    last = after
    for moment in CronSim(cron, datetime.fromtimestamp(int(after), ZoneInfo(zone))):
        at = moment.timestamp()
        if at > last:
            last = at
            yield at


def _lowered(error: CronSimError) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]
