"""What a failover to another server would do to the tables, as the settings are today."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.checks import Check, passed
from cdcsync_mysql.sessions.connection import Connection, fetch, fetch_dicts
from cdcsync_mysql.sessions.replication import channels

if TYPE_CHECKING:
    from cdcsync_mysql.readiness.servercheck import Server

#: the names since MySQL 8.0.26, and those before
_ORDER = ("replica_preserve_commit_order", "slave_preserve_commit_order")
_WORKERS = ("replica_parallel_workers", "slave_parallel_workers")
ORDER_VARIABLES = (*_ORDER, *_WORKERS)
_LITERAL = re.compile(r"'(?:[^'\\]|\\.|'')*'|`[^`]*`", re.DOTALL)
_CALL = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)\s*\(")
#: their values are replicated with the statement
_OF_THE_STATEMENT = frozenset({"current_timestamp", "now", "localtimestamp", "curdate", "curtime", "utc_timestamp"})
_PROVED = (
    "a table goes on where the new server is proved to lead on, once its stream has applied a transaction;"
    " source.lostTail decides where transactions that it lacks changed the table, or may have been read by its snapshot"
)


def failover(server: Server) -> Iterator[Check]:
    if not server.is_mysql:
        yield _of_mariadb(server)
    elif not server.facts.gtid:
        yield passed("failover", "another server is refused (PositionLost): gtid_mode is not ON")
    elif not keeps_order(server.variables):
        yield passed("failover", "a replica with replica_preserve_commit_order=OFF, as here, is refused (PositionLost)")
    else:
        yield passed("failover", _PROVED)


def _of_mariadb(server: Server) -> Check:
    domains = {gtid.domain for gtid in MariaDbGtidPos.parse(server.variables.get("gtid_binlog_state", "")).gtids}
    if len(domains) > 1:
        return passed(
            "failover", "another server is refused (PositionLost): the binlog has transactions of several domains"
        )
    strict = server.variables.get("gtid_strict_mode", "OFF") == "ON"
    hint = "" if strict else "; gtid_strict_mode=ON keeps a replica from writes of its own that would make it refused"
    return passed("failover", f"{_PROVED}{hint}")


def drawn_defaults(connection: Connection, table: TableId, key: Collection[str]) -> list[str]:
    """The columns beside the key whose default is another value each time, as `column (default)`. A
    statement that adds such a column to a MariaDB gives the rows that are there other values on
    each server, with no trace in the binlog."""
    rows = fetch(
        connection,
        "SELECT COLUMN_NAME, COLUMN_DEFAULT FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND COLUMN_DEFAULT LIKE %s ORDER BY ORDINAL_POSITION",
        (table.database, table.name, "%(%"),
    )
    return [f"{name} ({default})" for name, default in rows if name not in key and is_drawn(str(default))]


def is_drawn(default: str) -> bool:
    """Whether a default, as MariaDB prints it, calls a function whose value does not follow
    from the statement."""
    called = {name.lower() for name in _CALL.findall(_LITERAL.sub("''", default))}
    return bool(called - _OF_THE_STATEMENT)


def keeps_order(variables: Mapping[str, str]) -> bool:
    """Whether what the server applied as a replica is in its binlog in the order of its source, by
    the variables `ORDER_VARIABLES`."""
    ordered = next((variables[name] for name in _ORDER if name in variables), "ON") == "ON"
    return ordered or int(next((variables[name] for name in _WORKERS if name in variables), "0")) < 2


def still_replicates(connection: Connection) -> bool:
    """Whether the server is a replica that may still get, or apply, more of its source's
    transactions. Raises PrivilegeMissing where the account may not see it."""
    return bool(sources_of(connection))


def sources_of(connection: Connection) -> list[str]:
    """The servers of which it may still get, or apply, more, as host and port. Raises as
    `still_replicates`."""
    return [channel.source for channel in channels(connection, fetch_dicts) if channel.working]
