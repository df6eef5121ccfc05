"""Which transactions a replica has executed, as a set that means the same on its source.

MySQL prints such sets. MariaDB prints the last transaction of each server in each domain
(`gtid_binlog_state`), and a replica what it applied last (`gtid_slave_pos`, which a backup may have
given it). A replica applies and commits the transactions of a domain in the order of its source's
binlog, and with `gtid_strict_mode=ON`, which `replica_check` needs, it stops where their numbers do
not rise; so the last one of a server stands for all before it.

A MariaDB's binlog has a transaction before a SELECT sees it. So a set that its binlog showed counts
as executed once a consistent snapshot has all of that binlog, and no XA transaction is prepared: an
XA COMMIT may be in the binlog, and in that snapshot, before its rows are visible
(`positions.watermark`, rule R1). Sources: MySQL manual, "GTID Life Cycle", "gtid_owned"; MariaDB
knowledge base, "Global Transaction ID", "Parallel Replication".
"""

from __future__ import annotations

import re
import time

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import Place
from cdcsync_mysql.positions.history import COMMIT_SECONDS
from cdcsync_mysql.positions.watermark import high, open_snapshot, prepared
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, fetch
from cdcsync_mysql.sessions.version import Flavor

#: the threads that own GTIDs of `gtid_owned`
_OWNERS = re.compile(r"#\d+")
_POLL_SECONDS = 0.02


def applied(connection: Connection, flavor: Flavor) -> GtidSet:
    """The transactions of which a SELECT that has ended may have seen rows: a MySQL server makes
    them visible while a session owns their GTIDs, and then adds these to those that it executed; a
    MariaDB has them in its binlog before."""
    if flavor == "mariadb":
        return _shown(connection, "gtid_binlog_state").union(_shown(connection, "gtid_slave_pos"))
    owned = str(fetch(connection, "SELECT @@GLOBAL.gtid_owned")[0][0])
    return GtidSet.parse(_OWNERS.sub("", owned)).union(_executed_on_mysql(connection))


def executed(connection: Connection, facts: ServerFacts) -> GtidSet:
    """The transactions that every later SELECT sees, on the server of `facts`. Raises
    SourceUnreachable where a MariaDB does not commit what its binlog has."""
    if facts.flavor != "mariadb":
        return _executed_on_mysql(connection)
    logged = applied(connection, facts.flavor)
    end, deadline = high(connection, facts), time.monotonic() + COMMIT_SECONDS
    while not _shows_all(connection, facts, end):
        if time.monotonic() > deadline:
            raise _uncommitted()
        time.sleep(_POLL_SECONDS)
    return logged


def lacking(connection: Connection, facts: ServerFacts, gtids: GtidSet, seconds: int = 0) -> GtidSet:
    """The part of `gtids` that the server of `facts` has not executed, after at most so many
    seconds. Raises as `executed`."""
    missing = gtids.subtract(executed(connection, facts))
    if missing and seconds:  # MySQL takes 0 for a wait without end
        function = "MASTER_GTID_WAIT" if facts.flavor == "mariadb" else "WAIT_FOR_EXECUTED_GTID_SET"
        fetch(connection, f"SELECT {function}(%s, %s)", (gtid_text(missing, facts.flavor), seconds))
        missing = gtids.subtract(executed(connection, facts))
    return missing


def errant(connection: Connection, facts: ServerFacts, seen: GtidSet) -> GtidSet:
    """The part of `seen` that the source, the server of `facts`, has not. What a MariaDB's replica
    applies, the source's binlog has before; MySQL's adds it to its set a moment later."""
    if facts.flavor == "mariadb":
        return seen.subtract(applied(connection, facts.flavor))
    return lacking(connection, facts, seen, COMMIT_SECONDS)


def errant_error(host: str, gtids: GtidSet, flavor: Flavor) -> CdcError:
    """The refusal of a replica that has transactions of its own."""
    read_only = "read_only=ON" if flavor == "mariadb" else "super_read_only=ON"
    return fail(
        Reason.SNAPSHOT_HOST_UNFIT,
        f"{host} has transactions that the source has not: {gtid_text(gtids, flavor)}",
        needed="a replica with the source's transactions and no others",
        remedy=f"rebuild the replica and keep it read-only ({read_only}), or name another one as"
        " spec.source.snapshotHost",
    )


def gtid_text(gtids: GtidSet, flavor: Flavor) -> str:
    """As the server writes it: a set on MySQL, the last transaction of each server in each domain
    on MariaDB."""
    if flavor == "mariadb":
        return str(MariaDbGtidPos.last_of(gtids))
    return str(gtids)


def _executed_on_mysql(connection: Connection) -> GtidSet:
    return GtidSet.parse(str(fetch(connection, "SELECT @@GLOBAL.gtid_executed")[0][0]))


def _shown(connection: Connection, variable: str) -> GtidSet:
    return MariaDbGtidPos.parse(str(fetch(connection, f"SELECT @@GLOBAL.{variable}")[0][0])).up_to


def _shows_all(connection: Connection, facts: ServerFacts, end: Place) -> bool:
    """Whether a SELECT on a MariaDB sees all that its binlog has before `end`."""
    place = open_snapshot(connection, facts)
    fetch(connection, "ROLLBACK")
    return place.covers(end) and not prepared(connection)


def _uncommitted() -> CdcError:
    return fail(
        Reason.SOURCE_UNREACHABLE,
        f"for {COMMIT_SECONDS} s the replica has had transactions in its binlog that may not be visible yet: they"
        " wait for their commit, or XA RECOVER lists prepared ones",
        needed="a moment in which all that its binlog has is committed and no XA transaction is prepared",
        remedy="none: the snapshot tries again; where XA transactions are always prepared, leave"
        " spec.source.snapshotHost out",
    )
