"""Times in the resource, by cron expressions in a time zone."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from cdcsync_core.resource.cron_schedule import check_cron, check_zone, longest_gap, next_after
from cdcsync_core.resource.spec_part import Part, Seconds


class Schedule(Part):
    """When a stream that does not run all the time catches up; see `cron_schedule`."""

    cron: Annotated[
        str,
        Field(strict=True, max_length=128, pattern=r"^[0-9A-Za-z*,/#-]+( +[0-9A-Za-z*,/#-]+){4}$"),
        AfterValidator(check_cron),
    ]
    time_zone: Annotated[
        str,
        Field(strict=True, max_length=64, pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$"),
        AfterValidator(check_zone),
    ] = "UTC"

    def next_after(self, seconds: float) -> float:
        """The first time after that one; both are unix seconds."""
        return next_after(self.cron, self.time_zone, seconds)

    def longest_gap(self, now: float) -> float:
        """The most seconds between two times that come."""
        return longest_gap(self.cron, self.time_zone, int(now) // 86400)


class Window(Schedule):
    """Times in which something may be done: `duration` seconds from each time of `cron` on."""

    duration: Annotated[Seconds, Field(ge=60, le=7 * 86400)]

    def open_until(self, now: float) -> float | None:
        """The end of the one that is open; None where none is."""
        begun = self.next_after(now - self.duration)
        return begun + self.duration if begun <= now else None
