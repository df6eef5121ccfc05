"""Whether a server of MySQL or MariaDB applies another one's changes.

A balancer may lead to a replica that takes writes. Rows and states would be changed there, and the
server that it replicates from would know nothing of it. An account that may not ask learns it of
MariaDB alone, whose status counts the threads that apply changes.
"""

from __future__ import annotations

from typing import Any, Protocol

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.sql.dialects.dialect import SqlSession

#: the columns of both servers, in lower case
_HOSTS, _PORTS = ("source_host", "master_host"), ("source_port", "master_port")
_THREADS = ("replica_io_running", "replica_sql_running", "slave_io_running", "slave_sql_running")
_CHANNELS = ("channel_name", "connection_name")
#: members of a group take writes of their own, or are read-only
_OF_GROUPS = "group_replication_"


class Asking(SqlSession, Protocol):
    """A session of this protocol."""

    def named_rows(self, sql: str) -> list[dict[str, Any]]: ...


def origin(session: Asking, *, mariadb: bool) -> str:
    """The servers whose changes this one applies; empty where it applies none, or the account may
    not know."""
    try:
        rows = _channels(session, mariadb=mariadb)
    except CdcError:
        return "another server" if mariadb and _applies(session) else ""
    return ", ".join(f"{_one(row, _HOSTS)}:{_one(row, _PORTS)}" for row in rows if _running(row))


def hidden_by(session: Asking, *, mariadb: bool) -> str:
    """Why the account cannot learn which servers' changes are applied; empty where it can."""
    try:
        _channels(session, mariadb=mariadb)
    except CdcError as error:
        if error.reason is not Reason.PRIVILEGE_MISSING:
            return "the server does not show it"
        return f"the account lacks {'SLAVE MONITOR' if mariadb else 'REPLICATION CLIENT'}"
    return ""


def _channels(session: Asking, *, mariadb: bool) -> list[dict[str, Any]]:
    rows = session.named_rows("SHOW ALL SLAVES STATUS") if mariadb else _channels_of_mysql(session)
    return [{name.lower(): value for name, value in row.items()} for row in rows]


def _channels_of_mysql(session: Asking) -> list[dict[str, Any]]:
    """The older statement is that of servers before 8.0.22."""
    try:
        return session.named_rows("SHOW REPLICA STATUS")
    except CdcError as error:
        if error.reason is Reason.PRIVILEGE_MISSING:
            raise
        return session.named_rows("SHOW SLAVE STATUS")


def _applies(session: Asking) -> bool:
    counts = session.fetch((str, str), "SHOW GLOBAL STATUS LIKE 'Slaves_running'")
    return any(count != "0" for _, count in counts)


def _running(row: dict[str, Any]) -> bool:
    """Replication that was stopped may be that of a server that was a replica once."""
    of_a_group = str(_one(row, _CHANNELS)).startswith(_OF_GROUPS)
    return not of_a_group and any(str(row.get(name, "No")) != "No" for name in _THREADS)


def _one(row: dict[str, Any], names: tuple[str, ...]) -> object:
    return next((row[name] for name in names if name in row), "")
