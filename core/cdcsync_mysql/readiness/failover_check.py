"""What a failover to another server would do to the tables, as the settings are today."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cdcsync_mysql.checks import Check, passed
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Connection, fetch

if TYPE_CHECKING:
    from cdcsync_mysql.readiness.servercheck import Server

#: the names since MySQL 8.0.26, and those before
_ORDER = ("replica_preserve_commit_order", "slave_preserve_commit_order")
_WORKERS = ("replica_parallel_workers", "slave_parallel_workers")
ORDER_VARIABLES = (*_ORDER, *_WORKERS)
#: columns of SHOW REPLICA STATUS
_IO_RUNNING, _SQL_RUNNING = 10, 11


def failover(server: Server) -> Iterator[Check]:
    if not server.is_mysql:
        yield passed("failover", "another server is refused (PositionLost): no proof is made on MariaDB")
    elif not server.facts.gtid:
        yield passed("failover", "another server is refused (PositionLost): gtid_mode is not ON")
    elif not keeps_order(server.variables):
        yield passed("failover", "a replica with replica_preserve_commit_order=OFF, as here, is refused (PositionLost)")
    else:
        yield passed(
            "failover",
            "a table goes on where the new server is proved to lead on; source.lostTail decides where transactions that"
            " it lacks changed the table, or where the table is catching up",
        )


def keeps_order(variables: Mapping[str, str]) -> bool:
    """Whether what the server applied as a replica is in its binlog in the order of its source, by
    the variables `ORDER_VARIABLES`."""
    ordered = next((variables[name] for name in _ORDER if name in variables), "ON") == "ON"
    return ordered or int(next((variables[name] for name in _WORKERS if name in variables), "0")) < 2


def still_replicates(connection: Connection, facts: ServerFacts) -> bool:
    """Whether the server is a replica that may still get, or apply, more of its source's
    transactions."""
    renamed = facts.numbers >= (8, 0, 22)
    rows = fetch(connection, "SHOW REPLICA STATUS" if renamed else "SHOW SLAVE STATUS")
    return any(str(row[_SQL_RUNNING]) == "Yes" or str(row[_IO_RUNNING]) in ("Yes", "Connecting") for row in rows)
