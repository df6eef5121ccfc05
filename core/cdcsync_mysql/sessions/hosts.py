"""Which of several hosts a connection takes.

A server can be used that answers and was not demoted: a primary that a switchover left answers as
before, and gets no changes any more; it is read-only and no replica. Among those that can be used
the server that the sync follows comes first, then the order of the spec. A demoted one is taken
where no other answers.

Why it is right: this is a preference and proves nothing. Before anything is taken from a
server, it is proved to have the binlog of the position (rule R6), as behind a name that moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_mysql.sessions.version import flavor_of, parse_version

if TYPE_CHECKING:
    from cdcsync_mysql.sessions.connection import Connection
    from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection
    from cdcsync_mysql.sessions.source import Source

Fetch = Callable[["Connection", str], list[tuple[Any, ...]]]
#: whether it was demoted, and whether it is another server than the one that is followed; the least
#: is taken
Rank = tuple[bool, bool]
_BEST: Rank = (False, False)
#: SHOW REPLICA STATUS, which was SHOW SLAVE STATUS
_RENAMED = (8, 0, 22)


def first_fit(source: Source, open_one: Callable[[Source], SourceConnection], fetch: Fetch) -> SourceConnection:
    """Raises what all hosts raise, SourceUnreachable where they raise various errors."""
    errors: list[CdcError] = []
    taken: tuple[Rank, SourceConnection] | None = None
    for host in source.hosts:
        try:
            rank, connection = _ranked(open_one(source.of_hosts(host)), source.followed, fetch)
        except CdcError as e:
            errors.append(e)
            continue
        if taken is not None and taken[0] <= rank:
            connection.close()
            continue
        if taken is not None:
            taken[1].close()
        taken = rank, connection
        if rank == _BEST:
            break
    if taken is None:
        raise _none_fits(errors)
    return taken[1]


def is_demoted(connection: Connection, fetch: Fetch) -> bool:
    """Whether the server is read-only and no replica. A server that does not show its replication
    to the account counts as a replica."""
    return _is_read_only(_variables(connection, fetch)) and not _replicates(connection, fetch)


def _ranked(connection: SourceConnection, followed: str, fetch: Fetch) -> tuple[Rank, SourceConnection]:
    try:
        variables = _variables(connection, fetch)
        demoted = _is_read_only(variables) and not _replicates(connection, fetch)
        return (demoted, followed not in ("", _binlog(connection, variables))), connection
    except BaseException:
        connection.close()
        raise


def _variables(connection: Connection, fetch: Fetch) -> dict[str, str]:
    names = "'read_only', 'server_id', 'server_uuid'"
    rows = fetch(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return {str(name).lower(): str(value) for name, value in rows}


def _is_read_only(variables: dict[str, str]) -> bool:
    return variables.get("read_only", "OFF").upper() != "OFF"


def _binlog(connection: Connection, variables: dict[str, str]) -> str:
    """As `ServerFacts.log`."""
    is_mysql = flavor_of(_greeting(connection)) == "mysql"
    return f"mysql:{variables.get('server_uuid')}" if is_mysql else f"mariadb:{variables.get('server_id')}"


def _replicates(connection: Connection, fetch: Fetch) -> bool:
    greeting = _greeting(connection)
    statement = "SHOW ALL SLAVES STATUS"
    if flavor_of(greeting) == "mysql":
        statement = "SHOW REPLICA STATUS" if parse_version(greeting) >= _RENAMED else "SHOW SLAVE STATUS"
    try:
        return bool(fetch(connection, statement))
    except CdcError as e:
        if e.reason is Reason.SOURCE_UNREACHABLE:
            raise
        return True


def _greeting(connection: Connection) -> str:
    return str(cast(Any, connection).get_server_info())


def _none_fits(errors: list[CdcError]) -> CdcError:
    reasons = {e.reason for e in errors}
    if len(reasons) == 1 and errors[0].reason is not Reason.SOURCE_UNREACHABLE:
        return errors[0]
    return fail(
        Reason.SOURCE_UNREACHABLE,
        "; ".join(e.found for e in errors),
        needed="a server of spec.source.hosts that answers",
        remedy="check spec.source.hosts and port",
    )
