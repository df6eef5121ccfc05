"""The check of a sink: can a lake be at this path, and may we do there what commits need?

Why it exists: a sink that is missing, closed or no lake should be reported before a pod is made,
with its remedy. Why it is right: nothing is concluded from policies; what a run will do is done
once, on an object of its own in `_cdcsync.probe` below the lake: no database has a folder of that
name, and readers pass over the underscore. The object's name is random, so that checks at the same
time do not disturb each other; what a check that died left behind is removed by a later one, an
hour after it was written. Nothing else is written, and no folder of the lake is made: one that is
not there yet is judged by the nearest folder above it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cdcsync_core.errors import CdcError
from cdcsync_core.resource.sinks.kind import Nouns
from cdcsync_core.runs.sink_check import Checks
from cdcsync_lake.disk_check import check_disk
from cdcsync_lake.location import Location

#: seconds after which a probe was left by a check that died
LEFTOVER_SECONDS = 3600.0


@dataclass(frozen=True)
class SinkCheck:
    """What a check found at `uri`: `errors` in the order of the steps; `unchecked` is the reason
    why nothing was checked. `servers` is what was found of the sink's servers, None where it has
    none, or where only drivers ask them; `nouns` is what they and the targets are called."""

    uri: str
    errors: tuple[CdcError, ...] = ()
    unchecked: str = ""
    servers: Checks | None = None
    nouns: Nouns = field(default_factory=Nouns)

    @property
    def all_errors(self) -> tuple[CdcError, ...]:
        return self.errors + (self.servers.errors if self.servers else ())


def check_lake(location: Location, leftover_seconds: float = LEFTOVER_SECONDS, proxy: str = "") -> SinkCheck:
    """Tries what commits need; waits for a store that does not answer, but not for long. Raises no
    CdcError. Probes older than `leftover_seconds` were left by a check that died; `proxy` is the
    URL through which a store is reached, empty for none."""
    try:
        errors = (
            check_disk(location, leftover_seconds) if location.local else _in_store(location, leftover_seconds, proxy)
        )
    except CdcError as error:
        errors = [error]
    return SinkCheck(location.uri, tuple(errors))


def _in_store(location: Location, leftover: float, proxy: str) -> list[CdcError]:
    """The client of object stores is loaded where there is one."""
    from cdcsync_lake.bucket_check import check_bucket

    return check_bucket(location, leftover, proxy)
