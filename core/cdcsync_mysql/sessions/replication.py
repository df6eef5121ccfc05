"""What a server shows of the sources that it replicates from, and whether it applies what they
write. Sources: MySQL manual, "SHOW REPLICA STATUS", "The replication_applier_status Table"; MariaDB
knowledge base, "SHOW REPLICA STATUS".

`fetch` is `connection.fetch_dicts`, which a caller passes because connecting itself needs this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from cdcsync_core.errors import CdcError, Reason
from cdcsync_mysql.sessions.version import flavor_of, parse_version

if TYPE_CHECKING:
    from cdcsync_mysql.sessions.connection import Connection

#: what `fetch_dicts` gives: a row as a dictionary, names in upper case
Row = dict[str, Any]
FetchRows = Callable[["Connection", str], list[Row]]
#: SHOW REPLICA STATUS, which was SHOW SLAVE STATUS
_RENAMED = (8, 0, 22)
#: of what a source has committed; a replica with a delay set counts as well
FAR_BEHIND_SECONDS = 600
#: of a member of a group, which does not apply by it once it is a member
_OF_A_GROUP = "group_replication_"
#: MySQL's; MariaDB has no table of what is received
_BY_TABLES = (
    "SELECT CHANNEL_NAME, r.SERVICE_STATE AS REPLICA_IO_RUNNING, a.SERVICE_STATE AS REPLICA_SQL_RUNNING,"
    " r.LAST_ERROR_NUMBER AS LAST_IO_ERRNO FROM performance_schema.replication_connection_status r"
    " JOIN performance_schema.replication_applier_status a USING (CHANNEL_NAME)"
)
_STATES = {"ON": "Yes", "OFF": "No", "CONNECTING": "Connecting"}


@dataclass(frozen=True)
class Channel:
    """One source of a replica; `name` is empty for the default one. `receives` and `applies` are
    the words of SHOW REPLICA STATUS (Yes, No, Connecting); `failed`: one of both ended with an
    error; `behind` in seconds, None where it is not known; `source` is its host and port, empty
    where they are not."""

    name: str
    receives: str
    applies: str
    failed: bool
    behind: int | None
    source: str = ""

    @property
    def working(self) -> bool:
        """Whether it may get, or apply, more of its source's transactions."""
        return self.applies == "Yes" or self.receives in ("Yes", "Connecting")

    @property
    def is_stuck(self) -> bool:
        """Whether it does not apply what its source writes, or only far behind."""
        if self.name.startswith(_OF_A_GROUP):
            return False
        stopped = self.applies != "Yes" or self.receives == "No" or self.failed
        return stopped or (self.behind or 0) > FAR_BEHIND_SECONDS


def channels(connection: Connection, fetch: FetchRows) -> list[Channel]:
    """Empty for a server that is no replica. Raises PrivilegeMissing where the account may not see
    it."""
    return [_channel(row) for row in statuses(connection, fetch)]


def statuses(connection: Connection, fetch: FetchRows) -> list[Row]:
    """SHOW REPLICA STATUS, of all channels; raises as `channels`."""
    return fetch(connection, _statement(connection))


def shown_channels(connection: Connection, fetch: FetchRows) -> list[Channel] | None:
    """The same as far as the account may see it, by the performance schema where it lacks the right
    to SHOW; None where it sees nothing. Raises SourceUnreachable."""
    try:
        return channels(connection, fetch)
    except CdcError as e:
        if e.reason is Reason.SOURCE_UNREACHABLE:
            raise
    try:
        rows = fetch(connection, _BY_TABLES)
    except CdcError as e:
        if e.reason is Reason.SOURCE_UNREACHABLE:
            raise
        rows = []
    # a server whose performance schema is off has no rows there either
    return [_channel(row) for row in rows] or None


def _statement(connection: Connection) -> str:
    greeting = str(cast(Any, connection).get_server_info())
    if flavor_of(greeting) != "mysql":
        return "SHOW ALL SLAVES STATUS"
    return "SHOW REPLICA STATUS" if parse_version(greeting) >= _RENAMED else "SHOW SLAVE STATUS"


def _channel(row: Row) -> Channel:
    behind = either(row, "SECONDS_BEHIND_SOURCE", "SECONDS_BEHIND_MASTER")
    host = either(row, "SOURCE_HOST", "MASTER_HOST")
    return Channel(
        str(either(row, "CHANNEL_NAME", "CONNECTION_NAME") or ""),
        _word(either(row, "REPLICA_IO_RUNNING", "SLAVE_IO_RUNNING")),
        _word(either(row, "REPLICA_SQL_RUNNING", "SLAVE_SQL_RUNNING")),
        bool(row.get("LAST_IO_ERRNO") or row.get("LAST_SQL_ERRNO")),
        None if behind is None else int(behind),
        f"{host}:{either(row, 'SOURCE_PORT', 'MASTER_PORT')}" if host else "",
    )


def _word(state: object) -> str:
    return _STATES.get(str(state), str(state))


def either(row: Row, name: str, former: str) -> Any:
    """A value by the name of its column, or by the former one."""
    return row.get(name, row.get(former))
