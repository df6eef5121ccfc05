"""Finds the position that `spec.start` asks for in the source's binlog.

Why it is right. Each position that is found lies between two transactions: a place is compared with
the ends of the transactions before it in its file, a time with their commits, a GTID position of
MariaDB with what the binlog has at the place where the first transaction outside of it begins.
Nothing is moved or guessed: what lies within a transaction is refused with the ends around it, a
GTID position that the binlog has at no place with the one that it has there, what was purged with
the oldest that is left. A set of MySQL needs no place.

One file is read, without its rows. For a GTID position it is chosen by halving, because a file's
list has all that the ones before it have. For a time it is the last one before any that begins with
a transaction of that time or a later one. When a file was begun proves nothing: its first event has
the second in which the statement that rotated the binlog began, and a session may set that. So have
MariaDB's transactions, which is why files are taken from an hour before.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import UNKNOWN, MariaDbGtid, MariaDbGtidPos
from cdcsync_core.positions.position import Anchor, FilePosition, GtidPosition, LogOffset, Position, file_number
from cdcsync_core.quoting import quoted
from cdcsync_core.resource.start_spec import Start, is_mariadb_gtid
from cdcsync_mysql.positions.history import gtid_pos_at, gtid_sets
from cdcsync_mysql.positions.logfile import file_created_at
from cdcsync_mysql.positions.watermark import low
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source, fetch
from cdcsync_spark.binlog.search.passage import Boundary, Passage

_FROM_SNAPSHOT = "or start.from snapshot"
#: how long the statement that commits a transaction may run on MariaDB, whose transactions have the
#: second in which it began
_LONGEST_STATEMENT = 3600


def refused(refusal: str, needed: str, remedy: str) -> CdcError:
    return fail(Reason.START_UNAVAILABLE, refusal, needed=needed, remedy=remedy)


@dataclass(frozen=True)
class StartPlace:
    """Finds a start from a position, a GTID set or a time, on the `server`. Raises
    StartUnavailable, and as each connection to a source does."""

    source: Source
    server: ServerFacts

    def find(self, start: Start) -> Position:
        if start.from_ == "timestamp":
            return self._position(self._at_time(start))
        if start.from_ == "position":
            assert start.file is not None
            assert start.offset is not None
            return self._position(self._at_place(start.file, start.offset))
        assert start.gtid_set is not None
        if is_mariadb_gtid(start.gtid_set) != (self.server.flavor == "mariadb"):
            raise refused(f"start.gtidSet {start.gtid_set!r}", f"GTIDs of {self.server.flavor}", "correct it")
        if self.server.flavor == "mariadb":
            return self._position(self._at_gtid_pos(MariaDbGtidPos.parse(start.gtid_set)))
        return self._behind_set(GtidSet.parse(start.gtid_set))

    @property
    def _lineage(self) -> Lineage:
        return self.server.lineage

    def _files(self) -> list[str]:
        with open_session(self.source) as session:
            return [str(row[0]) for row in fetch(session.proved(self._lineage), "SHOW BINARY LOGS")]

    def _position(self, boundary: Boundary) -> Position:
        created = file_created_at(self.source, boundary.at.file, self.server.log)
        place = boundary.at.in_binlog(self.server.log)
        if self.server.flavor == "mysql" and self.server.gtid:
            return GtidPosition(boundary.gtids, anchor=Anchor(place, created))
        if self.server.flavor == "mysql":
            return FilePosition(place, UNKNOWN, created)
        with open_session(self.source) as session:
            at_place = gtid_pos_at(session.proved(self._lineage), boundary.at)
        return FilePosition(place, at_place or UNKNOWN, created)

    # -- file and offset

    def _at_place(self, file: str, offset: int) -> Boundary:
        files = self._files()
        if file not in files:
            oldest, newest = (quoted(files[n]) if files else "..." for n in (0, -1))
            raise refused(
                f"start.file {quoted(file)} is none of the binlog's files",
                f"one of {oldest} (the oldest) to {newest}" if files else "a binlog with files",
                f"start.from position with file: {oldest} and offset: 4, {_FROM_SNAPSHOT}",
            )
        asked, passage = LogOffset(file, offset), Passage(self.source, self._lineage, file)
        for step in passage.steps():
            if step.at == asked:
                return passage.behind(step)
            if step.at.covers(asked):
                raise refused(
                    f"{asked} is within a transaction or an event, between {passage.at} and {step.at}",
                    "a place between two transactions",
                    f"start.offset: {passage.at.offset} to have that transaction, or the place behind it",
                )
        raise refused(f"{asked} is behind the binlog's end, {passage.at}", "a place in the binlog", "start.from latest")

    # -- GTIDs

    def _behind_set(self, asked: GtidSet) -> Position:
        """The position has the anchor of now: the binlog's end proves it as well as any place."""
        now = low(self.source, self.server)
        if not isinstance(now, GtidPosition):
            raise refused("gtid_mode is not ON", "gtid_mode=ON for start.from gtid", "start.from position")
        with open_session(self.source) as session:
            executed, purged = gtid_sets(session.proved(self._lineage))
        if not executed.covers(asked):
            lacking = asked.subtract(executed)
            raise refused(f"start.gtidSet has {lacking}, which the server has not executed", f"a part of {executed}",
                          "correct it, or start.from latest")  # fmt: skip
        if not asked.covers(purged):
            lacking = purged.subtract(asked)
            raise refused(
                f"the server has purged {lacking}, which start.gtidSet does not have",
                f"a set with all of gtid_purged, {purged}: the oldest start that the binlog holds",
                f"add {lacking} to start.gtidSet to go without them, {_FROM_SNAPSHOT}",
            )
        return replace(now, gtids=asked)

    def _at_gtid_pos(self, asked: MariaDbGtidPos) -> Boundary:
        files = self._files()
        index = bisect_left(files, True, key=lambda file: not asked.covers(self._listed(file))) - 1
        if index < 0:
            oldest = self._listed(files[0]) if files else UNKNOWN
            raise refused(
                f"start.gtidSet {asked} is before all that the binlog holds",
                f"at least {oldest}, where its oldest file {files[0] if files else ''} begins",
                f"start.gtidSet: {str(oldest)!r}, {_FROM_SNAPSHOT}",
            )
        passage = Passage(self.source, self._lineage, files[index])
        for step in passage.steps():
            if step.transaction is not None and step.transaction.id is not None:
                gtid = step.transaction.id.mariadb_gtid
                if gtid and not asked.covers(MariaDbGtidPos((MariaDbGtid.parse(gtid),))):
                    where = f"the first transaction outside of it, {gtid}, begins"
                    raise _at_no_place(asked, passage.boundary(), where)
            if step.gtid_pos == str(asked):
                return passage.behind(step)
        raise _at_no_place(asked, passage.boundary(), "the binlog ends")

    def _listed(self, file: str) -> MariaDbGtidPos:
        """What a file says was before it."""
        for step in Passage(self.source, self._lineage, file).steps():
            if step.gtid_pos is not None:
                return MariaDbGtidPos.parse(step.gtid_pos)
        return UNKNOWN

    # -- a time

    def _at_time(self, start: Start) -> Boundary:
        seconds, files = self._comparable(start.seconds), self._files()
        with open_session(self.source) as session:
            now = float(fetch(session.proved(self._lineage), "SELECT UNIX_TIMESTAMP(NOW(6))")[0][0])
        if seconds > now:
            raise refused(f"start.timestamp {start.timestamp} has not come", f"a time up to {_shown(now)}",
                          "start.from latest")  # fmt: skip
        passage = Passage(self.source, self._lineage, self._file_before(seconds, files, start))
        for step in passage.steps():
            if step.transaction is not None and step.transaction.timestamp >= seconds:
                return passage.boundary()
        return passage.boundary()

    def _file_before(self, seconds: float, files: list[str], start: Start) -> str:
        """The file in which the first transaction of then or later is, or one before it."""
        for index, file in enumerate(files):
            first = self._first_time(file)
            if first < seconds:
                continue
            if index:
                return files[index - 1]
            if file_number(file) == 1 and file_created_at(self.source, file, self.server.log) < seconds:
                return file  # nothing was purged
            raise _before_all(start, file, first)
        if not files:
            raise _before_all(start, "", math.inf)
        return files[-1]

    def _first_time(self, file: str) -> float:
        """When the first transaction in a file, or behind it, was committed at the latest."""
        longest = _LONGEST_STATEMENT if self.server.flavor == "mariadb" else 0
        for step in Passage(self.source, self._lineage, file).steps():
            if step.transaction is not None:
                return step.transaction.timestamp + longest
        return math.inf

    def _comparable(self, seconds: float) -> float:
        """Times of MariaDB's transactions are whole seconds."""
        return math.floor(seconds) if self.server.flavor == "mariadb" else seconds


def _before_all(start: Start, file: str, first: float) -> CdcError:
    refusal = f"start.timestamp {start.timestamp} is before all that the binlog holds"
    if math.isinf(first):
        return refused(refusal, "a transaction of before it in the binlog", f"start.from latest, {_FROM_SNAPSHOT}")
    oldest = _shown(math.floor(first) + 1)
    return refused(
        refusal,
        f"at least {oldest}, when its oldest file {file} had its first transaction",
        f"start.timestamp: {oldest}, {_FROM_SNAPSHOT}",
    )


def _at_no_place(asked: MariaDbGtidPos, at: Boundary, where: str) -> CdcError:
    return refused(
        f"the binlog is at no place at start.gtidSet {asked}: where {where}, it is at {str(at.gtid_pos)!r}",
        "the GTID position of one place, with the last GTID of each domain before it",
        f"start.from position with file: {at.at.file} and offset: {at.at.offset}, or that GTID position",
    )


def _shown(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
