"""Low and high watermarks of a wave (rule R1).

A server reports the end of its binlog before the transactions up to it are visible to a SELECT:
group commit writes the binlog, syncs it, waits for semi-synchronous replicas, and only then commits
in the engine. A LOW from the plain status position therefore loses rows. `low` is safe because each
server has a report that follows the engine's commit:

- MariaDB: a consistent snapshot and `binlog_snapshot_file/position` are taken under the lock that
  orders engine commits; they are exact for that snapshot, and what was visible then is visible to
  every later SELECT. Not so where the binlog was rotated while a commit waited: then the place is
  in the new file, ahead of the transaction that waits. So the new file must show that all before
  it is committed (`is_settled`).
- MySQL with GTIDs: `gtid_executed` is updated after the engine commit.
- MySQL without: `performance_schema.log_status` holds commits while it looks.

A HIGH is asked for after the last SELECT of a wave: whatever a SELECT saw is in the binlog by then,
so the plain position is right. It is a place on every server: `gtid_executed` lacks for a moment
what a SELECT already sees, so as a HIGH it would be passed too early. Sources: MySQL manual, "The
log_status Table", "GTID Life Cycle"; MariaDB knowledge base, "Enhancements for START TRANSACTION
WITH CONSISTENT SNAPSHOT".
"""

from __future__ import annotations

import time
from typing import Any

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.peer_json import parse_json
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.mariadb_gtid import UNKNOWN
from cdcsync_core.positions.position import Anchor, FilePosition, GtidPosition, LogOffset, Place, Position, file_number
from cdcsync_mysql.positions.history import gtid_pos_at, is_event_end
from cdcsync_mysql.positions.logfile import file_created_at
from cdcsync_mysql.positions.shown_events import ShownEvent, shown_event
from cdcsync_mysql.server import ServerFacts, read_facts, refuse_other_server
from cdcsync_mysql.sessions.connection import Connection, Source, connect, fetch
from cdcsync_mysql.sessions.failures import grant

#: how long a snapshot waits for commits of a file that the binlog has left
_SETTLED_SECONDS = 60.0
_POLL_SECONDS = 0.1
#: the offset of a file's first event
_FIRST_EVENT = 4


def low(source: Source, facts: ServerFacts) -> Position:
    """A position whose transactions every later SELECT sees; raises BinlogDisabled,
    PrivilegeMissing, SourceUnreachable, and PositionLost where the source is another server than
    that of `facts` now."""
    with connect(source) as connection:
        refuse_other_server(read_facts(connection), facts.log)
        if facts.flavor == "mysql" and facts.gtid:
            executed = GtidSet.parse(str(fetch(connection, "SELECT @@GLOBAL.gtid_executed")[0][0]))
            place = high(connection, facts)
            return GtidPosition(executed, anchor=Anchor(place, file_created_at(source, place.file, facts.log)))
        find = open_snapshot if facts.flavor == "mariadb" else log_status_place
        at = find(connection, facts)
        fetch(connection, "ROLLBACK")
        gtid_pos = gtid_pos_at(connection, at) if facts.flavor == "mariadb" else None
        return FilePosition(at, gtid_pos or UNKNOWN, file_created_at(source, at.file, facts.log))


def high(connection: Connection, facts: ServerFacts) -> Place:
    """A place that covers everything that was visible before the call."""
    return _place(_status(connection, facts), facts)


def current(connection: Connection, facts: ServerFacts) -> Position:
    """Where the binlog ends now, to compare a reader with. Not a low watermark: it is ahead of what
    a SELECT sees."""
    row = _status(connection, facts)
    if facts.flavor == "mysql" and facts.gtid:
        return GtidPosition(GtidSet.parse(str(row[4])), _place(row, facts))
    return FilePosition(_place(row, facts))


