"""The proof that a position still belongs to the binlog that this connection reaches (rule R6).

A reset, a restored backup, a failover and a crash that cut the binlog's tail all leave a server
that answers well and whose log is another one. Going on there would skip or invent transactions
without any error. So every connection proves its position first:

- the binlog's name: MySQL's server_uuid, MariaDB's server_id;
- with GTIDs: everything that the position has is in `gtid_executed` (nothing was invented), or
  still to be committed from a binlog that is as long as it was; everything that was purged is in
  the position (nothing is missing); and the file of its anchor is still that file: a RESET, and
  what a server writes after a crash that cut its binlog, give the same GTIDs to other transactions.
  Once that file is purged nothing proves that they are ours;
- with file and offset: the file is listed and at least that long; it was begun in the recorded
  second, because after a RESET names, sizes and GTIDs come again; MariaDB's GTID position there is
  the recorded one (NULL where no event ends), unless that would make the server read much of the
  file for a place which the file's beginning proves already.
"""

from __future__ import annotations

from typing import cast

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import (
    FilePosition,
    GtidPosition,
    LogOffset,
    Position,
    binlog_of,
    other_binlog,
)
from cdcsync_core.remedies import RESNAPSHOT_ALL
from cdcsync_mysql.positions.logfile import file_created_at
from cdcsync_mysql.positions.shown_events import is_boundary
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, fetch
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection

#: how long a transaction may be in the binlog, and so with a reader, before `gtid_executed` has it
#: (semi-synchronous replication)
COMMIT_SECONDS = 10
#: MariaDB's BINLOG_GTID_POS takes 32 bits
_GTID_POS_LIMIT = 2**32
#: MariaDB's binlog has an index of GTIDs from here on
_GTID_INDEX_SINCE = (11, 4)
#: as much of a file is read for a GTID position, where the second in which the file begins proves
#: it as well
_SCAN_LIMIT = 16 * 2**20


def verify_resumable(
    connection: Connection,
    facts: ServerFacts,
    lineage: Lineage,
    position: Position | None,
    commit_seconds: int = COMMIT_SECONDS,
) -> None:
    """Raises PositionLost unless `position` of `lineage` can be resumed here without a gap.

    None proves the binlog's name alone. A transaction that the reader has, and the engine has not
    committed yet, is waited for `commit_seconds`, and not at all with 0.
    """
    if not lineage.accepts(facts.log):
        raise _lost(f"the server's binlog is {facts.log}", f"{lineage.newest}, where the position was taken")
    if position is None:
        return
    if position.binlog not in (None, facts.log):
        raise other_binlog(facts.log, position.binlog or "")
    proved = _verified_positions(connection)
    if position in proved:
        return
    if isinstance(position, GtidPosition):
        _verify_gtids(connection, facts, position, commit_seconds)
    else:
        _verify_offset(connection, facts, position)
    proved.add(position)


def _verified_positions(connection: Connection) -> set[object]:
    """The positions that this connection has proved, whose server and binlog stay the same; another
    kind keeps none."""
    return connection.verified_positions if isinstance(connection, SourceConnection) else set()


def gtid_pos_at(connection: Connection, at: LogOffset) -> MariaDbGtidPos | None:
    """MariaDB's GTID position at a place; None where no event ends or the place is out of the
    function's reach: it reads the file up to the place, and ends at an event that is longer than
    max_allowed_packet."""
    if at.offset >= _GTID_POS_LIMIT:
        return None
    gtid_pos = fetch(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (at.file, at.offset))[0][0]
    return None if gtid_pos is None else MariaDbGtidPos.parse(str(gtid_pos))


def is_event_end(connection: Connection, at: LogOffset) -> bool:
    """Whether an event of a MariaDB's binlog ends at a place."""
    return gtid_pos_at(connection, at) is not None or is_boundary(connection, at)


