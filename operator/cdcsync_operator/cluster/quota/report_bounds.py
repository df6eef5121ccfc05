"""Bounds of what runs' reports take: of one run, of a namespace's runs in the cluster's etcd, and
of what is read of them at once into the operator's memory.

Why it exists: a tenant runs the driver's pod, and may have the right to write ConfigMaps: reports
may be as many and as large as the API server takes.

Why it is right: reports are counted as they are read, one after the other, and beyond a bound no
further one is. A namespace beyond its share is refused with that reason and its runs go on; what
finds no room in memory is tried later, when others have been merged. A run's own bytes stay its own
while it is there, so that it is not refused for what others took meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_kube.client import ApiError, Object
from cdcsync_operator.cluster.quota.room import Room, Rooms

#: bytes of all reports of one run: those of 50,000 tables have about half of it
MOST_BYTES = 64 * 2**20
#: reason of an ApiError that is the operator's own: reports wait for room in its memory
TOO_MANY_REPORTS = "TooManyReports"
#: what one takes at least, with its names and labels
_LEAST = 4096


@dataclass
class ReportBounds:
    """The reports of one sync, whose runs' names are its own in the namespace."""

    rooms: Rooms
    namespace: str
    _reading: set[str] = field(default_factory=set)

    def start(self, run: str, reports: Iterable[Object]) -> None:
        """Counts the reports that a run begins with. Raises QuotaExceeded."""
        size = sum(map(size_of, reports))
        if not self._stored.put(self.namespace, run, size):
            raise self._no_room(run, size)

    def read(self, run: str, reports: Iterable[Object]) -> list[Object]:
        """A run's reports. Raises QuotaExceeded, and ApiError where they have to wait."""
        read, size = list[Object](), 0
        for report in reports:
            size += size_of(report)
            self._count(run, size)
            read.append(report)
        self._stored.put(self.namespace, run, size)
        return read

    def merged(self) -> None:
        """Nothing that was read is held any more."""
        for run in self._reading:
            self.rooms.read_reports.free(self.namespace, run)
        self._reading.clear()

    def removed(self, run: str) -> None:
        self._stored.free(self.namespace, run)

    @property
    def _stored(self) -> Room:
        return self.rooms.reports

    def _count(self, run: str, size: int) -> None:
        if size > MOST_BYTES:
            raise fail(
                Reason.QUOTA_EXCEEDED,
                f"reports of the run {run} with more than {MOST_BYTES} bytes",
                needed="the reports that its own driver writes",
                remedy=f"delete the ConfigMaps {run}-report-N that are not its own, or name fewer tables in spec.tables",
            )
        if size > self._stored.size(self.namespace, run) and not self._stored.put(self.namespace, run, size):
            raise self._no_room(run, size)
        self._reading.add(run)
        if not self.rooms.read_reports.put(self.namespace, run, size):
            raise ApiError(429, TOO_MANY_REPORTS, f"the reports of {run} wait until those of other syncs are merged")

    def _no_room(self, run: str, size: int) -> CdcError:
        return fail(
            Reason.QUOTA_EXCEEDED,
            f"reports of the run {run} with {size} bytes or more",
            needed=f"room for them: {self._stored.bound(self.namespace)}",
            remedy="name fewer tables in spec.tables of the namespace's syncs, or delete ConfigMaps"
            " with the label cdcsync.io/part=report that are not of its runs",
        )


def size_of(report: Object) -> int:
    return max(_LEAST, sum(len(text) for text in (report.get("data") or {}).values()))