def open_snapshot(connection: Connection, facts: ServerFacts) -> Place:
    """Begins a consistent snapshot on this connection to a MariaDB; returns its place, of which all
    before is in it. Raises SourceUnreachable where a commit of a file before waits too long."""
    # Under READ COMMITTED the clause is accepted and does nothing; the session profile has made
    # sure of REPEATABLE READ.
    deadline = time.monotonic() + _SETTLED_SECONDS
    while True:
        fetch(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        place = _shown_place(connection, facts)
        if is_settled(connection, place):
            return place
        fetch(connection, "ROLLBACK")
        if time.monotonic() > deadline:
            raise _unsettled(place)
        time.sleep(_POLL_SECONDS)


def is_settled(connection: Connection, place: Place) -> bool:
    """Whether all before the place is committed. Commits are done in the binlog's order, so a
    transaction in the place's file that is before it shows that, and else a checkpoint that names
    this file: the server writes it when it has no unfinished transaction in files before. A place
    at which no event ends is one that the server made of two files."""
    head = _events_to_first_transaction(connection, place.file)
    if any(event.kind == "Gtid" and event.begin < place.offset for event in head):
        return is_event_end(connection, place)
    named = [file_number(event.info) for event in head if event.kind == "Binlog_checkpoint"]
    return any(number >= place.number for number in named)


def _events_to_first_transaction(connection: Connection, file: str) -> list[ShownEvent]:
    """The events of a MariaDB's file up to the begin of its first transaction, or to its end."""
    events: list[ShownEvent] = []
    offset = _FIRST_EVENT
    while (event := shown_event(connection, LogOffset(file, offset))) is not None:
        events.append(event)
        if event.kind == "Gtid" or event.end <= offset:
            break
        offset = event.end
    return events


def _unsettled(place: Place) -> CdcError:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        f"the binlog was rotated to {place.file} while a commit of a file before waits",
        needed="a place before which all is committed",
        remedy="see whether the source waits for its semi-synchronous replicas",
    )


def _shown_place(connection: Connection, facts: ServerFacts) -> Place:
    variables = {str(n).lower(): v for n, v in fetch(connection, "SHOW SESSION STATUS LIKE 'binlog_snapshot_%'")}
    if not variables.get("binlog_snapshot_file"):
        raise _disabled()
    return Place(str(variables["binlog_snapshot_file"]), int(variables["binlog_snapshot_position"]), facts.log)


def log_status_place(connection: Connection, facts: ServerFacts) -> Place:
    """The place of MySQL's `log_status`, which holds commits while it looks."""
    try:
        rows = fetch(connection, "SELECT LOCAL FROM performance_schema.log_status", doing="taking a low watermark")
    except CdcError as e:
        if e.reason is Reason.PRIVILEGE_MISSING:
            raise fail(
                Reason.PRIVILEGE_MISSING,
                e.found,
                needed="BACKUP_ADMIN and SELECT on performance_schema.log_status, because gtid_mode is not ON",
                remedy=f"{grant('BACKUP_ADMIN', '*.*')}; {grant('SELECT', 'performance_schema.log_status')}; or gtid_mode=ON",
            ) from e
        raise
    try:
        local: dict[str, Any] = parse_json(rows[0][0]) if rows else {}
        file = local.get("binary_log_file")
        at = Place(file, local["binary_log_position"], facts.log) if file else None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        raise fail(
            Reason.SOURCE_UNREACHABLE,
            "performance_schema.log_status has no place in the binlog",
            needed="its column LOCAL as MySQL documents it",
            remedy="check spec.source.host and port",
        ) from None
    if at is None:
        raise _disabled()
    return at


def prepared(connection: Connection) -> list[tuple[Any, ...]]:
    """The rows of XA RECOVER, which a LOW that is a place needs; raises PrivilegeMissing where the
    account may not see them."""
    try:
        return list(fetch(connection, "XA RECOVER"))
    except CdcError as e:
        if e.reason is not Reason.PRIVILEGE_MISSING:
            raise
        raise fail(
            Reason.PRIVILEGE_MISSING,
            e.found,
            needed="XA_RECOVER_ADMIN, because gtid_mode is not ON: an XA COMMIT is in the binlog before a SELECT sees it",
            remedy=f"{grant('XA_RECOVER_ADMIN', '*.*')}; or gtid_mode=ON",
        ) from e


def _status(connection: Connection, facts: ServerFacts) -> tuple[Any, ...]:
    """File, Position, Binlog_Do_DB, Binlog_Ignore_DB and on MySQL Executed_Gtid_Set."""
    renamed = facts.flavor == "mysql" and facts.numbers >= (8, 2)
    rows = fetch(connection, "SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")
    if not rows:
        raise _disabled()
    return rows[0]


def _place(row: tuple[Any, ...], facts: ServerFacts) -> Place:
    return Place(str(row[0]), int(row[1]), facts.log)


def _disabled() -> CdcError:
    return fail(
        Reason.BINLOG_DISABLED, "the server writes no binlog", needed="log_bin=ON", remedy="start it with --log-bin"
    )