def _verify_gtids(connection: Connection, facts: ServerFacts, position: GtidPosition, commit_seconds: int) -> None:
    if not facts.gtid:
        raise _lost("gtid_mode is not ON", "gtid_mode=ON, with which the position was taken")
    executed, purged = gtid_sets(connection)
    if commit_seconds and not executed.covers(position.gtids):
        # The reader has a transaction before the engine commits it: wait for those that are on
        # their way. The server takes 0 for a wait without end.
        fetch(connection, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (str(position.gtids), commit_seconds))
        executed, purged = gtid_sets(connection)
    if not executed.covers(position.gtids):
        raise _not_executed(connection, position, executed)
    if not position.gtids.covers(purged):
        raise _lost(f"gtid_purged is {purged}", f"nothing purged beyond {position.gtids}")
    if position.anchor:
        _verify_file(connection, position.anchor.at, position.anchor.file_created_at)


def _not_executed(connection: Connection, position: GtidPosition, executed: GtidSet) -> CdcError:
    """While the binlog is as long as it was read it holds what is missing, and a replica's word is
    waited for; a lost tail made it shorter. Raises PositionLost for another log."""
    found, needed = f"gtid_executed is {executed}", f"all of {position.gtids}"
    if position.anchor is None:
        return _lost(found, needed)
    _verify_file(connection, position.anchor.at, position.anchor.file_created_at)
    return fail(
        Reason.SOURCE_UNREACHABLE,
        f"{found}, and the rest is in the binlog without being committed",
        needed=needed,
        remedy="see whether the source waits for its semi-synchronous replicas",
    )


def gtid_sets(connection: Connection) -> tuple[GtidSet, GtidSet]:
    """What a MySQL server has executed, and what of it its binlog has no more."""
    executed, purged = fetch(connection, "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_purged")[0]
    return GtidSet.parse(str(executed)), GtidSet.parse(str(purged))


def _verify_file(connection: Connection, at: LogOffset, created: int) -> None:
    """The file is listed, at least that long, and begun in that second."""
    sizes = {str(row[0]): int(row[1]) for row in fetch(connection, "SHOW BINARY LOGS")}
    if at.file not in sizes:
        raise _lost(f"the binlog files {_span(list(sizes))}", f"{at.file}")
    if sizes[at.file] < at.offset:
        raise _lost(f"{at.file} has {sizes[at.file]} bytes", f"at least {at.offset}")
    if created:
        created_at = file_created_at(cast(SourceConnection, connection).source, at.file, binlog_of(at))
        if created_at != created:
            raise _lost(f"{at.file} was begun at {created_at} (seconds since 1970)", f"the file begun at {created}")


def _verify_offset(connection: Connection, facts: ServerFacts, position: FilePosition) -> None:
    _verify_file(connection, position.at, position.file_created_at)
    if facts.flavor == "mariadb" and _gtid_pos_is_cheap(facts, position):
        _verify_gtid_pos(connection, position)


def _gtid_pos_is_cheap(facts: ServerFacts, position: FilePosition) -> bool:
    """Each split proves its position, and without an index of GTIDs the server reads the file up to
    it (0.5 s a GiB)."""
    if position.at.offset >= _GTID_POS_LIMIT:
        return False
    indexed = facts.numbers >= _GTID_INDEX_SINCE
    return indexed or not position.file_created_at or position.at.offset <= _SCAN_LIMIT


def _verify_gtid_pos(connection: Connection, position: FilePosition) -> None:
    gtid_pos = gtid_pos_at(connection, position.at)
    if gtid_pos is None:
        # the second in which the file was begun has proved it
        if (position.file_created_at or not position.gtid_pos) and is_boundary(connection, position.at):
            return
        raise _lost(f"no event ends at {position.at}", "the place at which a transaction ended")
    # a position from the plain status has none
    if position.gtid_pos and gtid_pos != position.gtid_pos:
        raise _lost(f"the GTID position at {position.at} is {str(gtid_pos)!r}", repr(str(position.gtid_pos)))


def _span(files: list[str]) -> str:
    return f"{files[0]} to {files[-1]}" if files else "(none)"


def _lost(found: str, needed: str) -> CdcError:
    return fail(
        Reason.POSITION_LOST,
        found,
        needed=needed,
        remedy=f"point spec.source at the server that the position was taken on, or {RESNAPSHOT_ALL}",
    )
