"""What a failover of today would mean to each table, by the settings of the servers that may become
the source: the others of `source.hosts`, or for a name that moves one that is set up as the server
behind it is now.

It is a forecast for people: what a run does is decided by its proof.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import cast

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.readiness.failover_check import ORDER_VARIABLES, drawn_defaults, keeps_order
from cdcsync_mysql.readiness.left_out import read_left_out
from cdcsync_mysql.server import ServerFacts, global_variables, read_facts
from cdcsync_mysql.sessions.connection import Connection, Source, connect, fetch_dicts
from cdcsync_mysql.sessions.hosts import ASKED_SECONDS
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection
from cdcsync_mysql.sessions.replication import shown_channels

_LOGGED = ("log_replica_updates", "log_slave_updates")
_SPELLING = "lower_case_table_names"
_VARIABLES = (*ORDER_VARIABLES, *_LOGGED, "gtid_binlog_state", _SPELLING)


@dataclass(frozen=True)
class ExpectedFailover:
    """`reason` and `why` are those of the stop; None and empty where the table goes on by a
    proof."""

    reason: Reason | None = None
    why: str = ""


def expected_failovers(source: Source, tables: Collection[Capture]) -> dict[TableId, ExpectedFailover]:
    """For tables that can be read; raises CdcError."""
    with connect(source) as connection:
        facts = read_facts(connection)
        refusal = _refusal(source, cast(SourceConnection, connection), facts, [table.id for table in tables])
        if refusal:
            return {table.id: ExpectedFailover(Reason.POSITION_LOST, refusal) for table in tables}
        return {table.id: _of_table(connection, facts, table) for table in tables}


def _of_table(connection: Connection, facts: ServerFacts, table: Capture) -> ExpectedFailover:
    columns = drawn_defaults(connection, table.id, table.key) if facts.flavor == "mariadb" else []
    if not columns:
        return ExpectedFailover()
    return ExpectedFailover(Reason.HISTORY_DIVERGED, f"each server draws its own {', '.join(columns)}")


def _refusal(source: Source, connection: SourceConnection, facts: ServerFacts, tables: Collection[TableId]) -> str:
    """Why no server may be proved to lead on; empty where one may."""
    own = _unfit(connection, facts, tables)
    others = source.without(connection.source.host)
    if others is None:
        return f"a server with {own}, as here" if own else ""
    if own and not own.startswith(_LOGGED):
        return f"{connection.source.host}: {own}"
    refusals = [_refusal_of_host(others.of_hosts(host), facts, tables) for host in others.hosts]
    return "" if "" in refusals else "; ".join(refusals)


def _refusal_of_host(source: Source, here: ServerFacts, tables: Collection[TableId]) -> str:
    try:
        with connect(source, max_seconds=ASKED_SECONDS, read_timeout=ASKED_SECONDS) as connection:
            facts = read_facts(connection)
            if facts.flavor != here.flavor:
                return f"{source.host}: it is {facts.flavor}"
            unfit = _unfit(connection, facts, tables)
            if unfit.startswith(_LOGGED) and shown_channels(connection, fetch_dicts) == []:
                unfit = ""  # what it has, it wrote itself
    except CdcError as e:
        return f"{source.host}: {e.found}"
    return f"{source.host}: {unfit}" if unfit else ""


def _unfit(connection: Connection, facts: ServerFacts, tables: Collection[TableId]) -> str:
    """What keeps a server with these settings from a proof; empty where nothing does."""
    variables = global_variables(connection, *_VARIABLES)
    if facts.flavor == "mysql" and not facts.gtid:
        return "gtid_mode that is not ON"
    if facts.flavor == "mysql" and not keeps_order(variables):
        return "replica_preserve_commit_order=OFF"
    if variables.get(_SPELLING, "0") != "0" and any(str(table) != str(table).lower() for table in tables):
        return f"{_SPELLING}={variables[_SPELLING]}"
    left_out = read_left_out(connection, facts).of(tables)
    if left_out:
        return left_out
    logged = next((name for name in _LOGGED if variables.get(name) == "OFF"), "")
    if logged:
        return f"{logged}=OFF"
    domains = {gtid.domain for gtid in MariaDbGtidPos.parse(variables.get("gtid_binlog_state", "")).gtids}
    return "transactions of several domains" if len(domains) > 1 else ""
